"""What the engine publishes, folded into the monitor's state: records, and keyframes where some were missed."""

import re
from collections.abc import Callable, Sequence
from typing import Any

from cbtui.acks import settings_told, told
from cbtui.model import MonitorState
from cbtui.tokens import TokenizerText
from engine.core.observe import CommandAck, Keyframe, StepRecord

BACKLOG = 64
"""Records that are taken in although nothing is to be drawn: more of them at once would keep keys waiting."""

Ask = Callable[[Callable[[], Any], Callable[[Any], None], Callable[[], None]], None]
"""Puts a question to the engine off the event loop: (question, what to do with the answer, what to do without one)."""


class Feed:
    """Reads one manager's tap.

    Args:
        manager: whose tap; this reader was attached to it before the engine started.
        keyframe: how the engine stood then.
        tokenizer: reads its token ids, None shows numbers.
        ask: for further keyframes, which the engine thread makes.
        say: tells what became of commands, as (text, "info" or "error", engine state in which it is no longer true).
        state: what the records of the engines before add up to; this one's are added to it.

    Attributes:
        state: what the records add up to.
    """

    def __init__(
        self,
        manager: Any,
        keyframe: Keyframe,
        tokenizer: Any,
        ask: Ask,
        say: Callable[[str, str, str], None],
        state: MonitorState | None = None,
    ) -> None:
        if state is None:
            state = MonitorState(keyframe, text=TokenizerText.of(tokenizer))
        else:
            state.begin_engine(keyframe)
        self.state = state
        self._manager, self._ask, self._say = manager, ask, say
        self._after = self._looked = 0
        self._planned = -1
        self._go_on_from(keyframe)

    def poll(self, due: bool = True) -> bool:
        """Takes in what was published since the last call. True when there was something.

        While the engine runs, records may wait in the tap until they are to be drawn: nobody sees them before, what is
        on the screen stays a moment whose next step is known, and taking in many at once costs less.

        Args:
            due: what is new can be drawn now.
        """
        latest = self._manager.tap.latest
        if self._waits or latest is None or latest.step <= self._after:
            return False
        if not (due or latest.step - self._after >= BACKLOG or self._presses(latest.step)):
            return False
        records, missed = self._manager.tap.read(self._after)
        if missed:
            self._ask_keyframe()
            return True
        shown = self._shown(records)
        self.state.extend(shown)
        for record in shown:
            self._after = record.step
            self._hear(record)
        return bool(records)

    def _presses(self, latest: int) -> bool:
        """Whether a record answers a command, or the latest may stay the last for some time."""
        if self._manager.status.state != "running":
            return True
        records, missed = self._manager.tap.read(max(self._after, self._looked))
        self._looked = latest
        return missed or any(record.commands for record in records)

    def _shown(self, records: Sequence[StepRecord]) -> Sequence[StepRecord]:
        """Those up to the last one that says what comes next, as long as others will follow; else all of them.

        Answers to commands do not wait for that.
        """
        last = records[-1].counters if records else None
        if last is None or last.accepted == last.finished + last.failed + last.cancelled:
            return records
        if self._manager.status.state != "running":
            return records
        known = [place for place, record in enumerate(records, start=1) if record.next is not None or record.commands]
        return records[: known[-1]] if known else records

    def ask_plan(self) -> None:
        """Asks what the next step would do where no record says it: the engine stands after one that was not asked."""
        state = self.state
        if self._waits or self._planned == state.step or state.preview(state.picture) is not None:
            return
        step = self._planned = state.step
        self._ask(self._manager.preview, lambda plan: state.plan_after(step, plan), self._stay)

    def close(self) -> None:
        """Nobody watches any more."""
        self._manager.tap.detach()

    def name_of(self, request_id: str) -> str:
        """The letter of a request, or its id where no letter is known."""
        stories = reversed(self.state.stories.values())
        return next((story.label for story in stories if story.request_id == request_id), request_id)

    def _ask_keyframe(self) -> None:
        self._waits = True
        self._ask(self._manager.snapshot, self._resync, self._stay)

    def _resync(self, keyframe: Keyframe) -> None:
        self.state.resync(keyframe)
        self._go_on_from(keyframe)

    def _go_on_from(self, keyframe: Keyframe) -> None:
        self._waits = False
        self.state.pauses.held = self._manager.status.state == "held"
        self._after = keyframe.step

    def _stay(self) -> None:
        """No keyframe came; what is shown stays, and the next poll asks again where records are missing."""
        self._waits = False

    def _hear(self, record: StepRecord) -> None:
        """A flood of added requests is told as one."""
        added = [ack for ack in record.commands if ack.kind == "add" and ack.accepted]
        if added:
            names = self.name_of(added[0].target) if len(added) == 1 else f"{len(added)} requests"
            self._say(f"{names} queued at step {record.step}", "info", "")
        settings = [ack for ack in record.commands if ack.kind == "config" and ack.accepted]
        if settings:
            self._say(settings_told(settings, record.step), "info", "")
        for ack in record.commands:
            if ack.kind == "follow" and ack.accepted:
                continue  # the caption below the HUD tells it
            if ack.kind not in ("add", "config") or not ack.accepted:
                self._tell(ack, record.step)

    def _tell(self, ack: CommandAck, step: int) -> None:
        """That it runs is not to stand there while it is held."""
        unless = "held" if ack.kind == "resume" and ack.accepted else ""
        self._say(told(ack, step, self._named, self.name_of), "info" if ack.accepted else "error", unless)

    def _named(self, text: str) -> str:
        return re.sub(r"\bsequence (\d+)", lambda found: self._label(int(found[1])), text)

    def _label(self, key: int) -> str:
        story = self.state.stories.get(key)
        return f"sequence {key}" if story is None else story.label
