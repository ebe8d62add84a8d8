"""What travels, as it is installed under ``lib/<digest>`` of a root: here, and on other machines."""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from .. import remote
from ..isolation import module_path

SOURCE = Path(remote.__file__).parent
ENDINGS = (".py", ".dist-info/METADATA", ".dist-info/entry_points.txt")  # ``loader.py`` names them too


@lru_cache
def files() -> dict[str, bytes]:
    """Path below ``remote`` → content."""
    found = {}
    for name in sorted(_names(str(SOURCE), "")):
        with open(os.path.join(SOURCE, name), "rb", buffering=0) as file:
            found[name] = file.read()
    binding = _nvml_binding()
    if binding:
        with open(binding, "rb", buffering=0) as file:
            found["vendor/pynvml.py"] = file.read()
    return found


def _nvml_binding() -> str | None:
    """The one file of nvidia-ml-py, where it was installed; without it targets ask nvidia-smi, which is slower."""
    places = (os.path.join(folder, "pynvml.py") for folder in module_path())
    return next((place for place in places if os.path.isfile(place)), None)


def _names(folder: str, above: str) -> Iterator[str]:
    """Every command waits for this: several times as fast as pathlib."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if (above + entry.name).endswith(ENDINGS):
                yield above + entry.name
            elif entry.name != "__pycache__" and entry.is_dir():
                yield from _names(entry.path, f"{above}{entry.name}/")


@lru_cache
def digest() -> str:
    """Named by its content: an upgrade of mlw does not touch what is running."""
    whole = hashlib.sha256()
    for name, content in sorted(files().items()):
        whole.update(name.encode() + b"\0" + content + b"\0")
    return whole.hexdigest()[:16]


def packed() -> bytes:
    """For the loader on another machine (``loader.py`` in this folder)."""
    return zlib.compress(json.dumps({name: content.decode() for name, content in files().items()}).encode(), 6)
