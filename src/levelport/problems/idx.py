"""Reader of the idx format, in which MNIST is distributed.

A file is a big-endian header, then the entries: two zero bytes, a type code, the number of dimensions, one
unsigned 32-bit size per dimension.
"""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def read_idx(content: bytes) -> NDArray[Any]:
    """The array in ``content`` (uncompressed); ValueError says what is wrong with it."""
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in _TYPES:
        raise ValueError("it does not begin with the magic number of an idx file")
    dimensions = content[3]
    start = 4 + 4 * dimensions
    if len(content) < start:
        raise ValueError("its header is cut short")
    shape = struct.unpack(f">{dimensions}I", content[4:start])
    dtype = np.dtype(_TYPES[content[2]])
    expected = start + dtype.itemsize * math.prod(shape)
    if len(content) != expected:
        raise ValueError(f"it has {len(content)} bytes, but its header announces {expected}")
    return np.frombuffer(content, dtype=dtype, offset=start).reshape(shape)
