"""Options: one for each engine field, read and checked in one line."""

from dataclasses import fields
from pathlib import Path

import pytest

from cbtui.launch import RequestSpec
from cbtui.options import (
    MODEL_OPTIONS,
    MONITOR_OPTIONS,
    REQUEST_OPTIONS,
    WATCHABLE,
    WATCHABLE_BLOCKS,
    OptionError,
    engine_options,
    field_help,
    read_choices,
    read_size,
    read_value,
)
from cbtui.promptfile import PromptFileError, read_prompts
from engine.core.options import DEPRECATED, ContinuousBatchingConfig

NOTHING = {p.name: None for p in (*MODEL_OPTIONS, *REQUEST_OPTIONS, *MONITOR_OPTIONS, *engine_options())}


def test_every_field_of_the_engine_is_an_option_with_help() -> None:
    names = [option.name for option in engine_options()]
    assert names == [field.name for field in fields(ContinuousBatchingConfig)]
    words = field_help(ContinuousBatchingConfig.__doc__ or "")
    assert [name for name in names if not words.get(name)] == []


def test_the_help_keeps_the_case_of_values_and_tells_the_monitors_defaults() -> None:
    words = field_help(ContinuousBatchingConfig.__doc__ or "")
    assert words["scheduler_type"].startswith("fifo or ")
    assert words["max_steps_without_decode"].startswith("prefill_first lets ")
    assert words["reorder_requests"].startswith("add_requests sorts ")
    assert words["page_size"].startswith("Tokens per page")
    said = {item.name: item.annotation.__metadata__[0].help for item in engine_options()}
    assert said["page_size"].endswith(f"Default: 256 (monitor: {WATCHABLE['page_size']}).")
    assert said["num_blocks"].endswith(f"Monitor: {WATCHABLE_BLOCKS}, shared by the layer groups.")
    for name in ("max_batch_tokens", "max_requests_per_batch"):
        assert said[name].endswith(f". Monitor: {WATCHABLE[name]}.")


def test_nothing_given_means_the_defaults() -> None:
    choices = read_choices(NOTHING)
    assert (choices.model, choices.device, choices.dtype, choices.attn) == ("demo", "auto", "auto", "auto")
    assert choices.config == {} and choices.prompts == () and choices.threads is None
    assert choices.spec == RequestSpec()


def test_engine_values_arrive_with_their_types() -> None:
    given = {
        "page_size": "16",
        "safety_margin": "0.1",
        "allow_block_sharing": "off",
        "use_cuda_graph": "true,false",
        "cpu_offload_space": "auto",
        "scheduler_type": "prefill_first",
        "seed": "7",
        "forward": "auto",
    }
    choices = read_choices({**NOTHING, **given})
    assert choices.config == {
        "page_size": 16,
        "safety_margin": 0.1,
        "allow_block_sharing": False,
        "use_cuda_graph": (True, False),
        "cpu_offload_space": None,
        "scheduler_type": "prefill_first",
        "seed": 7,
        "forward": "auto",
    }
    assert choices.spec.seed == 7
    ContinuousBatchingConfig(**choices.config)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("page_size", "2", "int >= 4"),
        ("page_size", "many", "int >= 4"),
        ("scheduler_type", "lifo", "one of fifo, prefill_first"),
        ("num_blocks", "-3", "it must be an int >= 1 or auto; auto sizes the pool from free memory"),
        ("use_async_batching", "7", "it must be on or off, or auto"),
        ("safety_margin", "1.5", r"share in \[0, 1\]"),
        ("allow_block_sharing", "perhaps", "must be ON or OFF"),
        ("temperature", "-1", "at least 0"),
        ("temperature", "nan", "at least 0"),
        ("top_p", "0", "greater than 0"),
        ("top_k", "1.5", "whole number"),
        ("max_new_tokens", "0", "at least 1"),
        ("threads", "0", "from 1 to 1024"),
    ],
)
def test_wrong_values_are_one_line_with_option_value_and_range(name: str, text: str, said: str) -> None:
    with pytest.raises(OptionError, match=said) as caught:
        read_choices({**NOTHING, name: text})
    message = str(caught.value)
    assert message.startswith(f"--{name.replace('_', '-')} {text}: ") and "\n" not in message


def test_deprecated_fields_still_work() -> None:
    choices = read_choices({**NOTHING, "block_size": "32"})
    with pytest.warns(FutureWarning, match="page_size"):
        assert ContinuousBatchingConfig(**choices.config).page_size == 32
    assert "block_size" in DEPRECATED


def test_values_and_sizes() -> None:
    values = {"none": None, "AUTO": None, "on": True, "false": False, "3": 3, "0.5": 0.5, "fifo": "fifo"}
    assert {text: read_value(text) for text in values} == values
    assert read_value('{"mode": "default"}') == {"mode": "default"}
    assert read_size("120x36") == (120, 36) and read_size("80X24") == (80, 24)
    assert read_size("40x10") == (40, 10)
    for text in ("120", "0x10", "axb", "1001x10", "-1x5", "19x4", "20x3"):
        with pytest.raises(ValueError, match="columns x rows"):
            read_size(text)


def test_a_file_of_lines(tmp_path: Path) -> None:
    path = tmp_path / "prompts.txt"
    path.write_text('first\n\n  \n{"prompt": "not read as JSON here"}\n')
    specs = read_prompts(path, RequestSpec(max_new_tokens=5))
    assert [spec.text for spec in specs] == ["first", '{"prompt": "not read as JSON here"}']
    assert {spec.max_new_tokens for spec in specs} == {5}


def test_a_file_of_json_objects(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text(
        '{"prompt": "a", "id": "x", "max_new_tokens": 3, "temperature": 0.5, "top_k": 4, "top_p": 0.9, "seed": 1}\n'
        '{"prompt": [1, 2], "chat": false, "stop": ["###", "END"], "copies": 2, "logprobs": true}\n'
        '{"prompt": "c", "stop": "!", "seed": null}\n'
        '"just a text"\n'
    )
    base = RequestSpec(max_new_tokens=9, seed=5)
    assert read_prompts(path, base) == [
        RequestSpec(text="a", request_id="x", max_new_tokens=3, temperature=0.5, top_k=4, top_p=0.9, seed=1),
        RequestSpec(
            prompt_ids=(1, 2),
            chat=False,
            stop_strings=("###", "END"),
            copies=2,
            logprobs=True,
            max_new_tokens=9,
            seed=5,
        ),
        RequestSpec(text="c", stop_strings=("!",), max_new_tokens=9, seed=5),
        RequestSpec(text="just a text", max_new_tokens=9, seed=5),
    ]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "not JSON"),
        ("5", "JSON object"),
        ("{}", '"prompt" must be'),
        ('{"prompt": []}', "token ids, at least one"),
        ('{"prompt": [true]}', "token ids"),
        ('{"prompt": "a", "temprature": 1}', "unknown field 'temprature'"),
        ('{"prompt": "a", "temperature": "hot"}', '"temperature" must be a number'),
        ('{"prompt": "a", "top_p": 2}', "top_p must be"),
        ('{"prompt": "a", "max_new_tokens": 0}', "max new tokens must be"),
        ('{"prompt": "a", "chat": 1}', '"chat" must be true or false'),
        ('{"prompt": "a", "stop": [""]}', '"stop" must be'),
        ('{"prompt": "a", "id": "same"}\n{"prompt": "b", "id": "same"}', "stands in line 2 already"),
    ],
)
def test_a_wrong_line_is_named_by_its_number(line: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text(f'{{"prompt": "good"}}\n{line}\n')
    with pytest.raises(PromptFileError, match=said) as caught:
        read_prompts(path, RequestSpec())
    assert f", line {3 if chr(10) in line else 2}: " in str(caught.value)


def test_all_mistakes_of_a_file_are_told_up_to_ten(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "good"}\n' + "no\n" * 2 + '{"prompt": ""}\n' + '{"text": "a"}\n')
    with pytest.raises(PromptFileError) as caught:
        read_prompts(path, RequestSpec())
    said = str(caught.value).splitlines()
    assert said[0].endswith("prompts.jsonl: 4 lines are not right")
    assert [line.strip().split(":")[0] for line in said[1:]] == ["line 2", "line 3", "line 4", "line 5"]
    assert "the text is empty" in said[3] and "unknown field 'text'" in said[4]
    path.write_text("no\n" * 14)
    with pytest.raises(PromptFileError) as caught:
        read_prompts(path, RequestSpec())
    said = str(caught.value).splitlines()
    assert len(said) == 12 and said[-1].strip() == "and 4 more"


def test_files_that_hold_nothing_or_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n \n")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    for name, said in (("empty.txt", "holds no prompt"), ("latin.txt", "not UTF-8"), ("gone.txt", "cannot be read")):
        with pytest.raises(PromptFileError, match=said):
            read_prompts(tmp_path / name, RequestSpec())
