"""The bridge between the screen and the engine: one side polls and commands, the other runs on threads of its own.

Everything here is called by the event loop's thread and returns at once. What may take time (loading, tokenising,
questions the engine thread answers) goes to workers, whose results come back through ``_inbox`` at the next poll.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from cbtui.adding import Adder
from cbtui.configuration import ConfigChange, config_fields
from cbtui.feed import Feed
from cbtui.inbox import Inbox, Notice
from cbtui.launch import LaunchOptions, RequestSpec
from cbtui.loader import Loader, Wanted
from cbtui.model import MonitorState
from cbtui.stories import Story
from cbtui.view.chrome import ConfigField, Loading
from cbtui.work import ThreadWorker, Worker

__all__ = ["LaunchOptions", "Notice", "RequestSpec", "Session"]

RATES = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
PATIENCE = 5.0
"""Seconds a step may go on after a hard stop before the engine can be given up."""
PREVIEWED = 8
"""Records that carry a preview after each request for it: enough that none is missing at a readable pace."""
LONG_STEP = 1.0
"""Seconds after which the step in progress is named."""


class Session:
    """Owns the engine: loads the model, makes and remakes the manager, folds what it publishes, sends commands.

    Args:
        launch: what to load and how to build an engine from it.
        make_worker: builds a worker of a given name; tests run jobs inline.
        clock: the clock step times are compared with, the engine's own.

    Attributes:
        phase: "new", "loading", "failed" or "ready".
        error: why loading failed, one sentence and what to try.
        rate: steps per second asked for, None for full speed.
        stopping: a stop was asked for.
        detached: the engine was given up.
        say, take_notices, ask: of its ``Inbox``.
    """

    def __init__(
        self,
        launch: LaunchOptions,
        *,
        make_worker: Callable[[str], Worker] = ThreadWorker,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.launch, self.clock = launch, clock
        self.phase = "new"
        self.error: str | None = None
        self.manager: Any = None
        self.loaded: Any = None
        self.rate = launch.rate
        self.stopping = self.detached = False
        self.built: Any = None
        self._fields: tuple[Any, tuple[ConfigField, ...]] = (None, ())
        self._given_up: Any = None
        self._changed: dict[str, Any] = {}
        self._after_drain: ConfigChange | None = None
        self._inbox = Inbox(make_worker("cbtui-ask"))
        self.say, self.take_notices, self.ask = self._inbox.say, self._inbox.take_notices, self._inbox.ask
        self._loader = Loader(launch, make_worker("cbtui-load"), self._inbox.post, clock)
        self._stopper = make_worker("cbtui-stop")
        self._adder = Adder(make_worker("cbtui-add"), self._inbox.post, self.say, self._refused)
        self._feed: Feed | None = None

    # ---- loading and building

    def load(self) -> None:
        """Begins to load the model and to build the engine, on the load thread."""
        self._begin(self.launch.load, self.launch.prompts, None)

    def cancel_load(self) -> None:
        """Gives up loading now; the thread ends at its next report and what it made is dropped."""
        if self.phase == "loading":
            self._loader.cancel()
            self.phase, self.error = "failed", "Loading was cancelled. S loads again, q quits."

    def restart(self, changes: Mapping[str, Any] | None = None, again: Iterable[RequestSpec] = ()) -> None:
        """Builds a new engine from the loaded model, with changed configuration fields, and adds ``again`` to it."""
        self._changed.update(changes or {})
        before, old, loaded = self.manager or self._given_up, self._release(), self.loaded
        self._begin(self.launch.load if loaded is None else lambda progress: loaded, tuple(again), old, before)

    def rebuild(
        self, changes: Mapping[str, Any], load: Callable[[Any], Any] | None = None, rate: float | None = None
    ) -> None:
        """Builds a new engine with these configuration fields and no others changed, and a history of its own.

        Args:
            load: gives another model; None keeps the one that is loaded.
            rate: its pace in steps per second, None for full speed.
        """
        old, loaded = self._release(), self.loaded
        self._changed, self._after_drain, self.rate, self._feed = dict(changes), None, rate, None
        if load is None:
            load = self.launch.load if loaded is None else lambda progress: loaded
        self._begin(load, (), old)

    def _begin(
        self, load: Callable[[Any], Any], prompts: Iterable[RequestSpec], old: Any, before: Any = None
    ) -> None:
        self.phase, self.error, self.stopping, self.detached = "loading", None, False, False
        wanted = Wanted(load, dict(self._changed), old, before, self.launch.paused, self.rate)
        self._loader.begin(wanted, lambda loaded, manager: self._ready(loaded, manager, prompts), self._load_failed)

    def _load_failed(self, error: BaseException) -> None:
        self.phase, self.error = "failed", str(error) or type(error).__name__

    def _ready(self, loaded: Any, manager: Any, prompts: Iterable[RequestSpec]) -> None:
        self.phase, self.loaded, self.manager = "ready", loaded, manager
        self.built = manager.status.config
        self._feed = Feed(manager, getattr(loaded, "tokenizer", None), self.ask, self.say, self.state)
        for spec in prompts:
            self.add(spec)

    @property
    def loading(self) -> Loading | None:
        """What loading does now and for how long, None when nothing is loading."""
        if self.phase == "new":
            return Loading("starting")
        return self._loader.loading if self.phase == "loading" else None

    # ---- watching

    @property
    def state(self) -> MonitorState | None:
        """What the engine's records add up to, None before the first of them. It outlives its engine."""
        return None if self._feed is None else self._feed.state

    def poll(self, now: float) -> bool:
        """Takes in what arrived since the last poll. True when there is something new to show."""
        news = self._inbox.take()
        if self.manager is None:
            return news
        while self.manager.get_result(timeout=0) is not None:
            pass  # results are seen in the records; nobody else asks for them, and they would pile up
        for spec in self._adder.take_due(now):
            self.add(spec)
        if self._after_drain is not None and self.engine == "stopped":
            self._restart_now(self._after_drain)
            return True
        return (self._feed is not None and self._feed.poll()) or news

    @property
    def status(self) -> Any:
        """The manager's status object, None when there is no manager."""
        return None if self.manager is None else self.manager.status

    @property
    def engine(self) -> str:
        """State of the engine in one word, see ``keys.Situation``."""
        if self.detached:
            return "detached"
        return "new" if self.manager is None else self.manager.status.state

    @property
    def shown_engine(self) -> str:
        """The same in the words the frame knows."""
        if self.phase == "failed" or self.detached:
            return "failed"
        return self.engine

    @property
    def shown_error(self) -> str | None:
        """Why nothing runs, None when all is well."""
        if self.phase == "failed":
            return self.error
        if self.detached:
            return "The engine was given up while a step was in progress. S starts a new one."
        return None if self.manager is None else self.manager.status.error

    @property
    def step_seconds(self) -> float:
        """How long the step in progress has been running, 0 when none is."""
        status = self.status
        if status is None or status.step_started is None:
            return 0.0
        return max(0.0, self.clock() - status.step_started)

    @property
    def hung(self) -> float:
        """Seconds a step has been going on although a stop was asked for, once patience is at its end; else 0."""
        return self.step_seconds if self.stopping and self.step_seconds > PATIENCE else 0.0

    @property
    def config_fields(self) -> tuple[ConfigField, ...]:
        """The configuration that runs, field by field."""
        config = None if self.status is None else self.status.config
        if config is not self._fields[0]:  # a configuration is replaced, never changed, and this is asked every tick
            self._fields = (config, () if config is None else config_fields(config))
        return self._fields[1]

    @property
    def block_bytes(self) -> int:
        """Bytes of one block, 0 when unknown."""
        config = None if self.status is None else self.status.config
        return 0 if config is None else config.block_bytes.value

    # ---- commands: each is queued by the manager and acknowledged in the record of the step where it took effect

    def command(self, name: str, *args: Any, **kwargs: Any) -> bool:
        """Calls a method of the manager that queues a command. A refusal becomes a notice; True when it was taken."""
        if self.manager is None:
            self.say("no engine is running", "error")
            return False
        try:
            getattr(self.manager, name)(*args, **kwargs)
        except (RuntimeError, ValueError) as error:
            self.say(str(error), "error")
            return False
        return True

    def add(self, spec: RequestSpec) -> None:
        """Tokenises and adds a request (and its copies) on a worker; a refusal comes back as a notice."""
        self._adder.add(self.manager, getattr(self.loaded, "tokenizer", None), spec)

    def _refused(self, name: str, reason: str) -> None:
        if self.state is not None:
            self.state.refuse(name, reason)

    def add_over_time(self, requests: Iterable[tuple[float, RequestSpec]], now: float) -> None:
        """Adds each request after its seconds from now."""
        self._adder.spread(requests, now)

    def spec_of(self, story: Story) -> RequestSpec:
        """The request behind a story, as it can be added again."""
        return self._adder.spec_of(story)

    def cancel(self, story: Story) -> None:
        """Cancels a request; ``undo`` can add it again."""
        if self.command("cancel_request", story.request_id):
            self._adder.note_cancelled(story)

    @property
    def can_undo(self) -> bool:
        """Whether a request was cancelled here and not yet added again."""
        return self._adder.can_undo

    def undo(self) -> None:
        """Adds the request cancelled last once more, from its beginning."""
        spec = self._adder.take_cancelled()
        if spec is not None:
            self.add(spec)

    def set_rate(self, rate: float | None) -> None:
        """Slow motion: at most ``rate`` steps per second, None for full speed."""
        if self.command("set_rate", rate):
            self.rate = rate

    def change_pace(self, direction: int) -> None:
        """One notch slower (-1) or faster (+1)."""
        ladder = (*RATES, None)
        place = ladder.index(self.rate) if self.rate in ladder else len(RATES)
        self.set_rate(ladder[min(len(RATES), max(0, place + direction))])

    def run_until(self, kind: str, value: int | None) -> None:
        """Runs until something happens, see ``RunUntil``, then pauses."""
        from engine.manager import RunUntil

        self.command("run_until", RunUntil(kind, value))

    def explain(self, story: Story, answer: Callable[[Any], None]) -> None:
        """Asks the scheduler why a request is where it is."""
        manager = self.manager
        if manager is not None:
            self.ask(lambda: manager.explain(story.request_id), answer)

    def ask_preview(self) -> None:
        """The records until the next few polls are to say what the step after them would do."""
        if self.manager is not None and self.engine in ("running", "held", "draining"):
            self.manager.want_preview(PREVIEWED)

    def stop(self) -> None:
        """The engine finishes what it accepted and takes nothing new."""
        self._stop_with()

    def hard_stop(self) -> None:
        """The engine stops after the step in progress; unfinished requests fail with a reason."""
        self._stop_with(hard_stop=True)

    def _stop_with(self, **how: Any) -> None:
        """On a worker of its own: telling the engine to stop also collects garbage, which takes a while."""
        manager = self.manager
        if manager is not None:
            self._adder.drop_due()
            self.stopping = True
            self._stopper.submit(lambda: _end(manager, **how))

    # ---- configuration

    def apply_config(self, wanted: ConfigChange | None) -> None:
        """Sends what changes between two steps, and makes a new engine for the rest. None changes nothing."""
        if wanted is None:
            return
        if wanted.now and self.command("set_config", **wanted.now):
            self._changed.update(wanted.now)
        if not wanted.restart:
            return
        if wanted.requests == "finish":
            self._after_drain = wanted
            self.stop()
            self.say("the new engine starts when the requests are finished")
        else:
            self._restart_now(wanted)

    def _restart_now(self, wanted: ConfigChange) -> None:
        again = self._unfinished() if wanted.requests == "again" else []
        self._after_drain = None
        self.restart(wanted.restart, again)

    def _unfinished(self) -> list[RequestSpec]:
        """Requests that have not ended, in order of arrival; the sequences of one request count once."""
        if self.state is None:
            return []
        specs: dict[str, RequestSpec] = {}
        for story in self.state.stories.values():
            if story.ended < 0 and story.info is not None:
                specs.setdefault(story.request_id, self.spec_of(story))
        return list(specs.values())

    # ---- the end

    def detach(self) -> None:
        """Gives up an engine whose step does not come back; its thread is a daemon and cannot keep the program."""
        self._given_up = self.manager
        self._release()
        self.detached = True

    def _release(self) -> Any:
        """Lets go of the manager; it is told to stop and no longer listened to."""
        manager, self.manager = self.manager, None
        self._adder.drop_due()
        if manager is not None:
            manager.tap.detach()
            if manager.status.state not in ("stopped", "failed"):
                self._stopper.submit(lambda: _end(manager, hard_stop=True))
        return None if self.detached else manager

    def close(self, seconds: float = 0.5) -> bool:
        """Stops the engine and the workers, waiting at most ``seconds``. True when the engine's thread has ended."""
        self._loader.close()
        self._inbox.close()
        self._stopper.close()
        self._adder.close()
        manager, self.manager = self.manager, None
        if manager is None:
            return not self.detached
        manager.tap.detach()
        _end(manager, hard_stop=True)
        end = time.monotonic() + seconds
        while manager.is_running() and time.monotonic() < end:
            time.sleep(0.002)
        return not manager.is_running()


def _end(manager: Any, **how: Any) -> None:
    """Tells an engine to stop, without waiting; one that has ended already needs no telling."""
    if manager.is_running():
        manager.stop(block=False, **how)
