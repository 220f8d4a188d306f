"""XXH3-128 by libxxhash through ctypes: the other implementation the digests of the agent are held against."""
import ctypes
import ctypes.util


class _Hash128(ctypes.Structure):
    _fields_ = [("low64", ctypes.c_uint64), ("high64", ctypes.c_uint64)]


_lib = ctypes.CDLL(ctypes.util.find_library("xxhash") or "libxxhash.so.0")
_lib.XXH3_128bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
_lib.XXH3_128bits.restype = _Hash128


def xxh3_128(data) -> bytes:
    """The canonical (big-endian) form."""
    h = _lib.XXH3_128bits(bytes(data), len(data))
    return h.high64.to_bytes(8, "big") + h.low64.to_bytes(8, "big")
