"""Results on their way from the engine to whoever wants them. Nobody polls, nobody waits for a slow reader."""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from engine.core.errors import InvariantError, RequestError
from engine.core.request import GenerationOutput, Request, Sequence

logger = logging.getLogger(__name__)
Handler = Callable[[GenerationOutput], Any]


class _Mailbox:
    """Outputs of one id that nobody took yet.

    ``claims`` counts readers that wait for this very id: while there are any, nobody else gets its outputs.
    """

    __slots__ = ("claims", "handler", "outputs", "ready")

    def __init__(self, lock: threading.Lock) -> None:
        self.outputs: deque[GenerationOutput] = deque()
        self.ready = threading.Condition(lock)
        self.claims = 0
        self.handler: tuple[Handler, asyncio.AbstractEventLoop] | None = None


class Router:
    """Every accepted id has a mailbox of its own; the order of arrival over all of them is kept beside.

    Each output goes to exactly one place: the asyncio handler of its id, a reader waiting for its id, or whoever asks
    for the next result of any id. All methods may be called from any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._any = threading.Condition(self._lock)
        self._boxes: dict[str, _Mailbox] = {}
        self._arrivals: deque[_Mailbox] = deque()
        self._live: dict[str, Request] = {}
        self._names = 0
        self._open = False

    # -- the engine's side --------------------------------------------------------------------------------------------

    def new_id(self) -> str:
        """An id no live request has."""
        with self._lock:
            while True:
                name = f"req_{self._names}"
                self._names += 1
                if name not in self._live:
                    return name

    @property
    def named(self) -> int:
        """How many ids were made up."""
        return self._names

    def name_on(self, named: int) -> None:
        """Make up ids after the first ``named`` ones, which somebody else gave away."""
        with self._lock:
            self._names = max(self._names, named)

    def accept(self, request: Request) -> None:
        """From now on one terminal output is owed for each sequence of ``request``.

        Raises:
            RequestError: one of its ids belongs to a live request.
        """
        names = output_ids(request)
        with self._lock:
            for name in names:
                if name in self._live:
                    raise RequestError(f"request id {name!r} is in use by a live request; choose another id")
            for name in names:
                self._live[name] = request
                box = self._boxes.get(name)
                if box is not None:
                    box.ready.notify_all()

    def deliver(self, outputs: Iterable[GenerationOutput]) -> None:
        """Hand over outputs in order. Never blocks on a reader.

        Raises:
            InvariantError: a terminal output that nobody is owed (everything else was delivered).
        """
        unexpected = []
        batches: dict[asyncio.AbstractEventLoop, list[tuple[Handler, GenerationOutput]]] = {}
        with self._lock:
            for output in outputs:
                if output.is_finished() and self._live.pop(output.request_id, None) is None:
                    unexpected.append(output.request_id)
                    continue
                box = self._box(output.request_id)
                if box.handler is not None and not box.handler[1].is_closed():
                    callback, loop = box.handler
                    batches.setdefault(loop, []).append((callback, output))
                    if output.is_finished():
                        box.handler = None
                        self._drop_if_done(output.request_id, box)
                else:
                    self._put(box, output)
            for loop, batch in batches.items():
                self._schedule(loop, batch)
            if not self._live:
                self._any.notify_all()
        if unexpected:
            raise InvariantError(f"a second terminal output for {', '.join(unexpected)}")

    def set_open(self, is_open: bool) -> None:
        """Tell readers whether anything can still come. They stop waiting when it is closed."""
        with self._lock:
            self._open = is_open
            if not is_open:
                self._any.notify_all()
                for box in self._boxes.values():
                    box.ready.notify_all()

    @property
    def live(self) -> dict[str, Request]:
        """Ids that are still owed a terminal output, with their request. A copy."""
        with self._lock:
            return dict(self._live)

    def is_live(self, request_id: str) -> bool:
        return request_id in self._live

    # -- the readers' side --------------------------------------------------------------------------------------------

    def next(self, timeout: float | None = None, *, until_done: bool = False) -> GenerationOutput | None:
        """The next output of any id nobody else waits for.

        Args:
            timeout: seconds to wait; None waits until one comes, or nothing can come any more.
            until_done: give up as soon as every accepted request has had its terminal output.

        Returns:
            The output, or None.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._lock:
            while True:
                output = self._take_any()
                if output is not None or not self._open or (until_done and not self._live):
                    return output
                if not _wait(self._any, deadline):
                    return self._take_any()

    def next_of(self, request_id: str, timeout: float | None = None) -> GenerationOutput | None:
        """The next output of one id; None when there is none in time, or none can come any more."""
        for output in self._claimed(request_id, timeout):
            return output
        return None

    def all_of(self, request_id: str) -> Iterator[GenerationOutput]:
        """The outputs of one id up to its terminal one."""
        for output in self._claimed(request_id, None):
            yield output
            if output.is_finished():
                return

    def on_result(self, request_id: str, callback: Handler) -> None:
        """Call ``callback`` on the running event loop for each output of an id, the ones already here first.

        Raises:
            RuntimeError: called without a running event loop.
        """
        loop = asyncio.get_running_loop()
        with self._lock:
            box = self._box(request_id)
            waiting = list(box.outputs)
            box.outputs.clear()
            box.handler = (callback, loop)
            if waiting:
                self._schedule(loop, [(callback, output) for output in waiting])
                if waiting[-1].is_finished():
                    box.handler = None
                    self._drop_if_done(request_id, box)

    # -- inside, with the lock held -----------------------------------------------------------------------------------

    def _claimed(self, request_id: str, timeout: float | None) -> Iterator[GenerationOutput]:
        """Outputs of one id while it is claimed; ends at the deadline or when no more can come."""
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._lock:
            box = self._box(request_id)
            box.claims += 1
        try:
            while True:
                with self._lock:
                    output = self._wait_for(request_id, box, deadline)
                if output is None:
                    return
                yield output
        finally:
            with self._lock:
                box.claims -= 1
                if box.claims == 0:
                    self._arrivals.extend([box] * len(box.outputs))
                    self._any.notify(len(box.outputs))
                    self._drop_if_done(request_id, box)

    def _wait_for(self, request_id: str, box: _Mailbox, deadline: float | None) -> GenerationOutput | None:
        while not box.outputs:
            if not self._open:
                return None
            if request_id not in self._live and deadline is None:
                return None
            if not _wait(box.ready, deadline):
                break
        return box.outputs.popleft() if box.outputs else None

    def _box(self, request_id: str) -> _Mailbox:
        box = self._boxes.get(request_id)
        if box is None:
            box = self._boxes[request_id] = _Mailbox(self._lock)
        return box

    def _put(self, box: _Mailbox, output: GenerationOutput) -> None:
        box.outputs.append(output)
        if box.claims:
            box.ready.notify_all()
        else:
            self._arrivals.append(box)
            self._any.notify()

    def _take_any(self) -> GenerationOutput | None:
        while self._arrivals:
            box = self._arrivals.popleft()
            if box.claims or not box.outputs:
                continue  # its own reader takes it, or has taken it
            output = box.outputs.popleft()
            self._drop_if_done(output.request_id, box)
            return output
        return None

    def _drop_if_done(self, request_id: str, box: _Mailbox) -> None:
        if not (box.outputs or box.claims or box.handler or request_id in self._live):
            self._boxes.pop(request_id, None)

    def _schedule(self, loop: asyncio.AbstractEventLoop, batch: list[tuple[Handler, GenerationOutput]]) -> None:
        try:
            loop.call_soon_threadsafe(_call_all, loop, batch)
        except RuntimeError:  # the loop closed a moment ago: keep the outputs for whoever asks
            logger.warning("the event loop of a result handler is closed; %d results are kept", len(batch))
            for _, output in batch:
                box = self._box(output.request_id)
                box.handler = None
                self._put(box, output)


def output_ids(request: Request) -> tuple[str, ...]:
    """Ids under which the sequences of a request are delivered."""
    return tuple(Sequence(0, request, child, [], 0).output_id for child in range(request.num_return_sequences))


def child_ids(request_id: str, copies: int) -> tuple[str, ...]:
    """The same for an id and a number of sequences."""
    return output_ids(Request(request_id, (), num_return_sequences=copies))


def _wait(condition: threading.Condition, deadline: float | None) -> bool:
    """Wait for a notification; False when the deadline has passed."""
    if deadline is None:
        condition.wait()
        return True
    left = deadline - time.monotonic()
    return left > 0 and condition.wait(left)


def _call_all(loop: asyncio.AbstractEventLoop, batch: list[tuple[Handler, GenerationOutput]]) -> None:
    """Run handlers one after another; one that raises is reported to its loop and does not stop the others."""
    for callback, output in batch:
        try:
            callback(output)
        except Exception as error:
            what = f"the result handler of {output.request_id} failed"
            loop.call_exception_handler({"message": what, "exception": error})
