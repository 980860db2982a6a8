"""Commands on their way into the engine, and the acknowledgements that come back in the records."""

import itertools
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from engine.core.errors import RequestError
from engine.core.observe import CommandAck
from engine.core.request import Request

PACING = frozenset({"pause", "resume", "step", "rate"})
"""Commands that change when steps begin and nothing else."""

Act = Callable[[], str | None]
"""Does something between two steps; may return what was done, and raises RequestError to refuse."""


@dataclass(frozen=True, slots=True)
class Command:
    """``request`` is set for those that add one."""

    ticket: int
    kind: str
    target: str
    act: Act
    request: Request | None = None


class CommandQueue:
    """Filled by any thread, emptied by the one that steps."""

    def __init__(self) -> None:
        self._posting = threading.Lock()
        self._commands: deque[Command] = deque()
        self._acks: list[CommandAck] = []
        self._tickets = itertools.count(1)
        self._posted_adds = 0
        self._taken_adds = 0

    def __bool__(self) -> bool:
        return bool(self._commands)

    @property
    def num_adds(self) -> int:
        """Requests posted and not taken yet."""
        return self._posted_adds - self._taken_adds

    def post(self, kind: str, target: str, act: Act, request: Request | None = None) -> int:
        """Queue a command; returns its ticket."""
        with self._posting:
            ticket = next(self._tickets)
            if request is not None:
                self._posted_adds += 1
            self._commands.append(Command(ticket, kind, target, act, request))
        return ticket

    @property
    def pacing(self) -> bool:
        """Whether a command about the pace waits, which is not to wait for the next step."""
        with self._posting:
            return any(command.kind in PACING for command in self._commands)

    @property
    def telling(self) -> bool:
        """Whether an acknowledgement is worth a record of its own; that the pace changed can wait for the next one."""
        return any(ack.kind not in PACING or ack.detail or not ack.accepted for ack in self._acks)

    def carry_out(self, *, pacing: bool = False) -> None:
        """Do everything that is queued, in order, or only what is about the pace."""
        while self._commands and (command := self._take(pacing)) is not None:
            self._do(command)

    def end(self, *, carry_out: bool) -> list[Request]:
        """Empty the queue at the end of the engine: nothing is added any more, the rest is done or refused.

        Returns:
            The requests that were never added.
        """
        requests = []
        while (command := self._take()) is not None:
            if command.request is None and carry_out:
                self._do(command)
                continue
            if command.request is not None:
                requests.append(command.request)
            self._acknowledge(command, False, "the engine ended first")
        return requests

    def take_acks(self) -> tuple[CommandAck, ...]:
        """Acknowledgements since the last call."""
        acks, self._acks = tuple(self._acks), []
        return acks

    def _take(self, pacing: bool = False) -> Command | None:
        with self._posting:
            for place, command in enumerate(self._commands):
                if not pacing or command.kind in PACING:
                    del self._commands[place]
                    self._taken_adds += command.request is not None
                    return command
        return None

    def _do(self, command: Command) -> None:
        try:
            detail = command.act() or ""
        except RequestError as error:
            self._acknowledge(command, False, str(error))
        else:
            self._acknowledge(command, True, detail)

    def _acknowledge(self, command: Command, accepted: bool, detail: str) -> None:
        self._acks.append(CommandAck(command.ticket, command.kind, command.target, accepted, detail))
