"""Conda environments for containers: the host installs their files but executes none of them.

The project chooses the channel, so ``bin/python`` in the prefix may be any program, and a link may
point anywhere.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import stat
from concurrent.futures import ThreadPoolExecutor

from ..shared.layout import Root
from .build_tools import NoEnvironment, isolated_python
from .environment_state import walk

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List

    Lock = Dict[str, Any]

_SITE_PACKAGES = re.compile(r"(lib/python3\.[0-9]+t?)/site-packages/?")
_MAX_DOWNLOADS = 8
_SCRIPT = '#!/bin/sh\nexec %s "$@"\n'


def library_of(lock: Lock) -> str:
    """Return ``lib/python3.x`` as defined by the Python package in the lock.

    py-rattler installs pure Python packages in the folder that this package defines, even outside
    the prefix. Raises NoEnvironment if a package defines an invalid folder.
    """
    python = next((package for package in lock["conda"] if package["name"] == "python"), None)
    if python is None:
        raise NoEnvironment("the conda packages contain no Python", "add python to the dependencies")
    for package in lock["conda"]:
        site = str(package.get("python_site_packages_path") or "")
        if site and not _SITE_PACKAGES.fullmatch(site):
            text = "the conda package %s has an invalid site-packages folder: %s"
            raise NoEnvironment(text % (package["name"], site[:200]))
    short = ".".join(str(lock["python"]["version"]).split(".")[:2])
    site = str(python.get("python_site_packages_path") or "lib/python%s/site-packages" % short)
    return site.rsplit("/site-packages", 1)[0]


def fetch_missing(packages: List[Dict[str, Any]], root: Root, fetch: Callable[[Dict[str, Any]], str]) -> None:
    """Fetch the archives of packages that the cache does not contain. Raises NoEnvironment."""
    for package in packages:
        if not re.fullmatch(r"[0-9a-f]{64}", str(package.get("sha256"))):
            text = "the conda channel has no SHA-256 for %s, which containers require"
            raise NoEnvironment(text % package["name"], "use a different channel")
    missing = [item for item in packages if not os.path.isdir(os.path.join(root.conda_packages, item["sha256"]))]
    with ThreadPoolExecutor(_MAX_DOWNLOADS) as pool:
        for _ in pool.map(fetch, missing):
            pass  # raises any download exception


def check_links(prefix: str) -> None:
    """Raise NoEnvironment if a link points outside the prefix to a place that later installs could write to."""
    base = os.path.realpath(prefix)
    for path, status in walk(prefix):
        if not stat.S_ISLNK(status.st_mode):
            continue
        target = os.path.realpath(path)
        if target.startswith(base + os.sep) or (os.path.isfile(target) and not os.access(target, os.W_OK)):
            continue
        text = "a conda package contains a link that points outside the environment: %s -> %s"
        raise NoEnvironment(text % (path[len(prefix) + 1 :], os.readlink(path)), "remove the package")


def write_interpreter(scratch: str, prefix: str, lock: Lock) -> str:
    """Write a program that answers uv's queries about the Python of the prefix without starting that Python."""
    request, program = os.path.join(scratch, "facts.json"), os.path.join(scratch, "python")
    with open(request, "w", encoding="ascii") as file:
        json.dump({"prefix": prefix, "version": lock["python"]["version"], "library": library_of(lock)}, file)
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "interpreter_stub.py")
    with open(program, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(_SCRIPT % " ".join(shlex.quote(argument) for argument in [*isolated_python(), script, request]))
    os.chmod(program, 0o700)
    return program
