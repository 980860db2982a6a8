"""How the bundled demo models were made: prompts → text → tokenizer → training. Nothing here runs when cbtui runs.

python -m engine.models.making.text TEACHER_FOLDER corpus.jsonl      # a teacher model answers the prompts
python -m engine.models.making.tokenizer corpus.jsonl OUT_FOLDER     # byte-level BPE with a chat template
python -m engine.models.making.train demo corpus.jsonl OUT_FOLDER    # or demo-hybrid
"""
