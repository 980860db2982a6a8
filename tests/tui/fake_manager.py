"""A manager without threads or a model: the real scheduler, invented tokens, a clock that stands still unless told.

It has the surface the monitor uses. Commands are queued as in the real one and take effect at the next ``run``.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from engine.blueprint import layout_of
from engine.core.config import CHANGEABLE, ResolvedConfig, change, resolve
from engine.core.counters import Spans
from engine.core.errors import EngineError, RequestError
from engine.core.groups import group_layers
from engine.core.invariants import check
from engine.core.observe import CommandAck, Keyframe, PlanPreview
from engine.core.options import ContinuousBatchingConfig
from engine.core.plan import StepResult
from engine.core.rehearsal import forecast, rehearse
from engine.core.request import FinishReason, Request, SamplingParams
from engine.core.scheduler import Scheduler
from engine.core.tap import Tap
from tests.tui.fake_desk import FakeDesk
from tests.tui.fake_model import FACTS, WORDS, FakeClock


@dataclass(frozen=True)
class FakeStatus:
    """As the real manager's status."""

    state: str = "new"
    step: int = 0
    error: str | None = None
    step_started: float | None = None
    config: ResolvedConfig | None = None


class FakeManager:
    """See the module. ``run`` does the engine thread's work; nothing happens by itself."""

    def __init__(self, clock: Callable[[], float], windows: tuple[int | None, ...] = (None,), **config: Any) -> None:
        wanted = {"page_size": 4, "num_blocks": 48, "max_batch_tokens": 24, "max_requests_per_batch": 8, **config}
        facts = replace(FACTS, windows=windows)
        self._wanted, self._facts = wanted, facts
        self.config = resolve(ContinuousBatchingConfig(**wanted), facts)
        layout = layout_of(self.config, group_layers(windows))
        self.clock = clock
        self.scheduler = Scheduler(layout, self.config.scheduler_settings())
        self.scheduler.observe(True)
        self.tap = Tap(4096)
        self.status = FakeStatus(config=self.config)
        self.calls: list[tuple[str, tuple, dict]] = []
        self.questions: list[str] = []
        self.step_budget = 0
        self.preview_wanted = False
        self.destroyed = False
        self.slow_stop = False
        self._commands: deque[tuple[CommandAck, Callable[[], str]]] = deque()
        self._acks: list[CommandAck] = []
        self._tickets = 0
        self._names = 0
        self._step = 0
        self._script: Any = None

    # ---- the surface

    def get_result(self, request_id: str | None = None, timeout: float | None = None) -> None:
        """Nothing is delivered here."""

    def add_request(self, input_ids: list[int], request_id: str | None = None, **wanted: Any) -> str:
        self.calls.append(("add_request", (tuple(input_ids), request_id), wanted))
        if self.status.state not in ("new", "running", "held"):
            raise EngineError(f"the engine is {self.status.state} and takes no requests")
        name = request_id or f"req_{self._names}"
        self._names += 1
        request = Request(
            name, tuple(input_ids), SamplingParams(seed=wanted.get("seed"), do_sample=wanted.get("do_sample", False)),
            wanted.get("max_new_tokens") or 20, created_time=self.clock(),
        )  # fmt: skip
        self._queue("add", name, lambda: self._add(request))
        return name

    def _add(self, request: Request) -> str:
        self.scheduler.add(request)
        return ""

    def cancel_request(self, request_id: str) -> None:
        self._note("cancel_request", request_id)
        self._queue("cancel", request_id, lambda: self.scheduler.cancel(request_id, self.clock()) and "")

    def hold(self) -> None:
        self._note("hold")
        self._queue("pause", "", lambda: self._become("held"))

    def resume(self) -> None:
        self._note("resume")
        self._queue("resume", "", lambda: self._let_go("running"))

    def step_once(self, n: int = 1) -> None:
        self._note("step_once", n)
        self._queue("step", str(n), lambda: self._allow(n))

    def _allow(self, steps: int) -> str:
        self.step_budget += steps
        return self._let_go("held")

    def _let_go(self, state: str) -> str:
        self._become(state)
        if self._script is not None:
            self._script.let_go(FakeDesk(self), self._step)
        return ""

    def set_rate(self, rate: float | None) -> None:
        self._note("set_rate", rate)

    def run_until(self, condition: Any) -> None:
        self._note("run_until", condition)

    def set_config(self, **fields: Any) -> int:
        self._note("set_config", **fields)
        wanted = change(self.status.config, self.config, **fields)
        for name in fields:
            self._queue("config", name, partial(self._configure, wanted, name))
        return self._tickets

    def _configure(self, config: ResolvedConfig, name: str) -> str:
        self.scheduler.configure(config.scheduler_settings())
        self.status = replace(self.status, config=config)
        return str(getattr(config, name).value)

    def follow(self, follower: Any) -> None:
        self._note("follow", follower)
        self._queue("follow", "", lambda: self._follow(follower))

    def _follow(self, follower: Any) -> str:
        self._script = None if follower is None else follower.script
        if self._script is not None:
            self._script.begin(FakeDesk(self), self._step)
        return ""

    def want_preview(self, records: int = 1) -> None:
        self.preview_wanted = records > 0

    def preview(self) -> PlanPreview | None:
        self.questions.append("preview")
        return self.scheduler.preview() if self.scheduler.has_work else None

    def snapshot(self) -> Keyframe:
        self.questions.append("snapshot")
        return self.scheduler.keyframe(self._step, self.clock())

    def explain(self, request_id: str) -> Any:
        self.questions.append(request_id)
        from engine.core.forecast import explain

        return explain(self.scheduler, self.scheduler.sequences_of(request_id)[0].key)

    def forecast(self, input_ids: list[int], request_id: str | None = None, **wanted: Any) -> Any:
        request = Request("?", tuple(input_ids), max_new_tokens=wanted["max_new_tokens"], created_time=self.clock())
        self.scheduler.check(request)
        found = forecast(self.scheduler.copy(256), request, len(self.scheduler.waiting))
        own = int(self.status.state == "held" and found.step is not None)
        return replace(found, step=found.step + 1) if own else found

    def rehearse(self, **fields: Any) -> Any:
        twin, queued = self.scheduler.copy(256), len(self.scheduler.waiting)
        if all(name in CHANGEABLE for name in fields):
            wanted = change(self.status.config, self.config, **fields)
            return rehearse(twin, wanted.scheduler_settings(), None, queued)
        planned = self.plan_restart(**fields)
        return rehearse(twin, planned.scheduler_settings(), layout_of(planned, twin.layout.groups), queued)

    def plan_restart(self, **fields: Any) -> ResolvedConfig:
        return resolve(ContinuousBatchingConfig(**{**self._wanted, **fields}), self._facts)

    def continue_after(self, other: "FakeManager") -> None:
        self._step = self.scheduler.state.step = other.scheduler.state.step + 1
        self.scheduler.state.next_key, self._names = other.scheduler.state.next_key, other._names

    def warmup(self, progress: Any = None) -> None:
        """There is nothing to prepare."""

    def start(self) -> None:
        self._become("running")

    def stop(self, block: bool = True, timeout: float | None = None, hard_stop: bool = False, **more: Any) -> None:
        self._note("stop", block=block, hard_stop=hard_stop)
        if self.slow_stop:
            return
        if hard_stop:
            self._queue("hard_stop", "", self._end)
        else:
            self._queue("stop", "", lambda: self._become("draining"))
        if block:
            self.run()

    def destroy(self) -> None:
        self.destroyed = True

    def is_running(self) -> bool:
        return self.status.state in ("running", "held", "draining")

    # ---- the engine thread's part

    def run(self, steps: int = 1) -> None:
        """Carries out the commands, then up to ``steps`` steps if the state allows them."""
        self._carry_out()
        for _ in range(steps):
            if not self._may_step():
                break
            self._one_step()
        if self._acks:
            self._publish()
        if self.status.state == "draining" and not self.scheduler.has_work:
            self._become("stopped")

    def die(self, error: str) -> None:
        """The engine ends by an error."""
        self.scheduler.fail_all(FinishReason.FAILED, error, self.clock())
        self._publish()
        self.status = replace(self.status, state="failed", error=error)

    def hang(self) -> None:
        """A step begins now and does not come back."""
        self.slow_stop = True
        self.status = replace(self.status, step_started=self.clock())

    def _may_step(self) -> bool:
        state = self.status.state
        ready = state in ("running", "draining") or (state == "held" and self.step_budget > 0)
        return ready and self.scheduler.has_work

    def _one_step(self) -> None:
        self.step_budget = max(0, self.step_budget - 1)
        start = self.clock()
        plan = self.scheduler.plan(now=start)
        tokens = [2 + (s.seq.key * 7 + s.seq.num_output) % len(WORDS) for s in plan.slices if s.samples]
        self.scheduler.apply(plan, StepResult(tokens), start + 0.02)
        self._publish()
        if isinstance(self.clock, FakeClock):
            self.clock.pass_(0.025)

    def _publish(self) -> None:
        acks, self._acks = tuple(self._acks), []
        events = self.scheduler.take_events()
        following = self.scheduler.preview() if self.preview_wanted and self.scheduler.has_work else None
        self._step = events.step
        broken = tuple(check(self.scheduler)) if self.config.check_invariants.value == "every" else None
        spans = Spans(plan=0.001, wait=0.02)
        record = events.record(self.clock(), spans, acks, following, invariants=broken)
        self.tap.publish(record)
        self.status = replace(self.status, step=self._step)
        if broken:
            self._become("held")
        if self._script is not None:
            self._script.heard(FakeDesk(self), record)
            self._carry_out()

    def _carry_out(self) -> None:
        while self._commands:
            ack, action = self._commands.popleft()
            try:
                detail = action() or ""
            except RequestError as error:
                self._acks.append(replace(ack, accepted=False, detail=str(error)))
            else:
                self._acks.append(replace(ack, detail=detail))

    def _end(self) -> str:
        self.scheduler.fail_all(FinishReason.STOPPED, "stopped by hand", self.clock())
        return self._become("stopped")

    def _become(self, state: str) -> str:
        self.status = replace(self.status, state=state)
        return ""

    def _queue(self, kind: str, target: str, action: Callable[[], Any]) -> None:
        self._tickets += 1
        self._commands.append((CommandAck(self._tickets, kind, target, True), action))

    def _note(self, name: str, *args: Any, **kwargs: Any) -> None:
        self.calls.append((name, args, kwargs))

    def named(self, name: str) -> list[tuple[tuple, dict]]:
        """The calls of one method so far."""
        return [(args, kwargs) for called, args, kwargs in self.calls if called == name]
