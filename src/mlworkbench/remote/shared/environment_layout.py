"""Which environment a lock file means, and where its files are on a target."""

from __future__ import annotations

import hashlib
import json
import os

from .layout import Root

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

    Lock = Dict[str, Any]

FORMAT = 1
MANAGED = "managed"


def digest_of(lock: Lock) -> str:
    """What makes two environments the same: platform, interpreter, and the content of every package.

    Where a package is fetched from is not a part of it, nor the machine that it was solved for. The image that source
    packages are built in is, and the one in which a conda Python compiles: the image affects the result. A conda
    package's ``noarch`` is not: py-rattler installs by what the package itself contains.
    """
    python = lock["python"]
    identity = {
        "format": lock["format"],
        "platform": lock["platform"],
        "python": [python["source"], python["version"], python.get("path")],
        "conda": [[one["name"], one["version"], one["build"], one["sha256"] or one["md5"]] for one in lock["conda"]],
        "pip": [[one["name"], one["version"], one.get("sha256") or one.get("commit")] for one in lock["pip"]],
    }
    if lock.get("built_in"):
        identity["built_in"] = lock["built_in"]
    folders = [["pip", one["name"], one["folder"]] for one in lock["pip"] if one.get("folder")]
    for one in lock["conda"]:
        site = one.get("python_site_packages_path")
        if site and site != "lib/python%s/site-packages" % ".".join(one["version"].split(".")[:2]):
            folders.append(["conda", one["name"], site])
    if folders:  # else the digest is that of earlier versions
        identity["folders"] = folders
    text = json.dumps(identity, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def prefix_of(root: Root, lock: Lock) -> str:
    digest = str(lock["digest"])
    if len(digest) != 64 or not digest.isalnum():
        raise ValueError("the lock file has no digest")
    return root.environment(digest)


def python_of(prefix: str) -> str:
    """Its interpreter."""
    return prefix + "/bin/python"


def pack_of(root: Root, lock: Lock) -> str:
    """The same in one file, for machines that have none of it: the executors of a cluster."""
    return packed(prefix_of(root, lock))


def packed(prefix: str) -> str:
    return prefix + ".tar.gz"


def python_home(root: Root, lock: Lock) -> Optional[str]:
    """Folder of the interpreter where it is not in the environment itself but shared by several."""
    if lock["python"]["source"] != "uv":
        return None
    return os.path.join(root.tools, "python", str(lock["python"]["key"]))


def mounts(root: Root, lock: Lock) -> List[str]:
    """The folders that a container needs, each at its own path and read-only."""
    return [one for one in (prefix_of(root, lock), python_home(root, lock)) if one]
