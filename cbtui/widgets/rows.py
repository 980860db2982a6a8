"""A widget for ready-made rows."""

from collections.abc import Sequence

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region, Size
from textual.strip import Strip
from textual.widget import Widget

from cbtui.view.cells import Row, row_width


class RowsView(Widget, can_focus=False):
    """Shows rows; repaints only those that changed. What does not fit scrolls with ``scroll_rows``."""

    DEFAULT_CSS = "RowsView { height: 1fr; width: 1fr; }"

    def __init__(self, rows: Sequence[Row] = (), *, ground: Style | None = None, id: str | None = None) -> None:
        super().__init__(id=id)
        self._rows: list[Row] = list(rows)
        self._strips: list[Strip] = [Strip(row, row_width(row)) for row in self._rows]
        self._top = 0
        self._ground = ground or Style.null()

    @property
    def top(self) -> int:
        """Number of the first row shown."""
        return self._top

    def show(self, rows: Sequence[Row]) -> None:
        """Replace the rows; only lines that differ are painted again."""
        old = self._rows
        strips, dirty = [], []
        for y, row in enumerate(rows):
            if y < len(old) and (row is old[y] or row == old[y]):
                strips.append(self._strips[y])
            else:
                strips.append(Strip(row, row_width(row)))
                dirty.append(y)
        resized = len(rows) != len(old)
        self._rows, self._strips = list(rows), strips
        if resized:
            self._top = min(self._top, max(0, len(rows) - self.size.height))
            self.refresh(layout=self.styles.auto_dimensions)
            return
        for start, stop in line_runs([y - self._top for y in dirty if self._top <= y < self._top + self.size.height]):
            self.refresh(Region(0, start, self.size.width, stop - start))

    def scroll_rows(self, delta: int) -> None:
        """Move the first row shown."""
        top = max(0, min(self._top + delta, len(self._rows) - self.size.height))
        if top != self._top:
            self._top = top
            self.refresh()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._rows)

    def get_content_width(self, container: Size, viewport: Size) -> int:
        return max((strip.cell_length for strip in self._strips), default=0)

    def render_line(self, y: int) -> Strip:
        y += self._top
        width = self.size.width
        if y >= len(self._strips):
            return Strip([Segment(" " * width, self._ground)], width)
        return self._strips[y].adjust_cell_length(width, self._ground)


def line_runs(lines: Sequence[int]) -> list[tuple[int, int]]:
    """Neighbouring line numbers as (start, stop) ranges."""
    runs: list[tuple[int, int]] = []
    for y in lines:
        if runs and runs[-1][1] == y:
            runs[-1] = (runs[-1][0], y + 1)
        else:
            runs.append((y, y + 1))
    return runs
