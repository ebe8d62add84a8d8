"""The environment that a lock file describes, and the paths of its files on a target."""

from __future__ import annotations

import hashlib
import json
import os

from .layout import Root

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

    Lock = Dict[str, Any]

FORMAT = 1
MANAGED = "managed"


def digest_of(lock: Lock) -> str:
    """Return the digest that identifies an environment: platform, interpreter, and package contents.

    The sources of packages and the machine for which they were resolved are not included. The image in
    which source packages are built or a conda Python compiles bytecode is included, because it affects
    the result. A conda package's ``noarch`` is not included, because py-rattler reads it from the package.
    """
    python = lock["python"]
    identity = {
        "format": lock["format"],
        "platform": lock["platform"],
        "python": [python["source"], python["version"], python.get("path")],
        "conda": [
            [package["name"], package["version"], package["build"], package["sha256"] or package["md5"]]
            for package in lock["conda"]
        ],
        "pip": [
            [package["name"], package["version"], package.get("sha256") or package.get("commit")]
            for package in lock["pip"]
        ],
    }
    if lock.get("built_in"):
        identity["built_in"] = lock["built_in"]
    folders = [["pip", package["name"], package["folder"]] for package in lock["pip"] if package.get("folder")]
    for package in lock["conda"]:
        site = package.get("python_site_packages_path")
        if site and site != "lib/python%s/site-packages" % ".".join(package["version"].split(".")[:2]):
            folders.append(["conda", package["name"], site])
    if folders:  # omitted if empty, to keep the digest of earlier versions
        identity["folders"] = folders
    text = json.dumps(identity, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def prefix_of(root: Root, lock: Lock) -> str:
    digest = str(lock["digest"])
    if len(digest) != 64 or not digest.isalnum():
        raise ValueError("the lock file has no digest")
    return root.environment(digest)


def python_of(prefix: str) -> str:
    """Return the path of the environment's interpreter."""
    return prefix + "/bin/python"


def pack_of(root: Root, lock: Lock) -> str:
    """Return the path of the environment's archive, for cluster executors without the environment."""
    return pack_path(prefix_of(root, lock))


def pack_path(prefix: str) -> str:
    return prefix + ".tar.gz"


def python_home(root: Root, lock: Lock) -> Optional[str]:
    """Return the folder of an interpreter from uv, which environments share; None for other interpreters."""
    if lock["python"]["source"] != "uv":
        return None
    return os.path.join(root.tools, "python", str(lock["python"]["key"]))


def mounts(root: Root, lock: Lock) -> List[str]:
    """Return the folders that a container mounts read-only, each at its path on the host."""
    return [path for path in (prefix_of(root, lock), python_home(root, lock)) if path]
