"""Names short enough for one cell: A … Z, then AA, AB … for the sequences in order of arrival."""


def label(number: int) -> str:
    """The label of the ``number``-th sequence, from 0: A … Z, AA … ZZ, AAA …"""
    if number < 0:
        raise ValueError(f"labels count from 0, got {number}")
    letters = ""
    number += 1
    while number:
        number, digit = divmod(number - 1, 26)
        letters = chr(ord("A") + digit) + letters
    return letters


UNNAMED, UNNAMED_WINDOW = "#", "="
"""Stand for a label in less room than it has letters: one letter of two would be the name of somebody else."""


def cell_letter(name: str, *, small: bool = False) -> str:
    """The one character that stands for a label: its letter, small for a window block; a mark if it has several."""
    if len(name) > 1:
        return UNNAMED_WINDOW if small else UNNAMED
    return name.lower() if small else name


def tile_letters(name: str, *, small: bool = False) -> str:
    """The two characters that stand for a label: all of it where it fits, else the mark and a blank."""
    if len(name) > 2:
        return cell_letter(name, small=small) + " "
    return (name.lower() if small else name).ljust(2)


def cut_label(name: str, cells: int, ellipsis: str) -> str:
    """A label in at most ``cells`` cells; what is cut says so, and its last letters stay: they tell most apart."""
    if len(name) <= cells:
        return name
    room = cells - len(ellipsis)
    return ellipsis + name[-room:] if room > 0 else UNNAMED[:cells]
