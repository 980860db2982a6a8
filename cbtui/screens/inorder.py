"""Keys take effect in the order in which they were typed."""

import unicodedata
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.dom import DOMNode
from textual.widget import Widget
from textual.widgets import Input

if TYPE_CHECKING:
    Keyed = Widget
else:
    Keyed = object  # a widget has one line of ancestors whose look and keys it inherits


class InOrder(Keyed):
    """What a widget gets that carries out bindings itself, those of its dialog first.

    Textual looks for bindings when a key has bubbled up to the application: behind keys typed after it, and with the
    focus these have moved.
    """

    WRITES: ClassVar[bool] = False
    """Printable keys are text, not bindings."""

    async def _on_key(self, event: events.Key) -> None:
        if self.WRITES and event.is_printable:
            return
        if self.WRITES and _is_text(event.character):
            self.write(event.character or "")
        elif not await self._carry_out(event.key):
            return
        event.stop()
        event.prevent_default()

    def write(self, character: str) -> None:
        """Takes a typed character in, where ``WRITES`` is set."""
        raise NotImplementedError

    async def _carry_out(self, key: str) -> bool:
        nodes: list[DOMNode] = [self.screen, *(node for node in self.ancestors_with_self if isinstance(node, Widget))]
        for node in dict.fromkeys(nodes):
            for binding in node._bindings.key_to_bindings.get(key, ()):
                if not binding.priority and await self.app.run_action(binding.action, node):
                    return True
        return False


class Field(InOrder, Input):
    """An input of one line."""

    WRITES = True

    def write(self, character: str) -> None:
        self.replace("".join(character.splitlines()), *self.selection)


def _is_text(character: str | None) -> bool:
    """Whether a key brought a character of a text. Textual's own test leaves out what Python would not print as it is:
    joiners, wide and unbreakable spaces, private characters, and all that are younger than Python's tables.
    """
    return character is not None and len(character) == 1 and unicodedata.category(character) not in ("Cc", "Cs")
