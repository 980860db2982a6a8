"""The command under torchrun: rank 0 answers, the others are silent."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.cli.tiny_files import make_folder

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("split") / "tiny")


def torchrun(size, *arguments):
    """Exit code, standard output, and standard error without the launcher's own lines."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(size)]
    done = subprocess.run(
        [*command, "-m", "cbtui", *map(str, arguments)], capture_output=True, text=True, timeout=180, check=False
    )
    return done.returncode, done.stdout, done.stderr


def alone(*arguments):
    done = subprocess.run(
        [sys.executable, "-m", "cbtui", *map(str, arguments)], capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_results_are_those_of_one_process_and_only_rank_0_speaks(folder):
    prompts = ("--model", folder, "--prompt", "abc", "--prompt", "hello there", "--max-new-tokens", 12, "--json")
    before = set(Path(tempfile.gettempdir()).glob("cbtui-rank*"))
    code, out, err = torchrun(2, "generate", *prompts)
    assert code == 0, err
    found = [json.loads(line) for line in out.splitlines()]
    expected = [json.loads(line) for line in alone("generate", *prompts).splitlines()]
    assert [one["tokens"] for one in found] == [one["tokens"] for one in expected] and len(found) == 2
    assert err.count("loaded in") == 1 and "split over 2 ranks" in err and "rank 1" not in err
    assert set(Path(tempfile.gettempdir()).glob("cbtui-rank*")) == before


def test_one_frame_shows_the_ranks(folder):
    code, out, err = torchrun(2, "--once", "--model", folder, "--prompt", "abc", "--size", "200x30", "--steps", 5)
    assert code == 0, err
    assert "ranks 2, wait" in out and out.count("KV BLOCKS") == 1


def test_a_number_that_does_not_divide_is_told_once(folder):
    code, out, err = torchrun(3, "generate", "--model", folder, "--prompt", "abc")
    assert code != 0 and out == ""
    assert err.count("2 KV heads cannot be divided over 3 ranks; start as many processes as one of 1, 2") == 1
