"""Every figure of the first line explained: what it means, its unit, and how it comes from the numbers of this step."""

from dataclasses import dataclass
from statistics import median

from cbtui.glossary import TERMS
from cbtui.picture import Live
from cbtui.sentences import count, memory, percent, seconds
from cbtui.series import ENOUGH, ENOUGH_STEPS
from cbtui.stories import Story
from cbtui.view.cells import Row, RowBuilder, blank, choose, wrap
from cbtui.view.scene import Scene

RECENT = 100
"""Requests, the newest ones, that a median is taken over."""


@dataclass(frozen=True, slots=True)
class Figure:
    """``value`` as the first line shows it; ``sums`` are lines whose numbers add up to it."""

    name: str
    title: str
    value: str
    meaning: str
    sums: tuple[str, ...]


def number(value: float | None) -> str:
    """A rate in few characters; ``--`` when unknown."""
    if value is None:
        return "--"
    if value < 9.95:
        return f"{value:.1f}" if value >= 0.995 or not value else f"{value:.2f}"
    return f"{value:.0f}" if value < 99_950 else f"{value / 1000:.0f}k"


def figures(scene: Scene) -> tuple[Figure, ...]:
    """All figures, in the order of the first line."""
    return (
        _step(scene), *_rates(scene), _policy(scene), *_places(scene), *latencies(scene), hits(scene), *ranks(scene),
        _blocks(scene), _lamp(scene),
    )  # fmt: skip


def _step(scene: Scene) -> Figure:
    state = scene.state
    kept = f"kept are {count(state.step - state.oldest + 1, 'step')}: {state.oldest} to {state.step}"
    back = f"; shown is {scene.step}, {count(state.step - scene.step, 'step')} back" if scene.is_past else ""
    meaning = f"{TERMS['step']} Commands that change something while nothing is computed get a number of their own."
    return Figure("step", "step", str(scene.step), meaning, (kept + back,))


def _rates(scene: Scene) -> tuple[Figure, Figure]:
    stretch = None if scene.idle else scene.state.stretch(scene.step, scene.chrome.rate)
    if stretch is None:
        few = f"fewer than {ENOUGH_STEPS} steps in less than {ENOUGH:g} s since the start, a pause or another pace"
        why = "nobody is there" if scene.idle else few
        return (Figure("pace", "steps/s", "--", TERMS["steps/s"], (why,)),
                Figure("tok/s", "tok/s", "--", TERMS["tok/s"], (why,)))  # fmt: skip
    pace, speed = stretch.steps / stretch.seconds, stretch.tokens / stretch.seconds
    over = f"in steps {stretch.first} to {stretch.last}, {stretch.seconds:.2f} s"
    limit = f"; at most {scene.chrome.rate:g} are wanted" if scene.chrome.rate is not None else ""
    steps = f"{count(stretch.steps, 'step')} / {stretch.seconds:.2f} s = {number(pace)}{limit}"
    tokens = f"{count(stretch.tokens, 'token')} {over}: {stretch.tokens} / {stretch.seconds:.2f} = {number(speed)}"
    return (
        Figure("pace", "steps/s", number(pace), TERMS["steps/s"], (steps,)),
        Figure("tok/s", "tok/s", number(speed), TERMS["tok/s"], (tokens,)),
    )


def _policy(scene: Scene) -> Figure:
    return Figure("policy", "scheduler_type", scene.policy or "--", TERMS["scheduler_type"], ())


def _places(scene: Scene) -> tuple[Figure, Figure, Figure]:
    picture = scene.picture
    running, away = picture.running, picture.offloaded
    line = [key for key in picture.waiting if key not in {live.key for live in away}]
    rows = scene.number("max_requests_per_batch")
    of = f" of {count(int(rows), 'row')}" if rows is not None else ""
    minus = scene.theme.glyphs.minus
    queue = f"{picture.num_waiting} in the queue {minus} {len(away)} on the CPU = {picture.queued}"
    slots = f"{picture.host_used} of {count(len(picture.host), 'block')} in the CPU pool"
    return (
        Figure("run", "run", str(len(running)), "Sequences that hold a row in the batch, and blocks.",
               (f"{len(running)}{of}{_who(scene, running)}",)),
        Figure("wait", "wait", str(picture.queued), TERMS["waiting"],
               (queue + (f": {scene.labels(line, 12)}" if line else ""),)),
        Figure("cpu", "cpu", str(len(away)), "Sequences whose blocks lie in the CPU pool until there is room again.",
               ((f"{len(away)}{_who(scene, away)}; {slots}") if picture.host else "there is no CPU pool",)),
    )  # fmt: skip


def _who(scene: Scene, lives: list[Live]) -> str:
    return f": {scene.labels([live.key for live in lives], 12)}" if lives else ""


def latencies(scene: Scene) -> tuple[Figure, Figure]:
    recent = list(scene.state.stories.values())[-RECENT:]
    first = [(t, s) for s in recent if (t := s.ttft(scene.step)) is not None]
    between = [(t, s) for s in recent if (t := s.itl(scene.step)) is not None]
    p50 = "p50 is the median"
    return (
        Figure("ttft", "ttft p50", _middle(first), f"{TERMS['ttft']} {p50}.", (_spread(first),)),
        Figure("itl", "itl p50", _middle(between), f"{TERMS['itl']} {p50}.", (_spread(between),)),
    )


def _middle(found: list[tuple[float, Story]]) -> str:
    return seconds(median(t for t, _ in found)) if found else "--"


def _spread(found: list[tuple[float, Story]]) -> str:
    """The numbers a median comes from."""
    if not found:
        return "no request has come so far"
    ordered = sorted(found, key=lambda item: item[0])
    if len(ordered) <= 8:
        return f"the middle of {', '.join(f'{story.label} {seconds(t)}' for t, story in ordered)}"
    (low, quickest), (high, slowest) = ordered[0], ordered[-1]
    return (
        f"the middle of {len(ordered)} requests, from {seconds(low)} ({quickest.label}) to {seconds(high)} "
        f"({slowest.label})"
    )


def hits(scene: Scene) -> Figure:
    counters = scene.picture.counters
    meaning = "Prompt tokens that were found in the prefix cache, as a share of those looked up, since the start."
    asked, found = counters.lookup_tokens, counters.cached_tokens
    if not asked:
        return Figure("hits", "prompt hits", "--", meaning, ("nothing was looked up yet",))
    line = f"{found} of {count(asked, 'token')} in {count(counters.lookups, 'look-up')} = {percent(found / asked)}"
    return Figure("hits", "prompt hits", f"{100 * found / asked:.0f}%", meaning, (line,))


def ranks(scene: Scene) -> tuple[Figure, ...]:
    """The processes a model is split over, and the longest any of them waited; nothing for a model in one piece."""
    record = scene.batch
    if record is None or not record.ranks:
        return ()
    lines = []
    for wait in record.ranks:
        tensors = f" + {seconds(wait.tensors)} for tensors" if wait.tensors >= 0 else ", for tensors not known"
        lines.append(f"rank {wait.rank} waited {seconds(wait.plan)} for the plan{tensors}")
    lines.append(f"the plan of step {record.step} had {count(record.plan_bytes, 'byte')}")
    longest = max(wait.plan + max(0.0, wait.tensors) for wait in record.ranks)
    value = f"{len(record.ranks)}, wait {seconds(longest)}"
    return (Figure("ranks", "ranks", value, TERMS["ranks"], tuple(lines)),)


def _blocks(scene: Scene) -> Figure:
    picture = scene.picture
    owned = [block for block in picture.blocks[1:] if block.state == "owned"]
    shared = sum(1 for block in owned if len({seq for seq, _ in block.owners}) > 1)
    parts = f"{picture.used} used + {picture.cached} cached + {picture.free} free = {picture.num_blocks}"
    used = f"{picture.used} used = {len(owned) - shared} of one request + {shared} shared"
    sums = [parts, used]
    if scene.margin:
        usable = f"{picture.cached} cached + {picture.free} free = {picture.usable} usable"
        sums.append(f"{usable}; the safety margin keeps {scene.margin} of them from new prompts")
    size = scene.chrome.block_bytes
    mib = f" A block is {memory(size)}." if size else ""
    value = f"{picture.used}/{picture.num_blocks}"
    return Figure("blocks", "blocks", value, f"{TERMS['used']}{mib} The bar is their share.", tuple(sums))


def _lamp(scene: Scene) -> Figure:
    state, lamp = scene.state, scene.state.checks.lamp(scene.step)
    how = next((field.now for field in scene.chrome.config if field.name == "check_invariants"), "")
    words = {"off": "checks are off", "sampled": "checked every 64th step", "every": "checked after every step"}
    mode = words.get(how, "")
    meaning = TERMS["invariants"]
    if lamp is None:
        return Figure("lamp", "invariants", "--", meaning, (mode or "not checked yet",))
    if lamp.broken:
        lines = tuple(scene.named(text) for text in lamp.broken)
        return Figure("lamp", "invariants", f"broken after step {lamp.step}", meaning, lines)
    checks = f"{count(len(state.checks), 'check')} kept" + (f", {mode}" if mode else "")
    return Figure("lamp", "invariants", f"hold, checked after step {lamp.step}", meaning, (checks,))


def figure_rows(scene: Scene, width: int, chosen: str = "", bg: str = "panel") -> tuple[list[Row], dict[str, int]]:
    """Rows for a dialog, the ``chosen`` figure standing out, and the row on which each figure begins."""
    theme = scene.theme
    text, dim, strong = theme.style("text", bg), theme.style("muted", bg), theme.style("bright", bg, bold=True)
    rows: list[Row] = []
    starts: dict[str, int] = {}
    indent = 14 if width >= 60 else 2
    for figure in figures(scene):
        starts[figure.name] = len(rows)
        name = theme.style("on_ink", "on", bold=True) if figure.name == chosen else strong
        head = RowBuilder(width, text).put(figure.title[: width - 1], name).to(indent)
        if indent <= len(figure.title):
            head.put(" ")
        rows.append(head.put(choose((figure.value,), head.left, theme.glyphs.ellipsis), strong).done())
        for line in figure.sums:
            for part in wrap(line, max(10, width - indent)):
                rows.append(RowBuilder(width, text).to(indent).put(part, text).done())
        for part in wrap(figure.meaning, max(10, width - indent)):
            rows.append(RowBuilder(width, text).to(indent).put(part, dim).done())
        rows.append(blank(theme, width, bg))
    return rows[:-1], starts
