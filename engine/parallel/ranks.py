"""The processes a model is split over, and how they talk: a group for plans and one for tensors.

Plans travel over a gloo group of their own, so that a rank may wait for the next one while its model is used by others,
and so that waiting costs no device. Every call that waits is bounded by ``cpu_group_timeout``.
"""

import contextlib
import datetime
import logging
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _get_default_store, _set_pg_timeout

from engine.core.errors import EngineError
from engine.parallel.frames import ROOM, Kind, pack, unpack
from engine.parallel.sharding import tensor_mesh

logger = logging.getLogger(__name__)
ATTRIBUTE = "_cbtui_ranks"
"""Of a model: its ``Ranks``, made once."""

_END = "end"
"""Under this a rank leaves word of why it leaves for good."""

_LOST = ("gloo", "NCCL", "losed by peer", "reset by peer", "roken pipe", "imed out")
"""In the text of errors that come from the exchange between ranks rather than from this rank's own work."""

_FOREVER = datetime.timedelta(days=20)
"""Stands for no limit; gloo counts milliseconds in 32 bits."""


class RankError(EngineError):
    """A rank is gone, failed, or did not answer in time. Nothing can run on this model any more in this process."""


class Ranks:
    """This process among those that hold a model.

    Args:
        model: split by ``transformers``. All ranks must build this at the same time.
        timeout: seconds a rank may be waited for; None for no limit.

    Attributes:
        rank, size: within the model. tensors: the group its tensors are exchanged over.
        timeout: seconds a rank may be waited for, None for no limit.
        gone: why the ranks are not usable any more, or None.
    """

    def __init__(self, model: Any, timeout: float | None) -> None:
        mesh = tensor_mesh(model)
        self.rank, self.size = mesh.get_local_rank(), mesh.size()
        self.tensors = mesh.get_group()
        members = dist.get_process_group_ranks(self.tensors)
        self.root = members[0]
        whole = len(members) == dist.get_world_size()
        limit = _timedelta(timeout)
        self._plans = dist.new_group(members, backend="gloo", timeout=limit, use_local_synchronization=not whole)
        self._store = dist.PrefixStore(f"cbtui/{self.root}", _get_default_store())
        self._lock = threading.RLock()
        self._rounds = 0
        self._beating: threading.Event | None = None
        self._last = time.monotonic()
        self.gone: str | None = None
        self.timeout = timeout
        self.set_timeout(timeout)

    @property
    def leads(self) -> bool:
        return self.rank == 0

    def set_timeout(self, timeout: float | None) -> None:
        """How long a rank may be waited for, in seconds."""
        if self.gone is not None:
            return
        self.timeout = timeout
        for group in (self._plans, self.tensors):
            _set_pg_timeout(_timedelta(timeout), group)

    # -- messages -----------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def conversation(self) -> Iterator[None]:
        """What rank 0 says inside and what all ranks answer belongs together: no heartbeat comes in between."""
        with self._lock:
            yield

    def send(self, kind: Kind, body: bytes = b"") -> None:
        """Rank 0 tells all others. Raises RankError."""
        frame, rest = pack(kind, body)

        def broadcast() -> None:
            for part in (frame, bytearray(rest)):
                if part:
                    dist.broadcast(torch.frombuffer(part, dtype=torch.uint8), self.root, group=self._plans)

        with self._lock:
            self.attempt(broadcast)
            self._last = time.monotonic()

    def receive(self) -> tuple[Kind, bytes]:
        """What rank 0 says next. Raises RankError when it is gone or silent for too long."""

        def wait() -> tuple[Kind, bytes]:
            frame = torch.empty(ROOM, dtype=torch.uint8)
            dist.broadcast(frame, self.root, group=self._plans)
            kind, body, more = unpack(frame.numpy().tobytes())
            if more:
                rest = torch.empty(more, dtype=torch.uint8)
                dist.broadcast(rest, self.root, group=self._plans)
                body += rest.numpy().tobytes()
            return kind, body

        return self.attempt(wait)

    def beat(self) -> None:
        """From now on the others hear from rank 0 while it has nothing to say."""
        if self._beating is None and self.timeout is not None:
            self._beating = threading.Event()
            args = (self._beating, self.timeout / 4)
            threading.Thread(target=self._beat, args=args, name="rank-heartbeat", daemon=True).start()

    def rest(self) -> None:
        """No more of that."""
        beating, self._beating = self._beating, None
        if beating is not None:
            beating.set()

    def _beat(self, over: threading.Event, period: float) -> None:
        while not over.wait(period):
            with self._lock:
                if self.gone or over.is_set():
                    return
                if time.monotonic() - self._last < period:
                    continue
                try:
                    self.send(Kind.BEAT)
                except RankError as error:
                    logger.debug("nobody hears rank 0 any more: %s", error)
                    return

    # -- all together -------------------------------------------------------------------------------------------------

    def least(self, values: Sequence[int]) -> list[int]:
        """The smallest of each number over all ranks. Raises RankError."""
        tensor = torch.tensor(values, dtype=torch.int64)
        self.attempt(lambda: dist.all_reduce(tensor, dist.ReduceOp.MIN, group=self._plans))
        return tensor.tolist()

    def everybody(self, values: Sequence[int]) -> list[list[int]]:
        """The numbers of every rank, in the order of the ranks. Raises RankError."""
        mine = torch.tensor(values, dtype=torch.int64)
        all_of_them = [torch.empty_like(mine) for _ in range(self.size)]
        self.attempt(lambda: dist.all_gather(all_of_them, mine, group=self._plans))
        return [tensor.tolist() for tensor in all_of_them]

    def agree(self, trouble: str | None) -> None:
        """Ends well only when no rank has trouble.

        Raises:
            RankError: with what the first rank in trouble says.
        """
        self._rounds += 1
        key = f"round {self._rounds}"
        if trouble is not None:
            self.note(trouble, key)
        bad = [rank for rank, (fine,) in enumerate(self.everybody([trouble is None])) if not fine]
        if bad:
            raise RankError(self.noted(key) or f"rank {bad[0]} failed")

    def share(self, values: torch.Tensor) -> None:
        """Rank 0's tensor becomes everybody's, over the group for tensors."""
        self.attempt(lambda: dist.broadcast(values, self.root, group=self.tensors))

    def on_this_machine(self) -> int:
        """How many of the ranks share this machine's memory."""
        here = zlib.crc32(socket.gethostname().encode())
        return sum(where == here for (where,) in self.everybody([here]))

    # -- trouble ------------------------------------------------------------------------------------------------------

    def attempt(self, act: Callable[[], Any]) -> Any:
        """``act``, whose communication errors become RankErrors that name the rank at fault, where it said so."""
        if self.gone is not None:
            raise RankError(f"the processes of this model have parted ({self.gone}); start them all again")
        try:
            return act()
        except RankError:
            raise
        except RuntimeError as error:
            raise RankError(self.explain(error)) from error

    def as_loss(self, error: BaseException) -> BaseException:
        """``error``, or a RankError in its place when another rank is behind it."""
        if isinstance(error, RankError) or not isinstance(error, RuntimeError):
            return error
        if self.noted_elsewhere() or any(word in str(error) for word in _LOST):
            return RankError(self.explain(error))
        return error

    def explain(self, error: BaseException) -> str:
        """What a rank in trouble said, or what can be told from the outside."""
        text = str(error)
        noted = self.noted()
        if noted is not None:
            return noted
        if "losed by peer" in text or "reset by peer" in text or "roken pipe" in text:
            return "another rank is gone: it was killed or ended early"
        if "imed out" in text:
            limit = "" if self.timeout is None else f" within {self.timeout:g} s (cpu_group_timeout)"
            return f"another rank did not answer{limit}"
        return f"the ranks lost each other: {text.splitlines()[0] if text else type(error).__name__}"

    def note(self, trouble: str, key: str = _END) -> None:
        """Leave word of what went wrong on this rank; the first word stands."""
        try:
            if not self._store.check([key]):
                self._store.set(key, f"rank {self.rank}: {trouble}")
        except RuntimeError as error:
            logger.debug("the store of the ranks is gone: %s", error)

    def noted(self, key: str = _END) -> str | None:
        """What a rank in trouble said."""
        try:
            if self._store.check([key]):
                return str(self._store.get(key).decode())
        except RuntimeError as error:
            logger.debug("the store of the ranks is gone: %s", error)
        return None

    def noted_elsewhere(self) -> bool:
        """Whether another rank said that it is in trouble."""
        noted = self.noted()
        return noted is not None and not noted.startswith(f"rank {self.rank}:")

    def leave(self, trouble: str, *, own: bool = True) -> None:
        """Give up for good and let the others notice: the group for plans is closed at once.

        Word of the trouble is left when it is this rank's ``own``, not when it is that others are gone.

        A rank that waits for tensors of this one notices when this process ends, or when its timeout passes.
        """
        self.rest()
        with self._lock:
            if self.gone is not None:
                return
            self.gone = trouble
            plans, self._plans = self._plans, None
        if own:
            self.note(trouble)
        if plans is not None:
            dist.destroy_process_group(plans)


def ranks_of(model: Any, timeout: float | None) -> Ranks | None:
    """The ranks that hold ``model``, made on the first call, which all of them must make; None for a whole model.

    Raises:
        ConfigError: the model is divided in a way that is not known here.
        RankError: the ranks have left already.
    """
    if tensor_mesh(model) is None:
        return None
    ranks = getattr(model, ATTRIBUTE, None)
    if ranks is None:
        ranks = Ranks(model, timeout)
        setattr(model, ATTRIBUTE, ranks)
    else:
        ranks.set_timeout(timeout)
    return ranks


def release(model: Any) -> None:
    """Rank 0 needs the other ranks no more for now. Nothing happens on other ranks, or when they have parted."""
    ranks = getattr(model, ATTRIBUTE, None)
    if ranks is not None and ranks.leads and ranks.gone is None:
        ranks.rest()
        ranks.send(Kind.DESTROY)


def _timedelta(seconds: float | None) -> datetime.timedelta:
    return _FOREVER if seconds is None else min(_FOREVER, datetime.timedelta(seconds=seconds))
