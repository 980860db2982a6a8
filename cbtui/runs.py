"""Steps that only go on, folded in together: between two frames there are many, and nobody sees one but the last."""

from collections import deque
from collections.abc import Mapping, Sequence

from cbtui.notes import BlockEvent, note_lives
from cbtui.phases import Phases
from cbtui.picture import Picture
from cbtui.series import Series
from cbtui.stories import Story
from engine.core.observe import StepRecord
from engine.core.packed import Grown, base_of, rows_of


class Runs:
    """Tells such steps by their records, and notes what they add to stories, block lives and numbers per step.

    Such a step gives the same requests as the step before one token each, see ``engine.core.steady``; it may take
    blocks, publish them and give them back.
    """

    def __init__(
        self, stories: Mapping[int, Story], lives: dict[int, deque[BlockEvent]], phases: Phases, series: Series
    ) -> None:
        self._stories, self._lives, self._phases, self._series = stories, lives, phases, series
        self._base: object = None

    def clear(self) -> None:
        """Records begin anew: the next one goes on from none that is known."""
        self._base = None

    def begin(self, record: StepRecord) -> None:
        """A record was taken in by itself; the next may go on from it."""
        self._base = base_of(record.slices)

    def goes_on(self, record: StepRecord) -> bool:
        """Whether the next record says nothing but that its step went on."""
        slices = record.slices
        return isinstance(slices, Grown) and slices.base is self._base and not (record.commands or record.was_held)

    def take(self, run: Sequence[StepRecord], picture: Picture) -> None:
        """Notes what records add that go on; the picture moves on to the last of them."""
        last = run[-1]
        used, cached, host = [], [], []
        for record in run:
            if record is last:
                picture.apply(record)
            else:
                picture.pass_by(record)
            if record.deltas:
                self._phases.note_peaks(record, picture)
                note_lives(self._lives, record)
            used.append(picture.used)
            cached.append(picture.cached)
            host.append(picture.host_used)
        self._take_tokens(run)
        for key, live in picture.sequences.items():
            story = self._stories.get(key)
            if story is not None:
                story.change, story.decision = live.change, live.decision
        rows = len(last.slices)
        self._series.extend(
            [record.time for record in run],
            {
                "tokens": rows, "running": rows, "output": rows, "budget": last.budget, "queue": picture.queued,
                "used": used, "cached": cached, "host": host,
            },
        )  # fmt: skip

    def _take_tokens(self, run: Sequence[StepRecord]) -> None:
        """Each step gave the same stories a token, in the same order."""
        steps = range(run[0].step, run[-1].step + 1)
        times = [record.time + record.spans.total for record in run]
        for column in zip(*[rows_of(record.outputs) for record in run], strict=True):
            keys, tokens, logprobs = zip(*column, strict=True)
            story = self._stories.get(keys[0])
            if story is not None:
                story.tokens.extend(tokens)
                story.logprobs.extend(logprobs)
                story.token_steps.extend(steps)
                story.token_times.extend(times)
