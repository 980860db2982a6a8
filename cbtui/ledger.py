"""Taking records in: the picture moves on, and what is remembered of every request and step grows."""

import sys
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice, takewhile

from cbtui.checks import Checks
from cbtui.glossary import OPTION_OF
from cbtui.history import History
from cbtui.letters import label
from cbtui.notes import ENDINGS, MARKS, TOLD, BlockEvent, LogEntry, Mark, note_lives, numbers_of, third_number
from cbtui.pauses import Pauses
from cbtui.phases import Phases
from cbtui.picture import Picture
from cbtui.runs import Runs
from cbtui.series import Series
from cbtui.stories import Event, Story, TextSource
from cbtui.text import clean, plain_error
from cbtui.theme import HueBook
from engine.core.observe import (
    CommandAck,
    Decision,
    Keyframe,
    PlanPreview,
    RequestInfo,
    StepRecord,
    Verdict,
)
from engine.core.packed import rows_of

KEPT_STORIES = 200
HISTORY_BYTES = 32 << 20
"""What is kept of the steps: with all that is kept beside them, stories and the engine's own last records, a program
that runs for long stays under 80 MB more than at its start."""
NUMBERS = 72
"""Bytes of the place in its list of a mark or a line of the log, and of the two numbers it usually holds for itself."""
DECODE = Verdict.DECODE


class Ledger:
    """The live picture, the history behind it, and a story per request, as the records that come make them.

    Attributes:
        picture: the live Picture (blocks, host slots, sequences, waiting, counters, settings, record).
        stories: sequence key -> Story; refused requests have negative keys.
        series: numbers per kept step, for graphs. marks, log: what is worth a letter or a line, oldest first.
        lives: block id -> the last things that happened to it, oldest first.
        memo: the last answer to an expensive question by name, with what was asked.
        checks: when the engine checked its invariants, and what was broken.
        border: the step at which the engine that runs began, -1 for the first one.
        pauses: when a person held the engine.
        planned: a step, and what the one after it would do: of a record that was not asked when it was made.
        history: kept steps. text: how token ids are read; may be set once, before the first record.
    """

    def __init__(
        self, keyframe: Keyframe, *, text: TextSource | None = None, history_bytes: int = HISTORY_BYTES
    ) -> None:
        self.text = text
        self.picture = Picture(keyframe)
        self.history = History(history_bytes)
        self.series = Series()
        self.stories: dict[int, Story] = {}
        self.marks: list[Mark] = []
        self.log: list[LogEntry] = []
        self.checks = Checks()
        self.pauses = Pauses()
        self.border = -1
        self._hues = HueBook()
        self._labels = 0
        self._refused = 0
        self._phases = Phases(self.stories)
        self._past: list[Picture] = []
        self.planned: tuple[int, PlanPreview] | None = None
        self.lives: dict[int, deque[BlockEvent]] = {}
        self._runs = Runs(self.stories, self.lives, self._phases, self.series)
        self.memo: dict[str, tuple[object, object]] = {}
        self._begin(keyframe)

    def _begin(self, keyframe: Keyframe) -> None:
        for key in sorted(keyframe.sequences):
            view = keyframe.sequences[key]
            if key not in self.stories:
                self._arrive(view.info, keyframe.step, view.info.created_time)
            story = self.stories[key]
            missed = view.output[len(story.tokens) :]
            self._take_tokens([(key, token, None) for token in missed], keyframe.step, keyframe.time)
            story.change, story.decision = view.change, view.decision
        self.pauses.begin(keyframe.time)
        self._runs.clear()
        self.history.begin(self.picture.keyframe())

    @property
    def step(self) -> int:
        return self.picture.step

    @property
    def oldest(self) -> int:
        """The oldest step ``at`` can show."""
        return self.history.oldest if self.history.oldest is not None else self.picture.step

    def extend(self, records: Sequence[StepRecord]) -> None:
        """Fold some records in, see ``apply``. Those that only go on from one to the next are taken together."""
        place = 0
        while place < len(records):
            run = list(islice(takewhile(self._goes_on, islice(records, place, None)), self.history.room))
            if run:
                self._take_run(run)
            else:
                self.apply(records[place])
            place += max(1, len(run))

    def _goes_on(self, record: StepRecord) -> bool:
        return not self.pauses.held and self._runs.goes_on(record)

    def _take_run(self, run: Sequence[StepRecord]) -> None:
        self._runs.take(run, self.picture)
        self.pauses.take(run[-1])
        full = False
        for record in run:
            self._take_check(record)
            full = self.history.append(record)
        if full:
            self._begin_chunk()

    def apply(self, record: StepRecord) -> None:
        """Fold one record in. Records come in step order; use ``resync`` where some are missing."""
        end_time = record.time + record.spans.total
        self.pauses.take(record)
        for info in record.requests:
            self._arrive(info, record.step, record.time)
        for ack in record.commands:
            self._take_command(ack, record)
        for name, value in record.settings.items():  # before what the step decides because of them
            self.marks.append(Mark(record.step, "S"))
            self.log.append(LogEntry(record.step, "setting", text=f"{OPTION_OF.get(name, name)} = {value}"))
        changes, decisions = tuple(record.changes), tuple(record.decisions)
        self.picture.apply(record, changes, decisions)
        special = self._take_decisions(decisions, record)
        slices = rows_of(record.slices)
        self._phases.take(record, slices, special, self.picture)
        fresh = self._take_tokens(rows_of(record.outputs), record.step, end_time)
        for change in changes:
            story = self.stories.get(change.seq)
            if story is not None:
                story.change = change
                if change.place == "done" and story.ended < 0:
                    self._end(story, record.step, end_time)
        self._phases.begin_decodes(fresh, record.step, end_time)
        self._take_check(record)
        note_lives(self.lives, record)
        self.series.append(record.step, record.time, numbers_of(record, slices, self.picture))
        self._runs.begin(record)
        if self.history.append(record):
            self._begin_chunk()

    def _begin_chunk(self) -> None:
        self.history.begin(self.picture.keyframe())
        self._forget()

    def _take_check(self, record: StepRecord) -> None:
        broken = self.checks.take(record)
        if broken:
            self.marks.append(Mark(record.step, "!"))
            self.log += [LogEntry(record.step, "broken", text=text) for text in broken]

    def _arrive(self, info: RequestInfo, step: int, time: float) -> None:
        behind = tuple(self.picture.waiting)
        story = Story(info.seq, self._labels, label(self._labels), self._hues.take(), info.request_id, info)
        self._labels += 1
        story.arrived, story.arrived_time, story.behind = step, info.created_time, behind
        story.prompt = self._decode(info.prompt_ids)
        story.pauses = self.pauses
        if self.text is not None:
            story.open_reader = self.text.stream
        story.events.append(Event(step, time, "arrived", len(info.prompt_ids)))
        story.enter("queued", step, min(time, info.created_time))
        self.stories[info.seq] = story

    def _decode(self, ids: tuple[int, ...]) -> str:
        if self.text is None:
            return " ".join(map(str, ids))
        return clean(self.text.decode(ids))

    def _take_command(self, ack: CommandAck, record: StepRecord) -> None:
        if ack.kind == "add" and not ack.accepted:
            if any(info.request_id == ack.target for info in record.requests):
                return  # the scheduler recorded it as a sequence that failed
            self._refuse(ack.target, ack.detail, record.step, record.time)
        elif not ack.accepted:
            self.log.append(LogEntry(record.step, "command", text=f"{ack.kind} {ack.target} refused: {ack.detail}"))

    def refuse(self, request_id: str, reason: str) -> None:
        """A request the engine never took, so that no record speaks of it: it is shown beside the others."""
        self._refuse(request_id, reason, self.picture.step, self.picture.time)

    def _refuse(self, request_id: str, reason: str, step: int, time: float) -> None:
        self._refused += 1
        key = -self._refused
        hue = self._hues.take()
        self._hues.give_back([hue])
        story = Story(key, self._labels, label(self._labels), hue, request_id, refusal=clean(reason) or "refused")
        self._labels += 1
        story.arrived = story.ended = step
        story.arrived_time = story.ended_time = time
        self.stories[key] = story
        self.marks.append(Mark(step, "!", key))
        self.log.append(LogEntry(step, "refused", key, text=story.refusal))

    def _take_decisions(self, decisions: Iterable[Decision], record: StepRecord) -> list[Decision]:
        """Notes them; returns those that are no plain decodes."""
        special, stories = [], self.stories
        for decision in decisions:
            story = stories.get(decision.seq)
            if story is not None:
                story.decision = decision
            if decision.verdict is not DECODE:
                special.append(decision)
                if story is not None:
                    self._take_special(story, decision, record)
        return special

    def _take_special(self, story: Story, decision: Decision, record: StepRecord) -> None:
        verdict = decision.verdict
        if verdict in TOLD:
            extra = third_number(decision, record, self.picture)
            story.events.append(Event(record.step, record.time, str(verdict), decision.a, decision.b, extra))
            self.log.append(LogEntry(record.step, str(verdict), decision.seq, decision.a, decision.b, extra))
        if verdict in ENDINGS:
            story.freed = decision.b
        if verdict is Verdict.ADMIT and story.started < 0:
            story.started = record.step
        letter = MARKS.get(verdict)
        if letter is not None:
            self.marks.append(Mark(record.step, letter, decision.seq))

    def _take_tokens(self, outputs: Iterable[tuple[int, int, float | None]], step: int, time: float) -> list[Story]:
        """Notes the tokens of a step, as rows of ``TokenOutput``; returns the stories they are the first of."""
        fresh, stories = [], self.stories
        for key, token, logprob in outputs:
            story = stories.get(key)
            if story is None:
                continue
            if not story.tokens:
                fresh.append(story)
                story.events.append(Event(step, time, "first_token"))
            story.tokens.append(token)
            story.logprobs.append(logprob)
            story.token_steps.append(step)
            story.token_times.append(time)
        return fresh

    def _end(self, story: Story, step: int, time: float) -> None:
        change = story.change
        story.ended, story.ended_time = step, time
        story.finish_reason = change.finish_reason if change is not None else None
        story.error = plain_error(clean(change.error)) if change is not None and change.error else None
        story.close_phase(step, time)
        self._hues.give_back([story.hue])

    @property
    def beside(self) -> int:
        """Bytes kept of the steps in the history, beside it."""
        entries = sum(len(kept) * (sys.getsizeof(kept[0]) + NUMBERS) for kept in (self.marks, self.log) if kept)
        return self.series.size + entries

    def _forget(self) -> None:
        """Drop the oldest steps when more is kept than may be, what belongs to them, and the oldest ended stories."""
        history, limit = self.history, self.history.limit_bytes
        beside = self.beside / (self.step - self.oldest + 1)
        if history.size + self.beside > limit:
            most = limit - limit // 64  # some more than must be, for there is much to move each time
            while history.size + beside * (self.step - self.oldest + 1) > most and history.drop_oldest():
                pass
        oldest = self.oldest
        self.series.trim(oldest)
        self.checks.forget(oldest)
        del self.marks[: bisect_left(self.marks, oldest, key=lambda mark: mark.step)]
        del self.log[: bisect_left(self.log, oldest, key=lambda entry: entry.step)]
        ended = [s.key for s in self.stories.values() if s.ended >= 0]
        for key in ended:
            self.stories[key].wraps.clear()
        for key in ended[: max(0, len(ended) - KEPT_STORIES)]:
            del self.stories[key]
