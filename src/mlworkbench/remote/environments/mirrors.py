"""The submitting user's mirrors for builds on this machine: Python downloads, and package indexes.

The indexes are for source builds. The client adds the URLs to the lock file
(``environments/mirrors.py``), without credentials.
"""

from __future__ import annotations

import hashlib
import json
import os
import urllib.request

from ..shared.layout import Root
from .missing_packages import python_archive, rejection_path

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Dict

    Lock = Dict[str, Any]


def index_variables(lock: Lock) -> "Dict[str, str]":
    """Return uv's variables for the indexes that provide the build requirements of source packages."""
    mirrors = lock.get("mirrors") or {}
    variables = {
        "UV_DEFAULT_INDEX": " ".join(mirrors.get("index") or ()),
        "UV_INDEX": " ".join(mirrors.get("extra") or ()),
        "UV_FIND_LINKS": ",".join(mirrors.get("links") or ()),
    }
    variables = {name: value for name, value in variables.items() if value}
    # Same strategy as on the client, which uses the same indexes for the packages themselves.
    return dict(variables, UV_INDEX_STRATEGY="unsafe-best-match") if variables else {}


def python_variables(root: Root, lock: Lock, scratch: str) -> "Dict[str, str]":
    """Return uv's variables for downloading the Python in the lock file.

    The source is the uploaded archive or, if there is none, the user's mirror. A mirror that is
    configured on this machine takes precedence over the user's mirror.
    """
    python, archive = lock["python"], python_archive(root, lock["python"])
    is_uploaded = os.path.isfile(archive)
    if python.get("listed"):
        url = "file://" + urllib.request.pathname2url(archive) if is_uploaded else python["url"]
        path = os.path.join(scratch, "pythons.json")
        with open(path, "w", encoding="ascii") as file:
            json.dump({python["key"]: dict(python["listed"], url=url)}, file)
        return {"UV_PYTHON_DOWNLOADS_JSON_URL": path}
    if is_uploaded:
        folder = os.path.join(scratch, "mirror", str(python["url"]).split("/")[-2])
        os.makedirs(folder)
        os.symlink(archive, os.path.join(folder, os.path.basename(archive)))
        return {"UV_PYTHON_INSTALL_MIRROR": "file://" + os.path.join(scratch, "mirror")}
    mirror = (lock.get("mirrors") or {}).get("pythons")
    if mirror and not os.environ.get("UV_PYTHON_INSTALL_MIRROR"):
        return {"UV_PYTHON_INSTALL_MIRROR": str(mirror[0])}
    return {}


def reject_archive(root: Root, lock: Lock) -> None:
    """Remove an unusable uploaded archive. Its digest is recorded, so that the client fetches another one."""
    archive = python_archive(root, lock["python"])
    if not os.path.isfile(archive):
        return
    hasher = hashlib.sha256()
    with open(archive, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            hasher.update(block)
    with open(rejection_path(root, lock["python"]), "w", encoding="ascii") as file:
        file.write(hasher.hexdigest())
    os.unlink(archive)
