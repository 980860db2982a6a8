"""Line API widgets: they hold cached strips, ask the pure views for rows, and repaint only the rows that changed.

Frame
    One widget for a whole screen (HUD, the panes of the current mode, key bar). Mount it once, full size::

        frame = Frame(theme)                    # cbtui.theme.Theme, see cbtui.theme.theme_named
        frame.show(state, chrome, tick=n)       # MonitorState | None, Chrome; call at most 16 times a second;
                                                # cheap when nothing changed; a new step comes every 2nd tick
        frame.show(state, chrome)               # without tick: everything is brought up to date (after a key press)
        frame.theme = other_theme               # repaints
        frame.hit(x, y) -> Hit | None           # what lies under a cell: a request, block, step, key …
        frame.visible_requests -> tuple[int]    # keys of the request rows in the order drawn (for cursor movement)
        frame.request_order -> tuple[int]       # keys of all requests, those out of sight too
    frame.panes -> tuple[str]               # names of the panes shown, in tab order
        frame.text() -> str                     # the screen as plain text
    Clicks and the wheel arrive as ``Frame.Picked(hit, button)`` and ``Frame.Scrolled(pane, delta)`` messages.

RowsView
    A widget for ready-made rows, for dialogs: ``view.show(rows)``; taller content scrolls with ``view.scroll_by(n)``.
"""

from cbtui.widgets.frame import Frame
from cbtui.widgets.rows import RowsView

__all__ = ["Frame", "RowsView"]
