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


def cell_letter(name: str, *, small: bool = False) -> str:
    """The one character that stands for a label on the map: its last letter, small for a window block."""
    return name[-1].lower() if small else name[-1]
