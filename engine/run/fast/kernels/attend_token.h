// Attention of one query token over the pages of its request.
#pragma once
#include "attention.h"

constexpr int LOOK = 512;   // keys scored at a time: one burst of reads, which then fit the second-level cache
constexpr int SHARE = 128;  // keys for which a thread of its own is worth the merging

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
    const float factor = factor_of<T>(shape);
    score<T, G>(q, dim, keys, column, count, scores);
    for (int g = 0; g < G; g++) {
        float *row = scores + g * LOOK, *out = p.values + size_t(g) * dim;
        float now = std::max(p.top[g], peak(row, 0, 0, count, width, shape, factor));
        float before = rescale<T>(splat(p.top[g]), splat(now))[0];
        p.total[g] = p.total[g] * before + sum(weights_of(row, 0, width, factor, now, weights + g * LOOK));
        p.top[g] = now;
        for (int d = 0; d < dim; d += VL) store(out + d, before * load(out + d));
    }
    weigh<G>(weights, values, column, count, p.values, dim);
}

// One token's query (all heads, q [heads][head_dim]) against the keys at positions [begin, end).
template <class T> inline void attend_token(const T* q, const Cache<T>& cache, int begin, int end, const Shape& shape, Partial p) {
    const int dim = shape.head_dim, heads = shape.heads, group = heads / shape.kv_heads;
    std::fill(p.top, p.top + heads, LOWEST);
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
