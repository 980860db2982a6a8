"""The page of the explain dialog about a step: its token sum, its limit, every decision with its numbers, its time."""

from collections import Counter
from dataclasses import replace
from itertools import chain

from cbtui import sentences
from cbtui.acks import told
from cbtui.limits import idle_reason, limit_name
from cbtui.loglines import log_line
from cbtui.notes import TOLD, LogEntry
from cbtui.sentences import count, seconds
from cbtui.view.cells import Row, RowBuilder, blank, choose, heading, width_of, wrap
from cbtui.view.explain import on_ground
from cbtui.view.scene import WAITS, Scene, first_waiter
from engine.core.observe import BlockOp, Decision, StepRecord, Verdict

PLANNED = (Verdict.DECODE, Verdict.CHUNK, Verdict.ADMIT, Verdict.RESTORE)


def step_rows(scene: Scene, width: int, bg: str = "panel") -> list[Row]:
    """Everything about the step shown, as many rows as there is to say."""
    record = scene.picture.record
    theme = scene.theme
    if record is None:
        words = choose(("no step has run yet",), width, theme.glyphs.ellipsis)
        return [RowBuilder(width, theme.style("muted", bg)).put(words).done()]
    batch, lead = scene.batch, []
    if batch is not None and batch.slices and not record.slices:  # what is asked is how the batch came about
        lead = [f"Step {record.step} only took commands. The last one that computed something is step {batch.step}."]
        scene, record = replace(scene, picture=scene.state.at(batch.step)), batch
    rows = _lines(scene, [*lead, *_sum(scene, record), *_limit(scene, record)], width, bg)
    rows.append(blank(theme, width, bg))
    if record.decisions:
        rows.append(_title(scene, f"DECISIONS  {len(record.decisions)}", width, bg))
        rows += chain.from_iterable(_decision(scene, record, d, width, bg) for d in record.decisions)
        rows.append(blank(theme, width, bg))
    rows.append(_title(scene, "BLOCKS", width, bg))
    rows += _lines(scene, _blocks(scene, record), width, bg)
    if record.commands:
        rows += [blank(theme, width, bg), _title(scene, "COMMANDS THAT TOOK EFFECT", width, bg)]
        commands = [told(ack, record.step, scene.named, scene.name_of) for ack in record.commands]
        rows += _lines(scene, commands, width, bg)
    rows += [blank(theme, width, bg), _title(scene, "TIME", width, bg)]
    rows += _lines(scene, _time(record), width, bg)
    if record.invariants is not None:
        rows += [blank(theme, width, bg), _title(scene, "INVARIANTS", width, bg)]
        rows += _lines(scene, [scene.named(text) for text in record.invariants] or ["checked: all hold"], width, bg)
    return rows


def _title(scene: Scene, title: str, width: int, bg: str) -> Row:
    return on_ground(heading(scene.theme, width, title), width, bg, scene)


def _lines(scene: Scene, lines: list[str], width: int, bg: str) -> list[Row]:
    text = scene.theme.style("text", bg)
    parts = chain.from_iterable(wrap(line, max(10, width - 1)) for line in lines)
    return [RowBuilder(width, text).put(" ").put(part).done() for part in parts]


def _sum(scene: Scene, record: StepRecord) -> list[str]:
    """The token budget, part by part."""
    decodes = [part for part in record.slices if part.kind == "decode"]
    chunks = [part for part in record.slices if part.kind != "decode"]
    tokens = sum(part.query for part in record.slices)
    if not record.slices:
        moved = any(d.verdict in (Verdict.OFFLOAD, Verdict.RESTORE) for d in record.decisions)
        return ["It computed no token, it only moved blocks." if moved else "It computed nothing: only commands."]
    parts = [count(len(decodes), "decode")] if decodes else []
    parts += [f"{part.query} of {scene.label(part.seq)}" for part in chunks]
    whole = f"{' + '.join(parts)} = {tokens} of {record.budget} tokens, {record.budget - tokens} unused."
    return [whole, f"{len(record.slices)} of {count(record.rows, 'row')} are taken."]


def _limit(scene: Scene, record: StepRecord) -> list[str]:
    """What ended the making of the plan, and whom it held up."""
    if not record.slices:
        return []
    if not record.limit:
        return [f"Nothing limited it: {idle_reason(scene, record.decisions)}."]
    waiter = first_waiter(record.decisions)
    name = limit_name(scene, record.limit, ())
    if waiter is None:
        return [f"The limit was the {name}."]
    words = sentences.WAITS[waiter.verdict](scene, waiter, "")[0]
    return [f"The limit was the {name}: {scene.label(waiter.seq)} {words}."]


def decision_words(scene: Scene, record: StepRecord, decision: Decision) -> tuple[str, ...]:
    """One decision in words, from long to short."""
    verdict, a, b = decision.verdict, decision.a, decision.b
    if verdict in WAITS:
        return tuple(sentences.WAITS[verdict](scene, decision, ""))
    if verdict is Verdict.DECODE:
        took = f"and took {count(b, 'new block')}" if b else "in the blocks it had"
        return (f"decode: 1 token after {count(a, 'token')} in its cache, {took}", f"decode after {count(a, 'token')}")
    if verdict is Verdict.CHUNK:
        return (f"prompt chunk of {count(a, 'token')}, {b} to go", f"chunk of {a}, {b} to go")
    if verdict in TOLD:
        extra = next((part.query for part in record.slices if part.seq == decision.seq), 0)
        words = log_line(scene, LogEntry(record.step, str(verdict), decision.seq, a, b, extra))
        name = f"{scene.label(decision.seq)} "
        return tuple(line.removeprefix(name) for line in words)
    return (str(verdict).replace("_", " "),)


def _decision(scene: Scene, record: StepRecord, decision: Decision, width: int, bg: str) -> list[Row]:
    """Tokens it got, who it is about, what was decided."""
    theme = scene.theme
    row = RowBuilder(width, theme.style("text", bg))
    part = next((part for part in record.slices if part.seq == decision.seq), None)
    row.right(str(part.query) if part is not None else theme.glyphs.minus, 6, theme.style("muted", bg)).put("  ")
    row.put(f" {scene.label(decision.seq)} ", theme.tile(scene.hue(decision.seq), "head")).put("  ")
    waits = decision.verdict in WAITS
    style = theme.style("amber" if waits else "text", bg)
    start, words = row.used, max(decision_words(scene, record, decision), key=width_of)
    lines = wrap(words, max(10, width - start))
    rows = [row.put(lines[0][: row.left], style).done()]
    for line in lines[1:]:
        rows.append(RowBuilder(width, theme.style("text", bg)).to(start).put(line, style).done())
    return rows


def _blocks(scene: Scene, record: StepRecord) -> list[str]:
    """What the step did to the pool, and what that makes."""
    ops = Counter(delta.op for delta in record.deltas)
    names = (
        (BlockOp.ALLOC, "taken"), (BlockOp.SHARE, "shared once more"), (BlockOp.RELEASE, "given back"),
        (BlockOp.RECYCLE, "given back behind the window"), (BlockOp.EVICT, "evicted from the prefix cache"),
        (BlockOp.PUBLISH, "entered into the prefix cache"), (BlockOp.OFFLOAD, "copied to the CPU"),
        (BlockOp.RESTORE, "copied back"), (BlockOp.COPY, "copied"), (BlockOp.DROP, "dropped on the CPU"),
    )  # fmt: skip
    done = [f"{ops[op]} {word}" for op, word in names if ops[op]]
    picture = scene.picture
    after = f"After it: {picture.used} used + {picture.cached} cached + {picture.free} free = {picture.num_blocks}."
    return [f"{', '.join(done)}." if done else "No block changed hands.", after]


def _time(record: StepRecord) -> list[str]:
    """Where the seconds of the step went."""
    spans = record.spans
    parts = (("commands", spans.commands), ("plan", spans.plan), ("launch", spans.launch), ("model", spans.wait),
             ("apply", spans.apply), ("deliver", spans.deliver))  # fmt: skip
    shown = [f"{name} {seconds(value)}" for name, value in parts if value > 0]
    return [f"{' + '.join(shown)} = {seconds(spans.total)}" if shown else "no time was measured"]
