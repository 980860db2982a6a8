"""What watching costs, measured: not part of the tests.

``python -m tests.perf.ui``
    The real monitor in a pseudo-terminal beside scripted engines: processor time, bytes written, delays, memory.
``python -m tests.perf.overhead --model FOLDER``
    A real engine with and without the monitor, run in turns: tokens per second, and processor time.

Both show progress, print a table, and write a JSON file.
"""
