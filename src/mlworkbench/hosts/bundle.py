"""The bundle of files that run on targets, installed under ``lib/<digest>`` in a root folder."""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from .. import remote
from ..errors import HostError
from ..import_isolation import module_path
from ..remote.shared.starter_names import DETACHED, PLUGIN

SOURCE = Path(remote.__file__).parent
SUFFIXES = (".py", ".dist-info/METADATA", ".dist-info/entry_points.txt")  # keep in sync with ``bootstrap.py``


@lru_cache
def files(starter: str = DETACHED) -> dict[str, bytes]:
    """Return the content of every file, keyed by its path below ``remote``.

    ``starter`` is the name of a built-in starter, or the path of a plugin's file.
    """
    contents = dict(_read_plugin(starter))
    for name in sorted(_list_files(str(SOURCE), "")):
        with open(os.path.join(SOURCE, name), "rb", buffering=0) as file:
            contents[name] = file.read()
    binding = _find_nvml_binding()
    if binding:
        with open(binding, "rb", buffering=0) as file:
            contents["vendor/pynvml.py"] = file.read()
    return contents


def starter_name(starter: str) -> str:
    """Return the starter's name for a run spec. A plugin's file has a different path on the target."""
    return f"{PLUGIN}{Path(starter).stem}" if _is_plugin_file(starter) else starter


def _is_plugin_file(starter: str) -> bool:
    return os.path.isabs(starter)


def _read_plugin(starter: str) -> Iterator[tuple[str, bytes]]:
    """Yield the path in the bundle and the content of a plugin's starter file."""
    if not _is_plugin_file(starter):
        return
    path = Path(starter)
    if path.suffix != ".py" or not path.stem.isidentifier():
        raise HostError(
            f"starter {starter} is not a Python file with a plain name", "rename the file, for example to my_starter.py"
        )
    try:
        content = path.read_bytes()
        content.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise HostError(f"cannot read the starter {starter}: {error}", "reinstall the plugin") from None
    yield f"starters/plugins/{path.name}", content


def _find_nvml_binding() -> str | None:
    """Return the path of nvidia-ml-py's only file, or None if it is not installed.

    Without it, targets use nvidia-smi, which is slower.
    """
    paths = (os.path.join(folder, "pynvml.py") for folder in module_path())
    return next((path for path in paths if os.path.isfile(path)), None)


def _list_files(folder: str, prefix: str) -> Iterator[str]:
    """Yield the paths of the files to install.

    Every command waits for this, so it uses ``os.scandir``, which is several times faster than pathlib.
    """
    with os.scandir(folder) as entries:
        for entry in entries:
            if (prefix + entry.name).endswith(SUFFIXES):
                yield prefix + entry.name
            elif entry.name != "__pycache__" and entry.is_dir():
                yield from _list_files(entry.path, f"{prefix}{entry.name}/")


@lru_cache
def digest(starter: str = DETACHED) -> str:
    """Return the digest of the bundle's content.

    The bundle's folder is named after it, so upgrading mlw does not affect running processes.
    """
    hasher = hashlib.sha256()
    for name, content in sorted(files(starter).items()):
        hasher.update(name.encode() + b"\0" + content + b"\0")
    return hasher.hexdigest()[:16]


def pack(starter: str = DETACHED) -> bytes:
    """Return the compressed bundle for the bootstrap script (see ``bootstrap.py``)."""
    texts = {name: content.decode() for name, content in files(starter).items()}
    return zlib.compress(json.dumps(texts).encode(), 6)
