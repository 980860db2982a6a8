"""A teacher model answers the prompts through this project's own engine; one JSON line per answer.

Run again to go on where it stopped: answers that are in the file already are not asked for a second time.
"""

import argparse
import json
import sys
import time
import zlib
from pathlib import Path
from typing import Any

from engine.models.making.corpus import is_good, straighten
from engine.models.making.examples import conversation
from engine.models.making.prompts import Prompt, all_prompts

SAMPLING: dict[str, Any] = {"do_sample": True, "temperature": 0.5, "top_p": 0.9, "repetition_penalty": 1.05}


def key_of(number: int, prompt: Prompt) -> str:
    return f"{number}|{prompt.ask}"


def unanswered(path: Path, rounds: int) -> list[tuple[int, Prompt]]:
    """Prompts whose answer the file does not hold yet."""
    lines = path.read_text().splitlines() if path.exists() else []
    done = {json.loads(line)["key"] for line in lines if line}
    return [(number, prompt) for number, prompt in all_prompts(rounds) if key_of(number, prompt) not in done]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("teacher", help="folder of a chat model")
    parser.add_argument("out", type=Path, help="JSON lines file, appended to")
    parser.add_argument("--rounds", type=int, default=12, help="how often each prompt is asked (default 12)")
    parser.add_argument("--rows", type=int, default=64, help="requests in one batch (default 64)")
    args = parser.parse_args()

    from engine import ContinuousBatchingConfig, continuous_batching_context_manager
    from engine.loading import load

    loaded = load(args.teacher, device="cpu", dtype="bfloat16")
    tokenizer = loaded.tokenizer
    todo = unanswered(args.out, args.rounds)
    config = ContinuousBatchingConfig(
        page_size=16, num_blocks=2048, max_batch_tokens=512, max_requests_per_batch=args.rows
    )
    print(f"{len(todo)} answers to go", file=sys.stderr)
    started, tokens, good = time.perf_counter(), 0, 0
    with (
        args.out.open("a") as sink,
        continuous_batching_context_manager(
            loaded.model, tokenizer=tokenizer, continuous_batching_config=config
        ) as manager,
    ):
        wanted = {}
        for number, prompt in todo:
            chat = conversation(prompt.shape, prompt.ask)
            ids = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=True)["input_ids"]
            ids = ids + tokenizer(prompt.opening, add_special_tokens=False)["input_ids"]
            seed = zlib.crc32(key_of(number, prompt).encode())
            added = manager.add_request(ids, max_new_tokens=prompt.max_new_tokens, seed=seed, logprobs=0, **SAMPLING)
            wanted[added] = (number, prompt)
        for count, output in enumerate(manager, 1):
            number, prompt = wanted[output.request_id]
            said = tokenizer.decode(output.generated_tokens, skip_special_tokens=True)
            row = {
                "key": key_of(number, prompt),
                "shape": prompt.shape,
                "ask": prompt.ask,
                "answer": straighten(prompt.opening + said),
                "score": round(sum(output.logprobs) / len(output.logprobs), 3),
                "ended": str(output.finish_reason),
            }
            sink.write(json.dumps(row) + "\n")
            tokens += len(output.generated_tokens)
            good += is_good(row)
            if count % 50 == 0:
                sink.flush()
                rate = tokens / (time.perf_counter() - started)
                print(
                    f"{count}/{len(todo)} answers, {good} good, {tokens} tokens, {rate:.0f} tokens/s", file=sys.stderr
                )


if __name__ == "__main__":
    main()
