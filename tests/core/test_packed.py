"""Observations kept as plain tuples: they behave like the tuple of objects they stand for."""

import gc
import pickle
from dataclasses import astuple

import pytest

from engine.core.observe import DECISIONS, OUTPUTS, Decision, TokenOutput, Verdict
from engine.core.packed import Grown, base_of

OBJECTS = (Decision(1, Verdict.DECODE, 24, 0), Decision(2, Verdict.CHUNK, 8, 3), Decision(3, Verdict.WAIT_ROWS, 2, 2))
PACKED = DECISIONS(astuple(decision) for decision in OBJECTS)


def test_it_reads_like_the_tuple_of_objects() -> None:
    assert tuple(PACKED) == OBJECTS and len(PACKED) == 3 and bool(PACKED) and not DECISIONS([])
    assert PACKED[-1] == OBJECTS[-1] and tuple(PACKED[1:]) == OBJECTS[1:] and OBJECTS[1] in PACKED
    first, *_ = PACKED
    assert type(first) is Decision and first.verdict is Verdict.DECODE
    assert repr(PACKED) == repr(OBJECTS) and list(reversed(PACKED)) == list(reversed(OBJECTS))


def test_it_is_equal_to_equal_objects_and_to_nothing_else() -> None:
    assert PACKED == OBJECTS and OBJECTS == PACKED and hash(PACKED) == hash(OBJECTS)
    assert DECISIONS(map(astuple, OBJECTS)) == PACKED != DECISIONS([])
    assert PACKED != OBJECTS[:2] and PACKED != list(OBJECTS)
    assert DECISIONS([]) == () == OUTPUTS([]) and DECISIONS([]) == OUTPUTS([])
    assert DECISIONS([(1, 2, 3, 0)]) != OUTPUTS([(1, 2, 3)]), "other objects with the same numbers"


def test_neither_it_nor_what_comes_out_can_be_changed() -> None:
    with pytest.raises(AttributeError):
        PACKED._values = ()  # type: ignore[misc]
    with pytest.raises(AttributeError):
        PACKED[0].a = 5  # type: ignore[misc]
    assert PACKED == OBJECTS


def test_rows_of_later_steps_are_told_in_terms_of_earlier_ones() -> None:
    first = DECISIONS([(1, Verdict.DECODE, 24, 0), (4, Verdict.DECODE, 7, 0)])
    later = (Decision(1, Verdict.DECODE, 27, 0), Decision(4, Verdict.DECODE, 10, 2))
    grown = Grown(first, 3, (3, (0, 2)))
    assert grown == later and len(grown) == 2 and grown[1] == later[1] and tuple(grown[1:]) == later[1:]
    assert Grown(first, 3) == (later[0], Decision(4, Verdict.DECODE, 10, 0)) and first[0].a == 24
    assert base_of(grown) is first is base_of(first)
    again = pickle.loads(pickle.dumps(grown))
    assert again == grown == DECISIONS(map(astuple, later)) and hash(again) == hash(grown)


def test_it_survives_pickling_as_what_it_is() -> None:
    again = pickle.loads(pickle.dumps(PACKED))
    assert again == PACKED and type(again) is type(PACKED) and again[0].verdict is Verdict.DECODE


def test_the_garbage_collector_has_nothing_to_follow() -> None:
    outputs = OUTPUTS([(seq, seq * 3, None) for seq in range(100)])
    gc.collect()
    assert not any(gc.is_tracked(values) for values in outputs._values)
    assert outputs[2] == TokenOutput(2, 6)
