"""The processor cores this process may use."""

import os

import psutil


def usable_cores() -> int:
    """Physical cores, so that two threads of one core count once, as far as the process may run on them."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(psutil.cpu_count(logical=False) or usable, usable)
