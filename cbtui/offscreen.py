"""The monitor without a terminal: an engine stepped by the caller, its records folded, frames on demand.

No thread and no timer is involved, so the same requests give the same steps.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from cbtui.configuration import config_fields
from cbtui.keybar import hints
from cbtui.keys import keymap
from cbtui.launch import RequestSpec
from cbtui.model import MonitorState
from cbtui.prompts import encode
from cbtui.scenarios.desk import ScriptFollower
from cbtui.scenarios.figures import Moment
from cbtui.scenarios.plot import Scenario
from cbtui.scenarios.prompts import prepare
from cbtui.scenarios.script import Script
from cbtui.scenarios.telling import check_model, line_of
from cbtui.situation import Situation
from cbtui.start import plan_engine, watchable_config
from cbtui.submit import submit
from cbtui.theme import Theme
from cbtui.tokens import TokenizerText
from cbtui.view.cells import Row
from cbtui.view.chrome import CaptionLine, Chrome
from cbtui.view.frame import compose
from engine.core.errors import RequestError
from engine.core.request import FinishReason

if TYPE_CHECKING:
    from engine.loading import Loaded


logger = logging.getLogger(__name__)


class Offscreen:
    """One engine and what its records add up to.

    Args:
        loaded: the model.
        config: fields of ``ContinuousBatchingConfig`` a person set; the monitor's own defaults for the others.

    Attributes:
        state: the folded records. refused: (prompt, reason) of requests the engine did not take.
        notices: what the engine switched off, clamped or left out.
        error: why the engine died, None while it is well.
    """

    def __init__(self, loaded: "Loaded", config: Mapping[str, Any]) -> None:
        from engine.loop import Engine

        blueprint = plan_engine(loaded, config, watchable_config(loaded))
        self.notices = blueprint.notices
        self.engine = Engine(loaded.model, blueprint=blueprint)
        self.refused: list[tuple[str, str]] = []
        self.error: str | None = None
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
        """One step of the engine, shown in ``state``. False when there was nothing to do, or the engine died."""
        if self.error is not None:
            return False
        self.engine.want_preview()  # what is planned next tells why the others wait
        try:
            worked = self.engine.step()
        except Exception as error:  # whatever it is, the last frame shows it
            worked, self.error = False, f"step {self.state.step + 1} failed: {type(error).__name__}: {error}"
            logger.error("the engine died", exc_info=error)
            self.engine.fail(FinishReason.FAILED, self.error)
        records, _ = self.engine.tap.read(self.state.step)
        self.state.extend(records)
        return worked

    def run(self, steps: int | None = None, after: Callable[[], None] = lambda: None) -> int:
        """Steps until nothing is left to do, or ``steps`` times; returns how many steps were made.

        Args:
            after: called after each step.
        """
        done = 0
        while (steps is None or done < steps) and self.step():
            done += 1
            after()
        return done

    def play(self, scenario: Scenario) -> Iterator[Moment]:
        """Runs a scenario to its end; gives each caption's moment right after its step, while ``state`` shows it.

        Raises:
            ScenarioError: the model does not fit the scenario.
        """
        check_model(scenario, self._loaded)
        script = Script(scenario, prepare(scenario, self._loaded.tokenizer), pauses=False)
        self.engine.follow(ScriptFollower(script))
        told = 0
        while not script.over:
            worked = self.step()
            yield from script.moments[told:]
            told = len(script.moments)
            if not worked and not self.engine.has_news:
                return

    def caption(self, scenario: Scenario, moment: Moment) -> CaptionLine:
        """A caption with its figures, as the monitor shows it."""
        return line_of(scenario, moment, self.state, keymap())

    def close(self) -> None:
        """Gives the model back; what was folded stays."""
        self.engine.fail(FinishReason.STOPPED, "closed")
        self.engine.close()

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
        chrome.setdefault("engine", "running" if self.error is None else "failed")
        config = self.engine.config
        chrome.setdefault("config", config_fields(config))
        chrome.setdefault("block_bytes", config.block_bytes.value)
        shown = Chrome(model=self._loaded.name, keys=keys, error=self.error, **chrome)
        return tuple(compose(self.state, shown, theme, *size).rows)
