"""The code of a run and what it ran with: files of the snapshot, differences, packages, variables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from ...config.project import find_project
from ...errors import ConfigError, SnapshotError, UnknownName
from ...history.store import History
from ...model import Run, RunSpec
from ...report.codediff import ALL_LINES, code_difference, folder_difference
from ...report.linediff import LineDiff
from ...report.plain import plain
from ...runfiles.diagnostics import looks_secret
from ...runfiles.snapshots import code_of, read_blob

SHOWN = 256 * 1024  # bytes of a file
_FILES = 20_000
_CURRENT = "the current project"
HIDDEN = "***"


@dataclass(frozen=True)
class Source:
    """A file of the snapshot."""

    path: str
    size: int
    to: str = ""  # of a link


@dataclass(frozen=True)
class Code:
    """The code of a run; no files if they were not kept."""

    files: list[Source]
    more: int
    problem: str | None = None


@dataclass(frozen=True)
class Text:
    """A file of the snapshot as text. `problem`: why it cannot be shown."""

    path: str
    text: str | None
    problem: str | None = None


@dataclass(frozen=True)
class Difference:
    """From the code of a run to another code."""

    against: str
    files: list[tuple[str, str]]  # path, and changed, added, removed or mode
    lines: list[str]  # as `diff -u` has them
    problem: str | None = None
    is_project: bool = False  # the other code is the project's folder as it is now


@dataclass(frozen=True)
class Package:
    """A package of the environment."""

    name: str
    version: str
    source: str  # conda or pip


@dataclass(frozen=True)
class Environment:
    """The environment of a run, without values of secrets."""

    kind: str
    python: str
    facts: list[tuple[str, str]]
    packages: list[Package]
    variables: list[tuple[str, str]]
    secrets: list[str]  # names only
    known: Annotated[bool, Field(description="The packages were recorded")]


def tree(history: History, run_id: str) -> Code:
    run = history.get(run_id)
    if not run.spec.snapshot:
        return Code([], 0, "The script was started without mlw, so its code was not saved.")
    try:
        code = code_of(history.paths.root, run)
    except SnapshotError as error:
        return Code([], 0, plain(error.message, 500))
    files = [Source(path, size) for path, (_, size, _) in code.files.items()]
    files += [Source(path, 0, to) for path, to in code.links.items()]
    files.sort(key=lambda one: one.path)
    return Code(files[:_FILES], max(0, len(files) - _FILES))


def text(history: History, run_id: str, path: str) -> Text:
    run = history.get(run_id)
    code = code_of(history.paths.root, run)
    known = code.files.get(path)
    if known is None:
        raise UnknownName("file", path, sorted(code.files)[:20])
    sha256, size, _ = known
    if size > SHOWN:
        return Text(path, None, "This file is too large to display.")
    data = bytearray()
    read_blob(history.paths.root, sha256, size, data.extend)
    if b"\0" in data:
        return Text(path, None, "This file is not text.")
    return Text(path, data.decode("utf-8", "replace"))


def difference(history: History, run_id: str, other_id: str) -> Difference:
    """From another run's code to this one's."""
    run, other = history.get(run_id), history.get(other_id)
    found = code_difference(history.paths.root, other, run, LineDiff(ALL_LINES))
    return _difference(f"run {other.id}", found)


def project_of(run: Run) -> Path | None:
    """The folder of the project that the run came from, if it is still there."""
    try:
        project = find_project(Path(run.spec.project_path))
    except ConfigError:
        return None
    return project.root if project.id == run.spec.project_id else None


def since(history: History, run_id: str) -> Difference:
    """From the run's code to the project's folder as it is now."""
    run = history.get(run_id)
    root = project_of(run)
    if root is None:
        gone = f"the project is no longer in {plain(run.spec.project_path, 300)}"
        return Difference(_CURRENT, [], [], gone, is_project=True)
    found = folder_difference(history.paths.root, run, str(root), LineDiff(ALL_LINES))
    return replace(_difference(_CURRENT, found), is_project=True)


def _difference(against: str, found: dict[str, Any]) -> Difference:
    files = [(one["path"], one["change"]) for one in found["files"]]
    problem = found.get("problem")
    return Difference(against, files, found["diff"], plain(problem, 500) if problem else None)


def environment(history: History, run_id: str) -> Environment:
    spec = history.get(run_id).spec
    lock = spec.lock or {}
    packages = _packages(lock)
    return Environment(
        kind=plain(str(lock.get("kind") or "unknown"), 60),
        python=_python(spec),
        facts=_facts(spec, lock),
        packages=packages,
        variables=[
            (plain(name, 200), HIDDEN if looks_secret(name) else plain(value, 2000))
            for name, value in sorted(spec.environment.items())
        ],
        secrets=[plain(name, 200) for name in spec.secrets],
        known=lock.get("kind") == "managed" or bool(packages),
    )


def _python(spec: RunSpec) -> str:
    lock = spec.lock or {}
    told = lock.get("python")
    version = told.get("version") if isinstance(told, dict) else lock.get("version")
    path = spec.commands[-1].argv[0] if spec.commands else ""
    return plain(f"{version} – {path}" if version else path, 500)


def _facts(spec: RunSpec, lock: dict[str, Any]) -> list[tuple[str, str]]:
    box = spec.container
    found = [
        ("Framework", spec.framework),
        ("Image", box.image if box else None),
        ("Engine", box.engine if box else None),
        ("Mounts", ", ".join(f"{source} at {to} ({how})" for source, to, how in box.mounts) if box else None),
        ("Shared memory", box.shm_size if box else None),
        ("Memory limit", box.memory if box else None),
        ("CPUs", box.cpus if box else None),
        ("Network", box.network if box else None),
        ("Platform", lock.get("platform")),
        ("Digest", lock.get("digest")),
        ("Channels", ", ".join(map(str, lock["channels"])) if isinstance(lock.get("channels"), list) else None),
        ("Requested GPUs", spec.gpus),
        ("Time limit", f"{spec.timeout:g} s" if spec.timeout else None),
    ]
    return [(name, plain(str(value), 2000)) for name, value in found if value]


def _packages(lock: dict[str, Any]) -> list[Package]:
    found: list[Package] = []
    for source in ("conda", "pip"):
        told: Sequence[Any] = lock.get(source) or ()
        found += [
            Package(plain(str(one.get("name")), 200), plain(str(one.get("version")), 100), source)
            for one in told
            if isinstance(one, dict)
        ]
    return sorted(found, key=lambda one: one.name.lower())
