"""Which numbers of ranks are possible, and what a launcher says; no processes are started."""

from pathlib import Path

import pytest
from transformers import AutoConfig

from engine.core.errors import ConfigError, LoadError
from engine.models.devices import Choice
from engine.models.find import Place
from engine.parallel import loading
from engine.parallel.launch import Launch, launched
from engine.parallel.loading import SaidByRank0, Together
from engine.parallel.sharding import check_config, check_size, splits_kv
from engine.split import follows, is_split, release
from tests.tiny import tiny_model


@pytest.mark.parametrize(
    ("heads", "kv_heads", "size", "allowed"),
    [(9, 3, 2, "1, 3"), (32, 8, 3, "1, 2, 4, 8"), (32, 8, 16, "1, 2, 4, 8"), (8, 1, 2, "1")],
)
def test_a_size_that_does_not_divide_names_those_that_do(heads, kv_heads, size, allowed):
    with pytest.raises(ConfigError, match=f"{kv_heads} KV heads .* over {size} ranks.* one of {allowed}$"):
        check_size(heads, kv_heads, size)
    for fine in map(int, allowed.split(", ")):
        check_size(heads, kv_heads, fine)


def test_plans_split_heads_or_leave_them_whole():
    split = {f"layers.*.self_attn.{name}_proj": "colwise" for name in "qkv"}
    assert splits_kv(split)
    assert not splits_kv({"layers.*.self_attn.qkv_proj": "colwise_gather_output", "layers.*.mlp.up_proj": "colwise"})
    assert not splits_kv(dict.fromkeys(split, "colwise_gather_output"))
    with pytest.raises(ConfigError, match="q_proj split, k_proj whole, v_proj whole"):
        splits_kv({"layers.*.self_attn.q_proj": "colwise"})


@pytest.mark.parametrize("kind", ["llama", "gemma2"])
def test_a_configuration_is_checked_before_anything_is_loaded(kind):
    config = AutoConfig.for_model(kind, hidden_size=576, num_attention_heads=9, num_key_value_heads=3)
    check_config(config, 3)
    with pytest.raises(ConfigError, match="3 KV heads cannot be divided over 2 ranks"):
        check_config(config, 2)


def test_what_a_launcher_says(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    assert launched() is None
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert launched() is None
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(ConfigError, match="RANK"):
        launched()
    monkeypatch.setenv("RANK", "2")
    assert launched() == Launch(2, 4, 2, 4)
    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert launched() == Launch(2, 4, 0, 2)


@pytest.fixture
def together(monkeypatch):
    """Two ranks that talk over a dictionary."""
    said: dict[str, str] = {}
    monkeypatch.setattr(loading, "join", lambda launch: "cpu")
    monkeypatch.setattr(loading, "say", said.__setitem__)
    monkeypatch.setattr(loading, "hear", said.__getitem__)
    return [Together(Launch(rank, 2, rank, 2)) for rank in range(2)]


def test_rank_0_decides_about_the_dtype_and_finds_the_model_first(together):
    place = Place(Path("here"), "tiny", gguf=False)
    leader, follower = together
    with pytest.raises(KeyError):
        follower.place(lambda: place)
    assert leader.place(lambda: place) is place and follower.place(lambda: place) is place
    assert leader.dtype(lambda: Choice("bfloat16", "a\nreason")) == Choice("bfloat16", "a\nreason")
    assert follower.dtype(lambda: pytest.fail("a follower chose")) == Choice("bfloat16", "a\nreason")


def test_what_all_ranks_find_wrong_one_of_them_says(together):
    gguf = Place(Path("tiny.gguf"), "tiny", gguf=True)
    folder = Place(Path("tiny"), "tiny", gguf=False)
    config = AutoConfig.for_model("llama", hidden_size=576, num_attention_heads=9, num_key_value_heads=3)
    for rank, kind in zip(together, (LoadError, SaidByRank0), strict=True):
        for act in (lambda r=rank: r.device("cuda:1"), lambda r=rank: r.check(gguf, None),
                    lambda r=rank: r.check(folder, config)):  # fmt: skip
            with pytest.raises(LoadError) as caught:
                act()
            assert type(caught.value) is kind


class _Mesh:
    mesh_dim_names = ("fsdp",)

    def size(self):
        return 2

    def __getitem__(self, name):
        return self


def test_a_whole_model_is_not_split():
    model = tiny_model("llama")
    assert not is_split(model) and not follows(model) and release(model) is None
    mesh = _Mesh()
    model._device_mesh = mesh
    with pytest.raises(ConfigError, match="divided over 2 processes by 'fsdp'"):
        is_split(model)
