"""Which phase each request is in after a record: queued, prefill, decode, stalled, preempted, offloaded."""

from collections.abc import Iterable, Mapping, Sequence

from cbtui.picture import Picture
from cbtui.stories import Story
from engine.core.observe import BlockOp, Decision, StepRecord, Verdict

_LEFT_OUT = {"offloaded": "offloaded", "waiting": "preempted", "running": "stalled"}
"""Place of a request that was in the step before and is not in this one -> its phase."""


class Phases:
    """Follows the requests that compute something; the stories are told when they begin another phase."""

    def __init__(self, stories: Mapping[int, Story]) -> None:
        self._stories = stories
        self._active: set[int] = set()
        self._kinds: list[tuple[int, str]] = []

    def clear(self) -> None:
        """Records begin anew: who was active before is not known."""
        self._active, self._kinds = set(), []

    def take(
        self, record: StepRecord, slices: Sequence[tuple[int, str, int, int]], special: Iterable[Decision],
        picture: Picture,
    ) -> None:  # fmt: skip
        """Looks at the next record.

        Args:
            slices: its slices, as rows of ``SliceRecord``. special: its decisions that are no plain decodes.
            picture: the moment after it.
        """
        if record.deltas:
            self.note_peaks(record, picture)
        kinds = [(key, kind) for key, kind, _, _ in slices]
        if kinds == self._kinds and not special:
            return  # the same requests do the same as in the step before
        self._kinds, active = kinds, set()
        for key, kind in kinds:
            active.add(key)
            story = self._stories.get(key)
            if story is not None:
                story.enter(kind, record.step, record.time)
        for key in self._active - active:
            live, story = picture.sequences.get(key), self._stories.get(key)
            if live is None or story is None or story.ended >= 0:
                continue
            place = live.change.place
            if place == "running" and not record.slices:  # commands only, nobody was passed over
                active.add(key)
            elif place in _LEFT_OUT:
                story.enter(_LEFT_OUT[place], record.step, record.time)
        for decision in special:
            if decision.verdict in (Verdict.OFFLOAD, Verdict.RECOMPUTE) and decision.seq in self._stories:
                kind = "offloaded" if decision.verdict is Verdict.OFFLOAD else "preempted"
                self._stories[decision.seq].enter(kind, record.step, record.time)
        self._active = active

    def begin_decodes(self, fresh: Iterable[Story], step: int, end_time: float) -> None:
        """Who got its first token in a step decodes from that moment on, and not only from the start of the next."""
        for story in fresh:
            if story.ended < 0:
                first = story.change.first_token_time if story.change is not None else -1.0
                story.enter("decode", step + 1, first if first >= 0 else end_time)

    def note_peaks(self, record: StepRecord, picture: Picture) -> None:
        """The most blocks a request ever held."""
        for key in {delta.seq for delta in record.deltas if delta.op in (BlockOp.ALLOC, BlockOp.SHARE)}:
            live, story = picture.sequences.get(key), self._stories.get(key)
            if live is not None and story is not None:
                story.peak_blocks = max(story.peak_blocks, sum(map(live.held, range(len(live.tables)))))
