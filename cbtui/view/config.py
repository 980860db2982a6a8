"""Mode 6: the configuration, field by field: what holds now, what would change, and when."""

from collections.abc import Sequence
from typing import NamedTuple

from cbtui.glossary import OPTION_OF
from cbtui.sentences import count, memory
from cbtui.view.cells import Panel, Part, Row, RowBuilder, blank, choose, clip, heading, width_of, wrap
from cbtui.view.chrome import ConfigField, Hit
from cbtui.view.figures import ranks
from cbtui.view.scene import Scene

_HELP = {
    "scheduler_type": "who goes first: fifo, or prompts before decodes",
    "max_batch_tokens": "query tokens in one step",
    "max_requests_per_batch": "rows: sequences in one step",
    "safety_margin": "share of the pool that new prompts leave usable",
    "allow_block_sharing": "prefix cache",
    "skip_limit": "steps in a row the head of the queue may be overtaken",
    "max_steps_without_decode": "prefill_first: decodes run at the latest after so many steps",
    "max_length": "longest sequence the model allows",
}


class Columns(NamedTuple):
    """Cells of the name, the value and when it takes effect."""

    name: int
    now: int = 14
    when: int = 16


TIGHT = 110
"""Below this width the columns are as narrow as what stands in them: the room is for the notes."""


def _widths(fields: Sequence[ConfigField], width: int) -> Columns:
    name = max([18, *(len(f.name) + 2 for f in fields)])
    if width >= TIGHT:
        return Columns(name)
    name = max([8, *(len(f.name) + 1 for f in fields)])
    now = max([3, *(width_of(f.now) for f in fields)])
    when = max([len("takes effect"), *(len(f.effect) for f in fields)])
    return Columns(min(name, 26) if width < 80 else name, min(now + 1, 14), when)


def fields_of(scene: Scene) -> tuple[ConfigField, ...]:
    """The fields the app gives, else the scheduler's settings as they are."""
    if scene.chrome.config:
        return scene.chrome.config
    named = {OPTION_OF.get(name, name): value for name, value in scene.picture.settings.items()}
    return tuple(ConfigField(name, _shown(value), note=_HELP.get(name, "")) for name, value in named.items())


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "--" if value is None else str(value)


def config_page(scene: Scene, width: int, height: int) -> Panel:
    theme, glyphs = scene.theme, scene.theme.glyphs
    dim = theme.style("muted")
    fields = fields_of(scene)
    cursor = max(0, min(scene.chrome.config_cursor, len(fields) - 1))
    changed = sum(1 for f in fields if f.changed)
    facts = [Part(((count(len(fields), "field"), theme.style("text")),), 2)]
    if changed:
        facts.append(Part(((f"{changed} edited", theme.style("amber", bold=True)),), 3))
    sizes = _widths(fields, width)
    rows: list[Row] = [heading(theme, width, "CONFIG", facts), _columns(scene, width, sizes, edited=bool(changed))]
    hits: list[Hit] = []
    room = max(1, height - len(rows))
    first = max(0, min(cursor - room // 2, len(fields) - room))
    for index, item in list(enumerate(fields))[first:]:
        if len(rows) >= height:
            break
        hits.append(Hit(len(rows), 0, width, "field", index))
        rows.append(_field(scene, width, sizes, item, selected=index == cursor, edited=bool(changed)))
        beside = width - 3 - sum(sizes) - 2 - (width < TIGHT) - 15 * bool(changed)
        if index == cursor and width_of(item.note) > beside:  # the whole note of the field under the cursor
            rows += [_note(scene, width, line) for line in wrap(item.note, max(10, width - 5))][: height - len(rows)]
        if item.error and len(rows) < height:
            row = RowBuilder(width, theme.style("vermilion")).put(f"   {glyphs.refused} "[:width])
            rows.append(row.put(choose((item.error,), row.left, glyphs.ellipsis)).done())
    if not fields:
        rows.append(
            RowBuilder(width, dim).put(clip("  no engine, no configuration yet", width, glyphs.ellipsis)).done()
        )
    if height - len(rows) >= 8:
        rows += [blank(theme, width), *_cache(scene, width)]
    rows += [blank(theme, width)] * (height - len(rows))
    return Panel(rows[:height], hits)


def _note(scene: Scene, width: int, line: str) -> Row:
    row = RowBuilder(width, scene.theme.style("muted", "select")).put("     "[:width])
    return row.put(clip(line, row.left, scene.theme.glyphs.ellipsis)).done()


def _cache(scene: Scene, width: int) -> list[Row]:
    """What the cache looks like under these settings."""
    theme, picture = scene.theme, scene.picture
    dim, text = theme.style("muted"), theme.style("text")
    size = scene.chrome.block_bytes
    mib = f", {memory(picture.num_blocks * size)}" if size else ""
    groups = ", ".join("full attention" if w is None else f"sliding window of {w} tokens" for w in picture.windows)
    slots = len(picture.host)
    rows = [heading(theme, width, "WHAT IT MEANS NOW")]
    for name, words in (
        ("pool", f"{count(picture.num_blocks, 'block')} of {count(picture.page_size, 'token')}{mib}"),
        ("groups", f"{len(picture.windows)}: {groups}"),
        ("CPU pool", count(slots, "block") if slots else "off: who loses its place is computed again"),
        ("margin", f"{count(scene.margin, 'block')} kept usable when a new prompt comes in" if scene.margin else "off"),
        ("prefix cache", "on" if picture.settings.get("allow_block_sharing") else "off"),
        *(("ranks", "; ".join(figure.sums)) for figure in ranks(scene)),
    ):
        row = RowBuilder(width, dim).put(f"   {name:<15}"[:width])
        rows.append(row.put(choose((words,), row.left, theme.glyphs.ellipsis), text).done())
    return rows


def _columns(scene: Scene, width: int, sizes: Columns, *, edited: bool) -> Row:
    """Names of the columns; one that has no room for its values is left out."""
    row = RowBuilder(width, scene.theme.style("muted"))
    row.put("   field"[:width].ljust(min(width, sizes.name + 3)))
    new = (("   new", 15),) if edited else ()
    note = (" note", 5) if width < TIGHT else ("note", 4)
    for text, size in (("now", sizes.now), *new, ("  takes effect", sizes.when + 2), note):
        if row.left < size:
            break
        row.put(text.rjust(size) if text == "now" else text.ljust(size))
    return row.done()


def _field(scene: Scene, width: int, sizes: Columns, item: ConfigField, *, selected: bool, edited: bool) -> Row:
    theme, glyphs = scene.theme, scene.theme.glyphs
    bg = "select" if selected else "bg"
    dim, text, strong = theme.style("muted", bg), theme.style("text", bg), theme.style("bright", bg, bold=True)
    row = RowBuilder(width, text)
    row.put(glyphs.cursor if selected else " ", strong)
    sign = glyphs.refused if item.error else glyphs.live if item.changed else " "
    role = "vermilion" if item.error else "bright"
    row.put(f"{sign} ", theme.style(role, bg, bold=True))
    row.field(
        item.name, min(sizes.name, row.left), theme.style(role, bg, bold=True) if item.changed or item.error else text
    )
    if row.left < sizes.now:
        return row.done()
    row.right(item.now, sizes.now, dim if item.changed else text)
    if edited:
        if row.left < 15:
            return row.done()
        row.put(f" {glyphs.arrow[:1]} " if item.changed else "   ", dim)
        ground = "invalid" if item.error else "lift"
        look = theme.style(role if item.changed else "text", ground, bold=item.changed)
        row.field(f" {item.new or item.now}", 11, look).put(" ")
    if row.left < sizes.when + 2:
        return row.done()
    when = "refused" if item.error else item.effect
    amber = item.changed and "restart" in item.effect
    look = theme.style("amber", bg, bold=True) if amber else strong if item.changed else dim
    row.put("  ").field(when, sizes.when, look)
    lead = " "[: row.left] if width < TIGHT else ""
    return row.put(lead).put(choose((item.note,), row.left, glyphs.ellipsis), dim).done()
