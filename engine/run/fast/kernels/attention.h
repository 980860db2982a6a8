// Attention of each request over its own pages.
//
// Keys and values of one layer are arrays [blocks] [page_size] [kv_heads] [head_dim]; a request's block table says which
// block holds which page of positions. Two kernels share the masks and the softmax:
//
//   one query token     reads every key and value once, in place, for all heads: bound by memory
//   a chunk of them     packs a run of keys and values of one KV head and multiplies tiles of queries with it
//
// Only positions inside a query's window are ever read, so whatever lies in other slots (NaN included) cannot matter.
#pragma once
#include <algorithm>
#include <limits>
#include <type_traits>
#include "linear.h"

constexpr int RUN = 128;   // keys packed at a time for a chunk
constexpr int LOOK = 256;  // keys scored at a time for one token
constexpr int TALL = 192;  // query rows (tokens x heads of a group) per tile

template <class T> struct Cache {
    const T* keys;
    const T* values;
    const int32_t* table;
    int page_size, kv_heads, head_dim;
    size_t offset(int position, int head) const {
        int page = position / page_size;
        return ((size_t(table[page]) * page_size + (position - page * page_size)) * kv_heads + head) * head_dim;
    }
};

struct Shape {
    int heads, kv_heads, head_dim, window;  // window 0: full attention
    float scale, softcap;                   // softcap 0: none
    int first_key(int query) const { return window ? std::max(0, query - window + 1) : 0; }
};

inline V scored(V s, const Shape& shape) {
    s *= shape.scale;
    return shape.softcap ? shape.softcap * vtanh(s / shape.softcap) : s;
}

// Softmax over scores[0 ... count), continuing from running maximum and sum. Returns the factor for what was summed
// before. `width` >= count, a multiple of VL; entries outside [from, count) become zero.
inline float softmax_run(float* scores, int from, int count, int width, float& top, float& total) {
    const float low = -std::numeric_limits<float>::infinity();
    for (int i = 0; i < from; i++) scores[i] = low;
    for (int i = count; i < width; i++) scores[i] = low;
    V most = splat(low);
    for (int i = 0; i < width; i += VL) most = max(most, load(scores + i));
    float now = std::max(top, largest(most));
    float factor = top == low ? 0.0f : std::exp(top - now);
    V sums = {};
    for (int i = 0; i < width; i += VL) {
        V p = vexp(load(scores + i) - now);
        sums += p;
        store(scores + i, p);
    }
    top = now;
    total = total * factor + sum(sums);
    return factor;
}

// ---------------------------------------------------------------------------------------------- one query token

// Running state of one token's attention: per head the maximum, the sum and the weighted values.
struct Partial {
    float *top, *total, *values;  // [heads], [heads], [heads][head_dim]
};

// Reads one word of every cache line of the rows. Plain reads in memory order let the processor run ahead of them;
// the scattered reads of the products, and prefetch instructions too, reach half of that speed (measured).
template <class T> inline void fetch(const T* const* rows, int count, int size) {
    uint32_t seen = 0;
    for (int j = 0; j < count; j++)
        for (int d = 0; d < size; d += int(64 / sizeof(T))) seen |= load_as<uint32_t>(rows[j] + d);
    asm volatile("" ::"r"(seen));
}

// Scores of G queries against `count` keys, each loaded once. scores [G][LOOK].
template <class T, int G> inline void score(const T* q, int dim, const T* const* keys, size_t column, int count, float* scores) {
    for (int j = 0; j < count; j += 4) {
        V acc[G][4] = {};
        const T* k[4];
        for (int i = 0; i < 4; i++) k[i] = keys[std::min(j + i, count - 1)] + column;
        for (int d = 0; d < dim; d += Dot<T>::step)
            for (int i = 0; i < 4; i++) {
                auto row = Dot<T>::row(k[i] + d);
                for (int g = 0; g < G; g++) acc[g][i] = Dot<T>::add(acc[g][i], row, Dot<T>::row(q + g * dim + d));
            }
        for (int g = 0; g < G; g++) sum4(acc[g], scores + g * LOOK + j);
    }
}

// out[g] += sum over keys of weight[g][key] * value[key]. weights [G][LOOK].
template <int G> inline void weigh(const float* weights, const float* const* values, size_t column, int count, float* out, int dim) {
    for (int d = 0; d < dim; d += 2 * VL) {
        V acc[G][2];
        for (int g = 0; g < G; g++)
            for (int h = 0; h < 2; h++) acc[g][h] = load(out + g * dim + d + h * VL);
        for (int j = 0; j < count; j++) {
            V v0 = load(values[j] + column + d), v1 = load(values[j] + column + d + VL);
            for (int g = 0; g < G; g++) {
                acc[g][0] += weights[g * LOOK + j] * v0;
                acc[g][1] += weights[g * LOOK + j] * v1;
            }
        }
        for (int g = 0; g < G; g++)
            for (int h = 0; h < 2; h++) store(out + g * dim + d + h * VL, acc[g][h]);
    }
}

// bfloat16 values two keys at a time: element d of both, side by side, is one lane of a product. An odd last key is
// paired with itself and a weight of zero (the entry after the last weight is zero).
template <int G> inline void weigh(const bf16* weights, const bf16* const* values, size_t column, int count, float* out, int dim) {
    for (int d = 0; d < dim; d += 2 * VL) {
        V acc[G][2] = {};
        for (int j = 0; j < count; j += 2) {
            auto pairs = Pairs::of(values[j] + column + d, values[j + 1 < count ? j + 1 : j] + column + d);
            for (int g = 0; g < G; g++) {
                auto w = (Dot<bf16>::R)(load_as<uint32_t>(weights + g * LOOK + j) - U{});
                acc[g][0] = Dot<bf16>::add(acc[g][0], pairs.first, w);
                acc[g][1] = Dot<bf16>::add(acc[g][1], pairs.second, w);
            }
        }
        for (int g = 0; g < G; g++) {
            Pairs::in_order(acc[g][0], acc[g][1]);
            for (int h = 0; h < 2; h++) {
                float* at = out + g * dim + d + h * VL;
                store(at, load(at) + acc[g][h]);
            }
        }
    }
}

// Calls f(first head, integral_constant G) for the query heads of one KV head, up to four at a time.
template <class F> inline void for_heads(int first, int group, F f) {
    for (; group >= 4; first += 4, group -= 4) f(first, std::integral_constant<int, 4>());
    if (group == 3) f(first, std::integral_constant<int, 3>());
    if (group == 2) f(first, std::integral_constant<int, 2>());
    if (group == 1) f(first, std::integral_constant<int, 1>());
}

// G heads of one KV head against `count` <= LOOK keys; `column` is the KV head's place in a row.
template <class T, int G>
inline void attend_group(const T* q, const T* const* keys, const T* const* values, size_t column, int count, const Shape& shape, Partial p) {
    float scores[G * LOOK] __attribute__((aligned(64)));
    T weights[G * LOOK] __attribute__((aligned(64)));
    const int dim = shape.head_dim, width = round_up(count, VL);
    score<T, G>(q, dim, keys, column, count, scores);
    for (int g = 0; g < G; g++) {
        float *row = scores + g * LOOK, *out = p.values + size_t(g) * dim;
        for (int i = 0; i < width; i += VL) store(row + i, scored(load(row + i), shape));
        float factor = softmax_run(row, 0, count, width, p.top[g], p.total[g]);
        for (int i = 0; i < width; i += VL) store(weights + g * LOOK + i, load(row + i));
        for (int d = 0; d < dim; d += VL) store(out + d, factor * load(out + d));
    }
    weigh<G>(weights, values, column, count, p.values, dim);
}

// One token's query (all heads, q [heads][head_dim]) against the keys at positions [begin, end).
template <class T> inline void attend_token(const T* q, const Cache<T>& cache, int begin, int end, const Shape& shape, Partial p) {
    const int dim = shape.head_dim, heads = shape.heads, group = heads / shape.kv_heads;
    std::fill(p.top, p.top + heads, -std::numeric_limits<float>::infinity());
    std::fill(p.total, p.total + heads, 0.0f);
    std::fill(p.values, p.values + size_t(heads) * dim, 0.0f);
    const T *keys[LOOK], *values[LOOK];
    for (int at = begin; at < end; at += LOOK) {
        const int count = std::min(LOOK, end - at);
        for (int j = 0; j < count; j++) {
            size_t offset = cache.offset(at + j, 0);
            keys[j] = cache.keys + offset;
            values[j] = cache.values + offset;
        }
        fetch(keys, count, shape.kv_heads * dim);
        fetch(values, count, shape.kv_heads * dim);
        for (int h = 0; h < shape.kv_heads; h++)
            for_heads(h * group, group, [&](int head, auto G) {
                Partial part{p.top + head, p.total + head, p.values + size_t(head) * dim};
                attend_group<T, G>(q + size_t(head) * dim, keys, values, size_t(h) * dim, count, shape, part);
            });
    }
}

// ---------------------------------------------------------------------------------------------------- a chunk

// Working memory of one thread for tiles of up to `rows` query rows.
template <class T> struct TileBuffers {
    T *q, *keys, *values, *weights;  // [rows][dim], packed [RUN x dim], packed [dim x RUN], [rows][RUN]
    float *scores, *out, *top, *total;  // [rows][RUN], [rows][padded dim], [rows], [rows]
    static size_t bytes(int rows, int dim) {
        size_t padded = round_up(dim, NB);
        return sizeof(T) * (size_t(rows) * dim + packed_size<T>(RUN, dim) + packed_size<T>(dim, RUN) + size_t(rows) * RUN) +
               sizeof(float) * (size_t(rows) * RUN + rows * padded + 2 * size_t(rows)) + 8 * 64;
    }
    TileBuffers(char* at, int rows, int dim) {
        auto take = [&at](size_t bytes) {
            char* p = at;
            at += (bytes + 63) / 64 * 64;
            return p;
        };
        q = (T*)take(sizeof(T) * rows * dim);
        keys = (T*)take(sizeof(T) * packed_size<T>(RUN, dim));
        values = (T*)take(sizeof(T) * packed_size<T>(dim, RUN));
        weights = (T*)take(sizeof(T) * rows * RUN);
        scores = (float*)take(sizeof(float) * rows * RUN);
        out = (float*)take(sizeof(float) * rows * round_up(dim, NB));
        top = (float*)take(sizeof(float) * rows);
        total = (float*)take(sizeof(float) * rows);
    }
};

// Packs keys (as a weight of RUN outputs, head_dim inputs) and values (head_dim outputs, RUN inputs) of positions
// [at, at + count). Rows past count are zero in the values; in the keys they are left over and their scores unused.
template <class T> inline void pack_run(const Cache<T>& cache, int head, int at, int count, T* keys, T* values) {
    constexpr int S = Lane<T>::S;
    const int dim = cache.head_dim;
    typedef uint32_t Unit;  // one lane: S elements
    for (int j = 0; j < count; j++) {
        const T* k = cache.keys + cache.offset(at + j, head);
        T* to = keys + packed_row<T>(j, dim);
        for (int d = 0; d < dim; d += S) memcpy(to + size_t(d) * NB, k + d, sizeof(Unit));
    }
    for (int j = 0; j < RUN; j += S) {
        const T* rows[2];
        T zeros[1] = {};
        for (int i = 0; i < S; i++) rows[i] = j + i < count ? cache.values + cache.offset(at + j + i, head) : nullptr;
        for (int n = 0; n < dim; n += NB) {
            T* to = values + (size_t(n) * RUN + size_t(j) * NB);
            int width = std::min(NB, dim - n);
            for (int i = 0; i < width; i++)
                for (int s = 0; s < S; s++) to[i * S + s] = rows[s] ? rows[s][n + i] : zeros[0];
        }
    }
}

// Attention of `tokens` query tokens at positions first ... of one KV head's query heads.
// q and out point at the first token's first head of the group; a token's row is `stride` elements further on.
template <class T>
inline void attend_tile(const T* q, size_t q_stride, T* out, size_t out_stride, int first, int tokens, int head, const Cache<T>& cache,
                        const Shape& shape, TileBuffers<T>& b) {
    const int dim = shape.head_dim, group = shape.heads / shape.kv_heads, rows = tokens * group, padded = round_up(dim, NB);
    for (int t = 0; t < tokens; t++) memcpy(b.q + size_t(t) * group * dim, q + t * q_stride, sizeof(T) * group * dim);
    std::fill(b.top, b.top + rows, -std::numeric_limits<float>::infinity());
    std::fill(b.total, b.total + rows, 0.0f);
    std::fill(b.out, b.out + size_t(rows) * padded, 0.0f);
    const int last = first + tokens;
    for (int at = shape.first_key(first); at < last; at += RUN) {
        int count = std::min(RUN, last - at), columns = round_up(count, NB);
        pack_run<T>(cache, head, at, count, b.keys, b.values);
        auto nothing = [](int, int, float*, size_t) {};
        for (int n = 0; n < columns; n += NB)
            column_block<T>(b.q, dim, rows, b.keys + size_t(n) * dim, dim, nullptr, b.scores + n, RUN, nothing);
        float factor[rows];
        for (int r = 0; r < rows; r++) {
            int query = first + r / group;
            int from = std::max(0, shape.first_key(query) - at), to = std::min(count, query + 1 - at);
            float* row = b.scores + size_t(r) * RUN;
            T* weights = b.weights + size_t(r) * RUN;
            if (to <= from) {
                factor[r] = 1.0f;
                std::fill(weights, weights + RUN, T{});
                continue;
            }
            int width = round_up(to, VL);
            for (int i = 0; i < width; i += VL) store(row + i, scored(load(row + i), shape));
            factor[r] = softmax_run(row, from, to, width, b.top[r], b.total[r]);
            for (int i = 0; i < width; i += VL) store(weights + i, load(row + i));
            std::fill(weights + width, weights + RUN, T{});
        }
        int depth = round_up(count, Lane<T>::S);
        for (int n = 0; n < padded; n += NB)
            column_block<T>(b.weights, RUN, rows, b.values + size_t(n) * RUN, depth, nullptr, nullptr, 0,
                            [&](int m, int tall, float* block, size_t ld) {
                                for (int r = 0; r < tall; r++)
                                    for (int i = 0; i < NB; i += VL) {
                                        float* sum = b.out + size_t(m + r) * padded + n + i;
                                        store(sum, factor[m + r] * load(sum) + load(block + r * ld + i));
                                    }
                            });
    }
    for (int r = 0; r < rows; r++) {
        T* to = out + (r / group) * out_stride + size_t(r % group) * dim;
        for (int d = 0; d < dim; d++) store1(to + d, b.out[size_t(r) * padded + d] / b.total[r]);
    }
}
