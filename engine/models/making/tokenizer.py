"""A small byte-level BPE tokenizer with a chat template, trained on the corpus."""

import argparse
from collections.abc import Iterator
from pathlib import Path

from engine.models.making.corpus import conversations

VOCABULARY = 2048
SPECIAL = ("<|pad|>", "<|begin|>", "<|user|>", "<|assistant|>", "<|end|>")
CHAT_TEMPLATE = (
    "{{ '<|begin|>' }}{% for message in messages %}"
    "{% if message['role'] == 'assistant' %}{{ '<|assistant|>' + message['content'] + '<|end|>' }}"
    "{% else %}{{ '<|user|>' + message['content'] }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def texts(rows: list[dict]) -> Iterator[str]:
    for row in rows:
        yield row["ask"]
        yield row["answer"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("answers", type=Path, help="the teacher's answers")
    parser.add_argument("out", type=Path)
    args = parser.parse_args()

    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator(texts(conversations(args.answers)), trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token=SPECIAL[0],
        bos_token=SPECIAL[1],
        eos_token=SPECIAL[4],
        additional_special_tokens=list(SPECIAL[2:4]),
        clean_up_tokenization_spaces=False,
        model_max_length=2048,
    )
    fast.chat_template = CHAT_TEMPLATE
    fast.save_pretrained(args.out)
    print(f"{len(fast)} tokens -> {args.out}")


if __name__ == "__main__":
    main()
