"""Writes and reads .safetensors files. Standard library only."""

import hashlib
import json
import mmap
import struct

_ALIGN = 8


def write(path, tensors, metadata=None):
    """Writes `tensors`, a list of (name, dtype, shape, size, produce), to `path`.

    `produce()` returns the tensor's `size` bytes, row-major and little-endian. It is called when
    that tensor's turn comes, so that one tensor at a time is in memory.
    """
    header = {"__metadata__": metadata or {"format": "pt"}}
    offset = 0
    for name, dtype, shape, size, _ in tensors:
        header[name] = {
            "dtype": dtype,
            "shape": list(shape),
            "data_offsets": [offset, offset + size],
        }
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGN)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)))
        out.write(text)
        for name, _, _, size, produce in tensors:
            data = produce()
            if len(data) != size:
                raise ValueError(f"{name}: {len(data)} bytes, want {size}")
            out.write(data)


def read_header(path):
    """Returns ({name: {dtype, shape, data_offsets}}, offset of the data in the file)."""
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    return header, 8 + length


def hashes(path):
    """Returns {name: (shape, SHA-256 of the tensor's bytes in hex)}."""
    header, start = read_header(path)
    result = {}
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for name, info in header.items():
            begin, end = info["data_offsets"]
            with memoryview(data) as view, view[start + begin : start + end] as part:
                result[name] = (info["shape"], hashlib.sha256(part).hexdigest())
    return result
