"""How the bundled demo models were made: prompts → text → tokenizer → training. Nothing here runs when cbtui runs.

python -m engine.models.making.text TEACHER_FOLDER answers.jsonl      # a teacher model answers the prompts
python -m engine.models.making.tokenizer answers.jsonl OUT_FOLDER     # byte-level BPE with a chat template
python -m engine.models.making.train demo answers.jsonl OUT_FOLDER    # or demo-hybrid

Stories and dialogues come from the grammars in ``stories.py`` and ``dialogues.py``, whose texts are written by hand.
"""
