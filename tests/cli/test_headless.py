"""``cbtui generate`` and ``cbtui --once`` on a tiny model: results, order, codes, interrupts, closed pipes."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from cbtui.headless import _ending, _Job
from cbtui.launch import RequestSpec
from cbtui.start import OWN_REASON, plan_engine, watchable_config
from engine.core.request import FinishReason, GenerationOutput
from engine.loading import load
from tests.cli.conftest import Result, share_kernels
from tests.cli.tiny_files import make_folder, make_tokenizer
from tests.tiny import reference

ROOT = Path(__file__).parents[2]
Command = Callable[..., Result]
SMALL = ("--num-blocks", "64", "--page-size", "4", "--max-batch-tokens", "16")


def expected(folder: Path, text: str, count: int, chat: bool = True) -> list[int]:
    """What ``model.generate`` gives for one prompt alone."""
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32)
    ids = make_tokenizer()(f"<{text}>" if chat else text)["input_ids"]
    return reference(model, ids, count)


def test_json_lines_in_input_order_equal_to_each_prompt_alone(here: Command, tiny_folder: Path) -> None:
    prompts = ["one", "the second prompt", "3"]
    given = [part for text in prompts for part in ("--prompt", text)]
    result = here("generate", "--model", tiny_folder, "--json", "--max-new-tokens", "6", *SMALL, *given)
    assert result.returncode == 0, result.stderr
    records = [json.loads(line) for line in result.stdout.splitlines()]
    assert [record["prompt"] for record in records] == prompts
    for record, text in zip(records, prompts, strict=True):
        assert record["tokens"] == expected(tiny_folder, text, 6)
        assert record["text"] == make_tokenizer().decode(record["tokens"], skip_special_tokens=True)
        assert (record["finish_reason"], record["error"]) == ("length", None)
        assert record["prompt_tokens"] == len(text) + 2 and record["time_to_first_token"] >= 0
    assert re.search(r"3 requests, 18 tokens in \d", result.stderr)


def test_one_prompt_from_standard_input_as_text(here: Command, tiny_folder: Path) -> None:
    result = here("generate", "--model", tiny_folder, "--max-new-tokens", "5", "--no-chat", *SMALL, stdin="plain\n")
    tokens = expected(tiny_folder, "plain", 5, chat=False)
    assert result.stdout == make_tokenizer().decode(tokens, skip_special_tokens=True) + "\n"


def test_a_prompts_file_with_fields_of_its_own(here: Command, tiny_folder: Path, tmp_path: Path) -> None:
    stop = make_tokenizer().decode(expected(tiny_folder, "a", 8)[3:4])
    lines = [
        {"prompt": "a", "id": "first", "max_new_tokens": 2, "logprobs": True},
        {"prompt": "b", "temperature": 1.0, "seed": 3, "copies": 2},
        {"prompt": "a", "id": "cut", "max_new_tokens": 8, "stop": stop},
    ]
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    runs = [
        here("generate", "--model", tiny_folder, "--prompts-file", path, "--json", "--max-new-tokens", "4", *SMALL)
        for _ in range(2)
    ]
    records = [json.loads(line) for line in runs[0].stdout.splitlines()]
    assert (records[0]["id"], len(records[0]["tokens"])) == ("first", 2)
    assert len(records) == 4 and len(records[0]["logprobs"]) == 2
    assert records[1]["tokens"] != records[2]["tokens"]  # copies draw with seeds of their own
    assert records[3]["finish_reason"] == "stop_string" and stop not in records[3]["text"]
    again = [json.loads(line) for line in runs[1].stdout.splitlines()]
    assert [r["tokens"] for r in again] == [r["tokens"] for r in records]


def test_a_refused_request_is_told_and_the_others_run(here: Command, tiny_folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "good"}\n{"prompt": [1, 97]}\n{"prompt": "fine"}\n')
    result = here("generate", "--model", tiny_folder, "--prompts-file", path, "--json", "--max-new-tokens", "2", *SMALL)
    records = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.returncode == 1
    assert [record["finish_reason"] for record in records] == ["length", None, "length"]
    assert "97" in records[1]["error"]


def test_a_refusal_names_the_request_once_and_one_is_singular(here: Command, tiny_folder: Path) -> None:
    given = ("generate", "--model", tiny_folder, "--prompt", "a", *SMALL)
    refused = here(*given, "--num-blocks", "2", "--max-new-tokens", "40")
    assert refused.returncode == 1 and "cbtui: request 1 refused: can never fit: " in refused.stderr
    assert "1 request, 1 token in " in here(*given, "--max-new-tokens", "1").stderr


def test_more_tokens_than_the_model_has_positions_for_are_told_before_they_are_computed(
    here: Command, tiny_folder: Path, tmp_path: Path
) -> None:
    given = ("generate", "--model", tiny_folder, "--num-blocks", "256", "--page-size", "4", "--prompt", "ab")
    result = here(*given, "--max-new-tokens", "100000", "--prompt", "abc", "--json")
    told = (
        "note: max_new_tokens=100000 is more than this model can write: it has 512 positions, which leaves 508 new "
        "tokens after a prompt of 4; ask for at most that many, or take a model with more positions "
        "(1 more request likewise)"
    )
    assert told in result.stderr.splitlines() and result.returncode == 0
    assert [len(json.loads(line)["tokens"]) for line in result.stdout.splitlines()] == [508, 507]
    assert "positions" not in here(*given, "--max-new-tokens", "4").stderr
    frame = here("--once", *given[1:], "--max-new-tokens", "600", "--steps", "1")
    assert "max_new_tokens=600" in frame.stderr and "508 new tokens" in frame.stderr


def test_a_hard_stop_reads_as_words_at_the_screen_and_keeps_its_class_in_the_output() -> None:
    error = "RuntimeError: hard stop before this request was complete"
    output = GenerationOutput("x", (1,), error=error, finish_reason=FinishReason.STOPPED)
    job = _Job(RequestSpec(text="a"), "x", output)
    assert _ending(job) == "hard stop before this request was complete" and output.error == error


def test_an_empty_text_in_a_file_is_refused_before_a_model_is_loaded(here: Command, tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "a"}\n{"prompt": " "}\n')
    for command in (("generate",), ("--once",)):
        result = here(*command, "--prompts-file", path)
        assert result.returncode == 2 and f"{path}, line 2: the text is empty" in result.stderr


def test_a_configuration_that_cannot_work_here(here: Command, tiny_folder: Path) -> None:
    result = here("generate", "--model", tiny_folder, "--prompt", "a", "--num-blocks", str(10**12))
    assert result.returncode == 2
    lines = [line for line in result.stderr.splitlines() if line.startswith("cbtui: ")]
    assert len(lines) == 1 and "num_blocks" in lines[0] and "Traceback" not in result.stderr


def test_once_prints_one_frame_of_the_size_asked_for(here: Command, tiny_folder: Path) -> None:
    result = here(
        *("--once", "--model", tiny_folder, "--size", "80x24", "--max-new-tokens", "5"),
        *("--prompt", "one", "--prompt", "two"),
    )
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert len(lines) == 24 and max(len(line) for line in lines) <= 80
    assert "step 5" in lines[0]
    assert sum("finished" in line and "5/5" in line for line in lines) == 2


def test_once_tells_a_terminal_how_far_it_is(
    here: Command, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []
    monkeypatch.setattr("cbtui.show.StatusLine.show", lambda line, text: shown.append(text))
    here("--once", "--model", tiny_folder, "--prompt", "one", "--prompt", "two", "--max-new-tokens", "3", *SMALL)
    told = [text for text in shown if text.startswith("step ")]
    assert told[0] == "step 1  0 of 2 requests ended" and told[-1].endswith("2 of 2 requests ended")


def test_once_can_stop_in_the_middle(here: Command, tiny_folder: Path) -> None:
    result = here(
        *("--once", "--steps", "3", "--model", tiny_folder, "--prompt", "one", "--max-new-tokens", "50", "--ascii"),
    )
    assert result.returncode == 0, result.stderr
    assert "step 3" in result.stdout and "decode" in result.stdout
    assert result.stdout.isascii()


def start(folder: Path, tmp_path: Path, *arguments: str) -> subprocess.Popen[str]:
    share_kernels(tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "XDG_CACHE_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "cbtui", "generate", "--model", str(folder), "--json", *arguments]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # tests in the background inherit it ignored
    )  # fmt: skip


@pytest.fixture
def endless(tmp_path: Path) -> Path:
    """A file of prompts that would take minutes, the first one a short one."""
    path = tmp_path / "many.jsonl"
    first = {"prompt": "first", "max_new_tokens": 1}
    rest = [{"prompt": f"{i}", "max_new_tokens": 480} for i in range(400)]
    path.write_text("".join(json.dumps(line) + "\n" for line in [first, *rest]))
    return path


def test_ctrl_c_ends_it_cleanly(tiny_folder: Path, tmp_path: Path, endless: Path) -> None:
    process = start(tiny_folder, tmp_path, "--prompts-file", str(endless), *SMALL)
    assert process.stdout is not None and json.loads(process.stdout.readline())["prompt"] == "first"
    sent = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in errors and "cbtui: interrupted" in errors
    assert time.monotonic() - sent < 30


def test_a_reader_that_goes_away_ends_it_cleanly(tiny_folder: Path, tmp_path: Path, endless: Path) -> None:
    rows = [json.loads(line) for line in endless.read_text().splitlines()]
    endless.write_text("".join(json.dumps({**row, "max_new_tokens": 2}) + "\n" for row in rows))
    process = start(tiny_folder, tmp_path, "--prompts-file", str(endless), *SMALL)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr is not None
    with process.stderr:
        errors = process.stderr.read()
    assert process.wait(timeout=60) == 141 and "Traceback" not in errors and "BrokenPipe" not in errors


def test_the_monitors_own_defaults_say_so_and_give_way(tiny_folder: Path) -> None:
    loaded = load(str(tiny_folder), device="cpu")
    config = plan_engine(loaded, {"page_size": 8}, watchable_config(loaded)).config
    assert (config.page_size.value, config.page_size.reason) == (8, "user")
    assert (config.num_blocks.value, config.num_blocks.reason) == (256, OWN_REASON)
    assert (config.max_batch_tokens.value, config.max_batch_tokens.reason) == (64, OWN_REASON)
    plain = plan_engine(loaded, {"num_blocks": 8}).config
    assert plain.page_size.value == 256 and plain.page_size.reason == "default"


def test_the_pool_to_watch_counts_all_layer_groups(tmp_path: Path) -> None:
    loaded = load(str(make_folder(tmp_path / "gemma3", "gemma3")), device="cpu")
    blueprint = plan_engine(loaded, {}, watchable_config(loaded))
    assert len(blueprint.layout.groups) > 1
    assert 192 <= blueprint.layout.num_blocks <= 256


def test_what_was_decided_is_told_on_standard_error(here: Command, tiny_folder: Path) -> None:
    given = ("--model", tiny_folder, "--prompt", "a", "--max-new-tokens", "1", "--device", "cpu", *SMALL)
    result = here("generate", *given, "--use-cuda-graph", "on")
    told = result.stderr.splitlines()
    assert re.fullmatch(r".* M weights, loaded in \d+\.\d s", told[0])
    assert told[1] == "on cpu (asked for), in float32 (exact, and fast enough for this size)"
    assert "note: use_cuda_graph is switched off: needs a CUDA device, this is cpu" in result.stderr
    assert "Warning" not in result.stderr


def test_an_engine_that_dies_is_told_and_every_request_ends(
    here: Command, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: object, **options: object) -> None:
        raise RuntimeError("the device is on fire")

    monkeypatch.setattr("engine.run.model_runner.ModelRunner.launch", broken)
    given = ("--prompt", "a", "--prompt", "b", "--max-new-tokens", "3", *SMALL)
    result = here("generate", "--model", tiny_folder, "--json", *given)
    records = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.returncode == 4
    assert len(records) == 2 and records[0]["finish_reason"] == "failed"  # the other may have come too late
    assert all("the device is on fire" in record["error"] for record in records)
    last = result.stderr.splitlines()[-1]
    assert last.startswith("cbtui: the engine failed: ") and "the device is on fire" in last
    result = here("--once", "--model", tiny_folder, *given)
    assert result.returncode == 4 and "step 1 failed: RuntimeError: the device is on fire" in result.stderr
    assert "FAILED" in result.stdout and "the device is on fire" in result.stdout
