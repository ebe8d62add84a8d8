"""Packages to another machine: they travel as a snapshot does, and are packages from then on."""

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
    """A file of this machine."""

    sha256: str
    path: Path


class Parcel:
    """Files under the names that they get on the target, in the form of a store (``upload.Store``)."""

    def __init__(self, packages: Mapping[str, Package]) -> None:
        self._paths = {one.sha256: one.path for one in packages.values()}
        self.files = [(name, one.sha256) for name, one in sorted(packages.items())]
        entries = [[name, one.sha256, _size(one.path), 0o600] for name, one in sorted(packages.items())]
        self._text = json.dumps({"files": entries}, separators=(",", ":")).encode("ascii")
        self.digest = hashlib.sha256(self._text).hexdigest()
        self._list = ""

    def __enter__(self) -> Parcel:
        descriptor, self._list = tempfile.mkstemp(prefix="mlw-parcel-")
        with open(descriptor, "wb") as file:
            file.write(self._text)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.unlink(self._list)

    def snapshot(self, digest: str) -> str:
        return self._list

    def blob(self, digest: str) -> str:
        return str(self._paths[digest])


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise SolveError(f"cannot read the package {path}: {error.strerror}", "submit again") from error
