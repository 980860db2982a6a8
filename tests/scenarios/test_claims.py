"""Every bundled scenario, played headless: each caption comes, in order, and what it says is so."""

import re

import pytest

from cbtui.scenarios.find import ORDER
from cbtui.theme import theme_named
from cbtui.view.caption import caption
from cbtui.view.cells import row_text, row_width
from cbtui.view.chrome import CaptionLine
from tests.scenarios.claims import CLAIMS
from tests.scenarios.run import numbers, run_of


def test_every_caption_has_its_claim():
    assert list(CLAIMS) == list(ORDER)
    assert all(len(run_of(name).scenario.captions) == len(claims) for name, claims in CLAIMS.items())


@pytest.mark.parametrize("kind", ["tiny", "wordy", pytest.param("bundled", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ORDER)
def test_what_the_captions_say_is_so(name, kind):
    run = run_of(name, kind)
    assert [moment.caption for moment, _ in run.told] == list(range(len(run.scenario.captions)))
    steps = [moment.step for moment, _ in run.told]
    assert steps == sorted(set(steps)), "each caption can be read before the next comes"
    for (moment, texts), claim in zip(run.told, CLAIMS[name], strict=True):
        expected = [str(number) for number in claim(run, moment.step)]
        assert numbers(texts[0]) == expected, texts[0]
        assert set(numbers(texts[-1])) <= set(expected), texts[-1]  # the short form says nothing else
        assert "--" not in texts[0] and "?" not in re.sub(r"“[^”]*”|\? all|\? name", "", texts[0])


@pytest.mark.parametrize("name", ORDER)
def test_letters_in_captions_are_those_of_the_requests(name):
    run = run_of(name)
    for part in run.scenario.parts:
        for copy in run.scenario.members[part.name]:
            assert run.letter(copy) == copy  # files name requests as the monitor will, so people can follow both


@pytest.mark.parametrize("name", ORDER)
@pytest.mark.parametrize("width", [80, 120, 200])
def test_captions_fit_the_line(name, width):
    run, theme = run_of(name), theme_named("dark")
    for moment, texts in run.told:
        line = CaptionLine(moment.caption + 1, len(run.told), texts, ("space goes on",))
        row = caption(line, theme, width).rows[0]
        assert row_width(row) == width
        assert any(text in row_text(row) for text in texts), (width, texts)


@pytest.mark.parametrize("name", ORDER)
def test_nobody_is_left_and_nothing_leaks(name):
    run = run_of(name)
    last = run.frames[max(run.frames)]
    assert all(view.change.place == "done" for view in last.sequences.values())
    assert all(view.state != "owned" for view in last.blocks) and not any(last.host)
