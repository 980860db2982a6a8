"""Which panes a screen of a given size shows, and where. Short screens drop panes in order; tall ones stretch."""

from collections.abc import Sequence
from dataclasses import dataclass

MIN_WIDTH, MIN_HEIGHT = 40, 10
KEYS = 1
"""Rows of the key bar. A screen of any size has it: it says how to go on, and how to leave."""


@dataclass(frozen=True, slots=True)
class Rect:
    """Place of a pane, in cells from the top left."""

    name: str
    x: int
    y: int
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Facts:
    """What the layout needs to know about the contents."""

    num_blocks: int
    host_blocks: int
    requests: int
    difference: bool = False


def size_class(width: int, height: int) -> str:
    """ "tiny", "small", "medium" or "large"."""
    if width < MIN_WIDTH or height < MIN_HEIGHT:
        return "tiny"
    if width >= 198 and height >= 58:
        return "large"
    if width >= 118 and height >= 32:
        return "medium"
    return "small"


def monitor(width: int, height: int, facts: Facts) -> list[Rect]:
    """The panes of mode 1."""
    kind = size_class(width, height)
    if kind == "large":
        return _large(width, height, facts)
    return _medium(width, height, facts) if kind == "medium" else _small(width, height, facts)


def column(x: int, y: int, width: int, parts: list[tuple[str, int]]) -> list[Rect]:
    """Panes below each other; those without height are left out, names starting with "-" are gaps."""
    rects = []
    for name, height in parts:
        if height > 0 and not name.startswith("-"):
            rects.append(Rect(name, x, y, width, height))
        y += max(0, height)
    return rects


def rows_for(requests: int) -> int:
    """Rows a table of so many requests gets; in steps of four, so that the panes do not move with every arrival."""
    return 2 + max(4, -(-requests // 4) * 4)


def _small(width: int, height: int, facts: Facts) -> list[Rect]:
    batch = 3 if height >= 20 else 2 if height >= 16 else 0
    legend = 1 if height >= 20 else 0
    stream = 1 if height >= 22 else 0
    log = 0
    timeline = 2 if height >= 18 else 1 if height >= 11 else 0
    if height >= 36:
        batch, stream, log, timeline = 4, 5, 5, 4
    map_room = max(1, width - 2 if width < 100 else width - 5)
    need = -(-facts.num_blocks // map_room)
    spare = height - 1 - KEYS - batch - stream - log - timeline - legend - 1 - 5
    most = max(2 if height >= 8 else 1, min(spare, 5 if height < 30 else height // 4))
    blocks = 1 + min(max(2, need), most) + legend
    difference = 9 if facts.difference and height >= 24 else 0
    if difference:
        stream = log = 0
    requests = height - 1 - KEYS - batch - blocks - stream - log - timeline - difference
    if requests < 5 and batch:
        requests, batch = requests + batch, 0
    if requests < 3:
        requests, difference = requests + difference, 0
    spare = requests - rows_for(facts.requests)
    if stream and spare >= 2:
        requests, stream = requests - spare, stream + spare
    return column(0, 0, width, [
        ("hud", 1), ("batch", batch), ("blocks", blocks), ("requests", requests), ("stream", stream), ("log", log),
        ("difference", difference), ("timeline", timeline), ("keys", KEYS),
    ])  # fmt: skip


def _medium(width: int, height: int, facts: Facts) -> list[Rect]:
    digits = max(3, len(str(facts.num_blocks))) + 1
    columns = max(16, (int(width * 0.58) - digits - 1) // 16 * 16) if facts.host_blocks else (width - digits) // 16 * 16
    map_width = digits + columns + 1 if facts.host_blocks else width
    need = -(-facts.num_blocks // columns)
    cap = 6 + max(0, height - 36) // 3
    body = max(min(need, cap), 5 if facts.host_blocks else 3)
    pools = body + 2
    lower = 5 + max(0, height - 38) // 4
    if facts.difference:
        lower = 9
    room = height - 1 - 4 - pools - 4 - 1
    if not facts.difference:  # rows that requests do not need go to the stream and the log
        lower = max(lower, min(room - rows_for(facts.requests), room * 2 // 3))
    requests = room - lower
    y = 5
    rects = [Rect("hud", 0, 0, width, 1), Rect("batch", 0, 1, width, 4), Rect("blocks", 0, y, map_width, pools)]
    if facts.host_blocks:
        rects.append(Rect("host", map_width + 1, y, width - map_width - 1, pools))
    y += pools
    rects.append(Rect("requests", 0, y, width, requests))
    y += requests
    if facts.difference:
        rects.append(Rect("difference", 0, y, width, lower))
    else:
        left = 56 + (width - 120) // 2
        rects += [Rect("stream", 0, y, left, lower), Rect("log", left + 2, y, width - left - 2, lower)]
    y += lower
    return [*rects, Rect("timeline", 0, y, width, 4), Rect("keys", 0, y + 4, width, 1)]


def _large(width: int, height: int, facts: Facts) -> list[Rect]:
    digits = max(3, len(str(facts.num_blocks))) + 1
    tiles = max(32, (width // 2 - digits) // 2 // 16 * 16)
    left = digits + 2 * tiles
    right = width - left - 3
    main = height - 19
    if -(-facts.num_blocks // tiles) <= 12:
        rows = -(-facts.num_blocks // tiles)
    else:
        rows = min(-(-facts.num_blocks // (2 * tiles // 16 * 16)), main // 3)
    blocks = 5 + max(3, rows)
    host = 0
    if facts.host_blocks:
        host = 1 + min(4, -(-facts.host_blocks // tiles)) + 3 + 1
    log = 6 + max(0, height - 62) // 4
    gap = 1 if host else 0
    tables = main - blocks - gap - host - 1 - log - 1
    if tables < 6:
        log = max(3, log - (6 - tables))
        tables = main - blocks - gap - host - 1 - log - 1
    streams = max(18 + max(0, main - 41) // 2, min(main - 1 - rows_for(facts.requests), main * 2 // 3))
    if facts.difference:
        streams = 12
    rects = [Rect("hud", 0, 0, width, 1), Rect("batch", 0, 2, width, 4)]
    rects += column(0, 7, left, [("blocks", blocks), ("-", gap), ("host", host), ("-", 1), ("tables", tables),
                                 ("-", 1), ("log", log)])  # fmt: skip
    lower = "difference" if facts.difference else "streams"
    rects += column(left + 3, 7, right, [("requests", main - 1 - streams), ("-", 1), (lower, streams)])
    return [*rects, Rect("timeline", 0, 7 + main + 1, width, 10), Rect("keys", 0, height - 1, width, 1)]


def two(width: int, height: int, upper: str, lower: str, share: float) -> list[Rect]:
    """Two panes below each other, the upper one with a share of the height and at least six rows."""
    room = height - 1 - KEYS
    top = min(room, max(6, round(room * share))) if room >= 12 else room
    return column(0, 0, width, [("hud", 1), (upper, top), (lower, room - top), ("keys", KEYS)])


def below(rects: Sequence[Rect], rows: int) -> list[Rect]:
    """The same panes with ``rows`` of room between the HUD and the others."""
    return [Rect(r.name, r.x, r.y + (rows if r.y else 0), r.width, r.height) for r in rects]


def over_keys(rects: Sequence[Rect], name: str, rows: int) -> list[Rect]:
    """The same panes with one more, on the last ``rows`` rows above the key bar, which comes last."""
    keys = rects[-1]
    top = keys.y - rows
    kept = [Rect(r.name, r.x, r.y, r.width, min(r.height, top - r.y)) for r in rects[:-1] if r.y < top]
    return [*kept, Rect(name, keys.x, top, keys.width, rows), keys]


def whole(width: int, height: int, name: str) -> list[Rect]:
    """One pane between HUD and key bar."""
    return column(0, 0, width, [("hud", 1), (name, height - 1 - KEYS), ("keys", KEYS)])
