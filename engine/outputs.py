"""From a sequence to what a caller gets."""

from collections.abc import Sequence as Seq
from typing import Any

from engine.core.outcome import TokenEvent
from engine.core.request import FinishReason, GenerationOutput, Request, RequestStatus, Sequence
from engine.detokenize import TextStream, decode_all


class OutputMaker:
    """Builds outputs, and keeps the text streams of sequences whose text is read while it grows.

    Args:
        tokenizer: gives outputs their text; without it ``text`` is None.
    """

    def __init__(self, tokenizer: Any = None) -> None:
        self.tokenizer = tokenizer
        self._streams: dict[int, TextStream] = {}
        self._texts: dict[int, str] = {}
        self._prompts: dict[int, list[int]] = {}

    def text_of(self, seq: Sequence) -> str:
        """Text that became decodable with the last token of ``seq``; what the scheduler looks for stop strings in."""
        stream = self._streams.get(seq.key)
        if stream is None:
            stream = self._streams[seq.key] = TextStream(self.tokenizer)
        return stream.push(seq.tokens[-1])

    def partials(self, events: Seq[TokenEvent], ended: Seq[Sequence]) -> list[GenerationOutput]:
        """One partial output for each new token of a streaming sequence that goes on."""
        over = {seq.key for seq in ended}
        outputs = []
        for seq, _, _ in events:
            if not seq.request.streaming or seq.key in over or seq.status >= RequestStatus.FINISHED:
                continue
            if self.tokenizer is not None and not seq.request.stop_strings:
                self._texts[seq.key] = self._texts.get(seq.key, "") + self.text_of(seq)
            text = seq.text if seq.request.stop_strings else self._texts.get(seq.key)
            outputs.append(self._output(seq, text))
        return outputs

    def terminal(self, seq: Sequence) -> GenerationOutput:
        """The last output of a sequence that ended."""
        output = self._output(seq, self._final_text(seq))
        for kept in (self._streams, self._texts, self._prompts):
            kept.pop(seq.key, None)  # type: ignore[attr-defined]
        return output

    def _final_text(self, seq: Sequence) -> str | None:
        if self.tokenizer is None:
            return None
        if not seq.request.stop_strings:
            return decode_all(self.tokenizer, seq.tokens[seq.num_prompt :])
        stream = self._streams.get(seq.key)
        tail = "" if stream is None or seq.finish_reason is FinishReason.STOP_STRING else stream.flush()
        return seq.text + tail

    def _output(self, seq: Sequence, text: str | None) -> GenerationOutput:
        request = seq.request
        prompt = self._prompts.get(seq.key)
        if prompt is None:
            prompt = self._prompts[seq.key] = list(request.prompt_ids)
        first = seq.first_token_time
        return GenerationOutput(
            request_id=seq.output_id,
            prompt_ids=prompt,
            generated_tokens=seq.tokens[seq.num_prompt :],
            logprobs=list(seq.logprobs) if request.sampling.logprobs >= 0 else [],
            error=seq.error,
            status=seq.status,
            created_time=request.created_time,
            lifespan=(seq.started_time, seq.finished_time),
            timestamps=list(seq.timestamps) if request.record_timestamps else None,
            finish_reason=seq.finish_reason,
            text=text,
            top_logprobs=list(seq.top_logprobs) if request.sampling.logprobs > 0 else [],
            cached_tokens=seq.cached_tokens,
            preemptions=seq.preemptions,
            time_to_first_token=first - request.created_time if first >= 0 else None,
        )


def never_started(request: Request, output_id: str, reason: FinishReason, error: str, now: float) -> GenerationOutput:
    """The terminal output of a sequence the scheduler never saw, or can no longer be asked about."""
    cancelled = reason is FinishReason.CANCELLED
    return GenerationOutput(
        request_id=output_id,
        prompt_ids=list(request.prompt_ids),
        error=None if cancelled else error,
        status=RequestStatus.CANCELLED if cancelled else RequestStatus.FAILED,
        created_time=request.created_time,
        lifespan=(-1.0, now),
        timestamps=[] if request.record_timestamps else None,
        finish_reason=reason,
    )
