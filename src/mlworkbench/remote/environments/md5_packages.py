"""Conda packages from channels that list only MD5: find their SHA-256 before the installation.

MD5 is not collision resistant, so it never identifies content by itself. Content verified with MD5
is recorded for its URL, and no other URL can provide it.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor

from ..shared.atomic_files import read_json, write_unsynced
from ..shared.folder_tree import make_private
from ..shared.layout import Root
from .build_tools import MAX_SIZE, RESOLVE, NoEnvironment, fetch

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Dict, List

    Package = Dict[str, Any]

_MAX_DOWNLOADS = 8
_MD5_OPTIONS: Dict[str, Any] = {"usedforsecurity": False} if sys.version_info >= (3, 9) else {}


def with_sha256(root: Root, packages: List[Package]) -> List[Package]:
    """Return the packages with their SHA-256; download those whose SHA-256 is unknown. Raises NoEnvironment."""
    with ThreadPoolExecutor(_MAX_DOWNLOADS) as pool:
        return list(pool.map(lambda package: package if package.get("sha256") else _identify(root, package), packages))


def _identify(root: Root, package: Package) -> Package:
    if not package.get("md5") or not package.get("url"):
        raise NoEnvironment("the conda package %s has no checksum" % package["name"], RESOLVE)
    name = hashlib.sha256(json.dumps([package["md5"], package["url"]]).encode("ascii")).hexdigest()
    record_path = os.path.join(root.conda_packages, "md5", name + ".json")
    record = read_json(record_path, "sha256")
    if not record:
        record = {"sha256": _download(root, package)}
        make_private(root.conda_packages, os.path.dirname(record_path))
        write_unsynced(record_path, record)
    return dict(package, sha256=record["sha256"])


def _download(root: Root, package: Package) -> str:
    """Download and store the archive; return its SHA-256."""
    make_private(root.packages)
    part = root.package("%s.part" % os.urandom(8).hex())
    try:
        sha256 = fetch(str(package["url"]), part, max_size=package.get("size") or MAX_SIZE)
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
