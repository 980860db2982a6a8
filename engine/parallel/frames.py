"""Messages from rank 0 to the others: a small fixed frame, and a second one for what does not fit into it."""

import enum
import struct

from engine.core.errors import EngineError

VERSION = 1
ROOM = 2048
"""Bytes of the first frame. A step of a few dozen decodes fits, so it costs one broadcast."""

_HEADER = struct.Struct("<4sBBHI")
_MAGIC = b"cbtp"
BODY = ROOM - _HEADER.size


class Kind(enum.IntEnum):
    """What a message asks for."""

    BEAT = 1
    """nothing: rank 0 is alive and idle"""
    MEASURE = 2
    """say how much memory there is; JSON: the seconds a rank may be waited for"""
    OPEN = 3
    """reserve a cache and get ready; JSON"""
    STEP = 4
    """one step; see ``wire``"""
    LEND = 5
    """give the model back for a while"""
    RESUME = 6
    """take it again"""
    CLOSE = 7
    """the session is over"""
    DESTROY = 8
    """the manager is gone; there may be another one later"""


class ProtocolError(EngineError):
    """A message that is not one of ours, or of another version."""


def pack(kind: Kind, body: bytes) -> tuple[bytearray, bytes]:
    """The first frame, and the rest that did not fit."""
    frame = bytearray(ROOM)
    _HEADER.pack_into(frame, 0, _MAGIC, VERSION, kind, 0, len(body))
    head = body[:BODY]
    frame[_HEADER.size : _HEADER.size + len(head)] = head
    return frame, body[BODY:]


def unpack(frame: bytes) -> tuple[Kind, bytes, int]:
    """Kind, the body as far as it is here, and how many more bytes come in a second frame.

    Raises:
        ProtocolError: not a frame of this version.
    """
    magic, version, kind, _, length = _HEADER.unpack_from(frame)
    if magic != _MAGIC or version != VERSION:
        raise ProtocolError(f"a message of {magic!r} version {version}, expected {_MAGIC!r} version {VERSION}")
    if kind not in Kind._value2member_map_:
        raise ProtocolError(f"a message of unknown kind {kind}")
    return Kind(kind), bytes(frame[_HEADER.size : _HEADER.size + min(length, BODY)]), max(0, length - BODY)
