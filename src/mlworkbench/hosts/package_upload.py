"""Upload packages to a remote machine. They are sent like a snapshot, then stored as packages."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from ..errors import SolveError


@dataclass(frozen=True)
class Package:
    """A local package file."""

    sha256: str
    path: Path


class PackageStore:
    """Packages, keyed by name on the target, with the interface of ``snapshot_upload.Store``."""

    def __init__(self, packages: Mapping[str, Package]) -> None:
        self._paths = {package.sha256: package.path for package in packages.values()}
        self.files = [(name, package.sha256) for name, package in sorted(packages.items())]
        entries = [
            [name, package.sha256, _file_size(package.path), 0o600] for name, package in sorted(packages.items())
        ]
        self._manifest = json.dumps({"files": entries}, separators=(",", ":")).encode("ascii")
        self.digest = hashlib.sha256(self._manifest).hexdigest()
        self._manifest_path = ""

    def __enter__(self) -> PackageStore:
        descriptor, self._manifest_path = tempfile.mkstemp(prefix="mlw-parcel-")
        with open(descriptor, "wb") as file:
            file.write(self._manifest)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.unlink(self._manifest_path)

    def snapshot(self, digest: str) -> str:
        return self._manifest_path

    def blob(self, digest: str) -> str:
        return str(self._paths[digest])


def _file_size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise SolveError(f"cannot read the package {path}: {error.strerror}", "submit again") from error
