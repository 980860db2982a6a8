"""The processor cores: those this process may use, and whether they have anything to do."""

import os

import psutil


def usable_cores() -> int:
    """Physical cores, so that two threads of one core count once, as far as the process may run on them."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(psutil.cpu_count(logical=False) or usable, usable)


def idle_seconds() -> float:
    """Seconds for which the processors of the machine had nothing to do, all of them together."""
    return float(psutil.cpu_times().idle)
