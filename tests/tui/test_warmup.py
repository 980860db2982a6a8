"""What is prepared before the first step is told, where there is anything to prepare; what stays is left in peace."""

import gc

import pytest

from cbtui.loader import settled, warm_up
from engine.models.progress import LoadProgress
from tests.engine.fakes import FakeRunner, fake_manager


class PreparingRunner(FakeRunner):
    """Has some step sizes to prepare."""

    def __init__(self, sizes: int) -> None:
        super().__init__()
        self.sizes = sizes

    def warmup(self, progress) -> None:
        for done in range(self.sizes + 1):
            progress(done, self.sizes)


def told(runner: FakeRunner) -> list[LoadProgress]:
    reports: list[LoadProgress] = []
    manager = fake_manager(runner)
    warm_up(manager, reports.append)
    assert manager.warmed_up
    manager.destroy()
    return reports


def test_every_size_is_told():
    reports = told(PreparingRunner(3))
    assert [report.fraction for report in reports] == [0, 1 / 3, 2 / 3, 1]
    assert {report.phase for report in reports} == {"preparing"}
    assert reports[1].detail == "step sizes, 1 of 3 done"


def test_most_engines_have_nothing_to_tell():
    assert told(FakeRunner()) == []
    assert told(PreparingRunner(1)) == []


def test_what_is_there_after_loading_is_left_alone_by_the_garbage_collector():
    before = gc.get_freeze_count()
    try:
        assert settled(lambda *what: what)("a model", "its folder") == ("a model", "its folder")
        assert gc.get_freeze_count() > before
        with pytest.raises(OSError, match="no such model"):
            settled(_fail)("a model")
        assert gc.get_freeze_count() == 0, "before the next one is loaded, the last one may become garbage"
    finally:
        gc.unfreeze()


def _fail(*what: object) -> None:
    raise OSError("no such model")
