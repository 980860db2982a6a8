"""Loading on a thread: one attempt at a time, with its phase and seconds, and a way to give it up."""

import gc
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from cbtui.launch import LaunchOptions, Progress
from cbtui.view.chrome import Loading
from cbtui.work import Worker, words_of
from engine.core.observe import Keyframe
from engine.models.progress import LoadCancelled, LoadProgress

Load = Callable[..., Any]
Post = Callable[[Callable[[], None]], None]
"""Hands a function to the event loop's next poll."""


def warm_up(manager: Any, progress: Progress) -> None:
    """Prepares the sizes of steps that are recorded or compiled, and tells how far that is; most engines have none."""
    began = time.perf_counter()

    def tell(done: int, total: int) -> None:
        if total > 1:
            seconds = time.perf_counter() - began
            progress(LoadProgress("preparing", f"step sizes, {done} of {total} done", seconds, seconds, done / total))

    manager.warmup(tell)


def settled(load: Load) -> Load:
    """The same, and then the garbage collector leaves alone what is there.

    A model's libraries are some hundred thousand objects that stay. To look at all of them takes a tenth of a second,
    on whichever thread is due: a frame that comes late, or a step that takes long. Before the next model they are
    looked at once more.
    """

    def load_and_settle(*what: Any) -> Any:
        gc.unfreeze()
        loaded = load(*what)
        gc.collect()
        gc.freeze()
        return loaded

    return load_and_settle


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an attempt is to make.

    Attributes:
        load: gives the model; the launch's own ``load``, or what was loaded before.
        changes: configuration fields a person changed.
        old: an engine to be rid of first, or None. before: the one whose steps are counted on, or None.
        fill: hands its first requests to the engine before it starts, as (loaded, manager, post): what it posts is
            carried out right after ``done``.
        paused: hold the engine before its first step. rate: its pace in steps per second, None for full speed.
    """

    load: Callable[[Progress], Any]
    changes: Mapping[str, Any]
    fill: Callable[[Any, Any, Post], None]
    old: Any = None
    before: Any = None
    paused: bool = False
    rate: float | None = None


@dataclass(frozen=True, slots=True)
class Made:
    """What an attempt made.

    Attributes:
        loaded: the model. manager: its engine, started, with a reader attached to its tap.
        keyframe: how the engine stood before it started: every step has its record after it.
    """

    loaded: Any
    manager: Any
    keyframe: Keyframe


class Loader:
    """Makes a model and a started manager on a worker.

    A new attempt, or ``cancel``, makes all earlier ones void: they end at their next report, and an engine that one of
    them still finishes is stopped at once.
    """

    def __init__(self, launch: LaunchOptions, worker: Worker, post: Post, clock: Callable[[], float]) -> None:
        self._launch, self._worker, self._post, self._clock = launch, worker, post, clock
        self._attempt = 0
        self._progress: LoadProgress | None = None
        self._began = 0.0

    def begin(self, wanted: Wanted, done: Callable[[Made], None], failed: Callable[[str], None]) -> None:
        """Starts an attempt. ``done(made)`` or ``failed(why)`` is posted unless it became void."""
        self.cancel()
        attempt, self._progress, self._began = self._attempt, None, self._clock()

        def finish(made: Made, messages: list[Callable[[], None]]) -> None:
            if attempt != self._attempt:
                made.manager.stop(block=False, hard_stop=True)
                return
            done(made)
            for message in messages:
                message()

        def fail(why: str) -> None:
            if attempt == self._attempt:
                failed(why)

        def job() -> None:
            messages: list[Callable[[], None]] = []
            try:
                made = self._make(wanted, lambda report: self._report(attempt, report), messages.append)
            except BaseException as error:  # this thread has nobody else to tell: the screen must say it
                # Only its words go on: with it, what was built so far would stay in memory while another is tried.
                self._post(partial(fail, words_of(error)))
            else:
                self._post(partial(finish, made, messages))

        self._worker.submit(job)

    def cancel(self) -> None:
        """Makes the attempt in progress void."""
        self._attempt += 1

    def close(self) -> None:
        """No further attempts; the worker ends when the one in progress has noticed."""
        self.cancel()
        self._worker.close()

    def join(self, seconds: float) -> None:
        """Waits after ``close``, at most so long, for the attempt in progress to clear away what it began."""
        self._worker.join(seconds)

    def _make(self, wanted: Wanted, progress: Progress, post: Post) -> Made:
        """Runs on the worker. All that is to be there in the first step is there before the engine starts."""
        if wanted.old is not None:
            wanted.old.stop(block=True, timeout=5.0, hard_stop=True)
            wanted.old.destroy()
        loaded = wanted.load(progress)
        progress(LoadProgress("building", "the engine and its cache", 0.0, 0.0))
        manager = self._launch.make_manager(loaded, wanted.changes)
        if wanted.before is not None:
            manager.continue_after(wanted.before)
        warm_up(manager, progress)
        if wanted.rate is not None:
            manager.set_rate(wanted.rate)
        if wanted.paused:
            manager.hold()
        manager.tap.attach()
        keyframe = manager.snapshot()
        wanted.fill(loaded, manager, post)
        manager.start()
        return Made(loaded, manager, keyframe)

    def _report(self, attempt: int, report: LoadProgress) -> None:
        """Runs on the worker."""
        if attempt != self._attempt:
            raise LoadCancelled
        self._progress = report

    @property
    def loading(self) -> Loading:
        """What loading does now, and for how long."""
        report, seconds = self._progress, self._clock() - self._began
        if report is None:
            return Loading("starting", seconds)
        known = report.fraction is not None
        share = round((report.fraction or 0.0) * 100)
        return Loading(f"{report.phase} {report.detail}".strip(), seconds, share, 100 if known else 0)
