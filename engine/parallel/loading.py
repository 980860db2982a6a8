"""Loading a model on several ranks at once: rank 0 finds it and decides, and each rank reads its part."""

from collections.abc import Callable
from typing import Any

from engine.core.errors import ConfigError, LoadError
from engine.models.devices import Choice
from engine.models.find import Place
from engine.parallel.launch import Launch, hear, join, say
from engine.parallel.sharding import check_config


class SaidByRank0(LoadError):
    """What every rank finds wrong alike; one of them is enough to say it."""


class Together:
    """This process among those that load one model. Building it connects them.

    Raises:
        LoadError: they cannot reach each other, or the device is none that several processes can share.
    """

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self._kind = join(launch)

    def device(self, asked: str) -> Choice:
        """The device all ranks compute on. Raises LoadError when another one was asked for."""
        if asked not in ("auto", self._kind):
            raise self._error(
                f"--device {asked} is not possible on {self.launch.size} ranks: here they compute on {self._kind}.",
                "Leave --device out; each rank takes a device of its own.",
            )
        return Choice(self._kind, f"split over {self.launch.size} ranks")

    def place(self, find: Callable[[], Place]) -> Place:
        """Where the model is. Rank 0 looks first, and downloads what is missing; then the others find it."""
        if not self.launch.leads:
            hear("place")
            return find()
        place = find()
        say("place", str(place.path))
        return place

    def dtype(self, choose: Callable[[], Choice]) -> Choice:
        """What rank 0 chooses, on all ranks. Raises what ``choose`` raises there."""
        if self.launch.leads:
            choice = choose()
            say("dtype", f"{choice.value}\n{choice.reason}")
            return choice
        return Choice(*hear("dtype").split("\n", 1))

    def weights_here(self, num_parameters: int) -> int:
        """How many of a model's weights come to lie in the memory this rank's device shares with others."""
        sharers = self.launch.local_size if self._kind == "cpu" else 1
        return -(-num_parameters * sharers // self.launch.size)

    def check(self, place: Place, config: Any) -> None:
        """Raises LoadError when the model cannot be divided over so many ranks."""
        if place.gguf:
            raise self._error(
                f"{place.path} is a GGUF file, which cannot be read in parts.", "Take a safetensors folder."
            )
        try:
            check_config(config, self.launch.size)
        except ConfigError as error:
            raise self._error(f"{place.name} cannot be split: {error}.") from error

    def _error(self, message: str, hint: str = "") -> LoadError:
        return (LoadError if self.launch.leads else SaidByRank0)(message, hint)

    def placed(self) -> dict[str, Any]:
        """Arguments of ``from_pretrained`` in place of a ``device_map``."""
        try:
            from transformers.distributed import DistributedConfig
        except ImportError:
            return {"tp_plan": "auto"}
        return {"distributed_config": DistributedConfig(tp_size=self.launch.size)}
