"""The body of the explain dialog: the scheduler's checks, the margin as a bar, who holds blocks, what would help."""

from typing import TYPE_CHECKING

from cbtui import sentences
from cbtui.letters import cell_letter
from cbtui.sentences import count, percent, seconds
from cbtui.view.cells import Panel, Part, Row, RowBuilder, blank, choose, heading
from cbtui.view.scene import Scene
from engine.core.observe import Verdict

if TYPE_CHECKING:
    from engine.core.forecast import Check, Explanation, Trial

WIDEST = 8
"""Cells of one block in the bars, at most."""
_QUESTIONS = {
    "fits": "can it ever fit?", "turn": "is it its turn?", "row": "a free row?", "tokens": "tokens left?",
    "blocks": "enough blocks?", "margin": "margin kept?",
}  # fmt: skip
_KEYS = {"margin": ",", "tokens": ",", "rows": ",", "skip": ",", "policy": ",", "cancel": "c"}
_SETTINGS = {
    "margin": "safety_margin", "tokens": "max_batch_tokens", "rows": "max_requests_per_batch", "skip": "skip_limit",
    "policy": "scheduler_type",
}  # fmt: skip


def explain(scene: Scene, why: "Explanation", width: int, bg: str = "panel") -> Panel:
    """Rows for a dialog with the given ground, as many as there is to say."""
    theme = scene.theme
    rows = [_head(scene, why, width, bg), blank(theme, width, bg)]
    rows += _lead(scene, why, width, bg)
    rows.append(blank(theme, width, bg))
    if why.checks:
        facts = [Part((("in the order the scheduler makes them", theme.style("muted", bg)),))]
        rows.append(on_ground(heading(theme, width, "CHECKS", facts), width, bg, scene))
        rows += [_check(scene, why, check, width, bg) for check in why.checks]
        rows.append(blank(theme, width, bg))
    rows += _bars(scene, why, width, bg)
    rows += _holders(scene, why, width, bg)
    rows += _trials(scene, why, width, bg)
    return Panel(rows)


def on_ground(row: Row, width: int, bg: str, scene: Scene) -> Row:
    """A heading on the ground of the dialog."""
    theme = scene.theme
    builder = RowBuilder(width, theme.style("text", bg))
    for index, segment in enumerate(row):
        rule = segment.text.strip() and not segment.text.strip(theme.glyphs.rule)
        role = "rule" if rule else "muted"
        style = theme.style("bright", bg, bold=True) if index == 0 else theme.style(role, bg)
        builder.put(segment.text, style)
    return builder.done()


def _head(scene: Scene, why: "Explanation", width: int, bg: str) -> Row:
    theme, story = scene.theme, scene.state.story(why.seq)
    dim, strong = theme.style("muted", bg), theme.style("bright", bg, bold=True)
    row = RowBuilder(width, theme.style("text", bg))
    name = scene.label(why.seq)
    row.put(f" {name} ", theme.tile(scene.hue(why.seq), "head"))
    state = {"waiting": "waiting", "offloaded": "on the CPU"}.get(why.place)
    row.put(f"  Why is {name} {state}?" if state else f"  What does {name} do?", strong)
    parts = []
    if story is not None and story.prompt_tokens is not None:
        parts.append(f"{story.prompt_tokens} prompt tokens, {theme.glyphs.at_most} {story.limit} new")
        if state:
            steps = max(0, scene.step - max(story.arrived, 0))
            parts.append(f"{count(steps, 'step')} ({seconds(scene.now - story.arrived_time)}) since {story.arrived}")
    for words in parts:
        if row.left > len(words) + 3:
            row.put(f"   {words}", dim)
    return row.done()


def _lead(scene: Scene, why: "Explanation", width: int, bg: str) -> list[Row]:
    """The answer in one sentence."""
    theme, decision = scene.theme, why.decision
    text, amber = theme.style("text", bg), theme.style("amber", bg, bold=True)
    row = RowBuilder(width, text)
    name = scene.label(why.seq)
    share = scene.number("safety_margin")
    if decision is not None and decision.verdict is Verdict.WAIT_MARGIN:
        check = next((c for c in why.checks if c.name == "blocks"), None)
        usable = check.b if check is not None else why.usable
        need, short = usable - decision.a, decision.b - decision.a
        keeps = f"the {percent(share)} safety margin" if share is not None else "the safety margin"
        left = max(0, usable - decision.b)
        wordings = (
            f"{count(usable, 'block')} are usable, but {keeps} keeps back {decision.b}. That leaves {left}, "
            f"{name} needs {need}: ",
            f"Usable {usable}, margin {decision.b}, {name} needs {need}: ",
        )
        tail = f"{short} too few"
        shown = choose(wordings, width - len(tail) - 1, theme.glyphs.ellipsis)
        return [row.put(shown, text).put(f"{tail}.", amber).done()]
    if why.place == "running":
        ends = f" It ends at step {why.last_step} at the latest." if why.last_step is not None else ""
        return [row.put(choose((f"{name} runs.{ends}", f"{name} runs."), width, theme.glyphs.ellipsis), text).done()]
    story = scene.state.story(why.seq)
    wait = sentences.WAITS.get(decision.verdict) if decision is not None else None
    if wait is not None and decision is not None:
        return [row.put(choose(wait(scene, decision, ""), width, theme.glyphs.ellipsis), amber).done()]
    words = sentences.why(scene, story) if story is not None else ("no decision yet",)
    return [row.put(choose(words, width, theme.glyphs.ellipsis), text).done()]


def check_words(scene: Scene, why: "Explanation", check: "Check") -> tuple[str, ...]:
    """The numbers of one check in words."""
    a, b, minus = check.a, check.b, scene.theme.glyphs.minus
    if check.name == "fits":
        return (f"{count(a, 'block')} at full length, the pool has {b}", f"{a} of {b} blocks")
    if check.name == "turn":
        if b >= 0:
            return (f"place {a} in the queue, waits behind {scene.label(b)}: {scene.policy} is strict",)
        return (f"place {a} of {scene.picture.num_waiting} in the queue" if a else "it holds a row already",)
    if check.name == "row":
        return (f"{a} of {count(b, 'row')} are taken",)
    if check.name == "tokens":
        return (f"wants {a}, the next step has {b} left for it", f"wants {a}, {b} left")
    if check.name == "blocks":
        if b == why.free + why.cached:
            return (f"needs {a}; usable {b} = {why.free} free + {why.cached} cached", f"needs {a}, usable {b}")
        now = why.free + why.cached
        return (
            f"needs {a}; usable {b} when the others of the next step have theirs, {now} now",
            f"needs {a}, usable {b}",
        )
    short = f": {b - a} short" if a < b else ""
    blocks = next((c for c in why.checks if c.name == "blocks"), None)
    sums = f"{blocks.b} {minus} {blocks.a} = {a}" if blocks is not None else str(a)
    return (f"{sums} would be left, the margin wants {b}{short}", f"{sums}, margin {b}{short}")


def _check(scene: Scene, why: "Explanation", check: "Check", width: int, bg: str) -> Row:
    theme, glyphs = scene.theme, scene.theme.glyphs
    row = RowBuilder(width, theme.style("text", bg)).put(" ")
    row.put(
        glyphs.finished if check.passed else glyphs.refused,
        theme.style("good" if check.passed else "amber", bg, bold=True),
    )
    row.put(" ").field(
        _QUESTIONS.get(check.name, check.name),
        min(19, row.left),
        theme.style("bright" if not check.passed else "text", bg, bold=not check.passed),
    )
    words = choose(check_words(scene, why, check), row.left, glyphs.ellipsis)
    return row.put(words, theme.style("muted" if check.passed else "amber", bg)).done()


def _bars(scene: Scene, why: "Explanation", width: int, bg: str) -> list[Row]:
    """What is usable against what is needed: a block is a cell, or several where there is room; else a part of one."""
    theme, glyphs = scene.theme, scene.theme.glyphs
    check = next((c for c in why.checks if c.name == "blocks"), None)
    if check is None or width < 60:
        return []
    margin, usable, need = scene.margin, check.b, check.a
    room = width - 26
    most = max(usable, need, 1)
    per_cell, wide = max(1, -(-most // room)), max(1, min(WIDEST, room // most))

    def cells(blocks: int) -> int:
        return blocks * wide // per_cell

    dim, text = theme.style("muted", bg), theme.style("text", bg)
    give = max(0, usable - margin)
    top = RowBuilder(width, text).put(f" usable {usable}".ljust(13), text)
    top.put(" " * cells(give), theme.style("ink", "steel"))
    held = cells(max(0, min(margin, usable)))
    label = f" {min(margin, usable)} held back by the safety margin "
    label = label if len(label) + 2 <= held else ""
    side = (held - len(label)) // 2
    amber = theme.style("amber", "amber_on", bold=True)
    top.put(glyphs.free * side + label + glyphs.free * (held - side - len(label)), amber)
    top.put(choose((f"  {give} to give", ""), top.left, ""), dim)
    low = RowBuilder(width, text).put(f" {scene.label(why.seq)} needs {need}".ljust(13)[:13], text)
    fits = cells(min(need, give))
    low.put(" " * fits, theme.tile(scene.hue(why.seq), "body"))
    short = -(-need * wide // per_cell) - fits
    word = f"{need - give} short"
    if need > give:
        text_in = word.center(short) if len(word) <= short else " " * short
        low.put(text_in, theme.tile(scene.hue(why.seq), "window"))
    scale = f"{count(wide, 'cell')} = 1 block" if per_cell == 1 else f"1 cell = {per_cell} blocks"
    low.put(choose((f"  {scale}", ""), low.left, ""), dim)
    return [top.done(), low.done(), blank(theme, width, bg)]


def _holders(scene: Scene, why: "Explanation", width: int, bg: str) -> list[Row]:
    """The used blocks as one bar, in shares."""
    theme = scene.theme
    if not why.holders:
        return []
    used = scene.picture.num_blocks - why.usable
    kinds = "full + window" if scene.hybrid else ""
    facts = [Part(((kinds, theme.style("muted", bg)),))] if kinds else []
    head = heading(theme, width, f"WHO HOLDS THE {used} USED BLOCKS", facts)
    entries = [(scene.label(h.seq), h.full + h.window, theme.tile(scene.hue(h.seq), "head")) for h in why.holders]
    if why.shared:
        entries.append((theme.glyphs.shared, why.shared, theme.style("share_ink", "share", bold=True)))
    total = sum(blocks for _, blocks, _ in entries) or 1
    row = RowBuilder(width, theme.style("text", bg)).put(" ")
    room, done = width - 2, 0
    for name, blocks, style in entries:
        done += blocks
        cells = 1 + round(done / total * room) - row.used
        if cells > 0:
            wordings = f" {name} {blocks}", f"{name} {blocks}", name, cell_letter(name)
            row.put(next(words for words in wordings if len(words) <= cells).ljust(cells), style)
    return [on_ground(head, width, bg, scene), row.done(), blank(theme, width, bg)]


def _what(scene: Scene, trial: "Trial") -> str:
    if trial.kind == "wait":
        return "just wait"
    if trial.kind == "cancel" and isinstance(trial.value, int):
        return f"cancel {scene.label(trial.value)}"
    name = _SETTINGS.get(trial.kind, trial.kind)
    old = f"{_number(trial.old)} {scene.theme.glyphs.arrow} " if trial.old is not None else ""
    return f"{name} {old}{_number(trial.value)}"


def _number(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def _trials(scene: Scene, why: "Explanation", width: int, bg: str) -> list[Row]:
    theme = scene.theme
    if not why.trials:
        return []
    dim, text, strong = theme.style("muted", bg), theme.style("text", bg), theme.style("bright", bg, bold=True)
    note = "dry runs of the scheduler on a copy; all run to max tokens, nobody arrives"
    head = heading(theme, width, "WHAT WOULD CHANGE IT", [Part(((note, dim),))])
    rows = [on_ground(head, width, bg, scene)]
    what, at = min(34, width // 3), 20
    top = RowBuilder(width, dim).put(" key  ").field("what you do", min(what, width - 6))
    top.field(f"{scene.label(why.seq)} starts at", min(at, top.left)).field("price", top.left)
    rows.append(top.done())
    for trial in why.trials:
        helps = trial.helps or trial.kind == "wait"
        row = RowBuilder(width, dim).put(
            f"  {_KEYS.get(trial.kind, ' ') if helps else scene.theme.glyphs.minus}   ", strong
        )
        row.field(_what(scene, trial), min(what, row.left), text if helps else dim)
        step = str(trial.step) if trial.step is not None else "--"
        row.put(f"{step:<5}"[: row.left], strong if helps else dim)
        when = "next step" if trial.steps == 1 else f"in {trial.steps} steps"
        if trial.step is None:
            when = f"> {trial.steps} steps"
        if not helps:
            when = "no help"
        row.field(when, min(at - 5, row.left), dim)
        price = _with_labels(scene, trial)
        rows.append(row.put(choose(price, row.left, theme.glyphs.ellipsis), dim).done())
    return rows


def _with_labels(scene: Scene, trial: "Trial") -> tuple[str, ...]:
    ends = ", ".join(f"{scene.label(key)} ends at {step}" for key, step in trial.ended[-2:])
    if trial.kind == "wait":
        return (f"at the latest: {ends}", "at the latest") if ends else (trial.price or "at the latest",)
    return (trial.price,) if trial.price else (ends,)
