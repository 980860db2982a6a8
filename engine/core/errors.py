"""The errors of the engine. Each names the value, the limit and what to do about it."""


class EngineError(RuntimeError):
    """The engine cannot go on: it died, was stopped, or was asked for something it cannot do now."""


class ConfigError(ValueError):
    """A configuration value is out of range, unknown, or impossible on this machine."""


class RequestError(ValueError):
    """One request cannot be accepted. Nothing was queued and nobody else is affected."""


class InvariantError(EngineError):
    """The engine's own bookkeeping is broken: a bug, never the caller's fault."""


class Stalled(InvariantError):
    """There is work, nothing is in flight, and the scheduler planned nothing.

    Attributes:
        decisions: what the scheduler decided for each candidate in the empty plan.
    """

    def __init__(self, decisions: tuple) -> None:
        super().__init__(f"work is waiting but the plan is empty; decisions: {list(decisions)}")
        self.decisions = decisions


class LoadError(RuntimeError):
    """A model cannot be loaded. The message is one clear sentence; ``hint`` says what to try.

    Attributes:
        hint: what the person can do about it, or "".
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(f"{message} {hint}".strip())
        self.message = message
        self.hint = hint
