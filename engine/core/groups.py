"""Which layers share a block table."""

from collections.abc import Sequence

from engine.core.layout import LayerGroup


def group_layers(windows: Sequence[int | None]) -> tuple[LayerGroup, ...]:
    """Split the layers of a model into groups of one attention kind and one size.

    A *kind* is full attention or one sliding window length. The size of all groups is the number of layers of the
    rarest kind, so that a block of any group takes the same bytes; the last group of a kind may have fewer layers::

        windows  8 8 8 8 8 -        ->  group 0: layer 5 (full)   groups 1…5: layers 0, 1, 2, 3, 4 (window 8)
        windows  8 - 8 - 8 -        ->  group 0: layers 1 3 5     group 1: layers 0 2 4

    Args:
        windows: per layer its sliding window in tokens, or None for full attention.

    Returns:
        The groups, full attention first, then ascending windows; layers ascending inside each kind.

    Raises:
        ValueError: no layers, or a window under 1.
    """
    if not windows:
        raise ValueError("a model needs at least one layer")
    kinds: dict[int | None, list[int]] = {}
    for layer, window in enumerate(windows):
        if window is not None and window < 1:
            raise ValueError(f"layer {layer} has a sliding window of {window} tokens; the least is 1")
        kinds.setdefault(window, []).append(layer)
    size = min(len(layers) for layers in kinds.values())
    groups: list[LayerGroup] = []
    for window in sorted(kinds, key=lambda w: (w is not None, w or 0)):
        layers = kinds[window]
        for start in range(0, len(layers), size):
            groups.append(LayerGroup(len(groups), window, tuple(layers[start : start + size])))
    return tuple(groups)
