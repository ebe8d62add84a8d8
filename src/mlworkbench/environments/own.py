"""Wheels of uv and py-rattler as they are installed beside mlw, for targets like this machine.

They are sent along where no index has these tools: a company's own index, or none at all.
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
from .pip import digest_of
from .platforms import Platform

_OLD_TAGS = {"manylinux1": "manylinux_2_5", "manylinux2010": "manylinux_2_12", "manylinux2014": "manylinux_2_17"}
# What an installer adds to what was in the wheel.
_ADDED = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")
_TIME = (1980, 1, 1, 0, 0, 0)  # the same wheel each time: its digest is part of locks


def pack(name: str, machine: Platform, python: str, cache: Path) -> tuple[JsonDict, Path] | None:
    """An entry for a lock and its file here; None if it is not installed here, or would not run there.

    ``python`` is the version of the Python that a tool which is a module would be imported by.
    """
    try:
        found = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return None
    said = found.read_text("WHEEL") or ""
    tags = [line.partition(":")[2].strip() for line in said.splitlines() if line.startswith("Tag:")]
    record = found.read_text("RECORD")
    if not record or not any(_fits(tag, machine, python) for tag in tags):
        return None
    first, platforms = tags[0].rsplit("-", 1)[0], ".".join(tag.rsplit("-", 1)[1] for tag in tags)
    file = f"{re.sub('[-_.]+', '_', name)}-{found.version}-{first}-{platforms}.whl"
    path = cache / "own" / hashlib.sha256(record.encode()).hexdigest()[:16] / file
    try:
        if not path.is_file():
            _write(path, found)
        data = {"file": file, "sha256": digest_of(path), "size": path.stat().st_size}
    except OSError:
        return None  # the target may have a way of its own
    return {"name": name, "version": found.version, **data}, path


def _fits(tag: str, machine: Platform, python: str) -> bool:
    made_for, abi, platform = tag.split("-")
    oldest = re.fullmatch(r"cp(\d)(\d+)", made_for)
    if oldest and (abi != "abi3" or _numbers(python) < (int(oldest[1]), int(oldest[2]))):
        return False
    if platform == "any":
        return True
    for old, new in _OLD_TAGS.items():
        platform = re.sub(rf"\A{old}_", f"{new}_", platform)
    parts = re.fullmatch(r"(manylinux|musllinux|macosx)_(\d+)_(\d+)_(\w+)", platform)
    if not parts or parts[4] != machine.machine:
        return False
    if machine.linux and machine.libc != "musl":
        return parts[1] == "manylinux" and (2, int(parts[3])) <= _numbers(machine.libc or "2.17")
    return parts[1] == ("musllinux" if machine.linux else "macosx")


def _numbers(version: str) -> tuple[int, int]:
    first, second = (version + ".0").split(".")[:2]
    return int(first), int(second)


def _write(path: Path, found: metadata.Distribution) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.urandom(4).hex()}.part")
    lines = []
    try:
        with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as wheel:
            for name, source in sorted(_content(found)):
                data = source.read_bytes()
                digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
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


def _content(found: metadata.Distribution) -> Iterator[tuple[str, Path]]:
    """What was in the wheel: name in it, and the file. Programs were put into the folder of programs."""
    for one in found.files or ():
        name, source = one.as_posix(), Path(str(found.locate_file(one)))
        if one.suffix == ".pyc" or (name.startswith(_info(found)) and one.name in _ADDED):
            continue
        if ".." not in one.parts and not one.is_absolute():
            yield name, source
        elif one.parent.name in ("bin", "Scripts") and not _is_starter(source):
            yield f"{_info(found).removesuffix('.dist-info')}.data/scripts/{one.name}", source


def _is_starter(source: Path) -> bool:
    """A few lines that the installer wrote, with the path of this machine's Python."""
    with source.open("rb") as file:
        return file.read(2) == b"#!"


def _info(found: metadata.Distribution) -> str:
    name = str(found.metadata["Name"])
    return f"{re.sub('[-_.]+', '_', name)}-{found.version}.dist-info"
