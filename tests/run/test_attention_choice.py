"""Which attention backend is taken, for every device, setting and installation."""

import dataclasses
from types import SimpleNamespace

import pytest
import torch

from engine.run.attention.choice import choose_attention, has_sinks
from engine.run.attention.flash_kernels import FLASH_2, FLASH_3, HUB, find_kernels
from engine.run.facts import ModelFacts
from tests.run.flash_standins import flash_2, flash_3
from tests.run.static_tools import standin
from tests.tiny import tiny_model


def facts(device="cuda", dtype=torch.bfloat16, head_dim=64) -> ModelFacts:
    return ModelFacts((None,), 8, 2, head_dim, 512, 1024, 97, None, dtype, torch.device(device), 0)


def installed(*names: str):
    """Looks for kernels on a machine that has these."""

    def find(name: str):
        return standin(name)[0] if name in names else f"{name} is not installed"

    return find


def choose(setting, *names, given=None, capability=(9, 0), **options):
    return choose_attention(setting, given or facts(), capability=capability, find=installed(*names), **options)


def nobody_asks(name: str):
    raise AssertionError(f"{name} was looked for")


@pytest.mark.parametrize(("setting", "name"), [("eager", "eager"), ("paged|sdpa", "sdpa"), (None, "sdpa")])
@pytest.mark.parametrize("device", ["cpu", "mps", "xpu"])
def test_other_devices_keep_the_portable_backends_and_look_for_nothing(setting, name, device):
    choice = choose_attention(setting, facts(device), find=nobody_asks)
    assert (choice.name, choice.reason, choice.kernels, choice.page_multiple) == (name, "model", None, 1)


@pytest.mark.parametrize("device", ["cpu", "mps", "xpu"])
def test_flash_asked_for_elsewhere_becomes_sdpa(device):
    choice = choose_attention(FLASH_2, facts(device), find=nobody_asks)
    assert choice.name == "sdpa"
    assert choice.reason == f"flash_attention_2 → sdpa: needs a CUDA device, this is {device}"


def test_an_unknown_backend_becomes_sdpa():
    choice = choose_attention("flex_attention", facts("cpu"))
    assert choice.reason == "flex_attention → sdpa: flex_attention is not available"


@pytest.mark.parametrize("name", [FLASH_2, FLASH_3])
def test_what_the_model_says_is_followed_where_it_is_installed(name):
    choice = choose(name, name)
    assert (choice.name, choice.reason) == (name, "model; stand-in")
    assert choice.page_multiple == {FLASH_2: 256, FLASH_3: 1}[name]
    missing = choose(name)
    assert (missing.name, missing.reason) == ("sdpa", f"{name} → sdpa: {name} is not installed")


@pytest.mark.parametrize("setting", ["eager", "sdpa"])
def test_portable_backends_are_switched_to_the_best_flash_there_is(setting):
    assert choose(setting, FLASH_2, FLASH_3).name == FLASH_3
    assert choose(setting, FLASH_2, FLASH_3, capability=(8, 0)).name == FLASH_2
    assert choose(setting, FLASH_2).name == FLASH_2
    assert choose(setting, FLASH_2).reason == f"{setting} → flash_attention_2: auto_switch_to_flash, stand-in"
    assert choose(setting, FLASH_2, auto_switch=False).reason == "model; auto_switch_to_flash is off"
    assert choose(setting).name == setting
    assert "flash_attention_3 is not installed" in choose(setting).reason


def test_an_improvement_nobody_asked_for_does_not_change_the_page_size():
    choice = choose("sdpa", FLASH_2, page_size=16)
    assert choice.name == "sdpa"
    assert "flash_attention_2: pages of 16 tokens are no multiple of 256" in choice.reason
    assert choose("sdpa", FLASH_2, FLASH_3, page_size=16).name == FLASH_3
    assert choose(FLASH_2, FLASH_2, page_size=16).name == FLASH_2


@pytest.mark.parametrize(
    ("given", "more", "why"),
    [
        (facts(dtype=torch.float32), {}, "takes float16 and bfloat16, not float32"),
        (facts(head_dim=320), {}, "up to 256 numbers, not of 320"),
        (facts(head_dim=60), {}, "multiple of 8"),
        (facts(), {"sinks": True}, "takes no attention sinks"),
        (facts(), {"capability": (7, 5)}, "needs compute capability 8 or more, this device has 7.5"),
    ],
)
def test_models_and_devices_the_kernels_do_not_take(given, more, why):
    choice = choose(FLASH_2, FLASH_2, given=given, **more)
    assert choice.name == "sdpa" and why in choice.reason
    assert choose("eager", FLASH_2, FLASH_3, given=given, **more).name == "eager"


def test_version_3_is_for_one_generation():
    assert "compute capability 9, this device has 10.0" in choose(FLASH_3, FLASH_3, capability=(10, 0)).reason


def test_sinks_are_seen_by_their_name():
    model = tiny_model("llama")
    assert not has_sinks(model)
    model.model.layers[0].self_attn.sinks = torch.nn.Parameter(torch.zeros(4))
    assert has_sinks(model)


class TestFinding:
    """``importlib`` and the ``kernels`` package stand for what a machine has installed."""

    @pytest.fixture
    def machine(self, monkeypatch):
        have: dict[str, object] = {}

        def load(name):
            if name not in have:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
            if isinstance(have[name], Exception):
                raise have[name]
            return have[name]

        monkeypatch.setattr("engine.run.attention.flash_kernels.importlib.import_module", load)
        monkeypatch.setitem(__import__("sys").modules, "kernels", None)
        return have

    def hub(self, monkeypatch, modules):
        asked = []

        def get_kernel(repository, version):
            asked.append((repository, version))
            if repository not in modules:
                raise FileNotFoundError("no build for this torch\nsecond line")
            return modules[repository]

        monkeypatch.setitem(__import__("sys").modules, "kernels", SimpleNamespace(get_kernel=get_kernel))
        return asked

    def test_nothing_is_installed(self, machine):
        assert find_kernels(FLASH_2) == "flash_attn is not installed; nor is kernels"

    def test_the_package_comes_first(self, machine, monkeypatch):
        asked = self.hub(monkeypatch, {})
        machine["flash_attn"] = module = flash_2()
        module.__version__ = "2.8.3"
        found = find_kernels(FLASH_2)
        assert dataclasses.asdict(found)["source"] == "flash_attn 2.8.3" and asked == []
        assert found.varlen is module.flash_attn_varlen_func

    def test_then_the_hub(self, machine, monkeypatch):
        asked = self.hub(monkeypatch, {HUB[FLASH_3][0]: flash_3()})
        assert find_kernels(FLASH_3).source == "kernels-community/flash-attn3 (kernels)"
        assert asked == [HUB[FLASH_3]]

    def test_what_is_too_old_or_broken_is_said(self, machine, monkeypatch):
        self.hub(monkeypatch, {})
        old = flash_2()
        del old.flash_attn_with_kvcache
        machine["flash_attn"] = old
        assert find_kernels(FLASH_2) == (
            "flash_attn is too old: it has no flash_attn_with_kvcache; "
            "kernels has no kernels-community/flash-attn2 for this machine: no build for this torch"
        )
        machine["flash_attn"] = ImportError("undefined symbol: _ZN3c10")
        assert find_kernels(FLASH_2).startswith("flash_attn cannot be imported: undefined symbol")
