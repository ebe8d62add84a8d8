"""Mirrors of the user who submits, for a build here: of uv's Pythons, and the indexes that source builds use.

The client puts their addresses beside the lock (``environments/mirrors.py``), without credentials.
"""

from __future__ import annotations

import hashlib
import json
import os
import urllib.request

from ..shared.layout import Root
from .supplies import archive_of, refusal_of

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Dict

    Lock = Dict[str, Any]


def index_variables(lock: Lock) -> "Dict[str, str]":
    """For uv, where it fetches what source packages need for their build."""
    mirrors = lock.get("mirrors") or {}
    found = {
        "UV_DEFAULT_INDEX": " ".join(mirrors.get("index") or ()),
        "UV_INDEX": " ".join(mirrors.get("extra") or ()),
        "UV_FIND_LINKS": ",".join(mirrors.get("links") or ()),
    }
    found = {name: value for name, value in found.items() if value}
    # As on the client, where the same indexes are asked for the packages themselves.
    return dict(found, UV_INDEX_STRATEGY="unsafe-best-match") if found else {}


def python_variables(root: Root, lock: Lock, scratch: str) -> "Dict[str, str]":
    """For uv, where it takes the Python of a lock from: the archive that was sent along, else the user's mirror.

    A setting of this machine for a mirror comes before that of the user's own machine.
    """
    python, archive = lock["python"], archive_of(root, lock["python"])
    sent = os.path.isfile(archive)
    if python.get("listed"):
        url = "file://" + urllib.request.pathname2url(archive) if sent else python["url"]
        path = os.path.join(scratch, "pythons.json")
        with open(path, "w", encoding="ascii") as file:
            json.dump({python["key"]: dict(python["listed"], url=url)}, file)
        return {"UV_PYTHON_DOWNLOADS_JSON_URL": path}
    if sent:
        folder = os.path.join(scratch, "mirror", str(python["url"]).split("/")[-2])
        os.makedirs(folder)
        os.symlink(archive, os.path.join(folder, os.path.basename(archive)))
        return {"UV_PYTHON_INSTALL_MIRROR": "file://" + os.path.join(scratch, "mirror")}
    mirror = (lock.get("mirrors") or {}).get("pythons")
    if mirror and not os.environ.get("UV_PYTHON_INSTALL_MIRROR"):
        return {"UV_PYTHON_INSTALL_MIRROR": str(mirror[0])}
    return {}


def refuse_archive(root: Root, lock: Lock) -> None:
    """Remove an archive that was sent along and is of no use. Its digest stays, so that the client fetches another."""
    archive = archive_of(root, lock["python"])
    if not os.path.isfile(archive):
        return
    known = hashlib.sha256()
    with open(archive, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            known.update(block)
    with open(refusal_of(root, lock["python"]), "w", encoding="ascii") as file:
        file.write(known.hexdigest())
    os.unlink(archive)
