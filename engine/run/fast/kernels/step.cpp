// What Python calls. ELEMENT, the type of weights and cache (float or bf16), is given on the command line.
#ifdef __linux__
#include <sys/mman.h>
#endif
#include "decoder.h"

extern "C" {

int32_t block_columns() { return NB; }
int32_t vector_length() { return VL; }

// 0, or 1 when there was no memory to work in; then nothing was written.
int32_t forward(const Model* model, const Batch* batch) {
    try {
        Step<ELEMENT>(*model, *batch).run();
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

// Copies rows of a plain weight into a packed one, or back. part: -1, or 0 / 1 for the halves of a gated pair.
void pack(void* packed, void* rows, int32_t n, int32_t k, int32_t first, int32_t part, int32_t to_packed, int32_t threads) {
    repack<ELEMENT>((ELEMENT*)packed, (ELEMENT*)rows, n, k, first, part, to_packed, threads);
}
}
