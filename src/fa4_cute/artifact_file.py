"""The file of one compiled kernel, version 1. The same on every machine and Python version.

Line 1, ASCII: `fa4_cute artifact 1 SHA256`, the hexadecimal digest of every byte behind this line.
Line 2, JSON in ASCII: {"kernel": key of the kernel, "toolchain": what compiled it, "record": the launch record,
"cubin_bytes": n, "ptx_bytes": m}. Then n bytes of cubin and m bytes of PTX, deflated by zlib; m is 0 where it was
left out.
"""

import hashlib
import json
import os
import stat
import tempfile
import zlib
from pathlib import Path
from typing import Any

from .artifact import KINDS, Artifact, LaunchRecord
from .cache_key import Key

FORMAT_VERSION = 1
_MAGIC = f"fa4_cute artifact {FORMAT_VERSION} "


class BadFile(ValueError):
    """The file is not a whole artifact of this version, or another kernel's."""


def encode(key: Key, artifact: Artifact, *, with_ptx: bool = True) -> bytes:
    """The bytes of an artifact's file."""
    ptx = zlib.compress(artifact.ptx.encode()) if with_ptx and artifact.ptx else b""
    header = {
        "kernel": json.loads(key.kernel),
        "toolchain": json.loads(key.toolchain),
        "record": json.loads(artifact.record.to_json()),
        "cubin_bytes": len(artifact.cubin),
        "ptx_bytes": len(ptx),
    }
    body = json.dumps(header).encode() + b"\n" + artifact.cubin + ptx
    return f"{_MAGIC}{hashlib.sha256(body).hexdigest()}\n".encode() + body


def read(path: Path) -> bytes:
    """The bytes of a file. BadFile for what is none, a pipe say, on which reading could wait for ever; or OSError."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        kind = os.fstat(file.fileno()).st_mode
        if not stat.S_ISREG(kind):
            raise BadFile(f"no regular file ({stat.filemode(kind)})")
        return file.read()


def decode(data: bytes, key: Key | None = None) -> Artifact:
    """Inverse of encode; the PTX is "" if it was left out. key: the kernel that the file has to be of.

    Raises BadFile with the reason for anything but a whole file of this version and kernel.
    """
    header, body = _open(data)
    if key is not None and header.get("kernel") != json.loads(key.kernel):
        raise BadFile("another kernel, or another version of this package")
    cubin_bytes, ptx_bytes = header["cubin_bytes"], header["ptx_bytes"]
    if any(type(size) is not int or size < 0 for size in (cubin_bytes, ptx_bytes)):
        raise BadFile("the header's sizes are no whole numbers")
    if len(body) != cubin_bytes + ptx_bytes:
        raise BadFile(f"{len(body)} bytes of code, the header says {cubin_bytes} and {ptx_bytes}")
    try:
        ptx = zlib.decompress(body[cubin_bytes:]).decode() if ptx_bytes else ""
        record = LaunchRecord.from_json(json.dumps(header["record"]))
    except (zlib.error, ValueError) as error:
        raise BadFile(str(error)) from error
    unknown = {param.kind for param in record.params} - set(KINDS)
    if unknown:
        raise BadFile(f"unknown kinds of parameters: {sorted(unknown)}")
    return Artifact(cubin=body[:cubin_bytes], ptx=ptx, record=record)


def _open(data: bytes) -> tuple[dict[str, Any], bytes]:
    """(header, code) of a file whose digest is right."""
    first, newline, rest = data.partition(b"\n")
    if not newline or not first.startswith(_MAGIC.encode()):
        raise BadFile(f"does not start with {_MAGIC!r}")
    if hashlib.sha256(rest).hexdigest().encode() != first[len(_MAGIC) :]:
        raise BadFile("the digest is wrong: torn or changed")
    text, _, body = rest.partition(b"\n")
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadFile(f"header: {error}") from error
    if not isinstance(header, dict) or not {"kernel", "record", "cubin_bytes", "ptx_bytes"} <= header.keys():
        raise BadFile("the header lacks fields")
    return header, body


def write(path: Path, data: bytes) -> None:
    """Writes a file that is whole or absent at any moment, for all who may enter its folder to read.

    OSError if it cannot be written.
    """
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            os.fchmod(file.fileno(), 0o644)  # a temporary file is its owner's alone
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
