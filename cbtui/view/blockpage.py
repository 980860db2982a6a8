"""Mode 3: the block map as large as it goes, and everything known about one block."""

from cbtui.notes import BlockEvent
from cbtui.sentences import count
from cbtui.view.blocks import blocks, order_of
from cbtui.view.blocktables import block_tables
from cbtui.view.cells import Panel, Part, Row, RowBuilder, blank, choose, clip, heading, join, stack
from cbtui.view.scene import Scene
from cbtui.view.tiles import class_counts, first_blocks
from engine.core.observe import BlockOp


def block_page(scene: Scene, width: int, height: int) -> Panel:
    """Map and detail, side by side on wide screens."""
    if width >= 110:
        right = max(40, min(60, width // 3))
        left = width - right - 2
        return join(_map(scene, left, height, width), _side(scene, right, height), 2, scene.theme)
    lower = min(12, max(4, height // 2 - 2))
    return stack([_map(scene, width, height - lower, width), _side(scene, width, lower)])


def _map(scene: Scene, width: int, height: int, screen_width: int) -> Panel:
    if scene.chrome.map_order == "tables":
        return block_tables(scene, width, height)
    rows = -(-scene.picture.num_blocks // max(16, (width - 4) // 2 // 16 * 16))
    need = 1 + (2 if height >= 16 else 0) + rows + 2
    if height - need >= 7:  # a small pool leaves room for the tables that point into it
        upper = _map(scene, width, need, screen_width)
        return stack([upper, Panel([blank(scene.theme, width)]), block_tables(scene, width, height - need - 1)])
    return blocks(
        scene,
        width,
        height,
        screen_width=max(100, screen_width),
        legend_rows=2 if height >= 10 else 1,
        tiles=True,
        with_gauge=height >= 16,
    )


def _side(scene: Scene, width: int, height: int) -> Panel:
    theme = scene.theme
    rows = _block(scene, width)
    if rows and height - len(rows) >= 20:
        rows += _life(scene, width, 8)
    if height - len(rows) >= 6:
        rows += [blank(theme, width), *_pool(scene, width)]
    rows += [blank(theme, width)] * (height - len(rows))
    return Panel(rows[:height])


def _line(scene: Scene, width: int, name: str, wordings: tuple[str, ...], role: str = "text") -> Row:
    theme = scene.theme
    row = RowBuilder(width, theme.style("text")).put(f" {name:<11}"[:width], theme.style("muted"))
    return row.put(choose(wordings, row.left, theme.glyphs.ellipsis), theme.style(role)).done()


def _block(scene: Scene, width: int) -> list[Row]:
    """The selected block: owners, references, tokens, hash, last use, why it is not evicted."""
    theme, picture, number = scene.theme, scene.picture, scene.chrome.block
    dim = theme.style("muted")
    if number is None or not 0 < number < len(picture.blocks):
        hint = RowBuilder(width, dim).put(
            clip("  click a block, or move with the arrows", width, theme.glyphs.ellipsis)
        )
        return [heading(theme, width, "BLOCK"), hint.done()]
    block = picture.blocks[number]
    rows = [heading(theme, width, f"BLOCK {number}", [Part(((block.state, theme.style("bright", bold=True)),))])]
    if block.group >= 0:
        window = picture.windows[block.group]
        kind = "full attention, keeps all" if window is None else f"sliding window of {window} tokens"
        rows.append(_line(scene, width, "group", (f"{block.group}: {kind}", f"{block.group}")))
    owners = sorted({seq for seq, _ in block.owners})
    rows.append(_line(scene, width, "owners", (scene.labels(owners, 12) if owners else "nobody",)))
    rows.append(_line(scene, width, "references", (str(len(block.owners)),)))
    rows.append(
        _line(
            scene,
            width,
            "hash",
            ("in the prefix index: others can find it", "published")
            if block.published
            else ("not published: not full, or sharing is off", "not published"),
        )
    )
    age = scene.step - block.last_use
    rows.append(
        _line(scene, width, "last use", (f"step {block.last_use}, {count(age, 'step')} ago", f"step {block.last_use}"))
    )
    if block.owners:
        rows += _contents(scene, width, *block.owners[0])
    rows.append(_line(scene, width, "evictable", _why_kept(scene, number), "text"))
    return rows


def _contents(scene: Scene, width: int, seq: int, index: int) -> list[Row]:
    """The tokens a block holds, as positions and as text."""
    picture, live, story = scene.picture, scene.live(seq), scene.state.story(seq)
    if live is None or story is None:
        return []
    page = picture.page_size
    start, end = index * page, min((index + 1) * page, live.change.computed)
    rows = [
        _line(
            scene,
            width,
            "tokens",
            (
                f"{max(0, end - start)} of {page}: positions {start} to {max(start, end - 1)} of {scene.label(seq)}",
                f"{max(0, end - start)} of {page}",
            ),
        )
    ]
    prompt = story.prompt_tokens or 0
    pieces = story.pieces[max(0, start - prompt) : max(0, end - prompt)]
    if pieces:
        text = "".join(pieces).replace("\n", scene.theme.glyphs.newline)
        rows.append(
            _line(scene, width, "text", (clip(text, max(0, width - 13), scene.theme.glyphs.ellipsis),), "muted")
        )
    return rows


def _why_kept(scene: Scene, number: int) -> tuple[str, ...]:
    block = scene.picture.blocks[number]
    if block.state == "free":
        return ("free already: the next one to need a block may get it", "free already")
    if block.state == "cached":
        return ("yes: nobody points at it; the least recently used goes first", "yes, nobody points at it")
    owners = sorted({seq for seq, _ in block.owners})
    return (f"no: {scene.labels(owners)} {'needs' if len(owners) == 1 else 'need'} it", "no, it is in use")


def _life(scene: Scene, width: int, most: int) -> list[Row]:
    """The last things that happened to the selected block, newest first."""
    theme, number = scene.theme, scene.chrome.block
    life = scene.state.lives.get(number, ()) if number is not None else ()
    events = [event for event in reversed(life) if event.step <= scene.step][:most]
    if not events:
        return []
    rows = [heading(theme, width, "ITS LIFE", [Part((("newest first", theme.style("muted")),))])]
    for event in events:
        row = RowBuilder(width, theme.style("muted")).right(str(event.step), 7).put("  ")
        rows.append(row.put(choose(_event(scene, event), row.left, theme.glyphs.ellipsis), theme.style("text")).done())
    return rows


def _event(scene: Scene, event: BlockEvent) -> tuple[str, ...]:
    who = scene.label(event.seq) if event.seq >= 0 else "nobody"
    words = {
        BlockOp.ALLOC: f"taken by {who} as its block {event.place}",
        BlockOp.SHARE: f"{who} points at it too, as its block {event.place}",
        BlockOp.RELEASE: f"{who} let it go",
        BlockOp.RECYCLE: f"fell behind the window of {who}",
        BlockOp.PUBLISH: "full: others can find it now",
        BlockOp.EVICT: "evicted: its hash is gone",
        BlockOp.OFFLOAD: f"copied to CPU slot {event.other} for {who}",
        BlockOp.RESTORE: f"filled from CPU slot {event.other} for {who}",
        BlockOp.COPY: f"copied from block {event.other} for {who}",
    }
    return (words.get(event.op, str(event.op)), str(event.op))


def _pool(scene: Scene, width: int) -> list[Row]:
    """What the pool holds, and how the prefix cache did."""
    theme, picture, counts = scene.theme, scene.picture, class_counts(scene)
    counters = picture.counters
    names = {
        "full": "full",
        "window": "window",
        "shared": "shared",
        "shared_window": "shared window",
        "back": "just back",
        "out": "just left",
        "cached": "cached",
        "free": "free",
    }
    rows = [heading(theme, width, "POOL", [Part(((count(picture.num_blocks, "block"), theme.style("text")),))])]
    for key, name in names.items():
        if counts[key] or key in ("cached", "free"):
            share = counts[key] / max(1, picture.num_blocks)
            rows.append(_line(scene, width, name, (f"{counts[key]:>6}   {share * 100:4.1f}%",)))
    hits = f"{100 * counters.cached_tokens / counters.lookup_tokens:.1f}%" if counters.lookup_tokens else "--"
    rows.append(heading(theme, width, "PREFIX CACHE"))
    rows.append(
        _line(
            scene, width, "hit", (f"{counters.cached_tokens} of {counters.lookup_tokens} prompt tokens, {hits}", hits)
        )
    )
    rows.append(_line(scene, width, "look-ups", (str(counters.lookups),)))
    rows.append(_line(scene, width, "evictions", (str(counters.evictions),)))
    changed = sorted(picture.moves.changed)
    rows.append(
        _line(
            scene,
            width,
            "this step",
            (f"{count(len(changed), 'block')} touched: {first_blocks(changed)}", f"{len(changed)} touched"),
        )
    )
    rows.append(
        _line(scene, width, "order", (f"{order_of(scene, width)}: l changes it, v the view", order_of(scene, width)))
    )
    return rows
