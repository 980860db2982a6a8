"""Tiny model folders and GGUF files on disk, with a tokenizer of single characters."""

from pathlib import Path

import gguf
import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from tests.tiny import VOCAB, tiny_model

CHARACTERS = [chr(code) for code in range(32, 126)]  # 94 of them; three special tokens make the vocabulary of 97
TEMPLATE = "{% for m in messages %}<{{ m['content'] }}{% endfor %}{% if add_generation_prompt %}>{% endif %}"


def make_tokenizer() -> PreTrainedTokenizerFast:
    """One token a character, and three special ones that the tiny models never stop at."""
    vocabulary = {character: index for index, character in enumerate(CHARACTERS)}
    vocabulary |= {"[UNK]": 94, "[BOS]": 95, "[EOS]": 96}
    assert len(vocabulary) == VOCAB
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("(?m)."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    made = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]", bos_token="[BOS]", eos_token="[EOS]")
    made.chat_template = TEMPLATE
    return made


def make_folder(path: Path, kind: str = "llama") -> Path:
    """A folder as ``save_pretrained`` writes it: config, safetensors, tokenizer."""
    tiny_model(kind).save_pretrained(path)
    make_tokenizer().save_pretrained(path)
    return path


def make_gguf(path: Path, architecture: str = "llama", *, tokenizer: bool = True) -> Path:
    """A llama with random weights in float32 and a byte-level tokenizer of 64 tokens, as a GGUF file."""
    hidden, heads, kv_heads, inner, layers, vocab = 32, 4, 2, 64, 2, 64
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name("tiny")
    writer.add_context_length(128)
    writer.add_embedding_length(hidden)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(hidden // heads)
    writer.add_vocab_size(vocab)
    if tokenizer:
        _add_tokenizer(writer, vocab)
    draw = np.random.default_rng(0)

    def add(name: str, *shape: int) -> None:
        writer.add_tensor(name, draw.normal(0, 0.3, shape).astype(np.float32))

    add("token_embd.weight", vocab, hidden)
    add("output_norm.weight", hidden)
    add("output.weight", vocab, hidden)
    for layer in range(layers):
        prefix = f"blk.{layer}."
        add(prefix + "attn_norm.weight", hidden)
        add(prefix + "ffn_norm.weight", hidden)
        add(prefix + "attn_q.weight", hidden, hidden)
        add(prefix + "attn_k.weight", hidden // heads * kv_heads, hidden)
        add(prefix + "attn_v.weight", hidden // heads * kv_heads, hidden)
        add(prefix + "attn_output.weight", hidden, hidden)
        add(prefix + "ffn_gate.weight", inner, hidden)
        add(prefix + "ffn_up.weight", inner, hidden)
        add(prefix + "ffn_down.weight", hidden, inner)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_tokenizer(writer: gguf.GGUFWriter, vocab: int) -> None:
    tokens = ["<unk>", "<s>", "</s>", *[chr(97 + i) for i in range(26)]]
    merges = []
    for first in "etaoin":
        for second in "etaoins":
            if len(tokens) < vocab:
                merges.append(f"{first} {second}")
                tokens.append(first + second)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_types([3, 3, 3] + [1] * (len(tokens) - 3))
    writer.add_token_merges(merges)
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template("{{ messages[0]['content'] }}")
