"""A request as a person wrote it, handed to the engine: the one place that knows the engine's argument names."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from cbtui.launch import RequestSpec
from engine.core.errors import EngineError

T = TypeVar("T")


def submit(
    add: Callable[..., T | None],
    spec: RequestSpec,
    prompt_ids: Sequence[int],
    copy: int = 0,
    *,
    streaming: bool | None = None,
) -> T:
    """Adds copy number ``copy`` of a request and returns the id it got.

    Args:
        add: the manager's ``add_request`` or ``forecast``, or the engine's ``submit``: what it answers is returned.
        prompt_ids: the prompt's tokens, chat template included.
        copy: further copies draw with seeds, and have names, of their own.
        streaming: deliver partial outputs; None is what ``spec`` says.

    Raises:
        RequestError: the engine refuses it; nothing was queued.
        EngineError: the engine takes no requests any more.
    """
    sampling: dict[str, Any] = {"do_sample": spec.temperature > 0}
    if spec.temperature > 0:  # the engine takes no 0; left out, the model's own default holds, which mostly keeps all
        sampling |= {"temperature": spec.temperature, "top_k": spec.top_k or None, "top_p": spec.top_p}
        sampling |= {"min_p": spec.min_p} if spec.min_p else {}
    sampling |= dict(spec.further)
    if spec.logprobs:
        sampling["logprobs"] = 0
    if spec.ignore_eos:
        sampling["min_new_tokens"] = spec.max_new_tokens
    taken = add(
        list(prompt_ids),
        request_id=f"{spec.request_id}-{copy + 1}" if copy and spec.request_id is not None else spec.request_id,
        max_new_tokens=None if "max_length" in sampling else spec.max_new_tokens,
        stop_strings=list(spec.stop_strings) or None,
        streaming=spec.streaming if streaming is None else streaming,
        seed=None if spec.seed is None else spec.seed + copy,
        **sampling,
    )
    if taken is None:
        raise EngineError("the engine is stopping or stopped and takes no requests")
    return taken
