// What Python calls. ELEMENT, the type of weights and cache (float or bf16), is given on the command line.
#ifdef __linux__
#include <sys/mman.h>
#endif
#include "decoder.h"
#include "draw.h"

extern "C" {

int32_t block_columns() { return NB; }
int32_t vector_length() { return VL; }

// Threads to compute with; the calling one is one of them. Null when the system gives no more.
Team* assemble(int32_t threads) {
    try {
        return new Team(threads);
    } catch (const std::exception&) {
        return nullptr;
    }
}
void dismiss(Team* team) { delete team; }

// 0, or 1 when there was no memory to work in; then nothing was written.
int32_t forward(const Model* model, const Batch* batch, Team* team) {
    try {
        Step<ELEMENT>(*model, *batch, *team).run();
    } catch (const std::bad_alloc&) {
        return 1;
    }
    return 0;
}

// One token for each of `count` rows of n logits; rows lie `stride` apart. 0, or 1 when there was no memory.
int32_t draw(const float* logits, int64_t stride, int32_t n, const Draw* draws, int32_t count, int64_t* tokens, Team* team) {
    const size_t bytes = (DrawBuffers::bytes(n) + 63) / 64 * 64;
    try {
        char* memory = team->room(bytes * team->size);
        team->run([&](Worker& w) {
            DrawBuffers buffers(memory + w.index * bytes, n);
            w.each(count, [&](int i) { tokens[i] = Drawing(draws[i], logits + draws[i].row * stride, n, buffers).token(); });
        });
    } catch (const std::bad_alloc&) {
        return 1;
    }
    return 0;
}

// Asks for large pages: weights are streamed once a step, and looking up small pages costs a fifth of that.
void use_large_pages(void* data, int64_t bytes) {
#ifdef __linux__
    const uintptr_t page = 2 << 20, first = (uintptr_t(data) + page - 1) / page * page, last = (uintptr_t(data) + bytes) / page * page;
    if (first < last) madvise((void*)first, last - first, MADV_HUGEPAGE);
#else
    (void)data, (void)bytes;
#endif
}

// Copies rows of a plain weight into a packed one, or back. part: -1, or 0 / 1 for the halves of a gated pair. team: null
// where the calling thread is to do it alone.
void pack(void* packed, void* rows, int32_t n, int32_t k, int32_t first, int32_t part, int32_t to_packed, Team* team) {
    auto copy = [&](int i) {
        for (int row = i * NB; row < std::min(n, (i + 1) * NB); row++)
            repack_row<ELEMENT>((ELEMENT*)packed, (ELEMENT*)rows, row, k, first, part, to_packed);
    };
    const int items = (n + NB - 1) / NB;
    if (team) {
        team->run([&](Worker& w) { w.each(items, copy); });
    } else {
        for (int i = 0; i < items; i++) copy(i);
    }
}
}
