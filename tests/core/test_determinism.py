"""The same commands and tokens give the same plans: in every run, in every process, watched or not."""

import hashlib
import os
import subprocess
import sys

import pytest

from tests.core.scenarios import Walk, random_request

SEEDS = range(12)


def fingerprint(seeds: range = SEEDS) -> str:
    """One digest over all plans of all walks."""
    digest = hashlib.sha256()
    for seed in seeds:
        for text in Walk(seed).run().digests:
            digest.update(text.encode())
    return digest.hexdigest()


def test_plans_are_equal_in_two_runs() -> None:
    assert fingerprint(range(4)) == fingerprint(range(4))


def test_plans_are_equal_under_every_hash_seed() -> None:
    code = "from tests.core.test_determinism import fingerprint; print(fingerprint(range(4)))"
    seen = set()
    for seed in ("0", "31337"):
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
        seen.add(done.stdout)
    assert seen == {fingerprint(range(4)) + "\n"}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_watched_run_plans_the_same_as_an_unwatched_one(seed: int) -> None:
    assert Walk(seed, watched=True).run().digests == Walk(seed, watched=False).run().digests


def test_outputs_do_not_depend_on_the_depth() -> None:
    told = 0
    for seed in SEEDS:
        outputs = [outputs_at(seed, depth) for depth in (0, 1)]
        assert outputs[0] == outputs[1]
        told += sum(len(tokens) for tokens, _, _ in outputs[0].values())
    assert told > 200


def outputs_at(seed: int, depth: int) -> dict[str, tuple[tuple[int, ...], object, str]]:
    """What each sequence of a walk ends with. No cancels and no faults: they fall at other moments at another depth."""
    walk = Walk(seed, depth=depth, faults=False)
    for i in range(8):
        walk.harness.submit(random_request(walk.rng, f"r{i}"))
        for _ in range(walk.rng.randrange(3)):
            walk.harness.step()
    walk.harness.drain()
    return {s.output_id: (tuple(s.tokens), s.finish_reason, s.text) for s in walk.harness.sequences}
