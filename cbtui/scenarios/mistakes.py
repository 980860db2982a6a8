"""Mistakes of a scenario's file, gathered so that all of them are told at once."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cbtui.scenarios.plot import ScenarioError

MOST_TOLD = 20
"""Mistakes told at once; the others are counted."""


class SeveralMistakes(ScenarioError):
    """More than one thing is wrong, a sentence for each."""

    def __init__(self, sentences: list[str]) -> None:
        super().__init__("; ".join(sentences))
        self.sentences = sentences


class Mistakes:
    """Sentences about what is wrong, in the order of the file."""

    def __init__(self) -> None:
        self.sentences: list[str] = []

    def add(self, sentence: str) -> None:
        self.sentences.append(sentence)

    @contextmanager
    def noted(self) -> Iterator[None]:
        """What is raised inside is kept, and reading goes on behind it."""
        try:
            yield
        except SeveralMistakes as error:
            self.sentences += error.sentences
        except ScenarioError as error:
            self.sentences.append(str(error))

    def raise_any(self) -> None:
        """Raises what was gathered, if there is anything."""
        if len(self.sentences) == 1:
            raise ScenarioError(self.sentences[0])
        if self.sentences:
            raise SeveralMistakes(self.sentences)


def told(path: Path, error: ScenarioError) -> str:
    """The mistakes of a file in words: one behind its name, several in lines below it."""
    sentences = error.sentences if isinstance(error, SeveralMistakes) else [str(error)]
    if len(sentences) == 1:
        return f"{path}: {sentences[0]}"
    more = len(sentences) - MOST_TOLD
    lines = [*sentences[:MOST_TOLD], *([f"and {more} more"] if more > 0 else [])]
    return f"{path} has {len(sentences)} mistakes\n  " + "\n  ".join(lines)
