"""Going along with an engine: something that hears every record and may give commands in time for the next plan."""

from typing import TYPE_CHECKING, Protocol

from engine.core.observe import StepRecord

if TYPE_CHECKING:
    from engine.loop import Engine


class Follower(Protocol):
    """Lives on the engine's thread. What it does depends on steps alone, however fast they go and whoever watches."""

    def begin(self, engine: "Engine") -> str | None:
        """It takes effect now, between two steps; may return what was done."""
        ...

    def let_go(self, engine: "Engine") -> None:
        """Somebody let the engine go on, or make some steps; called before the next one is planned."""
        ...

    def heard(self, engine: "Engine", record: StepRecord) -> None:
        """Called after each record. What it raises ends the engine, like a fault of a step."""
        ...
