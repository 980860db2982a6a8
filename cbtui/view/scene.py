"""What one frame is drawn from: the state, the picture of the step shown, the chrome and the theme."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

from cbtui.model import MonitorState
from cbtui.picture import Live, Picture
from cbtui.standing import state_of
from cbtui.stories import Story
from cbtui.theme import Theme
from cbtui.view.chrome import Chrome
from engine.core.observe import Decision, PlanPreview, SliceRecord, StepRecord, Verdict

WAITS = (
    Verdict.WAIT_TOKENS,
    Verdict.WAIT_ROWS,
    Verdict.WAIT_BLOCKS,
    Verdict.WAIT_MARGIN,
    Verdict.WAIT_ORDER,
    Verdict.WAIT_IN_FLIGHT,
    Verdict.WAIT_PREFILL,
)
LIMITS = {
    "tokens": "token budget",
    "rows": "rows",
    "blocks": "free blocks",
    "margin": "safety margin",
    "": "none",
}


@dataclass(frozen=True, slots=True)
class Scene:
    """Everything a view function reads. ``preview`` is the plan after the shown step, when it is known."""

    state: MonitorState
    picture: Picture
    chrome: Chrome
    theme: Theme
    preview: PlanPreview | None

    @classmethod
    def of(cls, state: MonitorState, chrome: Chrome, theme: Theme) -> "Scene":
        picture = state.picture if chrome.past is None else state.at(chrome.past)
        return cls(state, picture, chrome, theme, state.preview(picture))

    def frozen(self) -> "Scene":
        """The same moment with a picture of its own, which does not move on with the engine."""
        kept = self.state.history.picture(self.step)
        return self if kept is None or kept.step != self.step else replace(self, picture=kept)

    @property
    def step(self) -> int:
        return self.picture.step

    @property
    def is_past(self) -> bool:
        return self.chrome.past is not None

    @property
    def now(self) -> float:
        """Engine time at the end of the shown step, in seconds."""
        record = self.picture.record
        return self.picture.time + (record.spans.total if record is not None else 0.0)

    @property
    def batch(self) -> StepRecord | None:
        """The step that computed something last; while the engine is held or idle, commands have steps after it."""
        return self.state.batch(self.picture)

    def label(self, key: int) -> str:
        return self.state.label(key)

    def hue(self, key: int) -> int:
        return self.state.hue(key)

    def named(self, text: str) -> str:
        """A sentence of the engine with letters in place of the keys of sequences."""
        return re.sub(r"\bsequence (\d+)", lambda found: self._name(int(found[1])), text)

    def name_of(self, request_id: str) -> str:
        """The letter of a request, or its id where no letter is known."""
        stories = reversed(self.state.stories.values())
        return next((story.label for story in stories if story.request_id == request_id), request_id)

    def _name(self, key: int) -> str:
        return f"sequence {key}" if self.state.story(key) is None else self.label(key)

    def labels(self, keys: list[int] | tuple[int, ...], most: int = 4) -> str:
        """Labels one after the other, the rest as a number."""
        names = [self.label(key) for key in keys]
        return " ".join(names[:most]) + (f" +{len(names) - most}" if len(names) > most else "")

    def live(self, key: int) -> Live | None:
        return self.picture.sequences.get(key)

    def state_of(self, story: Story) -> str:
        return state_of(self.live(story.key), story, self.step)

    def decision(self, story: Story) -> Decision | None:
        """What explains a request now: for a waiting one the coming plan, for a running one the step that ran."""
        live = self.live(story.key)
        if live is None:
            return None
        if self.preview is not None and live.change.place in ("waiting", "offloaded"):
            for decision in self.preview.decisions:
                if decision.seq == story.key and decision.verdict in WAITS:
                    return decision
        return live.decision

    def slice_of(self, key: int) -> SliceRecord | None:
        record = self.batch
        if record is None:
            return None
        return next((part for part in record.slices if part.seq == key), None)

    def number(self, name: str) -> float | None:
        """A numeric setting, None when it is not known."""
        value = self.picture.settings.get(name)
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

    @property
    def idle(self) -> bool:
        """Whether nobody is there: all have ended, or none has come."""
        return all(live.change.place == "done" for live in self.picture.sequences.values())

    @property
    def closes(self) -> bool:
        """Whether the engine has ended all requests and only gives the model and its memory back."""
        return self.chrome.engine == "draining" and self.idle and not self.is_past

    @property
    def policy(self) -> str:
        return str(self.picture.settings.get("policy", ""))

    @property
    def margin(self) -> int:
        """Blocks the safety margin keeps usable, 0 when it is unknown."""
        share = self.number("safety_margin")
        return margin_blocks(share, self.picture.num_blocks) if share else 0

    @property
    def hybrid(self) -> bool:
        """Whether full-attention and sliding-window groups stand side by side."""
        return len({window is None for window in self.picture.windows}) > 1


def margin_blocks(share: float, num_blocks: int) -> int:
    """Blocks that a safety margin of ``share`` keeps: rounded up, as the scheduler does."""
    return ceil(share * num_blocks - 1e-9)


def first_waiter(decisions: Sequence[Decision]) -> Decision | None:
    """The candidate that was left out first for a reason of its own."""
    own = [d for d in decisions if d.verdict in WAITS and d.verdict not in (Verdict.WAIT_ORDER, Verdict.WAIT_IN_FLIGHT)]
    return own[0] if own else None
