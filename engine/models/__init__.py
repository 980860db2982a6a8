"""Where models come from: known short names, local folders, GGUF files, the hub.

Importing this package imports no torch; reading or converting weights does.
"""

from engine.models.fetch import fetch_known, remove_known
from engine.models.known import BUNDLED, KNOWN, BundledModel, KnownModel, cache_folder, cached_path
from engine.models.progress import LoadCancelled, LoadProgress, Reporter

__all__ = [
    "BUNDLED",
    "KNOWN",
    "BundledModel",
    "KnownModel",
    "LoadCancelled",
    "LoadProgress",
    "Reporter",
    "cache_folder",
    "cached_path",
    "fetch_known",
    "remove_known",
]
