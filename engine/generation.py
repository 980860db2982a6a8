"""A ``GenerationConfig`` read as the defaults of every request."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from engine.core.config import ContinuousBatchingConfig
from engine.core.errors import ConfigError

# What generate() can do and this engine cannot, with the values that mean "off".
UNSUPPORTED: Mapping[str, tuple[Any, ...]] = {
    "num_beams": (1,),
    "num_beam_groups": (1,),
    "diversity_penalty": (0.0,),
    "typical_p": (1.0,),
    "top_h": (),
    "epsilon_cutoff": (0.0,),
    "eta_cutoff": (0.0,),
    "encoder_repetition_penalty": (1.0,),
    "encoder_no_repeat_ngram_size": (0,),
    "renormalize_logits": (False,),
    "remove_invalid_values": (False,),
    "exponential_decay_length_penalty": (),
    "begin_suppress_tokens": ((), []),
    "forced_eos_token_id": (),
    "guidance_scale": (1, 1.0),
    "watermarking_config": (),
    "penalty_alpha": (0.0,),
    "dola_layers": (),
    "constraints": (),
    "force_words_ids": (),
    "token_healing": (False,),
    "max_time": (),
    "prompt_lookup_num_tokens": (),
    "output_attentions": (False,),
    "output_hidden_states": (False,),
    "output_scores": (False,),
    "output_logits": (False,),
}

# Names under which a generation config may hold a default of a request; the values are taken as they are.
SUPPORTED = (
    "max_new_tokens",
    "max_length",
    "min_new_tokens",
    "min_length",
    "do_sample",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "no_repeat_ngram_size",
    "bad_words_ids",
    "suppress_tokens",
    "sequence_bias",
    "forced_bos_token_id",
    "stop_strings",
    "eos_token_id",
    "num_return_sequences",
)


def request_defaults(generation_config: Any, *, drop_unsupported: bool) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Defaults of every request, and what had to be left out.

    Args:
        generation_config: a ``GenerationConfig`` or anything with its attributes; None gives no defaults.
        drop_unsupported: leave out what the engine cannot do, naming it, instead of refusing the configuration.

    Returns:
        The non-None values by their ``GenerationConfig`` name, and one sentence for everything dropped.

    Raises:
        ConfigError: something is switched on that the engine cannot do and ``drop_unsupported`` is False.
    """
    if generation_config is None:
        return {}, ()
    notices = []
    for name, neutral in UNSUPPORTED.items():
        value = getattr(generation_config, name, None)
        if value is None or value in neutral:
            continue
        if not drop_unsupported:
            raise ConfigError(
                f"{name}={value!r} of the generation config is not supported here; remove it, or set "
                "drop_unsupported_processors=True to go on without it"
            )
        notices.append(f"{name}={value!r} of the generation config is not supported and was dropped")
    extra = getattr(generation_config, "__dict__", {})
    for spec in fields(ContinuousBatchingConfig):
        if spec.name != "seed" and extra.get(spec.name) is not None:
            notices.append(f"{spec.name} belongs in ContinuousBatchingConfig; in the generation config it is not used")
    found = {name: getattr(generation_config, name, None) for name in SUPPORTED}
    found["seed"] = extra.get("seed")
    return {name: value for name, value in found.items() if value is not None}, tuple(notices)
