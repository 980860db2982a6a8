"""Random tiny models and the answer ``transformers`` gives for one prompt alone.

Every model has float32 weights drawn from a fixed seed, a vocabulary of 97 and no end-of-sequence token, so that runs
are quick, repeatable and as long as they were asked to be.
"""

from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

VOCAB = 97

_COMMON: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
    "tie_word_embeddings": False,
    "initializer_range": 0.3,
}

_KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "qwen2": ("qwen2", {}),
    "qwen3": ("qwen3", {"head_dim": 8}),
    "mistral": ("mistral", {"sliding_window": 6, "head_dim": 8}),
    "gemma2": (
        "gemma2",
        {
            "num_hidden_layers": 4,
            "head_dim": 8,
            "sliding_window": 6,
            "query_pre_attn_scalar": 8,
            "attn_logit_softcapping": 20.0,
            "final_logit_softcapping": 15.0,
        },
    ),
    "gemma3": (
        "gemma3_text",
        {
            "num_hidden_layers": 6,
            "head_dim": 8,
            "sliding_window": 6,
            "query_pre_attn_scalar": 8,
            "layer_types": ["sliding_attention"] * 5 + ["full_attention"],
        },
    ),
}


def tiny_model(kind: str, *, seed: int = 0, **overrides: Any) -> PreTrainedModel:
    """A random model of the given architecture, float32, on the CPU, eager attention, in evaluation mode.

    Args:
        kind: one of llama, qwen2, qwen3, mistral, gemma2, gemma3.
        seed: of the weights. The global random state is left as it was.
        overrides: fields of the ``transformers`` config, for example ``sliding_window=4`` or ``num_hidden_layers=3``.
    """
    model_type, extra = _KINDS[kind]
    fields = {**_COMMON, **extra, **overrides}
    layers = fields["num_hidden_layers"]
    if kind == "gemma3" and "layer_types" not in overrides and layers != len(fields["layer_types"]):
        fields["layer_types"] = ["full_attention" if i % 6 == 5 else "sliding_attention" for i in range(layers)]
    config = AutoConfig.for_model(model_type, **fields)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float32)
    return model.eval()


def reference(model: PreTrainedModel, prompt: list[int], max_new_tokens: int, **generation: Any) -> list[int]:
    """The new tokens of ``model.generate`` for this prompt alone; greedy unless ``generation`` says otherwise."""
    settings: dict[str, Any] = {"do_sample": False, **generation}
    input_ids = torch.tensor([prompt], device=model.device)
    with torch.no_grad():
        output = model.generate(
            input_ids,
            attention_mask=torch.ones_like(input_ids),
            max_new_tokens=max_new_tokens,
            **settings,
        )
    return output[0, len(prompt) :].tolist()
