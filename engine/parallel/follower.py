"""What all ranks but 0 do: wait for rank 0, and do what it says, until it leaves."""

import json
import logging
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Protocol

import torch

from engine.core.errors import EngineError
from engine.core.groups import group_layers
from engine.core.layout import CacheLayout
from engine.core.sizing import Facts
from engine.parallel.forward import SharedForward
from engine.parallel.frames import Kind
from engine.parallel.leader import Opening, smallest
from engine.parallel.ranks import RankError, Ranks
from engine.parallel.wire import PlanDecoder
from engine.run.facts import ModelFacts
from engine.run.kv_store import KVStore

logger = logging.getLogger(__name__)


class Doors(Protocol):
    """Whoever follows inside a program of its own hears what happens. All may wait, within the ranks' timeout."""

    def measured(self, facts: Facts) -> None:
        """All ranks agreed on these facts."""

    def opened(self, trouble: str | None) -> None:
        """A session began, or could not begin."""

    def lend(self) -> None:
        """The model is free; returns once this rank's program has come to use it. Raises RankError when it does not."""

    def resume(self) -> None:
        """Rank 0 wants to go on; returns once this rank's program has left the model."""

    def closed(self) -> None:
        """A session ended."""


class NoDoors:
    """For a rank that does nothing but follow."""

    def measured(self, facts: Facts) -> None: ...

    def opened(self, trouble: str | None) -> None: ...

    def lend(self) -> None: ...

    def resume(self) -> None: ...

    def closed(self) -> None: ...


class Follower:
    """One rank's part of the model, its part of the cache, and the loop that serves rank 0.

    Args:
        model_facts: of this rank's part.
        probe: facts about the machine as it is now.
        make_forward: builds the forward pass on (layout, cache, backend).
        doors: told of what happens.

    Attributes:
        store: this rank's part of the cache, kept from one session to the next; None before the first.
        steps: done so far.
    """

    def __init__(
        self,
        ranks: Ranks,
        model_facts: ModelFacts,
        probe: Callable[[], Facts],
        make_forward: Callable[[CacheLayout, KVStore, str], Any],
        doors: Doors | None = None,
    ) -> None:
        self._ranks, self._facts, self._probe, self._make_forward = ranks, model_facts, probe, make_forward
        self._doors: Doors = doors or NoDoors()
        self._session = ExitStack()
        self._forward: SharedForward | None = None
        self._decoder: PlanDecoder | None = None
        self.store: KVStore | None = None
        self.steps = 0

    @property
    def in_session(self) -> bool:
        """Whether rank 0 has opened a session and not closed it."""
        return self._forward is not None

    def serve(self, *, until: Kind | None = None) -> None:
        """Follow until rank 0 says ``until``, or is gone while no session is open.

        Raises:
            RankError: some rank failed or was lost in the middle of a session.
        """
        try:
            self._ranks.set_timeout(None)  # until the first manager: nobody knows how long rank 0 needs to make one
            with torch.inference_mode():
                while self._serve_one() is not until:
                    pass
        except BaseException as error:
            was_open, cause = self.in_session, self._ranks.as_loss(error)
            own = not isinstance(cause, RankError)
            self._ranks.leave(_told(cause), own=own)
            if cause is error and (was_open or own):
                raise
            if was_open or own or self._ranks.noted_elsewhere():
                raise cause from error
            logger.debug("rank 0 is gone: %s", error)
        finally:
            self._close()

    def _serve_one(self) -> Kind:
        if self._forward is not None:
            self._forward.clockwork.ready()
        kind, body = self._ranks.receive()
        if kind is Kind.STEP:
            self._step(body)
        elif kind is Kind.MEASURE:
            self._ranks.set_timeout(json.loads(body))
            self._doors.measured(smallest(self._probe(), self._ranks))
        elif kind is Kind.OPEN:
            self._open(Opening.decode(body))
        elif kind is Kind.LEND:
            self._lend()
        elif kind is Kind.CLOSE:
            self._close()
        elif kind is Kind.DESTROY:
            self._close()
            self.store = None
            self._ranks.set_timeout(None)
        return kind

    def _open(self, opening: Opening) -> None:
        """Get ready as rank 0 says; when some rank cannot, there is no session."""
        self._close()
        trouble = None
        try:
            groups = group_layers(self._facts.windows)
            layout = CacheLayout(opening.page_size, groups, opening.num_blocks, opening.host_blocks)
            if not (opening.reuse and self.store is not None and self.store.layout == layout):
                self.store = None
                self.store = KVStore(layout, self._facts)
            forward = self._make_forward(layout, self.store, opening.backend)
            self._session.callback(forward.close)
            self._decoder = PlanDecoder(layout, self._facts.device, opening.max_requests)
            self._forward = SharedForward(forward, self._ranks, check=opening.check)
        except Exception as error:
            trouble = _told(error)
        try:
            self._ranks.agree(trouble)
        except RankError as error:
            self._close()
            if self._ranks.gone is not None:
                raise
            self._doors.opened(str(error))
            return
        self._doors.opened(None)

    def _step(self, body: bytes) -> None:
        forward, decoder, store = self._forward, self._decoder, self.store
        if forward is None or decoder is None or store is None:
            raise EngineError("a step came before a session was opened")
        trouble, batch = None, None
        try:
            step = decoder.decode(body)
            forward.step = step.step
            store.run_copies(step.copies)
            batch = step.batch
            if batch is None:
                return
        except Exception as error:
            trouble = _told(error)
        forward.line_up(batch, trouble)
        if batch is not None:
            forward.run(batch)
        self.steps += 1

    def _lend(self) -> None:
        """The model as it was found, until rank 0 resumes."""
        forward = self._forward
        if forward is None:
            raise EngineError("the model was to be lent without a session")
        forward.close()
        trouble = None
        try:
            self._doors.lend()
        except RankError as error:
            trouble = str(error)
        self._ranks.agree(trouble)
        while (kind := self._ranks.receive()[0]) is Kind.BEAT:
            pass
        if kind is not Kind.RESUME:
            raise EngineError(f"{kind.name} came while the model was lent")
        try:
            self._doors.resume()
        except RankError as error:
            trouble = str(error)
        forward.take()
        self._ranks.agree(trouble)

    def _close(self) -> None:
        was_open, self._forward, self._decoder = self.in_session, None, None
        self._session.close()
        if was_open:
            self._doors.closed()


def _told(error: BaseException) -> str:
    if isinstance(error, RankError):
        return str(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
