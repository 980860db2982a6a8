"""Plans and keyframes made comparable."""

from dataclasses import fields

from engine.core.observe import Keyframe
from engine.core.plan import StepPlan


def digest(plan: StepPlan) -> str:
    """Everything a plan decides, as text."""
    slices = [(s.seq.key, s.start, s.length, s.samples, s.carry, s.position, s.seq.tables) for s in plan.slices]
    decisions = [(d.seq, d.verdict.value, d.a, d.b) for d in plan.decisions]
    return repr((plan.step, slices, plan.copies, decisions, plan.limit))


def differences(folded: Keyframe, live: Keyframe) -> list[str]:
    """Where a folded keyframe differs from the engine's own; the record itself is left out."""
    wrong: list[str] = []
    for name in (f.name for f in fields(Keyframe)):
        told, real = getattr(folded, name), getattr(live, name)
        if name == "blocks":
            wrong += [
                f"fold says block {b} is {t}, the engine {r}"
                for b, (t, r) in enumerate(zip(told, real, strict=True))
                if t != r
            ]
        elif name == "sequences":
            for key in told.keys() | real.keys():
                if told.get(key) != real.get(key):
                    wrong.append(f"fold says sequence {key} is {told.get(key)}, the engine {real.get(key)}")
        elif name != "record" and told != real:
            wrong.append(f"fold says {name} is {told}, the engine {real}")
    return wrong
