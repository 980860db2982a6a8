"""The first line (what runs, how fast, how full) and the last one (keys)."""

from collections.abc import Sequence

from rich.style import Style

from cbtui.theme import Theme
from cbtui.view.cells import Panel, Part, RowBuilder, Span, choose, clip, keep_parts, width_of
from cbtui.view.chrome import Chrome, Hit, KeyHint
from cbtui.view.figures import Figure, hits, latencies, number, ranks
from cbtui.view.notice import beside_keys
from cbtui.view.scene import Scene


def bar_cells(theme: Theme, share: float, width: int) -> str:
    """``share`` of ``width`` cells filled, to an eighth of a cell, padded with blanks."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    if share > 0 and eighths == 0:
        eighths = 1
    full, rest = divmod(eighths, 8)
    text = theme.glyphs.eighths[7] * full + (theme.glyphs.eighths[rest - 1] if rest else "")
    return text + " " * (width - len(text))


def badge(chrome: Chrome, step: int, theme: Theme) -> tuple[str, str, str]:
    """(text, style role of the ground, style role of the HUD) that says what the picture is."""
    glyphs = theme.glyphs
    if chrome.past is not None:
        return f" {glyphs.past} PAST ", "amber", "amber_on"
    if chrome.engine == "failed":
        return f" {glyphs.failed} FAILED ", "vermilion", "vermilion_on"
    if chrome.frozen:
        return f" {glyphs.held} VIEW FROZEN ", "amber", "amber_on"
    words = {
        "held": f"{glyphs.held} PAUSED",
        "draining": f"{glyphs.more} STOPPING",
        "stopped": f"{glyphs.parked} STOPPED",
        "new": f"{glyphs.parked} NOT STARTED",
        "loading": f"{glyphs.waiting} LOADING",
    }
    if chrome.engine in words:
        return f" {words[chrome.engine]} ", "on", "panel"
    return f" {glyphs.live} LIVE ", "on", "panel"


def empty_hud(chrome: Chrome, theme: Theme, width: int) -> Panel:
    """The HUD while there is no engine yet."""
    text, ground, bg = badge(chrome, 0, theme)
    row = RowBuilder(width, theme.style("text", bg))
    parts = [
        Part(((" cbtui", theme.style("bright", bg, bold=True)),), 9),
        Part(((text, theme.style("on_ink", ground, bold=True)),), 8),
        Part(((chrome.model, theme.style("muted", bg)),), 5),
    ]
    for index, part in enumerate(keep_parts(parts, width, 1)):
        row.put(" " if index else "").spans(part.spans)
    return Panel([row.done()])


def hud(scene: Scene, width: int) -> Panel:
    theme, chrome = scene.theme, scene.chrome
    text, ground, bg = badge(chrome, scene.step, theme)
    if scene.is_past:
        text = f" {theme.glyphs.past} PAST {theme.glyphs.minus}{scene.state.step - scene.step} "
    elif scene.closes:
        text = f" {theme.glyphs.more} CLOSING "
    dim, strong = theme.style("muted", bg), theme.style("bright", bg, bold=True)
    wide = width >= 160
    left = [Part(((" cbtui", strong),), 100, ("key", "palette"))]
    if chrome.model and wide:
        name = clip(chrome.model, 30, theme.glyphs.ellipsis)
        left[0] = Part(((" cbtui ", strong), (name, dim)), 100, ("key", "palette"))
    left.append(Part(((text, theme.style("on_ink", ground, bold=True)),), 99))
    left.append(Part((("step ", dim), (str(scene.step), strong)), 90, ("figure", "step")))
    left += _pace(scene, width, bg)
    right = _figures(scene, width, bg)
    gap, inner = (3 if width >= 100 else 2), (3 if width >= 160 else 2)
    left, right = _fitting(left, right, width, gap, inner)
    row = RowBuilder(width, theme.style("text", bg))
    found: list[Hit] = []
    for index, part in enumerate(left):
        row.put(" " * (0, 1, gap - 1)[index] if index < 3 else " " * gap)
        if part.width <= row.left:
            _put(row, part, found)
    row.to(width - _right_width(right, inner))
    for index, part in enumerate(right):
        row.put(" " * (inner + (part.priority == 80)) if index else "")
        _put(row, part, found)
    return Panel([row.done()], found)


def _put(row: RowBuilder, part: Part, hits: list[Hit]) -> None:
    """The words of a part; a click on them asks what they mean."""
    start = row.used
    row.spans(part.spans)
    if part.hit is not None:
        hits.append(Hit(0, start, row.used, *part.hit))


def _fitting(left: list[Part], right: list[Part], width: int, gap: int, inner: int) -> tuple[list[Part], list[Part]]:
    """The most important parts that fit, whole; a short one may stay where a longer one before it had to go."""
    if _left_width(left, gap) + _right_width(right, inner) + 2 * bool(right) <= width:
        return left, right
    kept: list[Part] = []
    for part in sorted([*left, *right], key=lambda part: -part.priority):
        tried = [*kept, part]
        sides = [p for p in left if p in tried], [p for p in right if p in tried]
        if not kept or _left_width(sides[0], gap) + _right_width(sides[1], inner) + 2 * bool(sides[1]) <= width:
            kept = tried
    return [p for p in left if p in kept], [p for p in right if p in kept]


def _left_width(parts: list[Part], gap: int) -> int:
    """Cells of the left side: one before the badge, one less after it (it ends with a blank of its own)."""
    gaps = sum((0, 1, gap - 1)[index] if index < 3 else gap for index in range(len(parts)))
    return gaps + sum(part.width for part in parts)


def _right_width(parts: list[Part], inner: int) -> int:
    """Cells of the right side with the blank at its end; the gauge stands a little apart."""
    gaps = inner * max(0, len(parts) - 1) + (len(parts) > 1 and parts[-1].priority == 80)
    return sum(part.width for part in parts) + gaps + bool(parts)


def _pace(scene: Scene, width: int, bg: str) -> list[Part]:
    """Step rate, policy, and what is unusual about the engine's pace."""
    theme, chrome = scene.theme, scene.chrome
    dim, amber = theme.style("muted", bg), theme.style("amber", bg, bold=True)
    parts = []
    if chrome.step_seconds is not None:
        late = f"step {scene.state.step + 1} runs for {chrome.step_seconds:.1f} s"
        return [Part(((late, amber),), 95)]
    if scene.is_past:
        what = "paused at " if chrome.engine == "held" else "is at "
        parts.append(Part(((f"engine {what}", dim), (str(scene.state.step), theme.style("bright", bg, bold=True))), 40))
        return parts
    if chrome.engine == "failed" and chrome.error and width < 60:
        return [
            Part(
                (
                    (
                        clip(chrome.error, max(10, width // 3), theme.glyphs.ellipsis),
                        theme.style("vermilion", bg, bold=True),
                    ),
                ),
                97,
            )
        ]
    steps, _ = scene.state.rates(scene.step, chrome.rate)
    if scene.closes:
        parts.append(Part((("all requests have ended, the model is given back", dim),), 46))
    if chrome.engine == "running" and scene.idle:
        parts.append(Part((("idle", dim),), 45))
    elif chrome.engine == "running":
        limit = f" of {chrome.rate:g}" if chrome.rate is not None else ""
        parts.append(Part(((f"{number(steps)}{limit} steps/s", dim),), 45, ("figure", "pace")))
    if scene.policy:
        parts.append(Part(((scene.policy, dim),), 20, ("figure", "policy")))
    return parts


def _figures(scene: Scene, width: int, bg: str) -> list[Part]:
    theme, picture = scene.theme, scene.picture
    dim, strong = theme.style("muted", bg), theme.style("bright", bg, bold=True)
    waiting = picture.queued
    tokens = None if scene.idle else scene.state.rates(scene.step, scene.chrome.rate)[1]
    wait_style = theme.style("amber", bg, bold=True) if waiting else strong
    parts = [
        Part((("run ", dim), (str(len(picture.running)), strong)), 85, ("figure", "run")),
        Part((("wait ", dim), (str(waiting), wait_style)), 84, ("figure", "wait")),
        Part((("cpu ", dim), (str(len(picture.offloaded)), strong)), 60 if picture.host else 15, ("figure", "cpu")),
        Part(((number(tokens), strong), (" tok/s", dim)), 70, ("figure", "tok/s")),
    ]
    if width >= 150:
        parts += _quantiles([*ranks(scene), *latencies(scene), hits(scene)], dim, strong)
    spans: list[Span] = [("blocks ", dim), (str(picture.used), strong), (f"/{picture.num_blocks}", dim)]
    if width >= 100:
        share = picture.used / max(1, picture.num_blocks)
        cells = 10 if width < 150 else 14
        spans += [(" ", dim), (bar_cells(theme, share, cells), theme.style("steel", "steel2"))]
    parts.append(Part(tuple(spans), 80, ("figure", "blocks")))
    return [_lamp(scene, width, bg), *parts]


def _quantiles(shown: Sequence[Figure], dim: Style, strong: Style) -> list[Part]:
    return [
        Part(((f"{figure.title} ", dim), (figure.value, strong)), 30 - place, ("figure", figure.name))
        for place, figure in enumerate(shown)
    ]


def _lamp(scene: Scene, width: int, bg: str) -> Part:
    """The lamp of the engine's invariants: a glyph and a word, the step where they broke."""
    theme, lamp = scene.theme, scene.state.checks.lamp(scene.step)
    dim = theme.style("muted", bg)
    hit = ("figure", "lamp")
    word = "invariants" if width >= 100 else "inv"
    if lamp is None:
        return Part(((f"{word} --", dim),), 10, hit)
    if lamp.broken:
        words = f"{theme.glyphs.failed} BROKEN at {lamp.step}"
        return Part(((words, theme.style("vermilion", bg, bold=True)),), 98, hit)
    return Part(((theme.glyphs.finished, theme.style("good", bg, bold=True)), (f" {word}", dim)), 22, hit)


_PLAIN = str.maketrans({"–": "-", "×": "x", "↑": "up", "↓": "down", "←": "left", "→": "right"})
"""Key names in ASCII."""


def key_bar(chrome: Chrome, theme: Theme, width: int) -> Panel:
    """Key hints, whole or not at all; a short notice takes their place from the right, see ``cbtui.view.notice``."""
    bg = "panel"
    row = RowBuilder(width, theme.style("text", bg))
    hits: list[Hit] = []
    row.put(" " if width > 1 else "")
    notice = chrome.notice if beside_keys(chrome, width) else ""
    notice_width = width_of(notice) + 2 if notice else 0
    parts = [_key_part(hint, theme, bg) for hint in chrome.keys]
    for index, part in enumerate(keep_parts(parts, max(0, width - 2 - notice_width), 2)):
        row.put("  " if index else "")
        start = row.used
        row.spans(part.spans)
        if part.hit is not None and part.hit[1]:
            hits.append(Hit(0, start, row.used, *part.hit))
    if notice:
        role = "vermilion" if chrome.notice_kind == "error" else "amber"
        row.to(width - width_of(notice) - 1).put(notice, theme.style(role, bg, bold=True))
    return Panel([row.done()], hits)


def _key_part(hint: KeyHint, theme: Theme, bg: str) -> Part:
    keys, label = hint.keys, hint.label
    if not theme.glyphs.unicode:
        keys, label = keys.translate(_PLAIN), label.translate(_PLAIN)
    spans: tuple[Span, ...]
    if hint.enabled:
        spans = ((keys, theme.style("bright", bg, bold=True)), (f" {label}", theme.style("muted", bg)))
    else:
        faint = theme.style("faint", bg, strike=True)
        spans = ((f"{keys} {label}", faint),)
    return Part(spans, hint.priority, ("key", hint.action))


def rule_notice(theme: Theme, width: int, wordings: Sequence[str], role: str) -> Panel:
    """A full-width line that cannot be overlooked: the engine died, nothing is kept."""
    row = RowBuilder(width, theme.style(role, f"{role}_on"))
    text = choose(wordings, max(0, width - 2), theme.glyphs.ellipsis)
    row.put(" ").put(text, theme.style(role, f"{role}_on", bold=True))
    return Panel([row.done()])
