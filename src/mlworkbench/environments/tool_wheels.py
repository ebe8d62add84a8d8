"""Pack wheels of uv and py-rattler from mlw's installation, for targets with the same platform.

mlw uploads them if the user's index, such as a company index, does not provide these tools, or if
there is no index at all.
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
from .wheel_tags import Tag, is_compatible

# Files that an installer adds to those from the wheel.
_INSTALLER_FILES = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")
_TIMESTAMP = (1980, 1, 1, 0, 0, 0)  # fixed, for reproducible wheels: locks contain the digest


class RecordMismatch(Exception):
    """An installed tool that does not match its RECORD file."""


def pack_installed(
    name: str, version: str, machine: Platform, python: str, cache: Path
) -> tuple[JsonDict, Path] | None:
    """Return a lock entry and its local file, or None if this version is not available.

    The version must be installed here and must run on ``machine``. ``python`` is the version of the
    Python that imports the tool. Raises RecordMismatch.
    """
    try:
        distribution = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return None
    if distribution.version != version:
        return None
    wheel_metadata = distribution.read_text("WHEEL") or ""
    tags = [line.partition(":")[2].strip() for line in wheel_metadata.splitlines() if line.startswith("Tag:")]
    record = distribution.read_text("RECORD")
    if not record or not any(is_compatible(Tag(*tag.split("-")), machine, python) for tag in tags):
        return None
    first, platforms = tags[0].rsplit("-", 1)[0], ".".join(tag.rsplit("-", 1)[1] for tag in tags)
    file = f"{re.sub('[-_.]+', '_', name)}-{distribution.version}-{first}-{platforms}.whl"
    # Do not use the folder "own", where earlier versions stored unverified wheels.
    path = cache / "tool-wheels" / hashlib.sha256(record.encode()).hexdigest()[:16] / file
    try:
        if not path.is_file():
            _write(path, distribution)
        data = {"file": file, "sha256": digest_of(path), "size": path.stat().st_size}
    except OSError:
        return None  # the target may get the tool in another way
    return {"name": name, "version": distribution.version, **data}, path


def _write(path: Path, distribution: metadata.Distribution) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{os.urandom(4).hex()}.part")
    lines = []
    try:
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as wheel:
            for name, source, recorded in sorted(_wheel_files(distribution)):
                data = source.read_bytes()
                digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
                if recorded != f"sha256={digest}":
                    raise RecordMismatch(
                        f"{source} does not match the RECORD of {distribution.name} {distribution.version}"
                    )
                lines.append(f"{name},sha256={digest},{len(data)}\n")
                _add(wheel, name, data, 0o755 if ".data/scripts/" in name else 0o644)
            record = f"{_dist_info(distribution)}/RECORD"
            _add(wheel, record, "".join([*lines, f"{record},,\n"]).encode(), 0o644)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _add(wheel: zipfile.ZipFile, name: str, data: bytes, mode: int) -> None:
    entry = zipfile.ZipInfo(name, _TIMESTAMP)
    entry.external_attr = (0o100000 | mode) << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.create_system = 3
    wheel.writestr(entry, data)


def _wheel_files(distribution: metadata.Distribution) -> Iterator[tuple[str, Path, str]]:
    """Yield the files of a wheel: name in the wheel, installed file, and digest in RECORD.

    Programs in ``bin`` become scripts of the wheel.
    """
    for file in distribution.files or ():
        name, source = file.as_posix(), Path(str(distribution.locate_file(file)))
        recorded = f"{file.hash.mode}={file.hash.value}" if file.hash else ""
        if file.suffix == ".pyc" or (name.startswith(_dist_info(distribution)) and file.name in _INSTALLER_FILES):
            continue
        if ".." not in file.parts and not file.is_absolute():
            yield name, source, recorded
        elif file.parent.name in ("bin", "Scripts") and not _is_launcher_script(source):
            yield f"{_dist_info(distribution).removesuffix('.dist-info')}.data/scripts/{file.name}", source, recorded


def _is_launcher_script(source: Path) -> bool:
    """Return whether a file is a launcher that the installer generated with the local Python's path."""
    with source.open("rb") as file:
        return file.read(2) == b"#!"


def _dist_info(distribution: metadata.Distribution) -> str:
    name = str(distribution.metadata["Name"])
    return f"{re.sub('[-_.]+', '_', name)}-{distribution.version}.dist-info"
