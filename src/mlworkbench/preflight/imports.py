"""Imports of a project's Python files that nothing provides.

The files are parsed, never imported. The scripts of a run are read, and the modules of the project that they import.
An import counts if it would fail the run: not one that a ``try`` or a condition makes optional.
"""

from __future__ import annotations

import ast
import os
import sys
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from ..config.place import leads_out
from ..config.project import Project, named_file
from ..config.yamlfile import decode, read_bytes, show_path
from ..environments.choose import is_managed
from ..environments.dependencies import Dependencies
from ..errors import ConfigError
from ..model import Compute, Entry, RunConfig
from ..remote.untrusted import parse_json
from .finding import WARNING, Finding
from .import_names import BRINGS, is_provider, proposal

_OURS = frozenset({"mlworkbench", "azureml", "_mlworkbench"})  # every run has them
_SPARK = frozenset({"pyspark", "py4j"})  # come with Spark
# Of older Pythons, which a project may pin.
_FORMER = frozenset(
    "aifc asynchat asyncore audioop binhex cgi cgitb chunk crypt distutils formatter imghdr imp lib2to3 mailcap msilib"
    " nis nntplib ossaudiodev parser pipes smtpd sndhdr spwd sunau symbol telnetlib uu xdrlib".split()
)
_FAILURES = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})
_CONDITIONS = frozenset({"TYPE_CHECKING", "version_info", "platform", "find_spec", "name", "environ", "getenv"})
_MOST_FILES, _MOST_NAMES, _MOST_LOCKS = 300, 20_000, 40
_LONGEST = 1 << 18  # bytes of a file; longer ones are data, and slow to parse
_SKIPPED = frozenset({"node_modules", "__pycache__", "aml_config", "outputs"})


@dataclass(frozen=True)
class Import:
    """One import of a file. ``name`` is what has to be there; ``module`` the whole of it, relative ones with dots."""

    name: str
    module: str
    line: int


def unprovided_imports(
    project: Project, runconfig: RunConfig, compute: Compute, entries: Iterable[Entry], locks: Path
) -> list[Finding]:
    """Warnings about imports; none where mlw does not install the packages.

    ``locks``: folder of solved environments, which name the packages that others bring.
    """
    if not is_managed(compute, runconfig):
        return []
    dependencies = _dependencies(project, runconfig)
    if dependencies is None or (dependencies.python or "").lstrip("=").startswith("2"):
        return []
    if any(one.name is None for one in dependencies.pip):
        return []  # a package by its address alone may provide anything
    packages = {one.name for one in dependencies.conda} | {one.name for one in dependencies.pip if one.name}
    solved = _solved(locks, packages)
    brought = set() if solved else {name for one in packages for name in BRINGS.get(one, ())}
    known = {*sys.stdlib_module_names, *_FORMER, *_OURS, *brought, *_modules(project.root)}
    known |= _SPARK if "spark" in runconfig.framework.lower() else set()
    findings: dict[str, Finding] = {}
    for path, one in _imports(project.root, entries):
        if one.name in known or one.name in findings or any(is_provider(name, one.name) for name in solved or packages):
            continue
        findings[one.name] = _finding(path, one, runconfig, complete=bool(solved))
    return list(findings.values())


def _finding(path: Path, one: Import, runconfig: RunConfig, *, complete: bool) -> Finding:
    file = runconfig.conda_dependencies_file
    message = f"nothing provides {one.name}: neither the project nor {file}"
    hint = f"add the line `- {proposal(one.name)}` under `pip:` in {file}"
    if not complete:
        hint += ", unless another package of the file brings it"
    return Finding("import", WARNING, show_path(path), one.line, message, hint)


def _dependencies(project: Project, runconfig: RunConfig) -> Dependencies | None:
    """None if they cannot be read, which is a finding of its own."""
    from ..environments.reading import read_dependencies  # noqa: PLC0415 - other checks need not wait for it

    try:
        path = named_file(project.root, runconfig, "CondaDependenciesFile")
        return read_dependencies(path, project.root) if path.exists() else Dependencies()
    except ConfigError:
        return None


def _solved(locks: Path, packages: set[str]) -> set[str] | None:
    """All packages of the newest solved environment that has those which are asked for; None if there is none."""
    try:
        notes = sorted(locks.glob("*.json"), key=lambda path: path.stat().st_mtime, reverse=True)[:_MOST_LOCKS]
    except OSError:
        return None
    for note in notes:
        try:
            lock = parse_json(note.read_bytes())["lock"]
            names = {str(one["name"]).lower() for one in (*lock["conda"], *lock["pip"])}
        except (OSError, ValueError, KeyError, TypeError):
            continue  # it is only a cache
        if packages - {"python", "pip"} <= names:
            return names
    return None


# -- modules of the project --------------------------------------------------------------------------


def _modules(root: Path) -> set[str]:
    """Names of all modules and folders in the project: a script may put any folder on its path."""
    found: set[str] = set()
    for place, folders, files in os.walk(root):
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".")
            and name not in _SKIPPED
            and not os.path.exists(os.path.join(place, name, "pyvenv.cfg"))
        ]
        found.update(folders)
        found.update(name.split(".")[0] for name in files if name.endswith((".py", ".so", ".pyd", ".pyx", ".zip")))
        if len(found) > _MOST_NAMES:
            break
    return found


def _imports(root: Path, entries: Iterable[Entry]) -> Iterator[tuple[Path, Import]]:
    """The imports of the scripts, and of the modules of the project that these lead to."""
    waiting = [place for one in entries for place in _places(root, one)]
    seen: set[Path] = set()
    while waiting and len(seen) < _MOST_FILES:
        path = waiting.pop(0)
        if path in seen or not path.is_file() or leads_out(path, root):
            continue
        seen.add(path)
        for one in _read(path):
            waiting += _files_of(one, path, root)
            if not one.module.startswith("."):
                yield path, one


def _places(root: Path, entry: Entry) -> list[Path]:
    if entry.kind == "script":
        return [root / entry.name] if entry.name.endswith(".py") else []
    if entry.kind != "module":
        return []
    place = root.joinpath(*entry.name.split("."))
    return [place / "__main__.py", place.with_name(place.name + ".py")]


def _files_of(one: Import, path: Path, root: Path) -> list[Path]:
    """Where a module would be if it is the project's: beside the file that imports it, or on top of the project."""
    level = len(one.module) - len(one.module.lstrip("."))
    words = [word for word in one.module.lstrip(".").split(".") if word]
    bases = [path.parents[min(level, len(path.parents)) - 1]] if level else [path.parent, root]
    found = []
    for base in bases:
        for length in range(1, len(words) + 1):
            place = base.joinpath(*words[:length])
            found += [place.with_name(place.name + ".py"), place / "__init__.py"]
    return found


# -- one file ----------------------------------------------------------------------------------------


def _read(path: Path) -> list[Import]:
    """The imports of a file that count; none if it cannot be parsed, which is for other rules to say."""
    try:
        if path.stat().st_size > _LONGEST:
            return []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(decode(read_bytes(path, path.name), path.name))
    except (OSError, ConfigError, SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    return list(_needed(tree))


def _needed(tree: ast.AST) -> Iterator[Import]:
    """Without recursion: a file may be nested to any depth."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            yield from (Import(one.name.split(".")[0], one.name, node.lineno) for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from _from(node)
        elif not _is_optional(node):
            waiting += reversed(list(ast.iter_child_nodes(node)))
        elif isinstance(node, ast.If) and _mentions(node.test, {"TYPE_CHECKING"}):
            waiting += reversed(node.orelse)


def _from(node: ast.ImportFrom) -> Iterator[Import]:
    dots, module = "." * node.level, node.module or ""
    whole = Import(module.split(".")[0], dots + module, node.lineno)
    if dots or module:
        yield whole
    for one in node.names:  # what is imported from a package may be a module of it
        if dots or module:
            yield replace(whole, module=f"{whole.module}{'' if whole.module.endswith('.') else '.'}{one.name}")


def _is_optional(node: ast.AST) -> bool:
    """Whether the code around an import copes with its absence, or is for other circumstances."""
    if isinstance(node, ast.Try) or type(node).__name__ == "TryStar":
        return any(_catches(one) for one in getattr(node, "handlers", ()))
    if isinstance(node, (ast.With, ast.AsyncWith)):
        return any(_mentions(one.context_expr, {"suppress"}) for one in node.items)
    return isinstance(node, ast.If) and _mentions(node.test, _CONDITIONS)


def _catches(handler: ast.ExceptHandler) -> bool:
    return handler.type is None or _mentions(handler.type, _FAILURES)


def _mentions(expression: ast.AST, names: Iterable[str]) -> bool:
    wanted = set(names)
    found = (getattr(node, "attr", None) or getattr(node, "id", None) for node in ast.walk(expression))
    return any(name in wanted for name in found)
