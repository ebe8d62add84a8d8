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
from ..errors import HostError
from ..isolation import module_path
from ..remote.shared.starter_names import DETACHED, PLUGIN

SOURCE = Path(remote.__file__).parent
ENDINGS = (".py", ".dist-info/METADATA", ".dist-info/entry_points.txt")  # ``loader.py`` names them too


@lru_cache
def files(starter: str = DETACHED) -> dict[str, bytes]:
    """Path below ``remote`` → content. ``starter``: the name of one of ours, or the path of a plugin's file."""
    found = dict(_plugin(starter))
    for name in sorted(_names(str(SOURCE), "")):
        with open(os.path.join(SOURCE, name), "rb", buffering=0) as file:
            found[name] = file.read()
    binding = _nvml_binding()
    if binding:
        with open(binding, "rb", buffering=0) as file:
            found["vendor/pynvml.py"] = file.read()
    return found


def starter_name(starter: str) -> str:
    """The starter as a spec names it to the target: a plugin's file has another path there."""
    return f"{PLUGIN}{Path(starter).stem}" if _is_file(starter) else starter


def _is_file(starter: str) -> bool:
    return os.path.isabs(starter)


def _plugin(starter: str) -> Iterator[tuple[str, bytes]]:
    """The starter file of a plugin, by its name in what travels."""
    if not _is_file(starter):
        return
    path = Path(starter)
    if path.suffix != ".py" or not path.stem.isidentifier():
        raise HostError(
            f"starter {starter} is not a Python file with a plain name", "rename it to, such as, my_starter.py"
        )
    try:
        content = path.read_bytes()
        content.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise HostError(f"cannot read the starter {starter}: {error}", "reinstall the plugin") from None
    yield f"starters/plugins/{path.name}", content


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
def digest(starter: str = DETACHED) -> str:
    """Named by its content: an upgrade of mlw does not touch what is running."""
    whole = hashlib.sha256()
    for name, content in sorted(files(starter).items()):
        whole.update(name.encode() + b"\0" + content + b"\0")
    return whole.hexdigest()[:16]


def packed(starter: str = DETACHED) -> bytes:
    """For the loader on another machine (``loader.py`` in this folder)."""
    texts = {name: content.decode() for name, content in files(starter).items()}
    return zlib.compress(json.dumps(texts).encode(), 6)
