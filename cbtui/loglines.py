"""Lines of the step log, in wordings from long to short."""

from cbtui.notes import LogEntry
from cbtui.sentences import REASONS, Wordings, count, refusal
from cbtui.view.scene import Scene
from engine.core.observe import StepRecord, Verdict
from engine.core.request import FinishReason


def log_line(scene: Scene, entry: LogEntry) -> Wordings:
    """A line of the step log, without the step number."""
    who, a, b, c = scene.label(entry.key), entry.a, entry.b, entry.c
    if entry.kind == Verdict.ADMIT:
        hit = f", {a} prompt tokens from the prefix cache" if a else ""
        return (
            f"{who} admitted: {count(b, 'new block')}, first chunk of {count(c, 'token')}{hit}",
            f"{who} admitted: {count(b, 'block')} for its prompt" + (f", {a} tokens cached" if a else ""),
            f"{who} admitted: {count(b, 'block')}",
        )
    if entry.kind == Verdict.FINISHED:
        story = scene.state.story(entry.key)
        reason = REASONS.get(story.finish_reason, "done") if story is not None and story.finish_reason else "done"
        kept = f", {c} of them stay cached" if c else ""
        return (
            f"{who} finished ({reason}, {count(a, 'token')}): {count(b, 'block')} given back{kept}",
            f"{who} finished ({reason}): {count(b, 'block')} back" + (f", {c} stay cached" if c else ""),
            f"{who} finished ({reason}): {count(b, 'block')} back",
            f"{who} finished ({reason})",
        )
    if entry.kind == Verdict.OFFLOAD:
        return (
            f"{who} goes to CPU: {count(c, 'block')} saved, {b} freed, room for {scene.label(a)}",
            f"{who} to CPU ({count(c, 'block')}), room for {scene.label(a)}",
            f"{who} to CPU, room for {scene.label(a)}",
        )
    if entry.kind == Verdict.RESTORE:
        return (f"{who} comes back from CPU: {count(a, 'block')} copied", f"{who} back from CPU ({a})")
    if entry.kind == Verdict.RECOMPUTE:
        return (
            f"{who} preempted: {count(b, 'block')} dropped for {scene.label(a)}, will be computed again",
            f"{who} preempted for {scene.label(a)}: {count(b, 'block')} dropped",
            f"{who} preempted for {scene.label(a)}",
        )
    if entry.kind == Verdict.CANCELLED:
        return (f"{who} cancelled after {count(a, 'token')}: {count(b, 'block')} freed", f"{who} cancelled")
    if entry.kind == Verdict.FAILED:
        story = scene.state.story(entry.key)
        error = (story.error if story is not None else None) or "unknown error"
        if story is not None and story.finish_reason is FinishReason.STOPPED:
            return (f"{who} stopped after {count(a, 'token')}: {error}", f"{who} stopped: {error}", f"{who} stopped")
        return (f"{who} failed after {count(a, 'token')}: {error}", f"{who} failed: {error}")
    return _other_line(scene, who, entry)


def _other_line(scene: Scene, who: str, entry: LogEntry) -> Wordings:
    if entry.kind == Verdict.REJECT_NEVER_FITS:
        need = count(entry.a, "block")
        return (f"{who} refused: needs {need} at full length, the pool has {entry.b}", f"{who} never fits")
    if entry.kind == Verdict.REJECT_TOO_LONG:
        return (f"{who} refused: {entry.a} tokens, the model allows {entry.b}", f"{who} is too long")
    if entry.kind == "refused":
        return tuple(f"{who} {words}" for words in refusal(entry.text) if words.startswith("refused"))
    if entry.kind == "setting":
        return (f"setting {entry.text}", entry.text)
    if entry.kind == "broken":
        what = f"invariant broken: {scene.named(entry.text)}"
        return (what, what.split(", ")[0], "invariant broken")
    if entry.kind == "engine":
        pool = f"{count(entry.a, 'block')} of {count(entry.b, 'token')}"
        return (f"a new engine goes on here, with an empty pool of {pool}", f"a new engine: {pool}", "a new engine")
    if entry.kind == "missed":
        return (
            f"{count(entry.a, 'step')} not seen: the view was too slow, here it starts again",
            f"{entry.a} not seen",
        )
    return (entry.text,)


def quiet_line(scene: Scene, record: StepRecord) -> Wordings:
    """What a step did in which nothing special happened."""
    decodes = [part for part in record.slices if part.kind == "decode"]
    chunks = [part for part in record.slices if part.kind != "decode"]
    words = [f"{len(decodes)} decode"] if decodes else []
    words += [f"prefill {part.query} of {scene.label(part.seq)}" for part in chunks]
    if not words:
        come = [info.seq for info in record.requests]
        return (f"{scene.labels(come)} queued",) if come else ("nothing to compute",)
    short = [f"{len(decodes)} decode"] if decodes else []
    if chunks:
        short.append(f"{len(chunks)} prefill")
    return (", ".join(words), " + ".join(short))
