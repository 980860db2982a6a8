// Vectors of VL floats, bfloat16, and the few functions the other files need on them.
//
// Plain compiler vectors serve every machine; intrinsics appear only where one instruction replaces many (bfloat16
// products and rounding). What the machine has is known at compile time: the file is compiled on the machine it runs on.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#if defined(__AVX512F__) || defined(__AVX__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
constexpr int VL = 16;
constexpr int REGISTERS = 32;
#elif defined(__AVX__)
constexpr int VL = 8;
constexpr int REGISTERS = 16;
#else
constexpr int VL = 4;
#if defined(__aarch64__)
constexpr int REGISTERS = 32;
#else
constexpr int REGISTERS = 16;
#endif
#endif

typedef float V __attribute__((vector_size(4 * VL)));
typedef uint32_t U __attribute__((vector_size(4 * VL)));
typedef uint16_t H __attribute__((vector_size(2 * VL)));

struct bf16 {
    uint16_t bits;
};

template <class R> inline R load_as(const void* p) {
    R r;
    memcpy(&r, p, sizeof(R));
    return r;
}
inline V splat(float x) { return x - V{}; }
inline V max(V a, V b) {
#if defined(__AVX512F__)
    return (V)_mm512_max_ps((__m512)b, (__m512)a);
#else
    return a < b ? b : a;
#endif
}

inline float to_float(float x) { return x; }
inline float to_float(bf16 x) {
    uint32_t u = uint32_t(x.bits) << 16;
    return load_as<float>(&u);
}

inline V load(const float* p) { return load_as<V>(p); }
inline V load(const bf16* p) { return (V)(__builtin_convertvector(load_as<H>(p), U) << 16); }

inline void store(float* p, V v) { memcpy(p, &v, sizeof(V)); }
inline void store(bf16* p, V v) {
#if defined(__AVX512BF16__)
    __m256bh h = _mm512_cvtneps_pbh((__m512)v);
    memcpy(p, &h, sizeof(h));
#else
    U u = (U)v;  // round to nearest even; a NaN stays one
    U rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    U quiet = (u >> 16) | 0x40u;
    U is_nan = (U)(v != v);
    H h = __builtin_convertvector((rounded & ~is_nan) | (quiet & is_nan), H);
    memcpy(p, &h, sizeof(h));
#endif
}
inline void store1(float* p, float x) { *p = x; }
inline void store1(bf16* p, float x) {
    uint32_t u = load_as<uint32_t>(&x);
    p->bits = x != x ? uint16_t((u >> 16) | 0x40u) : uint16_t((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

inline float sum(V v) {
#if defined(__AVX512F__)
    return _mm512_reduce_add_ps((__m512)v);
#endif
    float s[VL];
    memcpy(s, &v, sizeof(v));
    for (int width = VL / 2; width; width /= 2)
        for (int i = 0; i < width; i++) s[i] += s[i + width];
    return s[0];
}
inline float largest(V v) {
#if defined(__AVX512F__)
    return _mm512_reduce_max_ps((__m512)v);
#endif
    float s[VL];
    memcpy(s, &v, sizeof(v));
    for (int width = VL / 2; width; width /= 2)
        for (int i = 0; i < width; i++) s[i] = s[i] < s[i + width] ? s[i + width] : s[i];
    return s[0];
}

// Sums of four vectors at once: a tree costs a third of four separate sums.
inline void sum4(const V* a, float* out) {
#if defined(__AVX512F__)
    __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps((__m512)a[0], (__m512)a[1]), _mm512_unpackhi_ps((__m512)a[0], (__m512)a[1]));
    __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps((__m512)a[2], (__m512)a[3]), _mm512_unpackhi_ps((__m512)a[2], (__m512)a[3]));
    __m512 s = _mm512_add_ps((__m512)_mm512_unpacklo_pd((__m512d)ab, (__m512d)cd),
                             (__m512)_mm512_unpackhi_pd((__m512d)ab, (__m512d)cd));
    __m256 y = _mm256_add_ps(_mm512_castps512_ps256(s), (__m256)_mm512_extractf64x4_pd((__m512d)s, 1));
    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(y), _mm256_extractf128_ps(y, 1)));
#else
    for (int i = 0; i < 4; i++) out[i] = sum(a[i]);
#endif
}

// e^x, relative error below 2e-7 where the result is a normal number, 0 below; NaN stays NaN.
inline V vexp(V x) {
    const float shift = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer kept in the low bits
    V clamped = x < -87.0f ? splat(-87.0f) : x;
    clamped = clamped > 88.3f ? splat(88.3f) : clamped;
    V t = clamped * 1.44269504089f + shift;
    V n = t - shift;
    V r = clamped - n * 0.693145751953125f - n * 1.42860682030941723212e-6f;
    V p = r * 1.9875691500e-4f + 1.3981999507e-3f;  // minimax polynomial of Cephes' expf
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    V result = p * (V)(((U)t << 23) + 0x3f800000u);
    return x < -87.0f ? V{} : result;
}
// tanh by e^2x; absolute error below 1e-7.
inline V vtanh(V x) { return 1.0f - 2.0f / (vexp(x + x) + 1.0f); }
inline V silu(V x) { return x / (1.0f + vexp(-x)); }
inline V gelu_tanh(V x) { return 0.5f * x * (1.0f + vtanh(0.7978845608028654f * (x + 0.044715f * x * x * x))); }

// Weights of a softmax: Power<T>::of(Power<T>::unit * x) is e^x for x <= 0, as exactly as T can hold it.
template <class T> struct Power;
template <> struct Power<float> {
    static constexpr float unit = 1.0f;
    static inline V of(V x) { return vexp(x); }
};
template <> struct Power<bf16> {
    static constexpr float unit = 1.44269504089f;
    // 2^x, relative error below 8e-5 (rounding to bfloat16 makes one of 4e-3); 0 where that is no normal number.
    static inline V of(V x) {
#if defined(__AVX512F__)
        V clamped = max(splat(-200.0f), x);
        V n = (V)_mm512_roundscale_ps((__m512)clamped, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        return (V)_mm512_scalef_ps((__m512)around_zero(clamped - n), (__m512)n);
#else
        const float shift = 12582912.0f;
        V clamped = max(splat(-126.0f), x);
        V t = clamped + shift;
        V result = around_zero(clamped - (t - shift)) * (V)(((U)t << 23) + 0x3f800000u);
        return x < -126.0f ? V{} : result;
#endif
    }
    // 2^r for r in [-1/2, 1/2]: the cubic with the smallest relative error.
    static inline V around_zero(V r) { return ((r * 0.05517167f + 0.24261114f) * r + 0.69326099f) * r + 0.99992807f; }
};

// Products along rows: R holds Dot<T>::step consecutive elements.
template <class T> struct Dot;
template <> struct Dot<float> {
    using R = V;
    static constexpr int step = VL;
    static inline R row(const float* p) { return load_as<R>(p); }
    static inline V add(V acc, R a, R b) { return acc + a * b; }
};
template <> struct Dot<bf16> {
    static constexpr int step = 2 * VL;
#if defined(__AVX512BF16__)
    using R = __m512bh;
    static inline R row(const bf16* p) { return load_as<R>(p); }
    static inline V add(V acc, R a, R b) { return (V)_mm512_dpbf16_ps((__m512)acc, a, b); }
#else
    using R = U;
    static inline R row(const bf16* p) { return load_as<R>(p); }
    static inline V add(V acc, R a, R b) {
        acc += (V)(a << 16) * (V)(b << 16);
        return acc + (V)(a & 0xffff0000u) * (V)(b & 0xffff0000u);
    }
#endif
};

// Two bfloat16 rows of 2*VL elements woven into lanes of two: lane = (a[i], b[i]). `first` and `second` hold the
// elements in an order that suits the machine; in_order() brings sums over them back to the order of the rows.
struct Pairs {
    Dot<bf16>::R first, second;
#if defined(__AVX512BW__)
    static inline Pairs of(const bf16* a, const bf16* b) {
        __m512i x = _mm512_loadu_si512(a), y = _mm512_loadu_si512(b);
        return {(Dot<bf16>::R)_mm512_unpacklo_epi16(x, y), (Dot<bf16>::R)_mm512_unpackhi_epi16(x, y)};
    }
    static inline void in_order(V& first, V& second) {
        const __m512i low = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
        const __m512i high = _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
        V a = (V)_mm512_permutex2var_ps((__m512)first, low, (__m512)second);
        second = (V)_mm512_permutex2var_ps((__m512)first, high, (__m512)second);
        first = a;
    }
#else
    static inline Pairs of(const bf16* a, const bf16* b) {
        auto weave = [](const bf16* x, const bf16* y) {
            U low = __builtin_convertvector(load_as<H>(x), U), high = __builtin_convertvector(load_as<H>(y), U);
            return (Dot<bf16>::R)(low | (high << 16));
        };
        return {weave(a, b), weave(a + VL, b + VL)};
    }
    static inline void in_order(V&, V&) {}
#endif
};
