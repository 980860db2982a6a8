// What crosses the border from Python: plain structures, mirrored field by field in native.py.
#pragma once
#include <cstdint>

struct Weight {
    const void* data;   // packed (linear.h)
    const float* bias;  // in packed order, padded, or null
    int32_t n, k;       // outputs and inputs
};

struct Layer {
    Weight qkv, out, gate_up, down;
    const float *attn_norm, *attn_post_norm;  // [hidden]; a post norm is null where the model has none
    const float *mlp_norm, *mlp_post_norm;
    const float *q_norm, *k_norm;             // [head_dim] or null
    void *keys, *values;                      // [blocks][page_size][kv_heads][head_dim]
    float scale, softcap;
    int32_t window, group, rotary;            // window 0: full; which block table; which rotary table
};

struct Model {
    const Layer* layers;
    Weight head;
    const void* embedding;    // [vocab][hidden] plain, or null: read from the packed head
    const float* final_norm;  // [hidden]
    float eps, embedding_scale, logit_softcap;
    int32_t num_layers, hidden, heads, kv_heads, head_dim, activation;  // activation 0 silu, 1 tanh-gelu
};

// Slice i is `lengths[i]` query tokens at positions starts[i] ...; their rows follow each other in plan order.
struct Batch {
    const int64_t *tokens, *starts, *lengths;       // [rows], [slices], [slices]
    const int32_t* const* tables;                   // per layer group: [slices][table_width]
    const float* const* rotary;                     // per rotary table: [positions][2][head_dim / 2], cosines then sines
    const int64_t* samples;                         // rows whose logits are wanted, ascending
    float* logits;                                  // [num_samples][round_up(vocab, NB)]
    int64_t* best;                                  // [num_samples] lowest index of the largest logit, -1 if one is not finite; or null
    int32_t rows, slices, num_samples, page_size, table_width;
};
