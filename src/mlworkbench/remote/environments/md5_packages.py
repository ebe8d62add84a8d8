"""Conda packages of channels that list MD5 only: they get the SHA-256 of their content before they are installed.

MD5 is not collision resistant. So it never identifies content by itself: what was verified with it is remembered for
the address that it came from, and no other address can provide it.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor

from ..shared.files import read_json, write_note
from ..shared.layout import Root
from ..shared.tree import make_private
from .tools import LARGEST, RESOLVE, NoEnvironment, fetch

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Dict, List

    Package = Dict[str, Any]

_DOWNLOADS = 8
_MD5_OPTIONS: Dict[str, Any] = {"usedforsecurity": False} if sys.version_info >= (3, 9) else {}


def with_sha256(root: Root, packages: List[Package]) -> List[Package]:
    """The packages, each with its SHA-256; downloads those whose SHA-256 is not known. Raises NoEnvironment."""
    with ThreadPoolExecutor(_DOWNLOADS) as pool:
        return list(pool.map(lambda package: package if package.get("sha256") else _identify(root, package), packages))


def _identify(root: Root, package: Package) -> Package:
    if not package.get("md5") or not package.get("url"):
        raise NoEnvironment("the conda package %s has no checksum" % package["name"], RESOLVE)
    name = hashlib.sha256(json.dumps([package["md5"], package["url"]]).encode("ascii")).hexdigest()
    note = os.path.join(root.conda_packages, "md5", name + ".json")
    known = read_json(note, "sha256")
    if not known:
        known = {"sha256": _download(root, package)}
        make_private(root.conda_packages, os.path.dirname(note))
        write_note(note, known)
    return dict(package, sha256=known["sha256"])


def _download(root: Root, package: Package) -> str:
    """Keep the archive as a package; its SHA-256."""
    make_private(root.packages)
    part = root.package("%s.part" % os.urandom(8).hex())
    try:
        sha256 = fetch(str(package["url"]), part, most=package.get("size") or LARGEST)
        if _md5_of(part) != package["md5"]:
            raise NoEnvironment("%s does not match the lock file: its MD5 differs" % package["url"], RESOLVE)
        os.replace(part, root.package(sha256))
    finally:
        if os.path.exists(part):
            os.unlink(part)
    return sha256


def _md5_of(path: str) -> str:
    md5 = hashlib.md5(**_MD5_OPTIONS)
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            md5.update(block)
    return md5.hexdigest()
