"""How the kernels are built: once, beside the reading of the weights, and given up when somebody gives up."""

import os
import subprocess
import threading
import time

import pytest
import torch

from engine.loading import load
from engine.models.progress import LoadCancelled
from engine.run.fast import build, choose
from tests.cli.tiny_files import make_folder
from tests.run.fast_tools import model_of, need_kernels, prompts_of, run


def test_compiled_once_then_found_and_told_when_damaged(tmp_path, monkeypatch):
    need_kernels(torch.float32)
    first = build.load_kernels(torch.float32, cache=tmp_path)
    monkeypatch.setattr(build.subprocess, "Popen", lambda *_, **__: pytest.fail("compiled again"))
    again = build.load_kernels(torch.float32, cache=tmp_path, waiting=lambda: pytest.fail("nothing to wait for"))
    assert again.vector_length() == first.vector_length()
    (library,) = tmp_path.iterdir()
    copy = tmp_path / "other"
    copy.mkdir()
    (copy / library.name).write_bytes(b"not a library")
    with pytest.raises(build.BuildError, match="cannot build or load"):
        build.load_kernels(torch.float32, cache=copy)


def test_the_compilers_error_is_told(tmp_path):
    need_kernels(torch.float32)
    with pytest.raises(build.BuildError, match="error"):
        build.load_kernels(torch.float32, arch=("-march=no-such-machine",), cache=tmp_path)
    assert list(tmp_path.iterdir()) == []


def slow_compiler(tmp_path, monkeypatch):
    """Takes the compiler's place and never ends by itself; the file it names shows that it began."""
    script = tmp_path / "slow-c++"
    script.write_text("#!/bin/sh\nexec sleep 600\n")
    script.chmod(0o755)
    monkeypatch.setattr(build.shutil, "which", lambda name: str(script))
    started = []
    popen = subprocess.Popen

    def remember(*arguments, **options):
        started.append(popen(*arguments, **options))
        return started[-1]

    monkeypatch.setattr(build.subprocess, "Popen", remember)
    return started


def test_a_compiler_that_hangs_is_given_up(tmp_path, monkeypatch):
    started = slow_compiler(tmp_path, monkeypatch)
    monkeypatch.setattr(build, "_TIMEOUT", 0.0)
    monkeypatch.setattr(build, "_BEAT", 0.01)
    with pytest.raises(build.BuildError, match="more than 0 s"):
        build.load_kernels(torch.float32, cache=tmp_path / "kernels")
    assert started[0].returncode is not None
    assert list((tmp_path / "kernels").iterdir()) == []


def test_who_waits_is_told_and_may_end_it(tmp_path, monkeypatch):
    started = slow_compiler(tmp_path, monkeypatch)
    monkeypatch.setattr(build, "_BEAT", 0.01)
    beats = []

    def waiting():
        beats.append(len(started))
        if len(beats) == 4:
            raise LoadCancelled

    with pytest.raises(LoadCancelled):
        build.load_kernels(torch.float32, cache=tmp_path / "kernels", waiting=waiting)
    assert beats == [0, 1, 1, 1], "told before the compiler begins, then while it runs"
    assert started[0].returncode is not None
    assert list((tmp_path / "kernels").iterdir()) == []


def test_loading_tells_of_the_compilation_and_of_nothing_else(tmp_path, monkeypatch):
    need_kernels(torch.float32)
    monkeypatch.setattr(build.platformdirs, "user_cache_path", lambda name: tmp_path)
    make_folder(tmp_path / "model")
    phases = []
    for _ in range(2):
        reports = []
        load(str(tmp_path / "model"), device="cpu", dtype="float32", progress=reports.append)
        phases.append(list(dict.fromkeys(report.phase for report in reports)))
    assert phases == [["looking", "reading", "compiling", "ready"], ["looking", "reading", "ready"]]


def test_the_compiler_works_while_the_weights_are_read(tmp_path, monkeypatch):
    need_kernels(torch.float32)
    monkeypatch.setattr(build.platformdirs, "user_cache_path", lambda name: tmp_path)
    make_folder(tmp_path / "model")
    order, popen, finish = [], subprocess.Popen, build.Compilation.finish

    def begin(*arguments, **options):
        order.append("compiler")
        return popen(*arguments, **options)

    def wait(compilation, waiting):
        order.append("waits")
        finish(compilation, waiting)

    monkeypatch.setattr(build.subprocess, "Popen", begin)
    monkeypatch.setattr(build.Compilation, "finish", wait)
    load(str(tmp_path / "model"), device="cpu", dtype="float32", progress=lambda r: order.append(r.detail))
    reading = next(detail for detail in order if "weights as" in detail)
    assert reading.endswith("as float32, compiling kernels")
    assert order[order.index("compiler") + 1].endswith(", compiling kernels"), "it is told at once"
    assert order.count("compiler") == 1 and order.index("compiler") < order.index(reading) < order.index("waits")
    assert not order[-1].endswith("kernels") and len(list((tmp_path / "kernels").iterdir())) == 1
    order.clear()
    load(str(tmp_path / "model"), device="cpu", dtype="float32", progress=lambda r: order.append(r.detail))
    assert not [detail for detail in order if "compiling" in detail or detail == "waits"]


def test_giving_up_a_load_ends_its_compiler(tmp_path, monkeypatch):
    started = slow_compiler(tmp_path, monkeypatch)
    monkeypatch.setattr(build.platformdirs, "user_cache_path", lambda name: tmp_path)
    make_folder(tmp_path / "model")

    def progress(report):
        if report.phase == "reading":
            raise LoadCancelled

    with pytest.raises(LoadCancelled):
        load(str(tmp_path / "model"), device="cpu", dtype="float32", progress=progress)
    assert len(started) == 1 and started[0].returncode is not None
    assert list((tmp_path / "kernels").iterdir()) == []


def test_the_programs_a_compiler_calls_end_with_it(tmp_path, monkeypatch):
    script, ready, gone = tmp_path / "c++", tmp_path / "ready", tmp_path / "gone"
    script.write_text(
        f"#!/bin/sh\n(trap 'echo > {gone}; kill $!; exit' TERM; sleep 600 & echo > {ready}; wait) &\nwait\n"
    )
    script.chmod(0o755)
    monkeypatch.setattr(build.shutil, "which", lambda name: str(script))
    compilation = build.begin_kernels(torch.float32, cache=tmp_path / "kernels")
    assert compilation is not None
    with compilation:
        wait_for(ready)
    wait_for(gone)
    assert list((tmp_path / "kernels").iterdir()) == []


def test_a_load_that_is_busy_elsewhere_can_be_given_up(tmp_path, monkeypatch):
    """The thread that reads the model is in the middle of something; the compiler ends all the same."""
    started = slow_compiler(tmp_path, monkeypatch)
    monkeypatch.setattr(build, "_BEAT", 0.01)
    monkeypatch.setattr(build.platformdirs, "user_cache_path", lambda name: tmp_path)
    make_folder(tmp_path / "model")
    given_up, here = threading.Event(), threading.get_ident()

    def progress(report):
        if threading.get_ident() != here and report.phase == "reading":
            assert report.seconds >= report.phase_seconds >= 0 and report.detail.endswith("compiling kernels")
            given_up.set()
            raise LoadCancelled
        if report.phase == "reading" and started:
            assert given_up.wait(60)
            assert started[0].wait(60) != 0

    with pytest.raises(LoadCancelled):
        load(str(tmp_path / "model"), device="cpu", dtype="float32", progress=progress)
    assert len(started) == 1 and list((tmp_path / "kernels").iterdir()) == []


def wait_for(path):
    """Until a file is there; only a hang takes the time."""
    end = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_compiler_that_fails_beside_the_load_is_no_trouble_for_it(tmp_path, monkeypatch):
    need_kernels(torch.float32)
    monkeypatch.setattr(build.platformdirs, "user_cache_path", lambda name: tmp_path)
    monkeypatch.setattr(build, "_FLAGS", (*build._FLAGS, "-no-such-flag"))
    make_folder(tmp_path / "model")
    loaded = load(str(tmp_path / "model"), device="cpu", dtype="float32")
    assert "no-such-flag" in choose.choose_forward(loaded.model).notice


def test_a_model_the_kernels_do_not_know_begins_nothing(tmp_path, monkeypatch):
    started = slow_compiler(tmp_path, monkeypatch)
    assert choose.begin_kernels("phi", "float32") is None and choose.begin_kernels("llama", "float16") is None
    assert started == []


def test_what_killed_programs_left_is_removed(tmp_path):
    need_kernels(torch.float32)
    old, new = tmp_path / "building-old", tmp_path / "building-new"
    old.mkdir()
    new.mkdir()
    os.utime(old, (0, 0))
    build.load_kernels(torch.float32, cache=tmp_path)
    assert not old.exists() and new.exists()


def test_a_cache_folder_that_cannot_be_made(tmp_path):
    need_kernels(torch.float32)
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(build.BuildError, match="cannot build or load"):
        build.load_kernels(torch.float32, cache=blocked / "kernels")


def test_element_types():
    with pytest.raises(build.BuildError, match="float16"):
        build.load_kernels(torch.float16)


@pytest.mark.slow
@pytest.mark.parametrize("arch", [("-O2",), ("-mavx2", "-mfma"), ("-march=x86-64-v4",)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_instruction_set_gives_the_same_tokens(tmp_path, arch, dtype):
    """What an older machine of this kind would compile; those with more than this one has are skipped."""
    need_kernels(dtype)
    if arch == ("-march=x86-64-v4",) and torch.backends.cpu.get_cpu_capability() != "AVX512":
        pytest.skip("no AVX-512 here")
    library = build.load_kernels(dtype, arch=arch, cache=tmp_path)
    for kind in ("llama", "gemma2", "qwen3"):
        for shape in ({}, {"head_dim": 64}):
            model, prompts = model_of(kind, **shape).to(dtype), prompts_of(kind, (3, 40))
            answers, _ = run(model, prompts, 10, "fast")
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(choose, "load_kernels", lambda _: library)
                assert run(model, prompts, 10, "fast")[0] == answers
