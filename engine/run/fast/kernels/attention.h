// What both kinds of attention share: where keys lie, which of them a query sees, and the softmax.
//
// Keys and values of one layer are arrays [blocks] [page_size] [kv_heads] [head_dim]; a request's block table says which
// block holds which page of positions. There are two kernels:
//
//   one query token     (attend_token.h) reads every key and value once, in place, for all heads: bound by memory
//   a chunk of them     (attend_chunk.h) packs a run of keys and values of one KV head and multiplies queries with it
//
// Only positions inside a query's window are ever read, so whatever lies in other slots (NaN included) cannot matter.
#pragma once
#include <algorithm>
#include <limits>
#include <type_traits>
#include "linear.h"

constexpr float LOWEST = -std::numeric_limits<float>::infinity();

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

// From a score to the number whose power is its weight. Scores are capped (where the model does that) when their
// largest is sought, so that only this factor is left for the second look.
template <class T> inline float factor_of(const Shape& shape) { return (shape.softcap ? 1.0f : shape.scale) * Power<T>::unit; }

// The largest of scores [from, to) times `factor`. In [low, high), multiples of VL around them, the others become
// -infinity. LOWEST when there is none.
inline float peak(float* scores, int low, int from, int to, int high, const Shape& shape, float factor) {
    for (int i = low; i < std::min(from, high); i++) scores[i] = LOWEST;
    for (int i = std::max(to, low); i < high; i++) scores[i] = LOWEST;
    V most = splat(LOWEST);
    if (shape.softcap) {
        for (int i = low; i < high; i += VL) {
            V s = load(scores + i);
            V capped = shape.softcap * vtanh(s * (shape.scale / shape.softcap));
            s = s == LOWEST ? s : capped;
            store(scores + i, s);
            most = max(most, s);
        }
    } else {
        for (int i = low; i < high; i += VL) most = max(most, load(scores + i));
    }
    return largest(most) * factor;
}

// Weights of scores [low, high) given the largest so far; `weights` may begin where `scores` does. Returns their sums.
template <class T> inline V weights_of(const float* scores, int low, int high, float factor, float top, T* weights) {
    const float base = top == LOWEST ? 0.0f : top;
    V sums = {};
    for (int i = low; i < high; i += VL) {
        V p = Power<T>::of(load(scores + i) * factor - base);
        sums += p;
        store(weights + i, p);
    }
    return sums;
}

// What sums made under the maximum `before` are multiplied with under the maximum `now`.
template <class T> inline V rescale(V before, V now) { return before == now ? splat(1.0f) : Power<T>::of(before - now); }
