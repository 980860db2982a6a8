"""What the bundled model writes in a scenario whose text is looked at: stories, in whole words."""

import re
from pathlib import Path

import pytest

from engine.models.making import stories
from tests.scenarios.run import loaded_for, run_of

WORD = re.compile(r"[A-Za-z]+")
KNOWN = {word.lower() for word in WORD.findall(Path(stories.__file__).read_text(encoding="utf-8"))} | {"a", "an"}


@pytest.mark.slow
def test_requests_that_share_a_beginning_are_told_stories_in_words_there_are() -> None:
    run, tokenizer = run_of("prefix-sharing", "bundled"), loaded_for("demo", "bundled").tokenizer
    for part in run.scenario.parts:
        text = tokenizer.decode(list(run.tokens(part.name, max(run.records))))
        hero = part.topic.removeprefix("a ")
        assert hero in text.lower(), text
        written = WORD.findall(text)[:-1]  # the last one may be cut
        assert len(written) > 15 and not [word for word in written if word.lower() not in KNOWN], text
