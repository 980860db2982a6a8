"""What a dry run of the scheduler found, in words: for the add dialog and the configuration editor."""

from typing import TYPE_CHECKING

from cbtui import sentences
from cbtui.sentences import count
from cbtui.view.scene import LIMITS, WAITS, Scene
from engine.core.observe import Verdict

if TYPE_CHECKING:
    from engine.core.rehearsal import Forecast, Outlook, Rehearsal

Words = list[tuple[str, str]]
PLANNED = (Verdict.DECODE, Verdict.CHUNK, Verdict.ADMIT, Verdict.RESTORE)


def forecast_words(scene: Scene, found: "Forecast | str") -> list[Words]:
    """Two lines: when the request would start and why not before, and what blocks it takes; a text is a refusal."""
    if isinstance(found, str):
        text = sentences.refusal(found)[0].removeprefix("refused: ")
        return [[("would be refused: ", "vermilion"), (text, "vermilion")], []]
    decision = found.decision
    if found.step is None:
        when = f"would not start within {count(found.steps, 'step')}" if found.steps else "start: too far back to say"
    else:
        ahead = "the next step" if found.steps == 1 else f"in {found.steps} steps at the latest"
        sooner = f"{found.step - found.early} or " if found.early else ""
        when = f"would start at step {sooner}{found.step}, {ahead}"
    why = ""
    if decision is not None and decision.verdict in WAITS and found.steps != 1:
        wordings = sentences.WAITS[decision.verdict](scene, decision, "")
        why = f", because it {wordings[1]}" if not _needs_it(wordings[1]) else f", because {wordings[1]}"
    alone = ""
    if found.step is not None and found.early:
        alone = f" (adding it may be step {found.step - found.steps})"
    elif scene.chrome.engine == "held":
        own = f": adding it is step {found.step - found.steps}" if found.step is not None else ""
        alone = f" (the engine is paused{own})"
    hit = f", {count(found.cached, 'prompt token')} found in the prefix cache" if found.cached else ""
    blocks = f"needs {count(found.need, 'block')} to start, {found.full} at full length, the pool has {found.pool}{hit}"
    return [[(when, "bright"), (why + alone, "amber" if why else "muted")], [(blocks, "muted")]]


def _needs_it(words: str) -> bool:
    """Whether a sentence about a waiting request begins with a number or a noun of its own."""
    return not words.startswith(("wants", "needs", "waits", "would", "its"))


def rehearsal_words(scene: Scene, found: "Rehearsal | str") -> list[Words]:
    """A heading and three lines: batch, blocks, who waits and until when. A text says why there is no dry run."""
    if isinstance(found, str):
        return [[("DRY RUN  ", "bold"), (found, "muted")], [], [], []]
    where = "the next step on a copy of the scheduler" if not found.anew else (
        "the first step of the new engine, all requests from their beginning"
    )  # fmt: skip
    old, new = found.before, found.after
    arrow = scene.theme.glyphs.arrow
    return [
        [("DRY RUN  ", "bold"), (where, "muted")],
        _pair("batch", f"{old.tokens} of {count(old.budget, 'token')}, {old.rows} of {count(old.max_rows, 'row')}",
              f"{new.tokens} of {count(new.budget, 'token')}, {new.rows} of {count(new.max_rows, 'row')}", arrow),
        _pair("blocks", _blocks(old), _blocks(new), arrow),
        [*_pair("waits", _waiting(scene, old), _waiting(scene, new), arrow), ("   ", "muted"),
         *_pair("all done", _end(old), _end(new), arrow)],
    ]  # fmt: skip


def _pair(name: str, old: str, new: str, arrow: str) -> Words:
    """Before and after; what does not change stands once."""
    if old == new:
        return [(f" {name:<9}", "muted"), (f"{new}, as it is", "muted")]
    return [(f" {name:<9}", "muted"), (f"{old} {arrow} ", "muted"), (new, "bold")]


def _blocks(outlook: "Outlook") -> str:
    margin = f", {outlook.margin} kept back" if outlook.margin else ""
    return f"{outlook.used} of {outlook.blocks} used{margin}"


def _waiting(scene: Scene, outlook: "Outlook") -> str:
    names = [scene.name_of(name) for name in outlook.waiting]
    shown = " ".join(names[:6]) + (f" +{len(names) - 6}" if len(names) > 6 else "") if names else "nobody"
    limit = f" (limit: {LIMITS.get(outlook.limit, outlook.limit)})" if names and outlook.limit else ""
    never = f", never fits: {' '.join(scene.name_of(name) for name in outlook.refused)}" if outlook.refused else ""
    return shown + limit + never


def _end(outlook: "Outlook") -> str:
    if outlook.steps is None:
        return "farther away than was looked"
    return f"in {count(outlook.steps, 'step')} at the latest"
