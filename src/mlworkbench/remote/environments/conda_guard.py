"""Conda environments for containers: the host installs their files, and executes none of them.

The project chooses the channel, so ``bin/python`` in the prefix may be any program, and a link may lead anywhere.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import stat
from concurrent.futures import ThreadPoolExecutor

from ..shared.layout import Root
from .environment import walk
from .tools import NoEnvironment, own_python

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List

    Lock = Dict[str, Any]

_SITE = re.compile(r"(lib/python3\.[0-9]+t?)/site-packages/?")
_DOWNLOADS = 8
_SCRIPT = '#!/bin/sh\nexec %s "$@"\n'


def library_of(lock: Lock) -> str:
    """``lib/python3.x`` as the lock's Python package defines it. Raises NoEnvironment for any other folder.

    py-rattler installs pure Python packages there, also outside of the prefix.
    """
    python = next((package for package in lock["conda"] if package["name"] == "python"), None)
    if python is None:
        raise NoEnvironment("the conda packages contain no Python", "add python to the dependencies")
    for package in lock["conda"]:
        site = str(package.get("python_site_packages_path") or "")
        if site and not _SITE.fullmatch(site):
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
    missing = [one for one in packages if not os.path.isdir(os.path.join(root.conda_packages, one["sha256"]))]
    with ThreadPoolExecutor(_DOWNLOADS) as pool:
        for _ in pool.map(fetch, missing):
            pass  # raises what a download raised


def check_links(prefix: str) -> None:
    """Raise NoEnvironment if a link leads out of the prefix: what is installed later would be written there."""
    base = os.path.realpath(prefix)
    for path, facts in walk(prefix):
        if not stat.S_ISLNK(facts.st_mode):
            continue
        target = os.path.realpath(path)
        if target.startswith(base + os.sep) or (os.path.isfile(target) and not os.access(target, os.W_OK)):
            continue
        text = "a conda package contains a link that points outside the environment: %s -> %s"
        raise NoEnvironment(text % (path[len(prefix) + 1 :], os.readlink(path)), "remove the package")


def write_interpreter(scratch: str, prefix: str, lock: Lock) -> str:
    """A program that uv takes for the Python of the prefix, and that does not start it."""
    request, program = os.path.join(scratch, "facts.json"), os.path.join(scratch, "python")
    with open(request, "w", encoding="ascii") as file:
        json.dump({"prefix": prefix, "version": lock["python"]["version"], "library": library_of(lock)}, file)
    answers = os.path.join(os.path.dirname(os.path.abspath(__file__)), "interpreter_facts.py")
    with open(program, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(_SCRIPT % " ".join(shlex.quote(word) for word in [*own_python(), answers, request]))
    os.chmod(program, 0o700)
    return program
