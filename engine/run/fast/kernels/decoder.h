// One forward pass of a decoder over a ragged batch, all layers in one call and one job of the team.
#pragma once
#include <vector>
#include "attend_chunk.h"
#include "attend_token.h"
#include "rows.h"
#include "step.h"
#include "team.h"

// Attention work: a tile of a chunk (head >= 0), or one token's keys [begin, end) of all heads (part of `parts`).
struct Item {
    int slice, row, tokens, first, head, part, parts, slot;
};

template <class T> class Step {
    const Model& m;
    const Batch& b;
    Team& team;
    const int q_size, kv_size, inner, threads;
    int rows;  // drops to num_samples in the last layer, whose other rows nobody reads
    Array<float> x, qkv, spare;
    Array<T> normed, q, mixed, gated;
    std::vector<int> slice_of, first_row;
    std::vector<Item> items;
    int parts_total = 0;
    int tile = 1;  // query tokens of a chunk that are one item
    bool in_place;  // head_dim fits whole registers, so that single tokens read the cache directly

  public:
    Step(const Model& m, const Batch& b, Team& team)
        : m(m), b(b), team(team), q_size(m.heads * m.head_dim), kv_size(m.kv_heads * m.head_dim), inner(m.layers[0].down.k), threads(team.size),
          rows(b.rows), x(rows, stride_for<float>(m.hidden)), qkv(rows, stride_for<float>(q_size + 2 * kv_size)),
          spare(m.layers[0].attn_post_norm ? rows : 0, stride_for<float>(m.hidden)), normed(rows, stride_for<T>(m.hidden)),
          q(rows, stride_for<T>(q_size)), mixed(rows, stride_for<T>(q_size)), gated(rows, stride_for<T>(inner)),
          in_place(m.head_dim % (2 * VL) == 0) {
        for (int s = 0, row = 0; s < b.slices; row += b.lengths[s++]) {
            first_row.push_back(row);
            slice_of.insert(slice_of.end(), b.lengths[s], s);
        }
        list_items();
    }

    void run() {
        Array<float> partials(parts_total + threads, q_size + 2 * m.heads);  // split tokens, then one per thread
        const int group = m.heads / m.kv_heads;
        Array<char> buffers(threads, ChunkBuffers<T>::bytes(tile, group, m.head_dim));
        team.run([&](Worker& w) {
            ChunkBuffers<T> tiles(buffers.at(w.index), tile, group, m.head_dim);
            embed(w);
            for (int l = 0; l < m.num_layers; l++) layer(w, l, partials, tiles);
            if (b.num_samples) head(w);
        });
    }

  private:
    // Long tiles first, so that the last items handed out are short ones.
    void list_items() {
        const int group = m.heads / m.kv_heads, step = tokens_at_once(group);
        int singles = 0, others = 0;
        for (int s = 0; s < b.slices; s++) (b.lengths[s] == 1 && in_place ? singles : others) += int(b.lengths[s]);
        // As long as the cache allows, but several items for each thread.
        tile = std::max(step, std::min(tokens_held<T>(group, m.head_dim), others * m.kv_heads / (6 * threads) / step * step));
        for (int s = 0; s < b.slices; s++) {
            int length = b.lengths[s];
            if (length == 1 && in_place) continue;
            for (int t = (length - 1) / tile * tile; t >= 0; t -= tile)
                for (int h = 0; h < m.kv_heads; h++)
                    items.push_back({s, first_row[s] + t, std::min(tile, length - t), int(b.starts[s]) + t, h, 0, 1, 0});
        }
        std::stable_sort(items.begin(), items.end(), [](const Item& a, const Item& c) { return a.first > c.first; });
        int wanted = singles ? (4 * threads + singles - 1) / singles : 1;
        for (int s = 0; s < b.slices; s++) {
            if (b.lengths[s] != 1 || !in_place) continue;
            int parts = threads == 1 ? 1 : std::max(1, std::min(wanted, int(b.starts[s] + 1) / SHARE));
            for (int p = 0; p < parts; p++)
                items.push_back({s, first_row[s], 1, int(b.starts[s]), -1, p, parts, parts > 1 ? parts_total + p : -1});
            if (parts > 1) parts_total += parts;
        }
    }

    void embed(Worker& w) {
        constexpr int S = Lane<T>::S;
        w.each((rows + 7) / 8, [&](int i) {
            for (int r = i * 8; r < std::min(rows, i * 8 + 8); r++) {
                float* to = x.at(r);
                if (m.embedding) {
                    const T* row = (const T*)m.embedding + size_t(b.tokens[r]) * m.hidden;
                    for (int k = 0; k < m.hidden; k++) to[k] = to_float(row[k]) * m.embedding_scale;
                } else {
                    const T* row = (const T*)m.head.data + packed_row<T>(b.tokens[r], m.hidden);
                    for (int k = 0; k < m.hidden; k++) to[k] = to_float(row[size_t(k / S) * NB * S + k % S]) * m.embedding_scale;
                }
            }
        });
    }

    template <class To> void norm(Worker& w, const Array<float>& from, const float* weight, const Array<To>& to) {
        w.each((rows + 3) / 4, [&](int i) {
            for (int r = i * 4; r < std::min(rows, i * 4 + 4); r++) rms_norm(from.at(r), weight, to.at(r), m.hidden, m.eps);
        });
    }

    // Runs `done` on every block of x times the weight; `y` null: done gets a buffer, else blocks lie in y.
    template <class Done> void product(Worker& w, const Array<T>& from, const Weight& weight, const Array<float>* y, Done done) {
        const int tall = std::max(24, std::min(120, int(400000 / (weight.k * sizeof(T))) / 12 * 12));  // a panel stays in L2
        int blocks = round_up(weight.n, NB) / NB, panels = (rows + tall - 1) / tall;
        int chunk = std::max(1, std::min(4, blocks / (threads * 8))), chunks = (blocks + chunk - 1) / chunk;
        size_t block_size = size_t(NB) * round_up(weight.k, Lane<T>::S);
        w.each(chunks * panels, [&](int i) {
            int top = i / chunks * tall, count = std::min(tall, rows - top);
            for (int c = i % chunks * chunk; c < std::min(blocks, (i % chunks + 1) * chunk); c++)
                column_block<T>(from.at(top), from.ld, count, (const T*)weight.data + c * block_size, weight.k,
                                weight.bias ? weight.bias + c * NB : nullptr, y ? y->at(top) + c * NB : nullptr, y ? y->ld : 0,
                                [&](int r, int tall, float* block, size_t ld) { done(top + r, c, tall, block, ld); });
        });
    }
    static void nothing(int, int, int, float*, size_t) {}

    // x += weight * from, with the model's norm in between where it has one.
    void project(Worker& w, const Array<T>& from, const Weight& weight, const float* post_norm) {
        if (!post_norm) {
            product(w, from, weight, nullptr, [&](int row, int c, int tall, float* block, size_t ld) {
                for (int r = 0; r < tall; r++)
                    for (int i = 0; i < NB; i += VL) {
                        float* at = x.at(row + r) + c * NB + i;
                        store(at, load(at) + load(block + r * ld + i));
                    }
            });
            return;
        }
        product(w, from, weight, &spare, nothing);
        w.each((rows + 3) / 4, [&](int i) {
            for (int r = i * 4; r < std::min(rows, i * 4 + 4); r++) {
                rms_norm(spare.at(r), post_norm, spare.at(r), m.hidden, m.eps);
                for (int k = 0; k < m.hidden; k++) x.at(r)[k] += spare.at(r)[k];
            }
        });
    }

    void place(const Layer& layer, int row) {
        int slice = slice_of[row], dim = m.head_dim, position = int(b.starts[slice]) + row - first_row[slice];
        const float* cosines = b.rotary[layer.rotary] + size_t(position) * dim;
        const float* sines = cosines + dim / 2;
        float* from = qkv.at(row);
        Cache<T> cache = cache_of(layer, slice);
        for (int h = 0; h < m.heads + m.kv_heads; h++) {
            const float* weight = h < m.heads ? layer.q_norm : layer.k_norm;
            if (weight) rms_norm(from + h * dim, weight, from + h * dim, dim, m.eps);
            T* to = h < m.heads ? q.at(row) + h * dim : (T*)layer.keys + cache.offset(position, h - m.heads);
            rotate(from + h * dim, cosines, sines, to, dim);
        }
        T* to = (T*)layer.values + cache.offset(position, 0);
        for (int i = 0; i < kv_size; i++) store1(to + i, from[q_size + kv_size + i]);
    }

    Cache<T> cache_of(const Layer& layer, int slice) const {
        return {(const T*)layer.keys, (const T*)layer.values, b.tables[layer.group] + size_t(slice) * b.table_width,
                b.page_size, m.kv_heads, m.head_dim};
    }

    Partial partial_at(const Array<float>& partials, int slot) const {
        float* at = partials.at(slot);
        return {at, at + m.heads, at + 2 * m.heads};
    }

    // Whether anybody reads what an item of the last layer yields.
    bool sampled(const Item& item) const {
        const int64_t* found = std::lower_bound(b.samples, b.samples + b.num_samples, int64_t(item.row));
        return found != b.samples + b.num_samples && *found < item.row + item.tokens;
    }

    void attend(Worker& w, const Layer& layer, const Array<float>& partials, ChunkBuffers<T>& tiles) {
        const bool last = &layer == m.layers + m.num_layers - 1;
        Shape shape{m.heads, m.kv_heads, m.head_dim, layer.window, layer.scale, layer.softcap};
        w.each(int(items.size()), [&](int i) {
            const Item& item = items[i];
            if (last && !sampled(item)) return;
            Cache<T> cache = cache_of(layer, item.slice);
            if (item.head >= 0) {
                int column = item.head * (m.heads / m.kv_heads) * m.head_dim;
                attend_chunk<T>(q.at(item.row) + column, q.ld, mixed.at(item.row) + column, mixed.ld, item.first, item.tokens,
                                item.head, cache, shape, tiles);
                return;
            }
            int from = shape.first_key(item.first), count = item.first + 1 - from;
            int begin = from + int(int64_t(count) * item.part / item.parts), end = from + int(int64_t(count) * (item.part + 1) / item.parts);
            Partial p = item.slot >= 0 ? partial_at(partials, item.slot) : partial_at(partials, parts_total + w.index);
            attend_token<T>(q.at(item.row), cache, begin, end, shape, p);
            if (item.slot < 0) finish(item.row, p);
        });
        if (!parts_total) return;
        w.each(int(items.size()), [&](int i) {
            const Item& item = items[i];
            if (item.slot < 0 || item.part || item.head >= 0 || (last && !sampled(item))) return;
            Partial p = partial_at(partials, item.slot);
            for (int part = 1; part < item.parts; part++) merge(p, partial_at(partials, item.slot + part));
            finish(item.row, p);
        });
    }

    // Adds part `other` of one token's attention to `p`, as if its keys had been seen after those of `p`.
    void merge(Partial p, Partial other) const {
        for (int h = 0; h < m.heads; h++) {
            float top = std::max(p.top[h], other.top[h]);
            float a = rescale<T>(splat(p.top[h]), splat(top))[0], c = rescale<T>(splat(other.top[h]), splat(top))[0];
            p.top[h] = top;
            p.total[h] = a * p.total[h] + c * other.total[h];
            for (int d = h * m.head_dim; d < (h + 1) * m.head_dim; d++) p.values[d] = a * p.values[d] + c * other.values[d];
        }
    }

    void finish(int row, Partial p) const {
        for (int h = 0; h < m.heads; h++) {
            V share = splat(1.0f / p.total[h]);
            for (int d = h * m.head_dim; d < (h + 1) * m.head_dim; d += VL) store(mixed.at(row) + d, share * load(p.values + d));
        }
    }

    void layer(Worker& w, int index, const Array<float>& partials, ChunkBuffers<T>& tiles) {
        const Layer& layer = m.layers[index];
        norm(w, x, layer.attn_norm, normed);
        product(w, normed, layer.qkv, &qkv, nothing);
        w.each((rows + 3) / 4, [&](int i) {
            for (int r = i * 4; r < std::min(rows, i * 4 + 4); r++) place(layer, r);
        });
        if (index == m.num_layers - 1 && !b.num_samples) return;
        attend(w, layer, partials, tiles);
        if (index == m.num_layers - 1 && b.num_samples < b.rows) keep_samples(w);
        project(w, mixed, layer.out, layer.attn_post_norm);
        norm(w, x, layer.mlp_norm, normed);
        int activation = m.activation;
        product(w, normed, layer.gate_up, nullptr, [&](int row, int c, int tall, float* block, size_t ld) {
            for (int r = 0; r < tall; r++) {
                V gate = load(block + r * ld), up = load(block + r * ld + VL);
                store(gated.at(row + r) + c * VL, (activation ? gelu_tanh(gate) : silu(gate)) * up);
            }
        });
        project(w, gated, layer.down, layer.mlp_post_norm);
    }

    // Moves the sampling rows to the front.
    void keep_samples(Worker& w) {
        w.each(1, [&](int) {
            for (int i = 0; i < b.num_samples; i++) {
                int row = int(b.samples[i]);
                if (row == i) continue;
                memcpy(x.at(i), x.at(row), sizeof(float) * m.hidden);
                memcpy(mixed.at(i), mixed.at(row), sizeof(T) * q_size);
            }
            rows = b.num_samples;
        });
    }

    void head(Worker& w) {
        norm(w, x, m.final_norm, normed);
        Array<float>* none = nullptr;
        size_t ld = round_up(m.head.n, NB);
        const float cap = m.logit_softcap;
        product(w, normed, m.head, none, [&](int row, int c, int tall, float* block, size_t block_ld) {
            for (int r = 0; r < tall; r++)
                for (int i = 0; i < NB; i += VL) {
                    V logits = load(block + r * block_ld + i);
                    store(b.logits + (row + r) * ld + c * NB + i, cap ? cap * vtanh(logits / cap) : logits);
                }
        });
        if (b.best) w.each(rows, [&](int r) { b.best[r] = largest_index(b.logits + r * ld, m.head.n); });
    }
};
