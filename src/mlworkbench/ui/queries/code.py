"""Code and environment of a run: snapshot files, differences, packages, and variables."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from ...config.project_folder import find_project
from ...errors import ConfigError, SnapshotError, UnknownName
from ...history.store import History
from ...model import Run, RunSpec
from ...report.code_diff import MAX_LINES, code_difference, folder_difference
from ...report.line_diff import LineDiff
from ...report.packages import Package, load_packages
from ...runfiles.diagnostics_bundle import looks_secret
from ...runfiles.snapshot_files import read_blob, read_code
from ...sanitize import plain

MAX_SHOWN = 256 * 1024  # maximum bytes of a displayed file
_MAX_FILES = 20_000
_CURRENT = "the current project"
HIDDEN = "***"


@dataclass(frozen=True)
class Source:
    """A file of the snapshot."""

    path: str
    size: int
    to: str = ""  # target of a symbolic link


@dataclass(frozen=True)
class Code:
    """The code of a run. If it was not kept, ``files`` is empty and ``problem`` explains why."""

    files: list[Source]
    more: int
    problem: str | None = None


@dataclass(frozen=True)
class Text:
    """A file of the snapshot as text. ``problem`` explains why it cannot be displayed."""

    path: str
    text: str | None
    problem: str | None = None


@dataclass(frozen=True)
class Difference:
    """Difference between a run's code and other code."""

    against: str
    files: list[tuple[str, str]]  # (path, "changed"/"added"/"removed"/"mode")
    lines: list[str]  # as printed by `diff -u`
    problem: str | None = None
    is_project: bool = False  # the other code is the current project folder


@dataclass(frozen=True)
class Environment:
    """The environment of a run, without values of secrets."""

    kind: str
    python: str
    facts: list[tuple[str, str]]
    packages: list[Package]
    variables: list[tuple[str, str]]
    passed: list[str]  # names of variables that were passed from the submitting shell
    secrets: list[str]  # names only
    known: Annotated[bool, Field(description="The packages were recorded")]


def list_code(history: History, run_id: str) -> Code:
    run = history.get(run_id)
    if not run.spec.snapshot:
        return Code([], 0, "The script was started without mlw, so its code was not saved.")
    try:
        code = read_code(history.paths.root, run)
    except SnapshotError as error:
        return Code([], 0, plain(error.message, 500))
    files = [Source(path, size) for path, (_, size, _) in code.files.items()]
    files += [Source(path, 0, to) for path, to in code.links.items()]
    files.sort(key=lambda source: source.path)
    return Code(files[:_MAX_FILES], max(0, len(files) - _MAX_FILES))


def read_text(history: History, run_id: str, path: str) -> Text:
    run = history.get(run_id)
    code = read_code(history.paths.root, run)
    file = code.files.get(path)
    if file is None:
        raise UnknownName("file", path, sorted(code.files)[:20])
    sha256, size, _ = file
    if size > MAX_SHOWN:
        return Text(path, None, "This file is too large to display.")
    data = bytearray()
    read_blob(history.paths.root, sha256, size, data.extend)
    if b"\0" in data:
        return Text(path, None, "This file is not text.")
    return Text(path, data.decode("utf-8", "replace"))


def difference(history: History, run_id: str, other_id: str) -> Difference:
    """Return the difference from another run's code to this run's code."""
    run, other = history.get(run_id), history.get(other_id)
    changes = code_difference(history.paths.root, other, run, LineDiff(MAX_LINES))
    return _difference(f"run {other.id}", changes)


def project_of(run: Run) -> Path | None:
    """Return the project folder of the run if it still exists."""
    try:
        project = find_project(Path(run.spec.project_path))
    except ConfigError:
        return None
    return project.root if project.id == run.spec.project_id else None


def project_difference(history: History, run_id: str) -> Difference:
    """Return the difference from the run's code to the current content of the project folder."""
    run = history.get(run_id)
    root = project_of(run)
    if root is None:
        problem = f"the project is no longer in {plain(run.spec.project_path, 300)}"
        return Difference(_CURRENT, [], [], problem, is_project=True)
    changes = folder_difference(history.paths.root, run, str(root), LineDiff(MAX_LINES))
    return replace(_difference(_CURRENT, changes), is_project=True)


def _difference(against: str, changes: dict[str, Any]) -> Difference:
    files = [(file["path"], file["change"]) for file in changes["files"]]
    problem = changes.get("problem")
    return Difference(against, files, changes["diff"], plain(problem, 500) if problem else None)


def environment(history: History, run_id: str) -> Environment:
    run = history.get(run_id)
    spec = run.spec
    lock = spec.lock or {}
    packages = load_packages(history, run)
    return Environment(
        kind=plain(str(lock.get("kind") or "unknown"), 60),
        python=_python_label(spec),
        facts=_facts(spec, lock),
        packages=packages,
        variables=[
            (plain(name, 200), HIDDEN if looks_secret(name) else plain(value, 2000))
            for name, value in sorted(spec.environment.items())
        ],
        passed=[plain(name, 200) for name in spec.passed],
        secrets=[plain(name, 200) for name in spec.secrets],
        known=lock.get("kind") == "managed" or bool(packages),
    )


def _python_label(spec: RunSpec) -> str:
    lock = spec.lock or {}
    python = lock.get("python")
    version = python.get("version") if isinstance(python, dict) else lock.get("version")
    path = spec.commands[-1].argv[0] if spec.commands else ""
    return plain(f"{version} – {path}" if version else path, 500)


def _facts(spec: RunSpec, lock: dict[str, Any]) -> list[tuple[str, str]]:
    container = spec.container
    facts = [
        ("Framework", spec.framework),
        ("Image", container.image if container else None),
        ("Engine", container.engine if container else None),
        (
            "Mounts",
            ", ".join(f"{source} at {to} ({how})" for source, to, how in container.mounts) if container else None,
        ),
        ("Shared memory", container.shm_size if container else None),
        ("Memory limit", container.memory if container else None),
        ("CPUs", container.cpus if container else None),
        ("Network", container.network if container else None),
        ("Platform", lock.get("platform")),
        ("Digest", lock.get("digest")),
        ("Channels", ", ".join(map(str, lock["channels"])) if isinstance(lock.get("channels"), list) else None),
        ("Requested GPUs", spec.gpus),
        ("Time limit", f"{spec.timeout:g} s" if spec.timeout else None),
    ]
    return [(name, plain(str(value), 2000)) for name, value in facts if value]
