// Drawing a token from one row of logits: temperature, top-k, top-p and min-p, then the largest score plus Gumbel noise.
//
// What is kept and what the noise is, engine/run/sampler.py and noise.py say; here are the ways to look at few tokens. The
// likeliest are found with a threshold that rises as better ones come; and noise is worked out only where a bound on it,
// read off the exponent of the random bits, could make the token win.
#pragma once
#include <algorithm>
#include <cmath>
#include "simd.h"

struct Draw {
    int32_t row, top_k;         // top_k 0: all
    uint32_t low, high;         // key of the noise
    float temperature, top_p;   // top_p 1: all
    float least;                // log of min-p: how far under the best score a token may be; -infinity: any
};

constexpr int MARGIN = 1024;  // room for tokens beyond those wanted, before the worst are dropped
constexpr int BINS = 512;     // of scores, for the nucleus; the last one takes all that lie below
constexpr float FINE = 16.0f; // bins for a factor of e

template <class I> inline I scrambled(I tokens, uint32_t low, uint32_t high) {
    I h = tokens * 0x9E3779B1u + low;
    h ^= h >> 16;
    h = h * 0x85EBCA6Bu ^ high;
    h ^= h >> 13;
    h *= 0xC2B2AE35u;
    return (h ^ h >> 16) & 0x7FFFFFFFu;
}
inline float uniform(uint32_t bits) { return std::min((float(bits) + 0.5f) * 0x1p-31f, 1.0f - 0x1p-24f); }

// At least the noise of VL tokens: -log(-log(1 - v)) <= -log v, and a float's exponent is the floor of its logarithm.
inline V noise_bound(U bits) {
    V v = (__builtin_convertvector(bits, V) + 0.5f) * 0x1p-31f;
    U exponent = (U)v >> 23;
    return (127.0f - __builtin_convertvector(exponent, V)) * 0.6931472f;
}
inline bool any_above(V a, float limit) {
#if defined(__AVX512F__)
    return _mm512_cmp_ps_mask((__m512)a, _mm512_set1_ps(limit), _CMP_GT_OQ);
#else
    return largest(a) > limit;
#endif
}

// Working memory of one thread for rows of n logits.
struct DrawBuffers {
    float* scores;  // [n, rounded up to VL]
    int* tokens;    // [n]
    static size_t bytes(int n) { return sizeof(float) * (n + VL) + sizeof(int) * n; }
    DrawBuffers(char* at, int n) : scores((float*)at), tokens((int*)(at + sizeof(float) * (n + VL))) {}
};

class Drawing {
    const Draw& d;
    const int n;
    float* const scores;
    int* const tokens;  // a selection
    float best;         // the largest score

  public:
    Drawing(const Draw& d, const float* logits, int n, DrawBuffers& b) : d(d), n(n), scores(b.scores), tokens(b.tokens) {
        V most = splat(-INFINITY);
        int i = 0;
        for (; i + VL <= n; i += VL) {
            V s = load(logits + i) / d.temperature;
            store(scores + i, s);
            most = max(most, s);
        }
        best = largest(most);
        for (; i < n; i++) best = std::max(best, scores[i] = logits[i] / d.temperature);
        for (; i % VL; i++) scores[i] = -INFINITY;
    }

    // Where a logit is not finite any token may come out; whoever asked knows that from the greedy pass.
    int64_t token() {
        if (d.top_k > 0 && d.top_k < n) {
            const int count = likeliest(d.top_k);
            if (!count) return 0;
            sort(0, count);
            return winner(nucleus(0, count, 0.0f, mass_of(count)));
        }
        return d.top_p < 1.0f ? winner_of_nucleus() : winner_of_all(best + d.least);
    }

  private:
    void sort(int first, int count) {
        std::sort(tokens + first, tokens + count, [&](int a, int c) { return scores[a] > scores[c]; });
    }
    float mass_of(int count) const {
        float total = 0.0f;
        for (int i = 0; i < count; i++) total += std::exp(scores[tokens[i]] - best);
        return total;
    }

    // Puts the `wanted` likeliest tokens, and all that tie with the last of them, into `tokens`; how many.
    int likeliest(int wanted) {
        float floor = -INFINITY, under = floor;
        int count = 0, limit = 2 * wanted + MARGIN;
        auto drop = [&] {
            if (count <= wanted) return;
            std::nth_element(tokens, tokens + wanted - 1, tokens + count, [&](int a, int c) { return scores[a] > scores[c]; });
            floor = scores[tokens[wanted - 1]], under = std::nextafter(floor, -INFINITY);
            count = int(std::partition(tokens + wanted, tokens + count, [&](int t) { return scores[t] == floor; }) - tokens);
            limit = 2 * count + MARGIN;
        };
        for (int i = 0; i < n; i += VL) {
            if (floor > -INFINITY && !any_above(load(scores + i), under)) continue;
            if (count + VL > std::min(limit, n)) drop();
            for (int j = i; j < std::min(n, i + VL); j++)
                if (scores[j] >= floor) tokens[count++] = j;
        }
        drop();
        return count;
    }

    // How many of `count` tokens top-p and min-p keep, at least one; those that tie with the last one included. The first
    // ones, of mass `before`, are certain of top-p; the others are sorted.
    int nucleus(int certain, int count, float before, float total) const {
        int inside = std::max(certain, 1);
        for (int i = certain; i < count && (before < d.top_p * total || d.top_p >= 1.0f); i++) {
            inside = i + 1;
            before += std::exp(scores[tokens[i]] - best);
        }
        const float last = scores[tokens[inside - 1]];
        while (inside > certain && inside < count && scores[tokens[inside]] == last) inside++;
        const float least = best + d.least;
        return int(std::partition(tokens, tokens + inside, [&](int t) { return scores[t] >= least; }) - tokens);
    }

    // Sums the shares in bins of scores, so that only the tokens of one bin need sorting.
    int winner_of_nucleus() {
        float masses[BINS] = {}, total = 0.0f;
        V far = {};
        auto bin_of = [&](float score) { return int(std::min((best - score) * FINE, float(BINS - 1))); };
        const float edge = best - (BINS - 1) / FINE;
        for (int i = 0; i < n; i += VL) {
            V s = load(scores + i), share = vexp(s - best);
            if (!any_above(s, edge)) {
                far += share;
                continue;
            }
            for (int j = 0; j < std::min(VL, n - i); j++) masses[bin_of(s[j])] += share[j];
        }
        masses[BINS - 1] += sum(far);
        for (float mass : masses) total += mass;
        float before = 0.0f;
        int bin = 0;
        while (bin < BINS - 1 && before + masses[bin] < d.top_p * total) before += masses[bin++];
        int certain = 0, count = 0;
        const float under = bin < BINS - 1 ? best - (bin + 2) / FINE : -INFINITY;
        for (int i = 0; i < n; i += VL) {
            if (under > -INFINITY && !any_above(load(scores + i), under)) continue;
            for (int j = i; j < std::min(n, i + VL); j++)
                if (int b = bin_of(scores[j]); b < bin) {
                    tokens[count++] = tokens[certain];
                    tokens[certain++] = j;
                } else if (b == bin) {
                    tokens[count++] = j;
                }
        }
        if (!count) return 0;
        sort(certain, count);
        return winner(nucleus(certain, count, before, total));
    }

    int winner(int count) const {
        int found = tokens[0];
        float top = -INFINITY;
        for (int i = 0; i < count; i++) challenge(tokens[i], found, top);
        return found;
    }
    // Puts `token` in the place of the one found so far where its score with noise is larger.
    void challenge(int token, int& found, float& top) const {
        const float score = scores[token], v = uniform(scrambled(uint32_t(token), d.low, d.high));
        if (score + (127 - int(load_as<uint32_t>(&v) >> 23)) * 0.6931472f < top - slack(top)) return;
        const float with = score - std::log(-std::log1p(-v));
        if (with > top || (with == top && token < found)) top = with, found = token;
    }
    static float slack(float top) { return 1e-4f + 1e-6f * std::fabs(top); }  // for what the bound's own sum rounds

    int winner_of_all(float least) const {
        const float* peak = std::find(scores, scores + n, best);
        int found = peak == scores + n ? 0 : int(peak - scores);
        float top = -INFINITY;
        challenge(found, found, top);
        U ids;
        for (int j = 0; j < VL; j++) ids[j] = j;
        for (int i = 0; i < n; i += VL, ids += VL) {
            V s = load(scores + i);
            if (!any_above(s + noise_bound(scrambled(ids, d.low, d.high)), top - slack(top))) continue;
            for (int j = i; j < std::min(n, i + VL); j++)
                if (scores[j] >= least) challenge(j, found, top);
        }
        return found;
    }
};
