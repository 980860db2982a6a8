"""What the screen knows: the engine's records folded into one picture, and what is remembered of every request."""

from dataclasses import replace

from cbtui.ledger import Ledger
from cbtui.notes import LogEntry, Mark
from cbtui.picture import Picture
from cbtui.series import Stretch
from cbtui.stories import Story, TextSource
from engine.core.observe import Keyframe, PlanPreview, StepRecord
from engine.core.request import FinishReason, RequestStatus

__all__ = ["MonitorState", "TextSource"]

BATCH_SEARCH = 64
"""Steps looked back for one that computed something."""
RATE_WINDOW = 2.0
"""Seconds of engine time over which tok/s and steps/s are measured."""


class MonitorState(Ledger):
    """Goes on after a gap or with another engine, and answers questions; see ``Ledger`` for what is there."""

    def resync(self, keyframe: Keyframe) -> None:
        """Start again from a keyframe after records were missed; stories and history stay, with a gap noted."""
        missed = keyframe.step - self.picture.step
        self.picture = Picture(keyframe)
        self._phases.clear()
        if missed > 0:
            self.log.append(LogEntry(keyframe.step, "missed", a=missed))
        self._begin(keyframe)
        for story in self.stories.values():
            if story.key >= 0 and story.ended < 0 and story.key not in keyframe.sequences:
                self._end(story, keyframe.step, keyframe.time)

    def begin_engine(self, keyframe: Keyframe) -> None:
        """Another engine goes on: its pool is empty and its steps follow. Stories and kept steps stay."""
        self._leave_engine(keyframe)
        self.border = keyframe.step
        self.marks.append(Mark(keyframe.step, "N"))
        self.log.append(LogEntry(keyframe.step, "engine", a=self.picture.num_blocks, b=self.picture.page_size))
        self._begin(keyframe)

    def end_engine(self, why: str) -> None:
        """The engine is gone, and no record tells of its end: what had not ended is stopped, the pool holds nothing."""
        self.log.append(LogEntry(self.step, "command", text=why))
        last = self.picture.keyframe()
        free, host = (last.blocks[0],) * len(last.blocks), (None,) * len(last.host)
        self._leave_engine(replace(last, blocks=free, host=host, sequences={}, waiting=(), record=None))

    def _leave_engine(self, keyframe: Keyframe) -> None:
        """Ends the stories of an engine that was left; the picture is that of the keyframe."""
        for story in self.stories.values():
            if story.key >= 0 and story.ended < 0:
                if story.change is not None:
                    story.change = replace(
                        story.change, status=RequestStatus.FAILED, place="done", finish_reason=FinishReason.STOPPED
                    )
                self._end(story, self.step, self.picture.time)
        self.picture = Picture(keyframe)
        self.planned = None
        self._phases.clear()
        self._past = []
        self.lives.clear()
        self.memo.clear()

    def at(self, step: int) -> Picture:
        """The picture after ``step``, or after the nearest kept step. Past ones are not to be changed."""
        if step >= self.picture.step:
            return self.picture
        step = max(step, self.oldest)
        for picture in self._past:
            if picture.step == step:
                return picture
        found = self.history.picture(step)
        if found is None:
            return self.picture
        self._past = [found, *self._past[:1]]
        return found

    def batch(self, picture: Picture) -> StepRecord | None:
        """The last step up to a picture that computed something: commands alone compute nothing. None: not kept."""
        if picture.batch is not None or picture.record is None:
            return picture.batch or picture.record
        for step in range(picture.step - 1, max(self.oldest, picture.step - BATCH_SEARCH) - 1, -1):
            record = self.history.record(step)
            if record is not None and record.slices:
                return record
        return picture.record

    def preview(self, picture: Picture) -> PlanPreview | None:
        """What came, or would come, after a picture: its own dry run, else the step that followed it.

        None when nothing is known, and when the engine ended there: what was planned for later never ran.
        """
        if self.end_in(picture.step + 1) is not None:
            return None
        plan = self._planned(picture)
        after = None if plan is not None else self._after(picture)
        if after is None:
            return plan
        tokens = sum(part.query for part in after.slices)
        return PlanPreview(after.slices, after.decisions, after.limit, tokens)

    def budget_ahead(self, picture: Picture) -> int:
        """The token budget of what ``preview`` says, 0 when it is not known."""
        after = None if self._planned(picture) is not None else self._after(picture)
        if after is not None:
            return after.budget
        budget = picture.settings.get("max_batch_tokens", 0)
        return budget if isinstance(budget, int) else 0

    def _planned(self, picture: Picture) -> PlanPreview | None:
        """A dry run made after a picture."""
        if picture.record is not None and picture.record.next is not None:
            return picture.record.next
        return self.planned[1] if self.planned is not None and self.planned[0] == picture.step else None

    def _after(self, picture: Picture) -> StepRecord | None:
        """The kept record of the step that followed a picture."""
        return self.history.record(picture.step + 1) if picture.step < self.picture.step else None

    def end_in(self, step: int) -> FinishReason | None:
        """Why all requests ended in a kept step without computing anything: stopped or failed. None: they did not."""
        record = self.history.record(step) if step <= self.picture.step else None
        if record is None or record.slices:
            return None
        reasons = {change.finish_reason for change in record.changes} & {FinishReason.STOPPED, FinishReason.FAILED}
        return next(iter(reasons), None)

    def plan_after(self, step: int, plan: PlanPreview | None) -> None:
        """Notes what would come after a step; None notes nothing."""
        if plan is not None and step == self.step:
            self.planned = step, plan

    def rates(self, step: int | None = None, limit: float | None = None) -> tuple[float | None, float | None]:
        """(steps per second, output tokens per second) up to a step, None where there is too little to measure."""
        stretch = self.stretch(step, limit)
        if stretch is None:
            return None, None
        return stretch.steps / stretch.seconds, stretch.tokens / stretch.seconds

    def stretch(self, step: int | None = None, limit: float | None = None) -> Stretch | None:
        """The last steps up to a step, over which rates are measured: since the engine was held, or its pace changed.

        The step before a pause would come without the time until the next one, so the measure begins after it. While
        the engine is held, commands may have steps of their own: then these are the last steps that computed something.

        Args:
            limit: steps per second that the engine is let do now. One that begins a little late does not shift the
                beat, so its time counts from when it was due: so many steps last no less than the beat gives them.
        """
        if (step is None or step >= self.step) and self.picture.batch is not None:
            step = self.picture.batch.step
        place = len(self.series) - 1 if step is None else min(len(self.series) - 1, step - self.series.first)
        if place < 0:
            return None
        end = self.series.time[place]
        stretch = self.series.stretch(step, RATE_WINDOW, max(self.pauses.last_end(end), self.pauses.last_change(end)))
        if stretch is None or limit is None or self.pauses.last_change() > end:
            return stretch
        return stretch._replace(seconds=max(stretch.seconds, stretch.steps / limit))

    def story(self, key: int) -> Story | None:
        return self.stories.get(key)

    def label(self, key: int) -> str:
        """Label of a sequence, "?" when it is no longer known."""
        story = self.stories.get(key)
        return story.label if story is not None else "?"

    def hue(self, key: int) -> int:
        story = self.stories.get(key)
        return story.hue if story is not None else 0
