"""Plays scenarios on a session: a new engine for each, its requests and captions, until it is left."""

from collections.abc import Mapping
from typing import Any

from cbtui.keys import key_name
from cbtui.scenarios.plot import Scenario, ScenarioError
from cbtui.scenarios.prompts import prepare
from cbtui.scenarios.script import Script
from cbtui.scenarios.telling import check_model, line_of, missing_words
from cbtui.session import Session
from cbtui.view.chrome import CaptionLine

Keys = Mapping[str, tuple[str, ...]]


class Player:
    """One scenario at a time. Called by the event loop's thread only.

    Attributes:
        scenario: the one played last, None before the first.
        playing: it has not been left.
    """

    def __init__(self, session: Session) -> None:
        self.scenario: Scenario | None = None
        self.playing = False
        self._session = session
        self._model = ""
        self._script: Script | None = None
        self._manager: Any = None
        self._asked = False
        self._lines: list[CaptionLine] = []
        self._told = False

    @property
    def title(self) -> str:
        """Of the scenario being played, "" for none."""
        return self.scenario.title if self.scenario is not None and self.playing else ""

    @property
    def over(self) -> bool:
        """Its last request has ended."""
        return self._script is not None and self._script.over

    # ---- commands

    def begin(self, scenario: Scenario) -> bool:
        """Builds an engine for a scenario and plays it there. False, with a notice, when the model does not fit."""
        session, launch = self._session, self._session.launch
        load = None
        if launch.load_named is not None and scenario.model != self._model:
            load_named = launch.load_named
            load = lambda progress: load_named(scenario.model, progress)  # noqa: E731
        elif session.loaded is not None:
            try:
                check_model(scenario, session.loaded)
            except ScenarioError as error:
                session.say(str(error), "error")
                return False
        self._model = scenario.model if launch.load_named is not None else ""
        self.scenario, self.playing = scenario, True
        self._script, self._manager, self._asked, self._told, self._lines = None, None, False, False, []
        config = dict(scenario.config)
        if scenario.host_blocks:
            config["host_blocks"] = scenario.host_blocks
        session.rebuild(config, load, launch.rate if launch.rate is not None else scenario.rate)
        return True

    def leave(self) -> None:
        """The engine and its requests go on; nothing arrives by itself any more."""
        session = self._session
        if self._script is not None and session.engine in ("running", "held"):
            session.command("follow", None)
            if session.engine == "held":
                session.command("resume")
        self.playing = False

    def own_requests(self) -> list[str]:
        """Letters of unfinished requests that no scenario added to this engine: they are a person's own."""
        state = self._session.state
        if state is None:
            return []
        known: set[str] = set()
        if self.scenario is not None and self._session.manager is self._manager:
            known = {name for names in self.scenario.members.values() for name in names}
        stories = state.stories.values()
        return [story.label for story in stories if story.ended < 0 and story.request_id not in known]

    # ---- along with the session

    def poll(self) -> None:
        """Takes the next step on the way: the engine stands, the prompts are made, captions come, it ends."""
        session, scenario = self._session, self.scenario
        if not self.playing or scenario is None:
            return
        if session.phase == "failed":
            self.playing, self._model = False, ""
            return
        if session.phase != "ready" or session.state is None:
            return
        if self._manager is None:
            self._stand(scenario)
        elif session.manager is not self._manager or session.engine not in ("running", "held", "new"):
            self.playing = False
            session.say(f"{scenario.title} ended with its engine")
        elif self.over and not self._told:
            self._told = True
            missing = len(scenario.captions) - len(self._script.moments if self._script is not None else ())
            if missing:
                session.say(missing_words(scenario, missing, session.state), "error")

    def _stand(self, scenario: Scenario) -> None:
        """The engine is there: the prompts are made for its model."""
        session = self._session
        try:
            check_model(scenario, session.loaded)
        except ScenarioError as error:
            self.playing = False
            session.say(str(error), "error")
            return
        self._manager, tokenizer = session.manager, session.loaded.tokenizer
        session.ask(lambda: prepare(scenario, tokenizer), self._prepared, self._unprepared)

    def _prepared(self, specs: Any) -> None:
        if self.scenario is None or not self.playing or self._session.manager is not self._manager:
            return
        from cbtui.scenarios.desk import ScriptFollower  # it brings the engine, which the first frame does without

        self._script = Script(self.scenario, specs)
        self._session.command("follow", ScriptFollower(self._script))

    def _unprepared(self) -> None:
        self.playing = False

    # ---- what is shown

    def line(self, past: int | None, keys: Keys) -> CaptionLine | None:
        """The caption of the step shown, None when no scenario is played."""
        scenario, state = self.scenario, self._session.state
        if scenario is None or not self.playing:
            return None
        total, hints = len(scenario.captions), self._hints(keys)
        title = CaptionLine(0, total, (f"{scenario.title}. {scenario.teaches}", scenario.title), hints)
        if self._script is None or state is None:
            return title
        moments = self._script.moments
        while len(self._lines) < len(moments) and moments[len(self._lines)].step <= state.step:
            self._lines.append(line_of(scenario, moments[len(self._lines)], state, keys))
        shown = [line for line, m in zip(self._lines, moments, strict=False) if past is None or m.step <= past]
        if not shown:
            return title
        return CaptionLine(shown[-1].number, total, shown[-1].texts, hints)

    def _hints(self, keys: Keys) -> tuple[str, ...]:
        """What to press next, in the words that fit the moment."""
        key = {name: key_name(keys[name][0]) for name in ("pause", "leave", "next_scenario", "again")}
        leave = f"{key['leave']} leave"
        if self.over:
            onward = f"{key['next_scenario']} next"
            return (f"{onward}  {key['again']} again  {leave}", onward)
        if self._session.engine == "held":
            return (f"{key['pause']} goes on  {leave}", f"{key['pause']} goes on")
        return (leave,)
