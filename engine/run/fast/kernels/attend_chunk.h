// Attention of a chunk of query tokens over the pages of their request.
//
// The queries of one KV head (tokens x heads of its group, "rows") stay in the second-level cache while the keys and
// values before them go by in runs. Each run is packed once for all of them; then SUB rows at a time are multiplied with
// it, so that their scores and weights never leave the first-level cache.
#pragma once
#include "attention.h"

constexpr int RUN = 256;          // keys packed at a time
constexpr int SUB = 24;           // rows multiplied at a time, about
constexpr int HELD = 300 * 1024;  // bytes of queries and sums held while the keys go by

// Query tokens multiplied at a time, and the most that are held; both depend on how many heads share a KV head.
inline int tokens_at_once(int group) { return std::max(1, SUB / group); }
template <class T> inline int tokens_held(int group, int dim) {
    int fit = HELD / (group * dim * int(sizeof(T) + sizeof(float))), step = tokens_at_once(group);
    return std::max(step, fit / step * step);
}

// Working memory of one thread for up to `tokens` query tokens.
template <class T> struct ChunkBuffers {
    T *q, *keys, *values;                // [rows][dim], packed [RUN x dim], packed [dim x RUN]
    float *scores, *out, *top, *totals;  // [one time's rows][RUN], [rows][padded dim], [rows + VL], [rows][VL]
    static size_t bytes(int tokens, int group, int dim) {
        ChunkBuffers none(nullptr, tokens, group, dim);
        return size_t(none.end);
    }
    ChunkBuffers(char* at, int tokens, int group, int dim) : end(uintptr_t(at)) {
        const size_t rows = size_t(tokens) * group, once = size_t(tokens_at_once(group)) * group;
        q = take<T>(rows * dim);
        keys = take<T>(packed_size<T>(RUN, dim));
        values = take<T>(packed_size<T>(dim, RUN));
        scores = take<float>(once * RUN);
        out = take<float>(rows * round_up(dim, NB));
        top = take<float>(rows + VL);
        totals = take<float>(rows * VL);
    }

  private:
    uintptr_t end;
    template <class E> E* take(size_t count) {
        E* place = (E*)end;
        end += (count * sizeof(E) + 63) / 64 * 64;
        return place;
    }
};

// Puts elements of one or two rows into the lanes of a packed column block: VL lanes from each, width <= NB.
inline void weave(const float* const* rows, int width, float* to) { std::copy(rows[0], rows[0] + width, to); }
inline void weave(const bf16* const* rows, int width, bf16* to) {
    int i = 0;
    for (; i + VL <= width; i += VL) {
        U low = __builtin_convertvector(load_as<H>(rows[0] + i), U), high = __builtin_convertvector(load_as<H>(rows[1] + i), U);
        U both = low | (high << 16);
        memcpy(to + 2 * i, &both, sizeof(U));
    }
    for (; i < width; i++)
        for (int s = 0; s < 2; s++) to[2 * i + s] = rows[s][i];
}

// Packs keys (as a weight of RUN outputs, head_dim inputs) and values (head_dim outputs, RUN inputs) of positions
// [at, at + count). Rows past count are left over: their scores are unused and their weights zero. Only an odd last
// value has a partner in its lane, which is the value itself, so that nothing but numbers of this request is read.
template <class T> inline void pack_run(const Cache<T>& cache, int head, int at, int count, T* keys, T* values) {
    constexpr int S = Lane<T>::S;
    const int dim = cache.head_dim;
    typedef uint32_t Unit;  // one lane: S elements
    for (int j = 0; j < count; j++) {
        const T* k = cache.keys + cache.offset(at + j, head);
        T* to = keys + packed_row<T>(j, dim);
        for (int d = 0; d < dim; d += S) memcpy(to + size_t(d) * NB, k + d, sizeof(Unit));
    }
    for (int j = 0; j < count; j += S) {
        const T* rows[S];
        for (int i = 0; i < S; i++) rows[i] = cache.values + cache.offset(at + std::min(j + i, count - 1), head);
        for (int n = 0; n < dim; n += NB) {
            weave(rows, std::min(NB, dim - n), values + (size_t(n) * RUN + size_t(j) * NB));
            for (int i = 0; i < S; i++) rows[i] += NB;
        }
    }
}

// Rows [row, row + rows) of the buffers, tokens at positions first ..., against the packed run at `at` of `count` keys.
template <class T>
inline void attend_run(ChunkBuffers<T>& b, int row, int rows, int first, int at, int count, int group, const Shape& shape) {
    const int dim = shape.head_dim, padded = round_up(dim, NB), last = first + (rows - 1) / group;
    const int end = std::min(count, last + 1 - at), low = std::max(0, shape.first_key(first) - at) / NB * NB;
    if (end <= low) return;
    const int high = round_up(end, NB), depth = round_up(end, Lane<T>::S) - low;
    const int stride = RUN * int(sizeof(float) / sizeof(T));
    auto nothing = [](int, int, float*, size_t) {};
    for (int n = low; n < high; n += NB)
        column_block<T>(b.q + size_t(row) * dim, dim, rows, b.keys + size_t(n) * dim, dim, nullptr, b.scores + n, RUN, nothing);
    const float factor = factor_of<T>(shape);
    float now[rows + VL], before[rows + VL], *top = b.top + row;
    for (int r = 0; r < rows; r++) {
        int query = first + r / group, from = shape.first_key(query) - at, to = std::min(count, query + 1 - at);
        now[r] = std::max(top[r], peak(b.scores + size_t(r) * RUN, low, from, to, high, shape, factor));
    }
    for (int r = 0; r < rows; r += VL) store(before + r, rescale<T>(load(top + r), load(now + r)));
    std::copy(now, now + rows, top);
    for (int r = 0; r < rows; r++) {
        float *scores = b.scores + size_t(r) * RUN, *totals = b.totals + size_t(row + r) * VL;
        V sums = weights_of(scores, low, high, factor, now[r], (T*)scores);
        store(totals, before[r] * load(totals) + sums);
    }
    for (int n = 0; n < padded; n += NB)
        column_block<T>((T*)b.scores + low, stride, rows, b.values + size_t(n) * RUN + size_t(low) * NB, depth, nullptr, nullptr, 0,
                        [&](int m, int tall, float* block, size_t ld) {
                            for (int r = 0; r < tall; r++)
                                for (int i = 0; i < NB; i += VL) {
                                    float* sum = b.out + size_t(row + m + r) * padded + n + i;
                                    store(sum, before[m + r] * load(sum) + load(block + r * ld + i));
                                }
                        });
}

// Attention of `tokens` query tokens at positions first ... of one KV head's query heads.
// q and out point at the first token's first head of the group; a token's row is `stride` elements further on.
template <class T>
inline void attend_chunk(const T* q, size_t q_stride, T* out, size_t out_stride, int first, int tokens, int head, const Cache<T>& cache,
                         const Shape& shape, ChunkBuffers<T>& b) {
    const int dim = shape.head_dim, group = shape.heads / shape.kv_heads, rows = tokens * group, padded = round_up(dim, NB);
    for (int t = 0; t < tokens; t++) memcpy(b.q + size_t(t) * group * dim, q + t * q_stride, sizeof(T) * group * dim);
    std::fill(b.top, b.top + rows + VL, LOWEST);
    std::fill(b.totals, b.totals + size_t(rows) * VL, 0.0f);
    std::fill(b.out, b.out + size_t(rows) * padded, 0.0f);
    const int step = tokens_at_once(group);
    for (int at = shape.first_key(first); at < first + tokens; at += RUN) {
        const int count = std::min(RUN, first + tokens - at);
        pack_run<T>(cache, head, at, count, b.keys, b.values);
        for (int t = 0; t < tokens; t += step)
            attend_run<T>(b, t * group, std::min(step, tokens - t) * group, first + t, at, count, group, shape);
    }
    for (int r = 0; r < rows; r++) {
        T* to = out + (r / group) * out_stride + size_t(r % group) * dim;
        const float share = 1.0f / sum(load(b.totals + size_t(r) * VL));
        for (int d = 0; d < dim; d++) store1(to + d, b.out[size_t(r) * padded + d] * share);
    }
}
