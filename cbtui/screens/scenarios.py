"""The list of scenarios to choose from."""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from textual import on
from textual.widget import Widget
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from cbtui.scenarios.find import Shelf
from cbtui.scenarios.plot import Scenario
from cbtui.screens.base import Dialog
from cbtui.screens.words import Words, say
from cbtui.theme import Theme

AROUND = 11
"""Rows of the dialog beside the list."""


class ScenarioDialog(Dialog[Scenario]):
    """Answers with the scenario chosen with ↑ ↓ and enter, or by a click. Below the list stands what it teaches.

    Args:
        shelf: what there is. now: the name of the one played, it is chosen at first.
        unfit: names of those the model cannot show, with the reason.
    """

    GAP_HEIGHT: ClassVar[int] = 28

    def __init__(self, theme: Theme, shelf: Shelf, now: str, unfit: Mapping[str, str]) -> None:
        super().__init__(theme)
        self._shelf, self._now, self._unfit = shelf, now, unfit

    def body(self) -> Iterable[Widget]:
        yield self.words([("Scenarios", "bold"), ("   each begins with an engine of its own", "muted")])
        yield self.gap()
        lines = enumerate(self._shelf.scenarios, start=1)
        options = [Option(say(self.look, self._line(number, scenario)), id=str(number)) for number, scenario in lines]
        yield OptionList(*options, compact=True, markup=False)
        yield self.gap()
        yield Static("", markup=False, classes="wrapped", id="about")
        if self._shelf.problems:
            text = say(self.look, [("\n".join(self._shelf.problems), "vermilion")], wrap=True)
            yield Static(text, markup=False, classes="wrapped", id="problems")
        yield self.gap()
        yield self.words([("enter", "bold"), (" begin", "muted"), ("    esc", "bold"), (" back", "muted")])

    def _line(self, number: int, scenario: Scenario) -> Words:
        unfit = scenario.name in self._unfit
        mark = self.look.glyphs.cursor if scenario.name == self._now else " "
        return [
            (f"{mark}{number:>2}  ", "muted"), (f"{scenario.title:<40}", "muted" if unfit else "text"),
            (scenario.name, "muted"),
        ]  # fmt: skip

    def on_mount(self) -> None:
        rows = self.query_one(OptionList)
        names = [scenario.name for scenario in self._shelf.scenarios]
        rows.highlighted = names.index(self._now) if self._now in names else 0
        rows.focus()

    def on_resize(self) -> None:
        room = self.size.height - (AROUND if self.size.height >= self.GAP_HEIGHT else AROUND - 3)
        self.query_one(OptionList).styles.max_height = max(3, room)

    @on(OptionList.OptionHighlighted)
    def _about(self, event: OptionList.OptionHighlighted) -> None:
        scenario = self._shelf.scenarios[event.option_index]
        reason = self._unfit.get(scenario.name)
        first = (reason, "vermilion") if reason else (scenario.teaches, "text")
        words: Words = [first, (f"  Made for {scenario.model}.", "muted")]
        self.query_one("#about", Static).update(say(self.look, words, wrap=True))

    @on(OptionList.OptionSelected)
    def _chosen(self, event: Any) -> None:
        scenario = self._shelf.scenarios[event.option_index]
        if scenario.name not in self._unfit:
            self.dismiss(scenario)
