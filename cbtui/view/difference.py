"""The difference of two steps as a pane: pool figures, requests, blocks, and one sentence."""

from cbtui.difference import Difference, difference
from cbtui.sentences import count, seconds
from cbtui.view.cells import Panel, Part, Row, RowBuilder, Span, blank, choose, heading
from cbtui.view.requests import WORDS
from cbtui.view.scene import Scene


def difference_of(scene: Scene) -> Difference:
    """Between the mark and the step shown; remembered while both stand."""
    mark = scene.chrome.mark if scene.chrome.mark is not None else scene.step
    asked = (mark, scene.step, scene.state.oldest)
    memo = scene.state.memo.get("difference")
    if memo is not None and memo[0] == asked and isinstance(memo[1], Difference):
        return memo[1]
    found = difference(scene.state, mark, scene.step)
    scene.state.memo["difference"] = (asked, found)
    return found


def difference_pane(scene: Scene, width: int, height: int) -> Panel:
    theme, glyphs = scene.theme, scene.theme.glyphs
    dim, strong, text = theme.style("muted"), theme.style("bright", bold=True), theme.style("text")
    diff = difference_of(scene)
    clock = f", {seconds(diff.seconds)} apart" if diff.seconds > 0 else ""
    facts = [
        Part((("A ", dim), (str(diff.a), strong), (f" {glyphs.arrow} B ", dim), (str(diff.b), strong)), 9),
        Part(((count(diff.b - diff.a, "step") + clock, dim),), 3),
    ]
    right = [Part((("m", strong), (" set A here", dim)), 1), Part((("M", strong), (" close", dim)), 2)]
    rows: list[Row] = [heading(theme, width, "DIFFERENCE", facts, right)]
    columns = [_figures(scene, diff), _requests(scene, diff), _blocks(scene, diff)]
    if width < 96:
        columns = [columns[0], columns[2]] if width >= 64 else [columns[0]]
    starts = (0, 33, max(33, width - 40)) if len(columns) == 3 else (0, 33)
    for line in range(7):
        row = RowBuilder(width, text)
        for index, column in enumerate(columns):
            end = starts[index + 1] - 1 if index + 1 < len(columns) else width
            row.to(starts[index])
            for words, style in column[line] if line < len(column) else ():
                row.put(
                    choose((words,), max(0, end - row.used), glyphs.ellipsis)
                    if words.strip()
                    else words[: end - row.used],
                    style,
                )
        rows.append(row.done())
    if len(rows) >= height:
        rows = rows[: height - 1]
    short = RowBuilder(width, text).put(" In short: "[:width], strong)
    short.put(choose(summary(scene, diff), short.left, glyphs.ellipsis), text)
    rows.append(short.done())
    rows += [blank(theme, width)] * (height - len(rows))
    return Panel(rows[:height])


def _figures(scene: Scene, diff: Difference) -> list[list[Span]]:
    theme, glyphs = scene.theme, scene.theme.glyphs
    dim, text, strong = theme.style("muted"), theme.style("text"), theme.style("bright", bold=True)
    lines: list[list[Span]] = [[(f" {'pool':<12}{'A':>6}{'B':>6}{glyphs.delta:>6}", dim)]]
    for name, (a, b) in diff.figures.items():
        change = f"+{b - a}" if b > a else f"{glyphs.minus}{a - b}" if b < a else glyphs.free
        plain = name in ("total", "waiting")
        lines.append([
            (f" {name:<12}", dim if name == "total" else text), (f"{a:>6}", dim), (f"{b:>6}", dim if plain else text),
            (f"{change:>6}", strong if a != b else dim),
        ])  # fmt: skip
    return lines


def _word(state: str) -> str:
    return WORDS.get(state, state)


def _requests(scene: Scene, diff: Difference) -> list[list[Span]]:
    theme, glyphs = scene.theme, scene.theme.glyphs
    dim, text, strong = theme.style("muted"), theme.style("text"), theme.style("bright", bold=True)
    lines: list[list[Span]] = [[("requests", dim)]]
    for key, before, now in diff.moved[:2]:
        lines.append([
            (f" {scene.label(key)} ", theme.tile(scene.hue(key), "head")), (f" {_word(before)} {glyphs.arrow} ", dim),
            (_word(now), strong),
        ])  # fmt: skip
    more = len(diff.moved) - 2
    if more > 0:
        lines.append([(f"{count(more, 'more')} changed state".replace("mores", "more"), dim)])
    for state in ("decode", "prefill", "waiting", "on_cpu"):
        keys = diff.kept.get(state, ())
        if keys and len(lines) < 5:
            words = {
                "decode": "keep decoding",
                "prefill": "keep filling",
                "waiting": "keep waiting",
                "on_cpu": "stay on CPU",
            }[state]
            line: list[Span] = [(f"{len(keys):>2} {words}  ", text)]
            names = [scene.label(key) for key in keys[:16]]
            apart = " " * any(len(name) > 1 for name in names)
            line += [(apart + name, theme.tile(scene.hue(key), "bold")) for name, key in zip(names, keys, strict=False)]
            lines.append(line)
    budget = f", {diff.tokens} of {diff.budget} budget used" if diff.tokens >= 0 and diff.budget > 0 else ""
    lines.append([(str(diff.output), strong), (f" new tokens{budget}", dim)])
    lines.append(
        [
            (
                f"{len(diff.arrived)} arrived, {len(diff.ended)} ended, {diff.offloads} offloaded, "
                f"{diff.preemptions} preempted",
                dim,
            )
        ]
    )
    return lines


def _blocks(scene: Scene, diff: Difference) -> list[list[Span]]:
    theme = scene.theme
    dim, strong = theme.style("muted"), theme.style("bright", bold=True)
    total = diff.figures["total"][1]
    parts = [
        (diff.unchanged, "unchanged (dim in the map)"),
        (diff.taken, "taken by a new owner"),
        (diff.given_back, "given back: free or cached now"),
        (diff.swapped, "moved between cached and free"),
    ]
    lines: list[list[Span]] = [[("blocks", dim)]]
    lines += [[(f"{number:>5}", strong), (f"  {words}", dim)] for number, words in parts]
    return [*lines, [(f"{total:>5}  together", dim)]]


def summary(scene: Scene, diff: Difference) -> tuple[str, ...]:
    """What happened, in one sentence."""
    used_a, used_b = diff.figures["used"]
    total = diff.figures["total"][1]
    pressure = "the pool stayed as full as it was"
    if used_b > used_a:
        pressure = (
            "the pool ran full"
            if used_b >= 0.97 * total
            else f"the pool filled up by {count(used_b - used_a, 'block')}"
        )
    elif used_b < used_a:
        pressure = f"{count(used_a - used_b, 'block')} came free"
    events = []
    if diff.offloads:
        events.append(f"{count(diff.offloads, 'request')} had to leave for the CPU")
    if diff.preemptions:
        events.append(f"{diff.preemptions} lost their cache")
    if diff.restores:
        events.append(f"{diff.restores} came back")
    if diff.ended:
        events.append(f"{scene.labels(diff.ended)} ended")
    if diff.arrived:
        events.append(f"{scene.labels(diff.arrived)} arrived")
    if not events:
        return (f"{pressure}, and nobody came or went.", f"{pressure}.")
    return (f"{pressure}; {', '.join(events)}.", f"{pressure}; {events[0]}.", f"{pressure}.")
