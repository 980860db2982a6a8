"""Train one of the demo models on the corpus and write it, with its card, as bfloat16 safetensors.

The loss counts answers and their end only. A batch holds conversations of similar length side by side, padded to the
longest; causal attention never reaches the padding behind a conversation, and its labels are ignored.
"""

import argparse
import json
import math
import random
import time
from pathlib import Path
from typing import Any

import torch

from engine.models.making.corpus import conversations

ROW, TOKENS_PER_BATCH = 1000, 1280
SIZES = {"hidden_size": 256, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 32}


def build(name: str, tokenizer: Any) -> Any:
    """A fresh model: ``demo`` is a Llama, ``demo-hybrid`` a Gemma-2 with windows of 48 tokens on every other layer."""
    from transformers import Gemma2Config, Gemma2ForCausalLM, LlamaConfig, LlamaForCausalLM

    common = dict(
        SIZES,
        vocab_size=len(tokenizer),
        num_hidden_layers=4,
        intermediate_size=704,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    if name == "demo":
        return LlamaForCausalLM(LlamaConfig(**common, attention_bias=False))
    return Gemma2ForCausalLM(
        Gemma2Config(
            **common,
            sliding_window=48,
            layer_types=["sliding_attention", "full_attention"] * 2,
            attn_logit_softcapping=50.0,
            final_logit_softcapping=30.0,
            query_pre_attn_scalar=SIZES["head_dim"],
        )
    )


def encode(rows: list[dict], tokenizer: Any) -> list[tuple[list[int], int]]:
    """Each conversation as (ids, number of prompt ids)."""
    out = []
    for row in rows:
        ask = [{"role": "user", "content": row["ask"]}]
        prompt = tokenizer.apply_chat_template(ask, add_generation_prompt=True, return_dict=True)["input_ids"]
        answer = tokenizer(row["answer"], add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id]
        if len(prompt) + len(answer) <= ROW:
            out.append((prompt + answer, len(prompt)))
    return out


def grouped(order: list[int], data: list[tuple[list[int], int]]) -> list[list[int]]:
    """``order`` cut into groups of about ``TOKENS_PER_BATCH`` tokens."""
    groups: list[list[int]] = [[]]
    filled = 0
    for i in order:
        size = len(data[i][0])
        if groups[-1] and filled + size > TOKENS_PER_BATCH:
            groups.append([])
            filled = 0
        groups[-1].append(i)
        filled += size
    return groups


def batches(data: list[tuple[list[int], int]], pad: int, seed: int) -> Any:
    """Endless batches (ids, labels), each [rows, length]: conversations of similar length side by side, shuffled."""
    rng = random.Random(seed)
    while True:
        order = sorted(range(len(data)), key=lambda i: len(data[i][0]) * (1 + 0.2 * rng.random()))
        groups = grouped(order, data)
        rng.shuffle(groups)
        for group in groups:
            width = max(len(data[i][0]) for i in group)
            ids = torch.full((len(group), width), pad)
            labels = torch.full((len(group), width), -100)
            for line, i in enumerate(group):
                tokens, skip = data[i]
                ids[line, : len(tokens)] = torch.tensor(tokens)
                labels[line, skip : len(tokens)] = torch.tensor(tokens[skip:])
            yield ids, labels


def train(
    model: torch.nn.Module, data: list, pad: int, steps: int, minutes: float, seed: int, peak: float
) -> dict[str, Any]:
    """AdamW with a warm-up to ``peak`` and a cosine fall over ``steps``; stops early when ``minutes`` have passed."""
    decay = [p for p in model.parameters() if p.dim() >= 2]
    rest = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.05}, {"params": rest, "weight_decay": 0.0}], lr=peak, betas=(0.9, 0.98)
    )
    source = batches(data, pad, seed)
    began, seen, average, step = time.perf_counter(), 0, None, 0
    model.train()
    for step in range(1, steps + 1):
        # The schedule follows whichever runs out first, steps or minutes, so that it always ends at the low rate.
        share = max(step / steps, (time.perf_counter() - began) / (minutes * 60))
        if share >= 1:
            break
        rate = peak * min(1.0, step / 200) * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * share)))
        for group in optimizer.param_groups:
            group["lr"] = rate
        ids, labels = next(source)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(input_ids=ids, labels=labels, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seen += ids.numel()
        average = loss.item() if average is None else 0.98 * average + 0.02 * loss.item()
        if step % 100 == 0:
            spent = time.perf_counter() - began
            print(f"step {step} loss {average:.3f} lr {rate:.1e} {seen / spent:.0f} tokens/s {spent:.0f} s", flush=True)
    seconds = time.perf_counter() - began
    return {"steps": step, "loss": round(average or 0.0, 3), "tokens_seen": seen, "seconds": round(seconds)}


def card(name: str, facts: dict[str, Any]) -> str:
    lines = "\n".join(f"- {key.replace('_', ' ')}: {value}" for key, value in facts.items())
    return f"""# {name}

A very small model for demonstrations: it tells simple stories, writes short dialogues and lists, and answers simple
questions, in English. It knows nothing else, and what it says is often wrong. Licence: Apache-2.0.

{lines}

What it learned from: answers and lists written by SmolLM2-135M-Instruct (Apache-2.0) to the prompts in
`engine/models/making/prompts.py`, filtered; stories and dialogues of the small grammars written by hand in `stories.py`
and `dialogues.py`, because the teacher's own stories were not readable; and the few sentences about itself and about
batching in `about.py`. Made by `python -m engine.models.making.text`, `.tokenizer` and `.train`, in this order.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=("demo", "demo-hybrid"))
    parser.add_argument("answers", type=Path, help="the teacher's answers")
    parser.add_argument("out", type=Path, help="folder that holds the tokenizer already")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--minutes", type=float, default=40.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--peak", type=float, default=2e-3, help="highest learning rate")
    parser.add_argument("--resume", action="store_true", help="go on with the weights in the folder")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()

    from transformers import AutoTokenizer

    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    tokenizer = AutoTokenizer.from_pretrained(args.out)
    rows = conversations(args.answers)
    data = encode(rows, tokenizer)
    model = build(args.name, tokenizer)
    log = args.out / "training.json"
    facts: dict[str, Any] = {
        "architecture": type(model).__name__,
        "parameters": sum(p.numel() for p in model.parameters()),
        "conversations": len(data),
        "tokens_in_the_data": sum(len(ids) for ids, _ in data),
        "seed": args.seed,
    }
    print(json.dumps(facts))
    before: dict[str, Any] = {}
    if args.resume:
        model = type(model).from_pretrained(args.out, dtype=torch.float32)
        before = json.loads(log.read_text())
    found = train(model, data, tokenizer.pad_token_id, args.steps, args.minutes, args.seed + bool(before), args.peak)
    facts |= found | {key: before.get(key, 0) + found[key] for key in ("steps", "tokens_seen", "seconds")}
    model.generation_config.do_sample = False
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.eval().to(torch.bfloat16).save_pretrained(args.out)
    log.write_text(json.dumps(facts, indent=1) + "\n")
    (args.out / "README.md").write_text(card(args.name, facts))
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
