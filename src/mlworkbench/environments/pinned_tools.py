"""The programs that build environments on targets, uv and py-rattler, pinned by version and digest.

``pinned_tools.json`` (written by ``scripts/generate-tool-digests``) has the digest of every wheel of these versions.
Only such a wheel is installed on a target, whatever version of the tool is installed here. The index of the user's
settings is asked where the wheel is, never an index that a project names. Where that index does not have it, the same
version as it is installed beside mlw is packed and sent along, checked against its RECORD.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..errors import NotFetched, SolveError
from ..model import JsonDict
from .channels import user_indexes
from .own import Unverified, pack
from .pip import Found, Wanted, solve_pip
from .platforms import Platform
from .wheel_tags import fits, tags_of

FILE = Path(__file__).with_name("pinned_tools.json")
UV, RATTLER = "uv", "py-rattler"


@dataclass(frozen=True)
class Tool:
    """One version of a tool. ``wheels``: SHA-256 → file name and tags."""

    name: str
    version: str
    wheels: Mapping[str, Mapping[str, Any]]

    def wheel_for(self, machine: Platform, python: str) -> JsonDict | None:
        """A lock's entry for the wheel that runs there; None if there is none."""
        for sha256, one in self.wheels.items():
            if any(fits(tag, machine, python) for tag in tags_of(str(one["file"]))):
                return {"name": self.name, "version": self.version, "file": one["file"], "sha256": sha256}
        return None


@dataclass(frozen=True)
class Installer:
    """Where the tools run: the machine, and the version of the Python there that imports py-rattler."""

    machine: Platform
    python: str


@lru_cache(maxsize=1)
def pinned() -> tuple[Tool, ...]:
    data = json.loads(FILE.read_bytes())
    return tuple(Tool(one["name"], one["version"], {wheel["sha256"]: wheel for wheel in one["wheels"]}) for one in data)


def table_digest() -> str:
    """Another table, other tools: locks that were kept with the former ones are not used any more."""
    return hashlib.sha256(FILE.read_bytes()).hexdigest()


def find_tools(
    where: Installer, *, conda: bool, cache: Path, environ: Mapping[str, str], tell: Callable[[str], None]
) -> tuple[list[JsonDict], dict[str, Path]]:
    """Entries for a lock, and the files of this machine among them: digest → path.

    A tool that neither the user's index nor this machine has is named all the same: a target may have it already.
    """
    wanted = [_pinned_for(name, where) for name in ((UV, RATTLER) if conda else (UV,))]
    known = _on_index(wanted, where, cache, environ, tell)
    entries: list[JsonDict] = []
    files: dict[str, Path] = {}
    for tool in wanted:
        entry, path = known.get(tool.name) or _packed(tool, where, cache, tell) or (None, None)
        entry = entry or tool.wheel_for(where.machine, where.python)
        if entry:
            entries.append(entry)
        if entry and path:
            files[str(entry["sha256"])] = path
    return entries, files


def _pinned_for(name: str, where: Installer) -> Tool:
    """The first version that runs there: py-rattler has left old Pythons behind, which targets may still have."""
    versions = [one for one in pinned() if one.name == name]
    return next((one for one in versions if one.wheel_for(where.machine, where.python)), versions[0])


def _on_index(
    tools: list[Tool], where: Installer, cache: Path, environ: Mapping[str, str], tell: Callable[[str], None]
) -> dict[str, tuple[JsonDict, Path | None]]:
    """The wheels that the user's index has, by name; only those whose digest is known."""
    found = _ask(tools, where, cache, environ)
    if found is None and len(tools) > 1:  # perhaps it has one of them
        answers = [_ask([one], where, cache, environ) for one in tools]
        found = [one for answer in answers for one in answer or ()]
    known = {}
    for entry, path in found or ():
        tool = next(one for one in tools if one.name == entry["name"])
        if entry["sha256"] in tool.wheels:
            known[tool.name] = (entry, path)
        else:
            tell(f"the hash of {tool.name} {tool.version} on the package index is not the expected one; file not used")
    return known


def _ask(
    tools: list[Tool], where: Installer, cache: Path, environ: Mapping[str, str]
) -> list[tuple[JsonDict, Path | None]] | None:
    names = [f"{one.name}=={one.version}" for one in tools]
    options = ["--no-deps", "--only-binary", ":all:"]
    indexes = user_indexes(environ, Path())
    wanted = Wanted(names, where.machine, where.python, indexes, file="mlw", options=options, cache=cache)
    try:
        found: Found = solve_pip(wanted, environ)
    except NotFetched:
        return []  # to ask for one of them alone would take as long again
    except SolveError:
        return None
    return [(one, found.files.get(str(one["sha256"]))) for one in found.packages]


def _packed(tool: Tool, where: Installer, cache: Path, tell: Callable[[str], None]) -> tuple[JsonDict, Path] | None:
    """The same version as it is installed here."""
    try:
        return pack(tool.name, tool.version, where.machine, where.python, cache)
    except Unverified as error:
        tell(f"{error}; file not sent to targets")
        return None
