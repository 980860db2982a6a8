"""Whether a model is split over processes, asked without loading what splitting needs."""

from typing import Any

__all__ = ["follows", "is_split", "release"]


def is_split(model: Any) -> bool:
    """Whether other processes hold parts of this model.

    Raises:
        ConfigError: it is divided in a way that is not known here.
    """
    if getattr(model, "_device_mesh", None) is None:
        return False
    from engine.parallel.sharding import tensor_mesh

    return tensor_mesh(model) is not None


def follows(model: Any) -> bool:
    """Whether another process than this one owns the requests to ``model``."""
    if not is_split(model):
        return False
    from engine.parallel.sharding import tensor_mesh

    return tensor_mesh(model).get_local_rank() != 0


def release(model: Any) -> None:
    """The manager of ``model`` is gone; other processes need not follow it any more."""
    if is_split(model):
        from engine.parallel.ranks import release as let_go

        let_go(model)
