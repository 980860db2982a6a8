"""The manager: an engine on a thread of its own, and everything callers may do with it from theirs."""

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

from engine.blueprint import Blueprint, WorkloadHints, draw
from engine.control import RunUntil
from engine.control_plane import ControlPlane
from engine.core.errors import EngineError
from engine.delivery import Router
from engine.inputs import prompt_rows
from engine.loop import Engine
from engine.results import ResultSource
from engine.split import follows, release
from engine.status import ManagerStatus, QueueFullError
from engine.worker import Worker, add_all

__all__ = ["CACHED_NAME", "ContinuousBatchingManager", "ManagerStatus", "QueueFullError", "RunUntil"]

logger = logging.getLogger(__name__)
CACHED_NAME = "_kept_continuous_batching_manager"
"""Attribute of a model under which a manager is kept for the next session."""


class ContinuousBatchingManager(ControlPlane, ResultSource):
    """Runs an engine on a daemon thread and is the way to it for any number of other threads.

    Of a model that is split over several processes, each makes a manager of its own. On rank 0 it works as on a whole
    model; on the others it follows: ``start``, ``pause``, ``stop`` and ``destroy`` wait for rank 0 to do the same,
    requests are not taken, and there are no results.

    Every accepted request gets exactly one terminal output per sequence, whatever happens: the end of its text, a
    cancellation, a failure of the engine, a hard stop. Waiting never polls.

    Args:
        model: a decoder-only ``transformers`` model.
        generation_config: defaults of every request; the model's own when None.
        continuous_batching_config: how to run; ``config`` is the same under a shorter name.
        workload_hints: about the work to come.
        tokenizer: for prompts given as text, for stop strings, and for the text of outputs.
        clock: seconds, monotonic.
        runner: computes the steps instead of the model: an object, or a function from ``Blueprint`` to one.
        blueprint: what to build, when it was drawn already; then ``model`` may be None.

    Raises:
        ConfigError: the configuration is not possible here, or the model has a layer that is not supported.

    Attributes:
        warmed_up: whether ``warmup`` was called.
    """

    def __init__(
        self,
        model: Any,
        generation_config: Any = None,
        continuous_batching_config: Any = None,
        workload_hints: WorkloadHints | None = None,
        *,
        tokenizer: Any = None,
        config: Any = None,
        clock: Callable[[], float] = time.perf_counter,
        runner: Any = None,
        blueprint: Blueprint | None = None,
    ) -> None:
        wanted = continuous_batching_config if continuous_batching_config is not None else config
        self.model = model
        self.warmed_up = False
        self._destroyed = False
        results = Router()
        ResultSource.__init__(self, results)
        if runner is None and blueprint is None and follows(model):
            from engine.parallel.worker import FollowingWorker

            ControlPlane.__init__(self, FollowingWorker(model, tokenizer, generation_config, wanted, workload_hints))
            return
        drawn = blueprint or draw(model, tokenizer, generation_config, wanted, hints=workload_hints)
        ControlPlane.__init__(
            self, Worker(lambda: Engine(model, clock=clock, runner=runner, router=results, blueprint=drawn), results)
        )

    # -- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread; also again after ``stop`` or a failure. Queued requests begin.

        Raises:
            EngineError: the manager was destroyed.
            Exception: what building the runner raises, for example when the cache does not fit.
        """
        if self._destroyed:
            raise EngineError("this manager was destroyed; make a new one")
        if self.is_running():
            logger.warning("start: the manager is running already")
            return
        self._worker.start()

    def stop(
        self,
        block: bool = True,
        timeout: float | None = None,
        keep_for_next_session: bool = False,
        hard_stop: bool = False,
    ) -> None:
        """Stop the thread; ``start`` may follow.

        Args:
            block: wait for the end, at most ``timeout`` seconds.
            keep_for_next_session: keep cache and buffers, and the manager on its model, for another ``start``.
            hard_stop: end what was accepted now instead of finishing it. With ``block`` and a ``timeout`` that passes,
                the engine is given up: its requests end at once, and a later ``start`` builds another.

        Raises:
            EngineError: called inside this thread's own ``pause()``, which would wait forever.
        """
        if self._worker.pausing_here:
            raise EngineError("stop inside pause() would wait forever; leave the pause first")
        if not self.is_running():
            # what is over already is as it was asked to be; a drain of what never began would wait for nothing
            is_fault = self.status.state == "new" and not hard_stop
            logger.log(logging.WARNING if is_fault else logging.DEBUG, "stop: the manager is not running")
            return
        self._worker.end(hard=hard_stop, keep=keep_for_next_session)
        if block:
            self.join(timeout)
            if hard_stop and self.is_running():
                self._worker.give_up()
        if keep_for_next_session and self.model is not None:
            setattr(self.model, CACHED_NAME, self)

    def join(self, timeout: float | None = None) -> None:
        """Wait for the thread to end, at most ``timeout`` seconds."""
        if not self._worker.join(timeout):
            logger.warning("the engine did not stop within %s s", timeout)

    def destroy(self) -> None:
        """Stop for good and give everything back. May be called again."""
        if self.is_running():
            self.stop(block=True)
        if not self._destroyed:
            self._destroyed = True
            self._worker.retire()
            release(self.model)
        if getattr(self.model, CACHED_NAME, None) is self:
            delattr(self.model, CACHED_NAME)

    def continue_after(self, other: "ContinuousBatchingManager") -> None:
        """Count steps, sequences and made-up ids on from another manager, so that one history can hold both.

        To be called before ``start``. The step of the border belongs to neither.
        """
        before, state = other._worker.engine.scheduler.state, self._worker.engine.scheduler.state
        state.step, state.next_key = before.step + 1, before.next_key
        state.cache.pool.step = state.step
        self._results.name_on(other._results.named)

    def is_running(self) -> bool:
        """Whether the engine's thread runs."""
        return self._worker.alive

    def warmup(self, progress: Callable[[int, int], None] | None = None) -> None:
        """Build the runner and whatever it prepares in advance. ``progress(done, total)`` is called along the way."""
        self._worker.engine.warmup(progress)
        self.warmed_up = True

    @contextlib.contextmanager
    def pause(self, *, clear_prefix_cache: bool = True) -> Iterator[None]:
        """Park the engine between two steps, with nothing in flight, to change the weights.

        Requests stay and go on afterwards. Several threads may pause at once; the engine resumes when all have left.

        Args:
            clear_prefix_cache: forget cached prefixes on leaving, since they were computed with other weights.

        Raises:
            EngineError: the engine is not running, or ends before it could park.
        """
        self._worker.park()
        try:
            yield
        finally:
            if clear_prefix_cache:
                self.clear_prefix_cache()
            self._worker.unpark()

    # -- requests -----------------------------------------------------------------------------------------------------

    def add_request(
        self,
        input_ids: Any,
        request_id: str | None = None,
        max_new_tokens: int | None = None,
        streaming: bool = False,
        record_timestamps: bool = False,
        eos_token_id: Any = None,
        **wanted: Any,
    ) -> str | None:
        """Queue a request. It is checked here, in the caller's thread.

        Args:
            input_ids: the prompt, see ``engine.inputs.token_ids``; text when the manager has a tokenizer.
            request_id: name of the request; made up when None.
            max_new_tokens: None is the generation config's, else all there is room for; 0 ends at once.
            streaming: deliver a partial output with each token.
            record_timestamps: keep the time of each token.
            eos_token_id: one id or several; None is the generation config's, else the model's.
            wanted: ``num_return_sequences``, ``stop_strings``, ``seed``, ``salt``, and sampling parameters.

        Returns:
            The id, or None with a warning when the manager was stopped. None on ranks that follow another, always.

        Raises:
            TypeError, RequestError: refused; nothing was queued.
            QueueFullError: ``max_queue_size`` requests wait and none started within ten seconds.
            EngineError: the engine died; the cause is in the message.
        """
        if not self._worker.may_accept():
            return None
        request = self._worker.engine.build_request(
            input_ids,
            request_id,
            max_new_tokens=max_new_tokens,
            streaming=streaming,
            record_timestamps=record_timestamps,
            eos_token_id=eos_token_id,
            **wanted,
        )
        return request.request_id if self._worker.enqueue(request, self._queue_limit) else None

    def add_requests(
        self,
        inputs: Any,
        max_new_tokens: int | None = None,
        streaming: bool = False,
        record_timestamps: bool = False,
        **wanted: Any,
    ) -> list[str] | None:
        """Queue one request per prompt; either all are accepted or none.

        With block sharing they are queued sorted, so that equal beginnings follow each other and find their blocks.

        Returns:
            Their ids in the order of ``inputs``, or None with a warning when the manager was stopped. None on ranks
            that follow another, always.

        Raises:
            As ``add_request``.
        """
        if not self._worker.may_accept():
            return None
        wanted |= {"max_new_tokens": max_new_tokens, "streaming": streaming, "record_timestamps": record_timestamps}
        requests = [self._worker.engine.build_request(prompt, **wanted) for prompt in prompt_rows(inputs)]
        config = self.status.config
        queued = list(requests)
        if config.allow_block_sharing.value and config.reorder_requests.value:
            queued.sort(key=lambda request: request.prompt_ids, reverse=True)
        accepted = add_all(self._worker, queued, self._queue_limit)
        return [request.request_id for request in requests] if accepted else None

    def cancel_request(self, request_id: str) -> bool:
        """Cancel a request and all its sequences; each gets a CANCELLED output with its tokens so far.

        Returns:
            Whether the id was live. An unknown one has no effect.
        """
        known = self._results.is_live(request_id)
        engine = self._worker.engine
        self._worker.post("cancel", request_id, lambda: engine.cancel_now(request_id))
        return known

    @property
    def _queue_limit(self) -> int:
        return self.config.max_queue_size.value
