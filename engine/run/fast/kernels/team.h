// Threads that go through the phases of a step together, and the memory they work in.
#pragma once
#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>
#include "linear.h"

// Hands out work items of one phase after the other; each() ends with a barrier.
struct Team {
    std::atomic<int> next[3] = {};  // this phase, the next (being reset), the one before (perhaps still being read)
};
struct Worker {
    Team& team;
    int index;
    int phase = 0;
    template <class F> void each(int items, F work) {
        auto& mine = team.next[phase % 3];
        if (index == 0) team.next[(phase + 1) % 3].store(0, std::memory_order_relaxed);
        for (int i; (i = mine.fetch_add(1, std::memory_order_relaxed)) < items;) work(i);
        phase++;
#pragma omp barrier
    }
};

template <class T> struct Array {
    std::unique_ptr<char, void (*)(void*)> memory{nullptr, free};
    size_t ld = 0;
    T* at(size_t row) const { return (T*)memory.get() + row * ld; }
    Array(size_t rows, size_t columns) : ld(columns) {
        memory.reset((char*)aligned_alloc(64, (rows * columns * sizeof(T) + 127) / 64 * 64));
        if (!memory) throw std::bad_alloc();
    }
};

// Row stride of an array that products read: whole blocks, and never a multiple of 2 KiB, which would send the rows of
// one tile to the same cache set.
template <class T> size_t stride_for(int columns) {
    size_t ld = round_up(columns, NB);
    return ld * sizeof(T) % 2048 == 0 ? ld + 64 / sizeof(T) : ld;
}
