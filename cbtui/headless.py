"""The engine without the monitor: ``cbtui generate``."""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cbtui.launch import RequestSpec
from cbtui.loader import warm_up
from cbtui.options import Choices, OptionError
from cbtui.prompts import encode
from cbtui.sentences import count
from cbtui.show import LoadLine, StatusLine, tell_cut, tell_loaded
from cbtui.start import ask_fetch, load_model, plan_engine, requests_of
from cbtui.submit import submit
from cbtui.text import plain_error, unnamed
from engine.core.errors import EngineError, RequestError
from engine.core.request import FinishReason, GenerationOutput

if TYPE_CHECKING:
    pass

OK, FAILED = 0, 1


@dataclass(slots=True)
class _Job:
    """One sequence that was asked for: its result comes later, or ``error`` says why it was refused."""

    spec: RequestSpec
    request_id: str | None
    output: GenerationOutput | None = None
    error: str | None = None

    @property
    def is_done(self) -> bool:
        return self.output is not None or self.error is not None


def generate(choices: Choices, *, as_json: bool = False) -> int:
    """Runs the prompts and writes each result as soon as it and all before it are done.

    Returns:
        0, or 1 when a request failed or was refused.

    Raises:
        OptionError: there is no prompt. LoadError, ConfigError, EngineError: as they come.
    """
    from engine.manager import ContinuousBatchingManager

    specs = requests_of(choices) or _from_standard_input(choices)
    with LoadLine() as line:
        loaded = load_model(choices, line, ask_fetch)
    blueprint = plan_engine(loaded, choices.config)
    tell_loaded(loaded, blueprint.notices)
    prompts = [prompt_ids(loaded.tokenizer, spec) for spec in specs]
    tell_cut(specs, prompts, blueprint.config.max_length.value)
    manager = ContinuousBatchingManager(loaded.model, blueprint=blueprint)
    with LoadLine() as line:
        warm_up(manager, line)
    manager.start()
    try:
        if len(specs) == 1 and specs[0].copies == 1 and not as_json and sys.stdout.isatty():
            code = _stream(manager, loaded.tokenizer, specs[0], prompts[0])
        else:
            code = _batch(manager, loaded.tokenizer, specs, prompts, as_json)
    except BaseException:
        if manager.is_running():
            manager.stop(block=True, timeout=10.0, hard_stop=True)
        raise
    # Everything is delivered, so closing may take its time: on a busy machine a bound would call it a failure.
    manager.stop()
    if manager.status.state == "failed":  # asked last: an engine that dies delivers the results before it says so
        raise EngineError(str(manager.status.error))
    return code


def prompt_ids(tokenizer: Any, spec: RequestSpec) -> list[int]:
    """The tokens of a request's prompt."""
    return list(spec.prompt_ids) or encode(tokenizer, spec.text, spec.chat)


def _from_standard_input(choices: Choices) -> tuple[RequestSpec, ...]:
    if sys.stdin.isatty():
        raise OptionError("there is no prompt: use --prompt, --prompts-file, or pipe a text in.")
    text = sys.stdin.read().strip()
    if not text:
        raise OptionError("there is no prompt: standard input is empty.")
    return (replace(choices.spec, text=text),)


def _batch(
    manager: Any, tokenizer: Any, specs: Sequence[RequestSpec], prompts: Sequence[Sequence[int]], as_json: bool
) -> int:
    jobs: list[_Job] = []
    for spec, ids in zip(specs, prompts, strict=True):
        for copy in range(spec.copies):
            try:
                jobs.append(_Job(spec, submit(manager.add_request, spec, ids, copy, streaming=False)))
            except (RequestError, EngineError) as error:
                jobs.append(_Job(spec, spec.request_id, error=str(error)))
    by_id = {job.request_id: job for job in jobs if job.error is None}
    written = _write_done(jobs, 0, tokenizer, as_json)
    began, tokens = time.perf_counter(), 0
    with StatusLine() as line:
        for output in manager:
            if not output.is_finished():
                continue
            by_id[output.request_id].output = output
            tokens += len(output.generated_tokens)
            seconds = time.perf_counter() - began
            done = sum(job.is_done for job in jobs)
            line.show(
                f"{done}/{count(len(jobs), 'request')}  {count(tokens, 'token')}  {tokens / seconds:.1f} tokens/s"
            )
            written = _write_done(jobs, written, tokenizer, as_json)
            if written == len(jobs):
                break
    seconds = time.perf_counter() - began
    print(f"{count(len(jobs), 'request')}, {count(tokens, 'token')} in {seconds:.1f} s", file=sys.stderr)
    return OK if all(_is_good(job) for job in jobs) else FAILED


def _is_good(job: _Job) -> bool:
    ends = (FinishReason.EOS, FinishReason.LENGTH, FinishReason.STOP_STRING)
    return job.output is not None and job.output.finish_reason in ends


def _ending(job: _Job) -> str:
    """How a request ended, in words for a person: an error's class is for programs."""
    if job.output is None:
        return "the engine ended first"
    return plain_error(job.output.error or str(job.output.finish_reason))


def _write_done(jobs: Sequence[_Job], written: int, tokenizer: Any, as_json: bool) -> int:
    """Writes results from the first one not written on, as far as they are done without a gap."""
    while written < len(jobs) and jobs[written].is_done:
        job = jobs[written]
        if as_json:
            print(json.dumps(record_of(job.spec, job.request_id, job.output, job.error, tokenizer)), flush=True)
        else:
            _write_text(job, written, len(jobs), tokenizer)
        written += 1
    return written


def _write_text(job: _Job, index: int, count: int, tokenizer: Any) -> None:
    if count > 1:
        title = " ".join(job.spec.text.split())
        print(f"[{index + 1}/{count}] {title[:70]}{'…' if len(title) > 70 else ''}")
    if job.output is not None:
        print(text_of(job.output, tokenizer))
        if not _is_good(job):
            print(f"cbtui: request {job.request_id}: {_ending(job)}", file=sys.stderr)
    else:
        print(f"cbtui: request {index + 1} refused: {unnamed(job.error)}", file=sys.stderr)
    if count > 1:
        print(flush=True)


def text_of(output: GenerationOutput, tokenizer: Any) -> str:
    """The text of a result: the engine's own when it cut a stop string, else its tokens decoded."""
    if output.text is not None:
        return output.text
    return tokenizer.decode(output.generated_tokens, skip_special_tokens=True)


def record_of(
    spec: RequestSpec, request_id: str | None, output: GenerationOutput | None, error: str | None, tokenizer: Any
) -> Mapping[str, Any]:
    """A result as a JSON object. Seconds are of the engine's clock; a refused request has no tokens and an error."""
    record: dict[str, Any] = {"id": request_id, "prompt": spec.text or list(spec.prompt_ids)}
    if output is None:
        return {**record, "text": None, "finish_reason": None, "error": error}
    began, ended = output.lifespan
    record |= {
        "text": text_of(output, tokenizer),
        "finish_reason": None if output.finish_reason is None else str(output.finish_reason),
        "error": output.error,
        "prompt_tokens": len(output.prompt_ids),
        "tokens": list(output.generated_tokens),
        "cached_tokens": output.cached_tokens,
        "preemptions": output.preemptions,
        "time_to_first_token": output.time_to_first_token,
        "seconds": ended - began if ended >= began >= 0 else None,
    }
    if output.logprobs:
        record["logprobs"] = list(output.logprobs)
    return record


def _stream(manager: Any, tokenizer: Any, spec: RequestSpec, ids: Sequence[int]) -> int:
    """One request, its text written as it comes."""
    from engine.detokenize import TextStream

    try:
        request_id = submit(manager.add_request, spec, ids, streaming=True)
    except RequestError as error:
        print(f"cbtui: refused: {unnamed(str(error))}", file=sys.stderr)
        return FAILED
    stream, shown = TextStream(tokenizer), 0
    job = _Job(spec, request_id)
    for output in manager:
        for token in output.generated_tokens[shown:]:
            print(stream.push(token), end="", flush=True)
        shown = len(output.generated_tokens)
        if output.is_finished():
            job.output = output
            break
    print(stream.flush())
    if not _is_good(job):
        print(f"cbtui: request {request_id}: {_ending(job)}", file=sys.stderr)
        return FAILED
    return OK
