// Matrix products with packed weights.
//
// A weight of N output rows and K input columns is stored in column blocks of NB = 2*VL outputs, K running inside:
//
//     [ceil(N/NB)] [ceil(K/S)] [NB] [S]        S = 1 for float, 2 for bfloat16 (one 32-bit lane)
//
// so that a product streams it once, front to back, with whole-register loads, and every input element is one
// broadcast. Missing rows and columns are zero. The same code multiplies packed keys and values in attention.
#pragma once
#include <algorithm>
#include <atomic>
#include "simd.h"

constexpr int NB = 2 * VL;

template <class T> struct Lane;
template <> struct Lane<float> {
    static constexpr int S = 1;
    static constexpr int rows = REGISTERS == 32 ? 12 : 6;
};
template <> struct Lane<bf16> {
    static constexpr int S = 2;
#if defined(__AVX512BF16__)
    static constexpr int rows = 12;
#else
    static constexpr int rows = REGISTERS == 32 ? 10 : 4;  // unpacking halves takes registers
#endif
};

inline int round_up(int n, int m) { return (n + m - 1) / m * m; }

// One accumulator block: R rows of x times one column block, K deep. y gets R x NB floats, bias (or null) included.
template <class T, int R> inline void tile(const T* x, size_t ldx, const T* w, int K, const float* bias, float* y, size_t ldy) {
    constexpr int S = Lane<T>::S;
    V acc[R][2];
    for (int m = 0; m < R; m++) {
        acc[m][0] = bias ? load(bias) : V{};
        acc[m][1] = bias ? load(bias + VL) : V{};
    }
    for (int k = 0; k < K; k += S, w += NB * S) {
        auto w0 = Dot<T>::row(w), w1 = Dot<T>::row(w + VL * S);
#pragma GCC unroll 12
        for (int m = 0; m < R; m++) {
            decltype(w0) b;
            if constexpr (S == 1) {
                b = splat(x[m * ldx + k]);
            } else {
                b = (decltype(w0))(load_as<uint32_t>(x + m * ldx + k) - U{});
            }
            acc[m][0] = Dot<T>::add(acc[m][0], w0, b);
            acc[m][1] = Dot<T>::add(acc[m][1], w1, b);
        }
    }
    for (int m = 0; m < R; m++) {
        store(y + m * ldy, acc[m][0]);
        store(y + m * ldy + VL, acc[m][1]);
    }
}

template <class T> inline void tile_of(int rows, const T* x, size_t ldx, const T* w, int K, const float* bias, float* y, size_t ldy) {
    switch (rows) {
#define CASE(R)                                                                    \
    case R:                                                                        \
        if constexpr (R <= Lane<T>::rows) tile<T, R>(x, ldx, w, K, bias, y, ldy);  \
        return;
        CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) CASE(8) CASE(9) CASE(10) CASE(11) CASE(12)
#undef CASE
    }
}

// Calls done(first row, rows, block of rows x NB floats, its row stride) for M rows of x times one column block.
// With `direct` the block lies in y itself, else in a buffer that stays in the first-level cache.
template <class T, class Done>
inline void column_block(const T* x, size_t ldx, int M, const T* w, int K, const float* bias, float* direct, size_t ldy, Done done) {
    float buffer[Lane<T>::rows * NB] __attribute__((aligned(64)));
    int parts = (M + Lane<T>::rows - 1) / Lane<T>::rows;
    for (int part = 0, m = 0; part < parts; part++) {
        int rows = (M - m + parts - part - 1) / (parts - part);  // even parts: 13 rows are 7 + 6, not 12 + 1
        float* y = direct ? direct + m * ldy : buffer;
        size_t ld = direct ? ldy : NB;
        tile_of<T>(rows, x + m * ldx, ldx, w, K, bias, y, ld);
        done(m, rows, y, ld);
        m += rows;
    }
}

// Elements of the packed form of an N x K weight.
template <class T> inline size_t packed_size(int N, int K) { return size_t(round_up(N, NB)) * round_up(K, Lane<T>::S); }

// Offset of element (n, 0); element (n, k) lies (k / S) * NB * S + k % S further on.
template <class T> inline size_t packed_row(int n, int K) {
    constexpr int S = Lane<T>::S;
    return (size_t(n / NB) * ((K + S - 1) / S) * NB + n % NB) * S;
}

// Where row n of a source goes in the packed weight. Gated pairs alternate by VL so that one block holds the gate
// (first half) and the up projection (second half) of the same VL outputs; part is -1 for an ordinary weight.
inline int placed(int n, int part) { return part < 0 ? n : n / VL * NB + part * VL + n % VL; }

// Copies source row n (K elements) to row first + n of a packed weight (to_packed), or back.
template <class T> inline void repack_row(T* packed, T* rows, int n, int K, int first, int part, bool to_packed) {
    constexpr int S = Lane<T>::S;
    T* block = packed + packed_row<T>(placed(first + n, part), K);
    T* row = rows + size_t(n) * K;
    for (int k = 0; k < K; k++) {
        T& at = block[size_t(k / S) * NB * S + k % S];
        if (to_packed) {
            at = row[k];
        } else {
            row[k] = at;
        }
    }
}
