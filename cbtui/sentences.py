"""Every decision as a sentence with its numbers, in wordings from long to short: the longest that fits is shown."""

import re

from cbtui.picture import Live
from cbtui.stories import Story
from cbtui.text import unnamed
from cbtui.view.scene import Scene
from engine.core.observe import Decision, Verdict
from engine.core.request import FinishReason

Wordings = tuple[str, ...]

REASONS = {
    FinishReason.EOS: "eos",
    FinishReason.STOP_STRING: "stop string",
    FinishReason.LENGTH: "max tokens",
    FinishReason.CANCELLED: "cancelled",
    FinishReason.FAILED: "failed",
    FinishReason.STOPPED: "engine stopped",
}


def count(number: int, noun: str) -> str:
    """``3 blocks``, ``1 block``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def memory(size: int) -> str:
    """Bytes in MiB, and in KiB where that would be less than one."""
    return f"{size / 2**20:.0f} MiB" if size >= 2**20 else f"{size / 2**10:.4g} KiB"


def percent(share: float) -> str:
    return f"{share * 100:.0f}%" if abs(share * 100 - round(share * 100)) < 0.05 else f"{share * 100:.1f}%"


def seconds(value: float | None) -> str:
    """A duration in three or four characters: ``33ms``, ``0.84s``, ``12.3s``, ``5m02``; ``--`` when unknown."""
    if value is None or value < 0:
        return "--"
    if value < 0.0995:
        return f"{value * 1000:.0f}ms" if value >= 0.00095 else f"{value * 1000:.1f}ms"
    if value < 9.995:
        return f"{value:.2f}s"
    if value < 99.95:
        return f"{value:.1f}s"
    if value < 6000:
        return f"{value // 60:.0f}m{value % 60:02.0f}"
    return f"{value / 3600:.1f}h"


def brief(value: float | None) -> str:
    """A duration in at most four characters: ``33ms``, ``0.8s``, ``12s``, ``5m``; ``--`` when unknown."""
    if value is None or value < 0:
        return "--"
    if value < 0.0995:
        return f"{value * 1000:.0f}ms"
    if value < 9.95:
        return f"{value:.1f}s"
    return f"{value:.0f}s" if value < 99.5 else f"{min(value / 60, 999):.0f}m"


def why(scene: Scene, story: Story) -> Wordings:
    """Why a request is where it is."""
    live = scene.live(story.key)
    if story.is_refused:
        return refusal(story.refusal)
    if live is None or live.change.place == "done":
        return _why_ended(scene, story, live)
    decision = scene.decision(story)
    state = scene.state_of(story)
    if decision is None:
        if live.change.place != "waiting":
            return ("no decision yet",)
        held = scene.chrome.engine == "held" and not scene.is_past
        return ("the engine is paused", "paused") if held else ("waits for the next step", "in the queue")
    if decision.verdict in WAITS:
        prefix = "waits: "
        if live.change.place == "offloaded":
            prefix = f"on CPU, {count(live.change.host_blocks, 'block')}: "
        elif state == "stalled":
            prefix = "paused: " if scene.chrome.engine == "held" and not scene.is_past else "stalled: "
        elif story.started >= 0 and live.change.place == "waiting" and live.change.preemptions:
            prefix = f"preempted {live.change.preemptions}{scene.theme.glyphs.times}, waits: "
        return WAITS[decision.verdict](scene, decision, prefix)
    return _why_active(scene, story, live, decision)


def refusal(text: str) -> Wordings:
    """Why a request was turned away, in as much detail as there is room for."""
    text = unnamed(text)
    shorter = re.split(r"[,;:] ", text)
    return tuple(dict.fromkeys((f"refused: {text}", text, f"refused: {', '.join(shorter[:2])}", ", ".join(shorter[:2]),
                                f"refused: {shorter[0]}", shorter[0])))  # fmt: skip


def _why_active(scene: Scene, story: Story, live: Live, decision: Decision) -> Wordings:
    a, b = decision.a, decision.b
    if decision.verdict is Verdict.DECODE:
        return _decode(scene, story, live)
    if decision.verdict is Verdict.CHUNK:
        return _chunk(scene, a, b)
    if decision.verdict is Verdict.ADMIT:
        part = scene.slice_of(story.key)
        query = part.query if part is not None else 0
        left = max(0, live.prompt - live.change.computed)
        hit = f", {a} of {live.prompt} prompt tokens from the prefix cache" if a else ""
        return (
            f"admitted with {count(b, 'new block')}{hit}: chunk of {query}, {left} to go",
            f"admitted: chunk of {query}, {left} to go" + (f", {a} cached" if a else ""),
            f"chunk of {query}, {left} to go",
            f"chunk of {query}",
        )
    if decision.verdict is Verdict.RESTORE:
        return (
            f"back from CPU: {count(a, 'block')} copied in this step, {b} host slots still in use by others",
            f"back from CPU: {count(a, 'block')} copied in this step",
            f"back from CPU: {count(a, 'block')} copied",
            f"{count(a, 'block')} back from CPU",
            f"{a} back from CPU",
        )
    if decision.verdict is Verdict.OFFLOAD:
        held = live.change.host_blocks
        who = scene.label(a)
        return (
            f"to CPU: {count(held, 'block')} saved, {b} freed; makes room for {who}",
            f"to CPU: {count(held, 'block')}, makes room for {who}",
            f"{count(held, 'block')} to CPU, room for {who}",
            f"to CPU, for {who}",
        )
    if decision.verdict is Verdict.RECOMPUTE:
        who = scene.label(a)
        return (
            f"preempted: {count(b, 'block')} dropped to make room for {who}, will be computed again",
            f"preempted: {count(b, 'block')} dropped for {who}, recomputes",
            f"preempted for {who}, recomputes",
            "recomputes later",
        )
    return (str(decision.verdict).replace("_", " "),)


def _decode(scene: Scene, story: Story, live: Live) -> Wordings:
    blocks, partners = shared_with(scene, live)
    new = count(len(scene.picture.windows), "block")
    limit = story.limit
    ahead = live.steps_to_block(scene.picture.page_size, limit)
    when = "in the next step" if ahead == 1 else f"in {ahead} steps"
    left = max(0, limit - live.output) if limit is not None else None
    go = f"at most {count(left, 'token')} to go" if left is not None else ""
    short = f"{scene.theme.glyphs.at_most} {left} to go"
    if ahead is None:  # the limit is known, else another block would come
        return (f"no new block needed any more, {go}", f"no new block needed, {short}", short)
    if blocks:
        shared = f"{count(blocks, 'block')} shared with {scene.labels(partners)}"
        return (f"{shared}, next {new} {when}, {go}", f"{shared}, next {new} {when}", shared, f"{blocks} shared")
    return (f"next {new} {when}, {go}", f"{new} {when}, {short}", f"next {new} {when}", short)


def shared_with(scene: Scene, live: Live) -> tuple[int, list[int]]:
    """How many blocks of a sequence others point at too, and who they are."""
    blocks, partners, pool = 0, set(), scene.picture.blocks
    for table in live.tables:
        for number in [number for number in table if number and len(pool[number].owners) > 1]:
            others = {seq for seq, _ in pool[number].owners if seq != live.key}
            if others:
                blocks += 1
                partners |= others
    return blocks, sorted(partners)


def _chunk(scene: Scene, now: int, left: int) -> Wordings:
    record = scene.batch
    go = f"{left} to go" if left else "the last one, decodes next"
    decodes = sum(1 for part in record.slices if part.kind == "decode") if record is not None else 0
    if left and decodes and record is not None and record.limit == "tokens":
        rest = f"chunk of {now} = what {count(decodes, 'decode')} left over, {go}"
    elif left:
        rest = f"chunk of {now} = the whole budget of this step, {go}"
    else:
        rest = f"chunk of {now}: {go}"
    last = () if left else (f"chunk of {now}: the last, decodes next",)
    return (rest, f"chunk of {now}, {go}", *last, f"chunk of {now}")


def _wait_tokens(scene: Scene, d: Decision, prefix: str) -> Wordings:
    wants = count(d.a, "token")
    return (
        f"{prefix}wants {wants}, the step had {d.b} of its token budget left",
        f"{prefix}wants {wants}, {d.b} of the budget left",
        f"wants {wants}, {d.b} left in the budget",
        f"no tokens left ({d.a} wanted, {d.b} left)",
        f"{d.a} wanted, {d.b} left",
        "no tokens left",
    )


def _wait_rows(scene: Scene, d: Decision, prefix: str) -> Wordings:
    return (
        f"{prefix}{d.a} of {count(d.b, 'row')} taken, one must end first",
        f"{prefix}{d.a} of {count(d.b, 'row')} taken",
        f"no free row ({d.a} of {d.b})",
        "no free row",
    )


def _wait_blocks(scene: Scene, d: Decision, prefix: str) -> Wordings:
    """Its number is what the others of the step leave; where that differs from what is usable now, it says so."""
    usable = f"only {d.b} usable" if d.b == scene.picture.usable else f"the others leave {d.b}"
    return (
        f"{prefix}needs {count(d.a, 'block')}, {usable}: {d.a - d.b} too few",
        f"{prefix}needs {count(d.a, 'block')}, {usable}",
        f"needs {count(d.a, 'block')}, {usable}",
        f"needs {count(d.a, 'block')}, has {d.b}",
        f"needs {d.a}, has {d.b}",
    )


def _wait_margin(scene: Scene, d: Decision, prefix: str) -> Wordings:
    share = scene.number("safety_margin")
    margin = f"{percent(share)} margin" if share is not None else "safety margin"
    return (
        f"{prefix}would leave {count(max(0, d.a), 'block')} usable, the {margin} keeps {d.b}: {d.b - d.a} too few",
        f"{prefix}would leave {count(d.a, 'block')}, the {margin} keeps {d.b}",
        f"would leave {count(d.a, 'block')}, the {margin} keeps {d.b}",
        f"leaves {count(d.a, 'block')}, margin keeps {d.b}",
        f"margin keeps {d.b}",
    )


def _wait_order(scene: Scene, d: Decision, prefix: str) -> Wordings:
    who, policy = scene.label(d.a), scene.policy or "the queue"
    return (
        f"waits behind {who}: {policy} is strict, nobody overtakes; place {d.b} in the queue",
        f"waits behind {who}: {policy} is strict, nobody overtakes",
        f"waits behind {who}: strict {policy}",
        f"behind {who}",
    )


def _wait_in_flight(scene: Scene, d: Decision, prefix: str) -> Wordings:
    words = f"step {d.a} in flight"
    return (f"{prefix}its next token depends on step {d.a}, which is in flight", f"waits for {words}", words)


def _wait_prefill(scene: Scene, d: Decision, prefix: str) -> Wordings:
    return (
        f"decode held back by prefill_first, {d.a} of at most {count(d.b, 'step')} in a row",
        f"held back by prefill_first ({d.a} of {count(d.b, 'step')})",
        f"prefill first ({d.a} of {d.b})",
        "prefill first",
    )


WAITS = {
    Verdict.WAIT_TOKENS: _wait_tokens,
    Verdict.WAIT_ROWS: _wait_rows,
    Verdict.WAIT_BLOCKS: _wait_blocks,
    Verdict.WAIT_MARGIN: _wait_margin,
    Verdict.WAIT_ORDER: _wait_order,
    Verdict.WAIT_IN_FLIGHT: _wait_in_flight,
    Verdict.WAIT_PREFILL: _wait_prefill,
}


def _why_ended(scene: Scene, story: Story, live: Live | None) -> Wordings:
    change = live.change if live is not None else story.change
    error = story.error or (change.error if change is not None else None)
    rejected = next((e for e in reversed(story.events) if e.kind.startswith("reject_")), None)
    if rejected is not None and rejected.kind == Verdict.REJECT_NEVER_FITS:
        return (
            f"refused: at full length it needs {count(rejected.a, 'block')}, the pool has {rejected.b}",
            f"needs {count(rejected.a, 'block')}, the pool has {rejected.b}",
            f"needs {rejected.a} of {rejected.b}",
        )
    if rejected is not None:
        return (
            f"refused: {rejected.a} tokens, the model allows {rejected.b}",
            f"{rejected.a} tokens, at most {rejected.b}",
            f"too long: {rejected.a}",
        )
    at = f"at {story.ended}" if story.ended >= 0 else ""
    tokens = count(len(story.tokens), "token")
    reason = REASONS.get(change.finish_reason, "") if change is not None and change.finish_reason else ""
    stopped = change is not None and change.finish_reason is FinishReason.STOPPED
    if error and not stopped:
        return (f"failed {at}: {error}", error)
    if stopped or reason == "cancelled":
        long = f"{reason} {at} after {tokens}"
        return (f"{long}, {count(story.freed, 'block')} freed", long, f"{reason} {at}", reason)
    long = f"finished {at} ({reason})"
    return (f"{long}, {count(story.freed, 'block')} given back", long, f"finished ({reason})", reason or at)
