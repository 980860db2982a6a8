"""The batch bar: what a step computed over what the next one would, token by token against the budget."""

from collections.abc import Sequence

from rich.style import Style

from cbtui.letters import UNNAMED, cell_letter
from cbtui.limits import idle_reason, limit_name, unused
from cbtui.sentences import count, seconds
from cbtui.view.cells import Panel, Part, Row, RowBuilder, blank, choose, heading
from cbtui.view.chrome import Hit
from cbtui.view.scene import Scene
from engine.core.observe import PlanPreview, SliceRecord, StepRecord
from engine.core.request import FinishReason

STOPPED = ("stopped", "failed", "detached")
"""States of an engine that plans no step."""
WORDY = 20
"""Cells that must be left beside a bar for it to be told in words as well."""


class Scale:
    """Where the tokens of a plan lie on a bar of ``width`` cells.

    One cell is one token while that fits. Else a decode keeps its cell as long as decodes take at most half the bar,
    and the rest of the budget shares what is left in proportion.
    """

    def __init__(self, slices: Sequence[SliceRecord], budget: int, room: int) -> None:
        self.budget = max(1, budget)
        self.exact = self.budget <= room
        self.width = self.budget if self.exact else room
        self.decodes = sum(part.query for part in slices if part.kind == "decode")
        if self.exact:
            self.decode_cells = self.decodes
        else:
            self.decode_cells = min(self.decodes, room // 2)

    def x(self, tokens: int) -> int:
        """Cells left of the token with this number."""
        if tokens <= self.decodes:
            return round(tokens * self.decode_cells / self.decodes) if self.decodes else 0
        rest = max(1, self.budget - self.decodes)
        share = (min(tokens, self.budget) - self.decodes) / rest
        return self.decode_cells + round(share * (self.width - self.decode_cells))


def _ordered(slices: Sequence[SliceRecord]) -> list[SliceRecord]:
    """Decodes first, then prefill chunks, each in plan order."""
    return [p for p in slices if p.kind == "decode"] + [p for p in slices if p.kind != "decode"]


def batch(scene: Scene, width: int, height: int) -> Panel:
    """Heading, ruler (from four rows on), the step that ran, the step to come."""
    record = scene.batch
    theme = scene.theme
    if record is None:
        words = " no step has run yet"
        if scene.state.border > 0:
            words = f" the engine began anew after step {scene.state.border}: no step has run since"[:width]
        none = RowBuilder(width, theme.style("text")).put(words, theme.style("muted"))
        return Panel(([heading(theme, width, "BATCH"), none.done()] + [blank(theme, width)] * height)[:height])
    ahead = scene.state.budget_ahead(scene.picture) or record.budget
    most = max(record.budget, ahead)
    gutter = 7 + max(3, len(str(scene.step + 1))) if width >= 100 else 6
    figures = len(f"|{most}/{most}") + (3 if width >= 150 else 0)  # there with blanks around them
    tail = max(14 if width >= 100 else 8, figures)
    verbose = 0
    if width >= 150:
        verbose = min(78, width - gutter - 8 - min(most, width // 2))
    room = max(8, width - gutter - max(tail, verbose + 8 if verbose else 0))
    room = max(room, min(most, width - gutter - tail))  # a cell for each token is worth more than words
    scale = Scale(record.slices, record.budget, room)
    rows = [_head(scene, record, width, scale)]
    hits: list[Hit] = []
    if height >= 4:
        rows.append(_ruler(scene, width, gutter, scale))
    if _is_empty(record):
        wordings = ("nothing, commands only", "commands only", "")
        rows.append(_words_row(scene, "ran", record.step, width, gutter, wordings))
    else:
        tokens = sum(part.query for part in record.slices)
        ran = PlanPreview(record.slices, record.decisions, record.limit, tokens)
        row, row_hits = _plan_row(scene, record.step, width, gutter, ran, record.budget, room, planned=False)
        hits += [Hit(len(rows), h.x0, h.x1, h.kind, h.value) for h in row_hits]
        rows.append(row)
    if height > len(rows):
        plan = scene.preview
        if plan is not None and (plan.slices or plan.decisions):
            row, row_hits = _plan_row(scene, scene.step + 1, width, gutter, plan, ahead, room, planned=True)
            hits += [Hit(len(rows), h.x0, h.x1, h.kind, h.value) for h in row_hits]
            rows.append(row)
        else:
            rows.append(_unplanned(scene, width, gutter))
    return Panel(rows[:height], [h for h in hits if h.y < height])


def _is_empty(record: StepRecord) -> bool:
    """Whether no plan was made: the step has neither a batch nor a limit of one, and says nothing about who waits."""
    return not record.slices and not record.decisions


def _head(scene: Scene, record: StepRecord, width: int, scale: Scale) -> Row:
    theme = scene.theme
    text, dim, strong = theme.style("text"), theme.style("muted"), theme.style("bright", bold=True)
    tokens = sum(part.query for part in record.slices)
    lead = (
        f"step {record.step} ran {tokens} of {record.budget} tokens"
        if width >= 100
        else f"{'' if record.step == scene.step else f'step {record.step}: '}{tokens} of {record.budget} tokens"
    )
    if _is_empty(record):
        never = not scene.picture.counters.prompt_tokens
        words = "nothing was computed yet" if never else f"step {record.step} took commands only"
        return heading(theme, width, "BATCH", [Part(((words, dim),), 1)], gap=2)
    limit = limit_name(scene, record.limit, record.decisions)
    if not record.limit:
        limit = f"none, {idle_reason(scene, record.decisions)}"
    empty = scene.step - record.step
    since = f"then {count(empty, 'step')} of commands only" if empty > 0 else ""
    facts = [
        Part(((lead, text),), 2),
        *([Part(((since, text),), 1)] if since else []),
        Part((("limit: ", dim), (limit, strong)), 1),
    ]
    note = "1 cell = 1 token" if scale.exact else "decode = 1 cell"
    if not scale.exact and scale.decode_cells < scale.decodes:
        note = f"1 cell = {scale.budget / scale.width:.1f} tokens"
    notes = [Part(((note, dim),), 0)]
    if any(len(scene.label(part.seq)) > 1 for part in record.slices):
        notes.insert(0, Part(((f"{UNNAMED} ", strong), ("longer id", dim)), -1))
    return heading(theme, width, "BATCH", facts, notes, gap=2)


def _ruler(scene: Scene, width: int, gutter: int, scale: Scale) -> Row:
    theme = scene.theme
    row = RowBuilder(width, theme.style("muted"))
    step = next(s for s in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 1 << 20)
                if s * scale.width >= 12 * scale.budget or s >= scale.budget)  # fmt: skip
    for token in [*range(0, scale.budget, step), scale.budget]:
        x = gutter + scale.x(token)
        label = f"{theme.glyphs.tick}{token}"
        last = gutter + scale.x(scale.budget)
        if token != scale.budget and x + len(label) + 1 > last:
            continue
        if x < row.used or x + len(label) > width:
            continue
        row.to(x).put(label, theme.style("muted"))
    return row.done()


def _plan_row(
    scene: Scene, step: int, width: int, gutter: int, plan: PlanPreview, budget: int, room: int, *, planned: bool
) -> tuple[Row, list[Hit]]:
    theme = scene.theme
    slices = _ordered(plan.slices)
    scale = Scale(slices, budget, room)
    row = RowBuilder(width, theme.style("text"))
    dim, strong = theme.style("muted"), theme.style("bright", bold=True)
    name = "next" if planned else "ran"
    if gutter >= 10:
        row.put(f" {name:<4} ", dim if planned else theme.style("text"))
        row.right(str(step), gutter - 7, dim if planned else strong)
        row.put(" ")
    else:
        row.put(f" {name:<4} ", dim if planned else theme.style("text"))
    start = row.used
    hits = _bar(scene, row, slices, scale, start, planned=planned)
    tokens = plan.num_tokens
    end = start + scale.width
    if row.used < end:
        _hatch(scene, row, plan, budget - tokens, end - row.used)
    row.put(theme.glyphs.edge, dim)
    gap = " " if width >= 150 else ""
    row.put(gap + str(tokens), dim if planned else strong).put(f"/{budget}", dim)
    if width >= 150 and row.left >= WORDY:
        row.put("  ")
        row.put(choose(_story(scene, plan, planned=planned), row.left, theme.glyphs.ellipsis), dim)
    return row.done(), hits


def _story(scene: Scene, plan: PlanPreview, *, planned: bool) -> tuple[str, ...]:
    """The row again in words, where there is room for it."""
    decodes = sum(1 for part in plan.slices if part.kind == "decode")
    chunks = [part for part in plan.slices if part.kind != "decode"]
    arrow = scene.theme.glyphs.arrow
    words = [f"{decodes} decode"] if decodes else []
    words += [f"{scene.label(p.seq)} prefill {p.query} ({p.past}{arrow}{p.past + p.query})" for p in chunks]
    short = [f"{decodes} decode"] if decodes else []
    short += [f"{count(len(chunks), 'prefill chunk')}"] if chunks else []
    limit = f"limit {limit_name(scene, plan.limit, plan.decisions)}"
    record = scene.batch
    took = seconds(record.spans.total) if record is not None and record.spans.total > 0 else "--"
    clock = "" if planned else f"  {took}"
    full = " + ".join(words) or "nothing to compute"
    brief = " + ".join(short) or "nothing to compute"
    return (f"{full}  {limit}{clock}", f"{brief}  {limit}{clock}", f"{brief}{clock}")


def _bar(
    scene: Scene, row: RowBuilder, slices: list[SliceRecord], scale: Scale, start: int, *, planned: bool
) -> list[Hit]:
    theme, hits, tokens = scene.theme, [], 0
    for part in slices:
        tokens += part.query
        cells = start + scale.x(tokens) - row.used
        if cells <= 0:
            continue
        hue, x0 = scene.hue(part.seq), row.used
        if part.kind == "decode":
            letter = cell_letter(scene.label(part.seq))
            style = theme.tile(hue, "plan_head" if planned else "head")
            if letter == UNNAMED and part.seq == scene.chrome.selected:  # the mark does not say that it is this one
                style = theme.style("on_ink", "on", bold=True)
            row.put(letter * cells, style)
        else:
            style = theme.tile(hue, "plan" if planned else "body")
            head = theme.tile(hue, "plan_head" if planned else "head")
            _chunk(scene, row, part, cells, head, style, planned=planned)
        hits.append(Hit(0, x0, row.used, "request", part.seq))
    return hits


def _chunk(
    scene: Scene, row: RowBuilder, part: SliceRecord, cells: int, head: Style, style: Style, *, planned: bool
) -> None:
    """A prefill chunk as a span with as many words as fit."""
    theme, name = scene.theme, scene.label(part.seq)
    live = scene.live(part.seq)
    arrow = theme.glyphs.arrow
    story = scene.state.story(part.seq)
    total = story.prompt_tokens if story is not None else None
    until = part.past + part.query
    again = live is not None and total is not None and until > total
    what = "recompute" if again else "prefill"
    of = f" of {total}" if total is not None and not again else ""
    wordings = (
        f"  {what} {count(part.query, 'token')}, {'cache' if again else 'prompt'} {part.past} {arrow} {until}{of} ",
        f" {what} {part.query}: {part.past} {arrow} {until}{of} ",
        f" {what} {part.query} ",
        f" {part.query} ",
        "",
    )
    if cells < len(name) + 1:
        row.put((cell_letter(name) + " " * cells)[:cells], head)
        return
    lead = " " if cells > len(name) + 1 or len(name) > 1 else ""  # letters of neighbours would become one name
    row.put(f"{lead}{name}", head)
    room = cells - len(lead) - len(name)
    fitting = max((w for w in wordings if len(w) <= room), key=len)
    row.put(fitting + " " * (room - len(fitting)), style)


def _hatch(scene: Scene, row: RowBuilder, plan: PlanPreview, tokens: int, cells: int) -> None:
    theme = scene.theme
    faint, dim = theme.style("faint"), theme.style("muted")
    fitting = [words for words in unused(scene, tokens, plan) if len(words) + 4 <= cells]
    if not fitting:
        row.put(theme.glyphs.hatch * cells, faint)
        return
    lead = 3 if len(fitting[0]) + 8 <= cells else 1
    row.put(theme.glyphs.hatch * lead, faint).put(f" {fitting[0]} ", dim)
    row.put(theme.glyphs.hatch * (cells - lead - 2 - len(fitting[0])), faint)


def _unplanned(scene: Scene, width: int, gutter: int) -> Row:
    if scene.preview is not None:
        wordings = ("nothing to compute, commands only", "commands only", "")
    elif scene.chrome.engine in STOPPED and not scene.is_past:
        wordings = ("the engine is stopped: S starts it again", "the engine is stopped", "stopped")
    elif scene.is_past and (end := scene.state.end_in(scene.step + 1) or scene.state.end_in(scene.step)) is not None:
        what = "was stopped" if end is FinishReason.STOPPED else "failed"
        wordings = (f"nothing ran after this step: the engine {what}", f"the engine {what}", what)
    elif not scene.idle:
        wordings = ("not planned yet: p shows what it would do", "not planned yet", "")
    else:
        wordings = ("nothing to do until somebody comes", "nothing to do", "")
    return _words_row(scene, "next", scene.step + 1, width, gutter, wordings)


def _words_row(scene: Scene, name: str, step: int, width: int, gutter: int, wordings: Sequence[str]) -> Row:
    """The row of a step without a plan: why there is none."""
    row = RowBuilder(width, scene.theme.style("muted"))
    row.put(f" {name:<4} ")
    if gutter >= 10:
        row.right(str(step), gutter - 7).put(" ")
    row.put("--  ")
    return row.put(choose(wordings, row.left, "")).done()
