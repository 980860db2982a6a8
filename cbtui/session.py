"""The bridge between the screen and the engine: one side polls and commands, the other runs on threads of its own.

Everything here is called by the event loop's thread and returns at once. What may take time (loading, tokenising,
questions the engine thread answers) goes to workers, whose results come back through ``_inbox`` at the next poll.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from cbtui.adding import Adder
from cbtui.configuration import ConfigChange
from cbtui.engine_commands import EngineCommands
from cbtui.feed import Feed
from cbtui.inbox import Inbox, Notice
from cbtui.launch import LaunchOptions, RequestSpec
from cbtui.loader import Loader, Made, Post, Wanted
from cbtui.model import MonitorState
from cbtui.view.chrome import Loading
from cbtui.work import ThreadWorker, Worker
from engine.core.errors import ConfigError

__all__ = ["LaunchOptions", "Notice", "RequestSpec", "Session"]


class Session(EngineCommands):
    """Owns the engine: loads the model, makes and remakes the manager, folds what it publishes, sends commands.

    Args:
        launch: what to load and how to build an engine from it.
        make_worker: builds a worker of a given name; tests run jobs inline.
        clock: the clock step times are compared with, the engine's own.

    Attributes:
        built: the configuration of the engine as it was made.
    """

    def __init__(
        self,
        launch: LaunchOptions,
        *,
        make_worker: Callable[[str], Worker] = ThreadWorker,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._inbox = Inbox(make_worker("cbtui-ask"))
        adder = Adder(make_worker("cbtui-add"), self._inbox.post, self._inbox.say, self._refused)
        super().__init__(clock, self._inbox, adder, launch.rate)
        self.launch = launch
        self.built: Any = None
        self._last: Any = None  # the manager that was there last: the next one counts on from it
        self._changed: dict[str, Any] = {}
        self._worked: dict[str, Any] = {}  # the changes of the last engine that could be built
        self._first: tuple[RequestSpec, ...] = ()  # what the engine that is being built begins with
        self._held = launch.paused
        self._after_drain: ConfigChange | None = None
        self._loader = Loader(launch, make_worker("cbtui-load"), self._inbox.post, clock)
        self._stopper = make_worker("cbtui-stop")
        self._feed: Feed | None = None

    # ---- loading and building

    def load(self) -> None:
        """Begins to load the model and to build the engine, on the load thread."""
        self._first = self.launch.prompts
        self._begin(self.launch.load, None, self.launch.paused)

    def cancel_load(self) -> None:
        """Gives up loading now; the thread ends at its next report and what it made is dropped."""
        if self.phase == "loading":
            self._loader.cancel()
            self._back("Loading was cancelled. S loads again, q quits.")

    def restart(self, changes: Mapping[str, Any] | None = None, again: Iterable[RequestSpec] = ()) -> None:
        """Builds a new engine from the loaded model, with changed configuration fields, and adds ``again`` to it.

        It is held if the one before was. When it cannot be built, the values that worked come back, with ``again``.
        """
        self._note_held()
        self._changed.update(changes or {})
        self._first = (*self._first, *again)
        self._begin(self._same_model(), self._release(), self._held)

    def _same_model(self) -> Callable[[Any], Any]:
        loaded = self.loaded
        return self.launch.load if loaded is None else lambda progress: loaded

    def rebuild(
        self, changes: Mapping[str, Any], load: Callable[[Any], Any] | None = None, rate: float | None = None
    ) -> None:
        """Builds a new engine with these configuration fields and no others changed, and a history of its own.

        Args:
            load: gives another model; None keeps the one that is loaded.
            rate: its pace in steps per second, None for full speed.
        """
        old = self._release()
        self._changed, self._after_drain, self.rate, self._feed = dict(changes), None, rate, None
        self._last, self._first = None, ()
        self._begin(load or self._same_model(), old, self.launch.paused)

    def _begin(self, load: Callable[[Any], Any], old: Any, paused: bool) -> None:
        self.phase, self.error, self.stopping, self.detached = "loading", None, False, False
        specs = self._first

        def fill(loaded: Any, manager: Any, post: Post) -> None:
            self._adder.fill(manager, getattr(loaded, "tokenizer", None), specs, post)

        wanted = Wanted(load, dict(self._changed), fill, old, self._last, paused, self.rate)
        self._loader.begin(wanted, self._ready, self._load_failed)

    def _load_failed(self, why: str) -> None:
        tried = self._changed
        self._back(why)
        if self._last is not None and tried != self._changed:
            self.say(f"not restarted, the values before come back: {why}", "error")
            self._begin(self._same_model(), None, self._held)

    def _back(self, why: str) -> None:
        """No engine came of it: the values that worked hold again, and what the one before left unfinished is over."""
        self.phase, self.error, self._changed = "failed", why, dict(self._worked)
        if self.state is not None:
            self.state.end_engine(f"no new engine: {why}")

    def _ready(self, made: Made) -> None:
        self.phase, self.loaded, self.manager = "ready", made.loaded, made.manager
        self._last, self._worked, self._first = made.manager, dict(self._changed), ()
        self.built = made.manager.status.config
        tokenizer = getattr(made.loaded, "tokenizer", None)
        self._feed = Feed(made.manager, made.keyframe, tokenizer, self.ask, self.say, self.state)

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

    def poll(self, now: float, due: bool = True) -> bool:
        """Takes in what arrived since the last poll, of a running engine only if it is ``due`` to be drawn.

        True when there is something new to show.
        """
        news = self._inbox.take()
        if self.manager is None:
            return news
        self._note_held()
        while self.manager.get_result(timeout=0) is not None:
            pass  # results are seen in the records; nobody else asks for them, and they would pile up
        for spec in self._adder.take_due(now):
            self.add(spec)
        if self._after_drain is not None and self.engine == "stopped":
            self._restart_now(self._after_drain)
            return True
        return (self._feed is not None and self._feed.poll(due)) or news

    # ---- commands that need more than the manager; the others stand in ``EngineCommands``

    def _refused(self, name: str, reason: str) -> None:
        if self.state is not None:
            self.state.refuse(name, reason)

    def ask_preview(self) -> None:
        """The next record is to say what the step after it would do, and the last one of an engine that is held.

        A dry run is made by the engine's own thread, so it is asked for once a beat and not for every record.
        """
        engine = self.engine
        if engine in ("running", "held", "draining"):
            self.manager.want_preview(1)
        if engine == "held" and self._feed is not None:
            self._feed.ask_plan()

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

    def plan_restart(self, fields: Mapping[str, Any]) -> Any:
        """The configuration a restart with these fields changed would have. Raises ConfigError: it would not fit."""
        if self.manager is None:
            raise ConfigError("no engine is running")
        return self.manager.plan_restart(**fields)

    def apply_config(self, wanted: ConfigChange | None) -> None:
        """Sends what changes between two steps, and makes a new engine for the rest. None changes nothing."""
        if wanted is None:
            return
        if wanted.now and self.command("set_config", **wanted.now):
            self._changed.update(wanted.now)
            self._worked.update(wanted.now)
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
        self._release()
        self.detached = True
        if self.state is not None:
            self.state.end_engine("the engine was given up")

    def _note_held(self) -> None:
        """Whether the next engine is to be held: if this one was, the last time it could have run on."""
        if self.engine in ("running", "held"):
            self._held = self.engine == "held"

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
        end = time.monotonic() + seconds
        self._loader.close()
        self._inbox.close()
        self._stopper.close()
        self._adder.close()
        manager, self.manager = self.manager, None
        if manager is not None:
            manager.tap.detach()
            _end(manager, hard_stop=True)
            while manager.is_running() and time.monotonic() < end:
                time.sleep(0.002)
        self._loader.join(max(0.0, end - time.monotonic()))
        return not self.detached if manager is None else not manager.is_running()


def _end(manager: Any, **how: Any) -> None:
    """Tells an engine to stop, without waiting; one that has ended already needs no telling."""
    if manager.is_running():
        manager.stop(block=False, **how)
