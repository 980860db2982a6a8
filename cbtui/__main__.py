"""``python -m cbtui``: the same as the ``cbtui`` command."""

import sys


def main() -> None:
    """Runs the command line and exits with its code."""
    from cbtui.cli import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
