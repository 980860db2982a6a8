// Threads that go through the phases of a step together, and the memory they work in.
//
// The threads stay between steps. One that waits looks for a few microseconds and then sleeps, so that its core is free
// for whoever holds the others up. OpenMP's threads look for milliseconds: beside busy programs a step took up to five
// times as long with them, because a thread that waited kept the one it waited for from running.
#pragma once
#include <atomic>
#include <cstdlib>
#include <functional>
#include <memory>
#include <new>
#include <thread>
#include <vector>
#if defined(__linux__)
#include <pthread.h>
#endif
#include "linear.h"

constexpr int LOOKS = 300;  // before a thread sleeps: a few microseconds

template <class T> struct Array {
    std::unique_ptr<char, void (*)(void*)> memory{nullptr, free};
    size_t ld = 0;
    T* at(size_t row) const { return (T*)memory.get() + row * ld; }
    Array(size_t rows, size_t columns) : ld(columns) {
        memory.reset((char*)aligned_alloc(64, (rows * columns * sizeof(T) + 127) / 64 * 64));
        if (!memory) throw std::bad_alloc();
    }
};

class Team;
// One thread's side of a job: hands out the items of one phase after the other; each() ends when all threads have.
struct Worker {
    Team& team;
    int index;
    int phase = 0;
    template <class F> void each(int items, F work);
};

class Team {
  public:
    const int size;
    explicit Team(int size) : size(size) {
        try {
            for (int i = 1; i < size; i++) others.emplace_back([this, i] { serve(i); });
        } catch (...) {
            end();
            throw;
        }
    }
    ~Team() { end(); }

    // Every thread, the calling one included, does the job once. Nothing in it may throw.
    void run(const std::function<void(Worker&)>& work) {
        for (auto& n : next) n.store(0, std::memory_order_relaxed);
        job = &work;
        announce(calls);
        Worker first{*this, 0};
        work(first);
        meet();
    }

    // Memory kept for the next caller; what was in it is gone when it grows.
    char* room(size_t bytes) {
        if (bytes > kept.ld) kept = Array<char>(1, bytes);
        return kept.at(0);
    }

  private:
    friend struct Worker;
    Array<char> kept{0, 0};
    std::atomic<int> next[3] = {};  // this phase, the next (being reset), the one before (perhaps still being read)
    alignas(64) std::atomic<int> calls{0};
    alignas(64) std::atomic<int> arrived{0};
    alignas(64) std::atomic<int> meetings{0};
    const std::function<void(Worker&)>* job = nullptr;
    std::vector<std::thread> others;

    void end() {
        job = nullptr;
        announce(calls);
        for (auto& thread : others) thread.join();
    }
    void serve(int index) {
#if defined(__linux__)
        pthread_setname_np(pthread_self(), "kernels");
#endif
        for (int seen = 0;; seen++) {
            wait_while(calls, seen);
            if (!job) return;
            Worker worker{*this, index};
            (*job)(worker);
            meet();
        }
    }
    // Returns when all threads have come here.
    void meet() {
        const int before = meetings.load(std::memory_order_relaxed);
        if (arrived.fetch_add(1, std::memory_order_acq_rel) < size - 1) return wait_while(meetings, before);
        arrived.store(0, std::memory_order_relaxed);
        announce(meetings);
    }
    static void announce(std::atomic<int>& count) {
        count.fetch_add(1, std::memory_order_release);
        count.notify_all();
    }
    static void wait_while(std::atomic<int>& count, int value) {
        for (int i = 0; i < LOOKS; i++) {
            if (count.load(std::memory_order_acquire) != value) return;
#if defined(__x86_64__)
            __builtin_ia32_pause();
#elif defined(__aarch64__)
            asm volatile("yield");
#endif
        }
        count.wait(value, std::memory_order_acquire);
    }
};

template <class F> void Worker::each(int items, F work) {
    auto& mine = team.next[phase % 3];
    if (index == 0) team.next[(phase + 1) % 3].store(0, std::memory_order_relaxed);
    for (int i; (i = mine.fetch_add(1, std::memory_order_relaxed)) < items;) work(i);
    phase++;
    team.meet();
}

// Row stride of an array that products read: whole blocks, and never a multiple of 2 KiB, which would send the rows of
// one tile to the same cache set.
template <class T> size_t stride_for(int columns) {
    size_t ld = round_up(columns, NB);
    return ld * sizeof(T) % 2048 == 0 ? ld + 64 / sizeof(T) : ld;
}
