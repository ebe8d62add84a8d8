"""Wheels of uv and py-rattler as they are installed beside mlw, for targets like this machine.

They are sent along where the user's index does not have these tools: a company's own index, or none at all.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from ..model import JsonDict
from .local_files import digest_of
from .platforms import Platform
from .wheel_tags import Tag, fits

# What an installer adds to what was in the wheel.
_ADDED = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")
_TIME = (1980, 1, 1, 0, 0, 0)  # the same wheel each time: its digest is part of locks


class Unverified(Exception):
    """An installed tool does not match its RECORD."""


def pack(name: str, version: str, machine: Platform, python: str, cache: Path) -> tuple[JsonDict, Path] | None:
    """An entry for a lock and its file here; None if this version is not installed here, or would not run there.

    ``python`` is the version of the Python that a tool which is a module would be imported by. Raises Unverified.
    """
    try:
        found = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return None
    if found.version != version:
        return None
    said = found.read_text("WHEEL") or ""
    tags = [line.partition(":")[2].strip() for line in said.splitlines() if line.startswith("Tag:")]
    record = found.read_text("RECORD")
    if not record or not any(fits(Tag(*tag.split("-")), machine, python) for tag in tags):
        return None
    first, platforms = tags[0].rsplit("-", 1)[0], ".".join(tag.rsplit("-", 1)[1] for tag in tags)
    file = f"{re.sub('[-_.]+', '_', name)}-{found.version}-{first}-{platforms}.whl"
    # Not in "own", where earlier versions kept what they had not checked.
    path = cache / "tool-wheels" / hashlib.sha256(record.encode()).hexdigest()[:16] / file
    try:
        if not path.is_file():
            _write(path, found)
        data = {"file": file, "sha256": digest_of(path), "size": path.stat().st_size}
    except OSError:
        return None  # the target may have a way of its own
    return {"name": name, "version": found.version, **data}, path


def _write(path: Path, found: metadata.Distribution) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.urandom(4).hex()}.part")
    lines = []
    try:
        with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as wheel:
            for name, source, known in sorted(_content(found)):
                data = source.read_bytes()
                digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
                if known != f"sha256={digest}":
                    raise Unverified(f"{source} does not match the RECORD of {found.name} {found.version}")
                lines.append(f"{name},sha256={digest},{len(data)}\n")
                _add(wheel, name, data, 0o755 if ".data/scripts/" in name else 0o644)
            record = f"{_info(found)}/RECORD"
            _add(wheel, record, "".join([*lines, f"{record},,\n"]).encode(), 0o644)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def _add(wheel: zipfile.ZipFile, name: str, data: bytes, mode: int) -> None:
    entry = zipfile.ZipInfo(name, _TIME)
    entry.external_attr = (0o100000 | mode) << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.create_system = 3
    wheel.writestr(entry, data)


def _content(found: metadata.Distribution) -> Iterator[tuple[str, Path, str]]:
    """What was in the wheel: name in it, the file, and the digest that RECORD has. Programs were put into ``bin``."""
    for one in found.files or ():
        name, source = one.as_posix(), Path(str(found.locate_file(one)))
        known = f"{one.hash.mode}={one.hash.value}" if one.hash else ""
        if one.suffix == ".pyc" or (name.startswith(_info(found)) and one.name in _ADDED):
            continue
        if ".." not in one.parts and not one.is_absolute():
            yield name, source, known
        elif one.parent.name in ("bin", "Scripts") and not _is_starter(source):
            yield f"{_info(found).removesuffix('.dist-info')}.data/scripts/{one.name}", source, known


def _is_starter(source: Path) -> bool:
    """A few lines that the installer wrote, with the path of this machine's Python."""
    with source.open("rb") as file:
        return file.read(2) == b"#!"


def _info(found: metadata.Distribution) -> str:
    name = str(found.metadata["Name"])
    return f"{re.sub('[-_.]+', '_', name)}-{found.version}.dist-info"
