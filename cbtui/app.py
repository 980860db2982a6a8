"""The application: keys and clicks in, one frame out. What the actions do is in ``cbtui.actions``."""

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.driver import Driver
from textual.screen import Screen
from textual.strip import Strip

from cbtui import actions
from cbtui.beat import Beat
from cbtui.commands import ActionProvider
from cbtui.cores import usable_cores
from cbtui.inquiry import Inquiry
from cbtui.keys import ACTIONS, BY_ID, keymap
from cbtui.looks import all_themes, css_variables
from cbtui.moment import Moment
from cbtui.pace import Pace, Room
from cbtui.place import Place
from cbtui.player import Player
from cbtui.scenarios.plot import Scenario
from cbtui.screens.base import CSS, Dialog, MonitorScreen
from cbtui.session import LaunchOptions, Session
from cbtui.settings import SettingsFile
from cbtui.situation import Situation
from cbtui.stories import Story
from cbtui.theme import Theme, theme_named
from cbtui.view.chrome import MAP_ORDERS, MAP_VIEWS, ORDERS, Chrome
from cbtui.widgets import Frame
from cbtui.widgets.terminal import Shown

TICKS_PER_SECOND = 16
CLOCK_TICKS = 8
"""Ticks after which is looked for what the clock alone changes, while drawing waits its turn."""
AHEAD = 1 / TICKS_PER_SECOND
"""Seconds, and a step, that a plan to come is asked for before it can be drawn: a dry run is for who sees it."""
ANSWERS = 0.5
"""Seconds after a key in which nothing waits for its turn to be drawn: the engine may answer."""


class MonitorApp(App[int], inherit_bindings=False):
    """The monitor. ``session`` is the engine's side, ``chrome`` what the person chose; a frame is drawn from both."""

    TITLE = "cbtui"
    CSS = CSS + "\nMonitorScreen { background: $cb-bg; }\nFrame { width: 1fr; height: 1fr; }\n"
    COMMANDS: ClassVar = {ActionProvider}
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(",".join(action.keys), f"perform('{action.id}')", action.label, show=False, id=action.id, priority=True)
        for action in ACTIONS
    ]
    """With priority, so that a key takes effect before the next one is looked at; see ``check_action``."""

    def __init__(
        self,
        launch: LaunchOptions,
        *,
        session: Session | None = None,
        clock: Callable[[], float] = time.monotonic,
        ticks_per_second: float = TICKS_PER_SECOND,
    ) -> None:
        self.store = SettingsFile(launch.config_dir)
        kept = self.store.settings
        name = launch.theme or ("mono" if os.environ.get("NO_COLOR") else kept.theme)
        ascii_only = kept.ascii if launch.ascii is None else launch.ascii
        self.look: Theme = theme_named(name, ascii_only=ascii_only)
        super().__init__()
        self.session = session or Session(launch)
        self.clock = clock
        self.keys = keymap()
        self.chrome = Chrome(
            engine="loading",
            mode=launch.mode or 1,
            order=kept.order if kept.order in ORDERS else ORDERS[0],
            map_view=kept.map_view if kept.map_view in MAP_VIEWS else MAP_VIEWS[0],
            map_order=kept.map_order if kept.map_order in MAP_ORDERS else MAP_ORDERS[0],
        )
        self.frame = Frame(self.look)
        self._shown = Shown()
        self.pace = Pace(Room(usable_cores()) if ticks_per_second else lambda: math.inf)
        self.place = Place(self)
        self.inquiry = Inquiry(self)
        self._moment = Moment(self)
        self.player = Player(self.session)
        self.want_preview = True
        self._ticks = 0
        self._beat: Beat | None = None
        self._answer_until = 0.0
        self._ticks_per_second = ticks_per_second
        self._do = {name: getattr(group, name) for group in (g(self) for g in actions.GROUPS) for name in _own(group)}
        for theme in all_themes():
            self.register_theme(theme)
        self.theme = f"cbtui-{self.look.name}"
        self._use_keymap()

    def _use_keymap(self) -> None:
        """Takes the keys of the settings, or says why it does not."""
        try:
            self.keys = keymap(self.store.settings.keymap)
        except ValueError as error:
            self.session.say(f"the keymap in the settings is not used: {error}", "error", again=True)
            return
        self.set_keymap({name: ",".join(keys) for name, keys in self.keys.items()})

    def get_driver_class(self) -> type[Driver]:
        """The platform's way to a terminal, made robust where that is a Unix terminal."""
        usual = super().get_driver_class()
        if usual.__name__ != "LinuxDriver":
            return usual
        from cbtui.widgets.driver import ForgivingDriver

        return ForgivingDriver

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return css_variables(theme_named("dark"))

    def get_default_screen(self) -> Screen[None]:
        return MonitorScreen(id="_default")

    def compose(self) -> ComposeResult:
        yield self.frame

    def on_mount(self) -> None:
        if self.store.problem:
            self.session.say(self.store.problem, "error", again=True)
        self._draw()
        if self._ticks_per_second:
            self._beat = Beat(self._ticks_per_second, self.tick, self._handle_exception)
        self.call_after_refresh(self._open)

    def on_unmount(self) -> None:
        if self._beat is not None:
            self._beat.stop()

    def _open(self) -> None:
        """The first thing after the first frame: a scenario, or the model and the prompts that were given."""
        if self.session.launch.scenario is None:
            self.session.load()
        else:
            self.play(self.session.launch.scenario, self.session.launch.mode)

    def play(self, scenario: Scenario, mode: int | None = None) -> None:
        """Begins a scenario and shows what it is about, in the views its captions speak of; ``mode`` goes first."""
        if self.player.begin(scenario):
            self.change(
                mode=mode or scenario.mode, past=None, frozen=False, filter="", difference=False, maximised=None,
                mark=None, map_view=scenario.map_view or MAP_VIEWS[0], map_order=MAP_ORDERS[0], order=ORDERS[0],
            )  # fmt: skip

    # ---- drawing

    def tick(self) -> bool:
        """One beat: takes in what the engine did and shows it. Costs next to nothing when nothing is new.

        Returns whether something was new, or the engine is at work so that something soon will be.
        """
        if not self.screen_stack:  # the beat outlives the screens by a moment at the end
            return False
        self._ticks += 1
        ready = self.pace.ready or self.clock() < self._answer_until
        if ready:
            self.pace.begin()
        shown, news = self.chrome, self.session.poll(self.clock(), ready)
        self.player.poll()
        if ready or news or not self._ticks % CLOCK_TICKS:  # what the clock alone changes has time
            self._draw(self._ticks, ready)
        if self.want_preview and self.chrome.mode == 1 and self.pace.soon(AHEAD + self.session.last_step_seconds):
            self.session.ask_preview()
        if isinstance(self.screen, Dialog) and self.screen.ready:
            self.screen.beat()
        return news or self.session.step_seconds > 0 or self.chrome is not shown

    def _draw(self, tick: int | None = None, ready: bool = True) -> None:
        self.chrome = self._moment.refreshed(self.chrome)
        if tick is None:
            self.frame.show(self.session.state, self.chrome)
        else:
            self.frame.show(self.session.state, self.chrome, tick=tick, wait=not ready)
        self.place.settle()

    def _display(self, screen: Screen[Any], renderable: Any) -> None:
        """Textual's way to the terminal: of the frame only what differs is written."""
        if isinstance(screen, MonitorScreen):
            renderable = self._shown.shorten(renderable)
        else:
            self._shown.forget()
        super()._display(screen, renderable)

    def show_lines(self, screen: MonitorScreen, lines: dict[int, Strip]) -> None:
        """Has these lines written, as far as they differ from what the terminal shows."""
        self._display(screen, self._shown.lines(lines, self.get_line_filters(), self.frame.background_colors[1]))

    def change(self, **fields: Any) -> None:
        """Replaces fields of the chrome and brings the whole frame up to date."""
        if fields.get("past") is not None and self.chrome.past is None and self.session.state is not None:
            fields["left"] = self.session.state.step
        self.chrome = replace(self.chrome, **fields)
        self._draw()

    @property
    def situation(self) -> Situation:
        """What decides which actions can be used now."""
        return self._moment.situation(self.chrome)

    @property
    def selected_story(self) -> Story | None:
        """The request under the cursor."""
        state, key = self.session.state, self.chrome.selected
        return None if state is None or key is None else state.stories.get(key)

    @property
    def unfinished(self) -> int:
        """Requests that were accepted and have not ended."""
        return sum(self._going())

    @property
    def has_work(self) -> bool:
        """Whether any request has not ended."""
        return any(self._going())

    def _going(self) -> Iterator[bool]:
        """Of each request that is remembered, whether it has not ended."""
        state = self.session.state
        return (s.change.place != "done" for s in ({} if state is None else state.picture.sequences).values())

    def turn(self, name: str, values: Sequence[str], now: str) -> str:
        """The value after ``now``, remembered under ``name``."""
        value = values[(values.index(now) + 1) % len(values)]
        problem = self.store.save(**{name: value})
        if problem:
            self.session.say(problem, "error")
        return value

    def show_theme(self, name: str) -> None:
        """Draws everything in another theme from now on."""
        self.look = theme_named(name, ascii_only=not self.look.glyphs.unicode)
        self.theme = f"cbtui-{name}"
        self.frame.theme = self.look
        self._draw()

    # ---- input

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """In a dialog all keys are the dialog's, but for ctrl+c, see ``on_event``."""
        return action != "perform" or isinstance(self.screen, MonitorScreen)

    async def on_event(self, event: events.Event) -> None:
        """Keys typed before a dialog stands are kept for it; tab has moved the focus before the next key is read."""
        if isinstance(event, events.Key) and not event.is_forwarded and self.screen_stack:
            screen = self.screen
            if self._quits_anywhere(event.key) and not isinstance(screen, MonitorScreen):
                self.perform("quit")
                return
            if isinstance(screen, Dialog) and not screen.ready:
                screen.early.append(event)
                return
            if isinstance(screen, Dialog) and screen.turns_focus(event.key):
                return
        await super().on_event(event)

    def _quits_anywhere(self, key: str) -> bool:
        """Whether a key of "quit" is none that a field could take for text."""
        return key.startswith("ctrl+") and key in self.keys["quit"]

    def action_perform(self, name: str) -> None:
        self.perform(name)

    def perform(self, name: str) -> None:
        """Carries out an action, or says why it cannot be used now."""
        self._answer_until = self.clock() + ANSWERS
        reason = BY_ID[name].check(self.situation)
        if reason is not None:
            self.session.say(f"{BY_ID[name].label}: {reason}", "error")
        else:
            self._do[name]()
        if self.is_running:
            self._draw()

    def on_frame_picked(self, message: Frame.Picked) -> None:
        self.place.pick(message.hit, double=message.double, button=message.button)

    def on_frame_scrolled(self, message: Frame.Scrolled) -> None:
        self.place.wheel(message.pane, message.delta)


def _own(group: Any) -> list[str]:
    """Names of the actions a group carries out."""
    return [name for name in BY_ID if callable(getattr(group, name, None))]
