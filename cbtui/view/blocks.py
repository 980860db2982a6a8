"""The block map: who holds which block of the pool, in owner order or in physical order, and the legend beside it."""

from cbtui.view.blockmap import highlight, map_rows
from cbtui.view.cells import Panel, Part, Row, RowBuilder, Span, blank, heading
from cbtui.view.chrome import Hit
from cbtui.view.legend import equation, gauge, legend
from cbtui.view.scene import Scene
from cbtui.view.tiles import Shape, shape


def order_of(scene: Scene, width: int) -> str:
    """ "owner" or "physical": what the person chose, else what suits the size."""
    if scene.chrome.map_order in ("owner", "physical"):
        return scene.chrome.map_order
    return "physical" if width >= 198 else "owner"


def blocks(scene: Scene, width: int, height: int, *, screen_width: int, legend_rows: int = 1, tiles: bool = False,
           with_gauge: bool = False) -> Panel:  # fmt: skip
    """The pane: heading, gauge, map, legend."""
    theme = scene.theme
    order = order_of(scene, screen_width)
    gutter = screen_width >= 100
    used = 1 + (2 if with_gauge else 0) + legend_rows
    rows = max(1, height - used)
    plan = shape(scene.picture.num_blocks, width, rows, gutter=gutter, tiles=tiles)
    head = heading(theme, width, "KV BLOCKS", _facts(scene, width), _notes(scene, plan, order, screen_width))
    out: list[Row] = [head]
    if with_gauge:
        out += gauge(scene, width - (width - plan.gutter - plan.columns * plan.tile), plan.gutter)
        out = [out[0], *(_pad(row, width, scene) for row in out[1:])]
    body = map_rows(scene, width, rows, gutter=gutter, tiles=tiles, order=order)
    top = len(out)
    out += body.rows
    indent = plan.gutter if gutter else 1
    out += legend(scene, width, legend_rows, indent, long=legend_rows > 1, numbers=screen_width >= 100,
                  margin=order == "owner") if legend_rows else []  # fmt: skip
    out += [blank(theme, width)] * (height - len(out))


    def hits() -> list[Hit]:
        return [Hit(h.y + top, h.x0, h.x1, h.kind, h.value) for h in body.hits if h.y + top < height]

    return Panel(out[:height], hits)


def _pad(row: Row, width: int, scene: Scene) -> Row:
    builder = RowBuilder(width, scene.theme.style("text"))
    for segment in row:
        builder.put(segment.text, segment.style)
    return builder.done()


def _facts(scene: Scene, width: int) -> list[Part]:
    theme = scene.theme
    parts = equation(scene)
    if sum(len(text) for text, _ in parts) + 11 > width:
        strong, dim = theme.style("bright", bold=True), theme.style("muted")
        parts = ((f"{scene.picture.used}/{scene.picture.num_blocks}", strong), (" used", dim))
    facts = [Part(parts, 9)]
    if width >= 90 and scene.hybrid:
        picture = scene.picture
        full = sum(
            number for (state, group, _), number in picture.kinds.items()
            if state == "owned" and not picture.is_window(group)
        )  # fmt: skip
        text = f"used = {full} full + {scene.picture.used - full} window"
        facts.append(Part(((text, scene.theme.style("muted")),), 3))
    return facts


def _notes(scene: Scene, plan: Shape, order: str, screen_width: int) -> list[Part]:
    """Right side of the heading; what a tile is goes first where there is no room."""
    note = Part(_note(scene, plan, order, screen_width), 1)
    if plan.tile != 2 or scene.is_past or (screen_width < 100 and scene.picture.host):
        return [note]
    return [Part((("1 tile = 1 block", scene.theme.style("muted")),), 0), note]


def _note(scene: Scene, plan: Shape, order: str, screen_width: int) -> tuple[Span, ...]:
    """Right side of the heading: what a cell is, and what is bright in the past."""
    theme, chrome = scene.theme, scene.chrome
    dim = theme.style("muted")
    changed = highlight(scene)
    words = "by owner" if order == "owner" else "physical order"
    if changed is not None and screen_width >= 100:
        return ((f"{words.removesuffix(' order')}: ", dim), (f"{len(changed)} changed", theme.style("amber")))
    if screen_width < 100 and scene.picture.host:
        pool = f"CPU {scene.picture.host_used}/{len(scene.picture.host)}"
        return (((f"{words}  {pool}" if order != "owner" else pool), dim),)
    if plan.per_cell > 1:
        words = f"1 cell = {plan.per_cell} blocks, {words}"
    if chrome.map_view != "owner":
        words = f"{chrome.map_view}, {words}"
    return ((words, dim),)
