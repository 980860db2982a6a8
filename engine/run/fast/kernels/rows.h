// What is done to one row: norm, rotation, the largest logit.
#pragma once
#include <algorithm>
#include "simd.h"

template <class T> inline void rms_norm(const float* x, const float* weight, T* y, int n, float eps) {
    V squares[4] = {};
    int i = 0;
    for (; i + 4 * VL <= n; i += 4 * VL)
        for (int j = 0; j < 4; j++) squares[j] += load(x + i + j * VL) * load(x + i + j * VL);
    float total = sum(squares[0] + squares[1] + (squares[2] + squares[3]));
    for (; i < n; i++) total += x[i] * x[i];
    float factor = 1.0f / std::sqrt(total / n + eps);
    for (i = 0; i + VL <= n; i += VL) store(y + i, load(x + i) * factor * load(weight + i));
    for (; i < n; i++) store1(y + i, x[i] * factor * weight[i]);
}

// Rotates the pairs (i, i + dim/2) of one head and rounds to the cache's type.
template <class T> inline void rotate(const float* x, const float* cosines, const float* sines, T* y, int dim) {
    int half = dim / 2, i = 0;
    for (; i + VL <= half; i += VL) {
        V a = load(x + i), b = load(x + half + i), c = load(cosines + i), s = load(sines + i);
        store(y + i, a * c - b * s);
        store(y + half + i, b * c + a * s);
    }
    for (; i < half; i++) {
        store1(y + i, x[i] * cosines[i] - x[half + i] * sines[i]);
        store1(y + half + i, x[half + i] * cosines[i] + x[i] * sines[i]);
    }
}

// The lowest index of the largest of n numbers, -1 when one is not finite.
inline int64_t largest_index(const float* logits, int n) {
    V most = splat(logits[0]), doubt = {};
    int whole = n / VL * VL;
    for (int i = 0; i < whole; i += VL) {
        V v = load(logits + i);
        most = max(most, v);
        doubt += v - v;  // NaN as soon as one is NaN or infinite
    }
    float top = largest(most), bad = sum(doubt);
    for (int i = whole; i < n; i++) {
        top = std::max(top, logits[i]);
        bad += logits[i] - logits[i];
    }
    if (bad != 0.0f) return -1;
    for (int i = 0; i < n; i++)
        if (logits[i] == top) return i;
    return -1;
}
