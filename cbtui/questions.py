"""Questions of "what if" that a dialog puts to the engine, on the worker for questions. An answer always comes."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from cbtui.configuration import ConfigChange
from cbtui.launch import RequestSpec
from cbtui.prompts import encode
from cbtui.submit import submit
from engine.core.errors import ConfigError, EngineError, RequestError

if TYPE_CHECKING:
    from cbtui.session import Session
    from engine.core.rehearsal import Forecast, Rehearsal

NO_ANSWER = "the engine did not answer in time"


def ask_forecast(session: "Session", spec: RequestSpec, answer: Callable[["Forecast | str"], None]) -> None:
    """When a request would start if it were added now; a text says why it would be refused."""
    manager, tokenizer = session.manager, getattr(session.loaded, "tokenizer", None)
    if manager is None:
        answer("no engine is running")
        return

    def question() -> "Forecast | str":
        ids = list(spec.prompt_ids) or encode(tokenizer, spec.text, spec.chat)
        try:
            found: Forecast | str = submit(manager.forecast, spec, ids)
        except (RequestError, EngineError) as error:
            found = str(error)
        return found

    session.ask(question, answer, lambda: answer(NO_ANSWER))


def ask_rehearsal(session: "Session", change: ConfigChange, answer: Callable[["Rehearsal | str"], None]) -> None:
    """What a change of the configuration would make of the next step; a text says why that cannot be told."""
    manager = session.manager
    if manager is None:
        answer("no engine is running")
        return

    def question() -> "Rehearsal | str":
        try:
            found: Rehearsal | str = manager.rehearse(**change.now, **change.restart)
        except ConfigError as error:
            found = str(error)
        return found

    session.ask(question, answer, lambda: answer(NO_ANSWER))
