"""The monitor without a terminal: an engine stepped by the caller, its records folded, frames on demand.

No thread and no timer is involved, so the same requests give the same steps.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cbtui.keybar import hints
from cbtui.keys import Situation, keymap
from cbtui.launch import RequestSpec
from cbtui.model import MonitorState
from cbtui.prompts import encode
from cbtui.submit import submit
from cbtui.theme import Theme
from cbtui.tokens import TokenizerText
from cbtui.view.cells import Row
from cbtui.view.chrome import Chrome
from cbtui.view.frame import compose
from engine.core.errors import RequestError

if TYPE_CHECKING:
    from engine.loading import Loaded


class Offscreen:
    """One engine and what its records add up to.

    Args:
        loaded: the model.
        config: fields of ``ContinuousBatchingConfig``.

    Attributes:
        state: the folded records. refused: (prompt, reason) of requests the engine did not take.
    """

    def __init__(self, loaded: "Loaded", config: Mapping[str, Any]) -> None:
        from engine.core.options import ContinuousBatchingConfig
        from engine.loop import Engine

        self.engine = Engine(loaded.model, tokenizer=loaded.tokenizer, config=ContinuousBatchingConfig(**config))
        self.refused: list[tuple[str, str]] = []
        self._loaded = loaded
        self.engine.tap.attach()
        self.state = MonitorState(self.engine.keyframe(), text=TokenizerText.of(loaded.tokenizer))

    def add(self, spec: RequestSpec) -> list[str]:
        """Adds a request and its copies; returns the ids of those the engine took."""
        ids = list(spec.prompt_ids) or encode(self._loaded.tokenizer, spec.text, spec.chat)
        taken = []
        for copy in range(spec.copies):
            try:
                taken.append(submit(self.engine.submit, spec, ids, copy, streaming=False))
            except RequestError as error:
                self.refused.append((spec.text, str(error)))
        return taken

    def step(self) -> bool:
        """One step of the engine, shown in ``state``. False when there was nothing to do."""
        self.engine.want_preview()  # what is planned next tells why the others wait
        worked = self.engine.step()
        records, _ = self.engine.tap.read(self.state.step)
        self.state.extend(records)
        return worked

    def run(self, steps: int | None = None) -> int:
        """Steps until nothing is left to do, or ``steps`` times; returns how many steps were made."""
        done = 0
        while (steps is None or done < steps) and self.step():
            done += 1
        return done

    def rows(self, size: tuple[int, int], theme: Theme, **chrome: Any) -> tuple[Row, ...]:
        """The screen at this moment: ``size`` is (columns, rows), ``chrome`` sets further fields of ``Chrome``.

        The oldest request that runs is selected unless ``chrome`` says otherwise.
        """
        running = self.state.picture.sequences
        chrome.setdefault("selected", next(iter(running or self.state.stories), None))
        story = self.state.stories.get(chrome["selected"])
        situation = Situation(
            kept=self.state.step,
            has_work=bool(running),
            selected=None if story is None else story.request_id,
            selected_ended=chrome["selected"] not in running,
        )
        keys = hints(situation, chrome.get("mode", 1), keymap())
        shown = Chrome(model=self._loaded.name, keys=keys, **chrome)
        return tuple(compose(self.state, shown, theme, *size).rows)
