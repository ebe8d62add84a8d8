"""Find imports that no package provides, and Python files that cannot be parsed.

Files are parsed, never imported: the scripts of a run, and the project modules that they import.
Imports that a ``try`` or a condition makes optional are ignored. The result lists what could not be
checked, so that "no problems found" is not misleading.
"""

from __future__ import annotations

import ast
import os
import re
import sys
import warnings
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from ..config.project_files import is_outside
from ..config.project_folder import Project, referenced_file
from ..config.yaml_tree import decode, display_path, read_bytes
from ..environments.dependencies import Dependencies
from ..environments.selection import is_managed
from ..errors import ConfigError
from ..model import Compute, Entry, RunConfig
from ..remote.shared.untrusted_json import parse_json
from .finding import ERROR, WARNING, CheckContext, Finding
from .import_names import DEPENDENCY_IMPORTS, import_name, is_provider, suggest_package
from .python2_rules import runs_python2

if TYPE_CHECKING:
    from ..environments.facts_access import FactSource

_OWN_MODULES = frozenset({"mlworkbench", "azureml", "_mlworkbench"})  # available in every run
_SPARK = frozenset({"pyspark", "py4j"})  # included in Spark
# Modules in the standard library of older Python versions, which a project may pin.
_REMOVED_MODULES = frozenset(
    "aifc asynchat asyncore audioop binhex cgi cgitb chunk crypt distutils formatter imghdr imp lib2to3 mailcap msilib"
    " nis nntplib ossaudiodev parser pipes smtpd sndhdr spwd sunau symbol telnetlib uu xdrlib".split()
)
_CAUGHT_ERRORS = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})
_CONDITIONS = frozenset({"TYPE_CHECKING", "version_info", "platform", "find_spec", "name", "environ", "getenv"})
_MAX_FILES, _MAX_NAMES, _MAX_LOCKS = 300, 20_000, 40
_MAX_LISTED_FILES = 3  # maximum number of unchecked files that a message lists
_MAX_IMPORTS = 2000  # per file
_MAX_NAME_LENGTH, _MAX_PARTS = 200, 20  # characters per part of a module name, parts per module name
_MAX_FILE_BYTES = 1 << 18  # longer files are likely data, and slow to parse
_SKIPPED = frozenset({"node_modules", "__pycache__", "aml_config", "outputs"})


@dataclass(frozen=True)
class Import:
    """An import in a file.

    ``name`` is the top-level name, and ``module`` the full name, with leading dots if relative.
    """

    name: str
    module: str
    line: int


@dataclass(frozen=True)
class ImportCheck:
    """Result of the check. ``unchecked`` lists what was not checked and why, one phrase each."""

    findings: tuple[Finding, ...] = ()
    unchecked: tuple[str, ...] = ()


@dataclass
class _Sources:
    """Imports and syntax errors of all files. ``unread`` lists files not read, with the reasons."""

    imports: list[tuple[Path, Import]] = field(default_factory=list)
    errors: list[tuple[Path, SyntaxError]] = field(default_factory=list)
    unread: list[tuple[Path, str]] = field(default_factory=list)
    complete: bool = True


def check_imports(
    project: Project,
    runconfig: RunConfig,
    compute: Compute,
    entries: Iterable[Entry],
    locks: Path,
    facts: FactSource | None = None,
) -> ImportCheck:
    """Return syntax errors and import warnings. Imports are checked only if mlw installs the packages.

    ``locks`` is a folder with cached lock files, which list the dependencies of packages.
    """
    entries = list(entries)
    managed = is_managed(compute, runconfig)
    dependencies = _read_dependencies(project, runconfig) if managed else None
    if _is_python2(CheckContext(compute, dependencies, facts)):
        return ImportCheck(
            unchecked=_describe_unchecked([item.name for item in entries], "runs in Python 2") if managed else ()
        )
    sources = _read_all(project.root, entries)
    script = project.root / runconfig.argument_vector[0] if runconfig.argument_vector else None
    newer = _is_newer(dependencies)
    syntax = [
        _syntax_finding(path, error, ERROR if path == script and not newer else WARNING)
        for path, error in sources.errors
    ]
    unchecked = [line for path, reason in sources.unread for line in _describe_unchecked([display_path(path)], reason)]
    if not sources.complete:
        unchecked += _describe_unchecked(["other files"], f"at most {_MAX_FILES} files are checked")
    if not managed:
        return ImportCheck(tuple(syntax))
    file = runconfig.conda_dependencies_file
    if dependencies is None:
        unchecked += _describe_unchecked([item.name for item in entries], f"cannot read {file}")
        return ImportCheck(tuple(syntax), tuple(unchecked))
    imports = _find_unprovided(project, runconfig, dependencies, sources, locks)
    if imports and any(item.name is None for item in dependencies.pip):  # an unnamed package may provide any import
        reason = f"{file} lists a package by URL only; use NAME @ URL"
        unchecked += _describe_unchecked([item.file for item in imports], reason)
        imports = []
    return ImportCheck((*syntax, *imports), tuple(unchecked))


def _is_python2(context: CheckContext) -> bool:
    pin = (context.dependencies.python if context.dependencies else None) or ""
    return pin.lstrip("=").startswith("2") or runs_python2(context)


def _describe_unchecked(files: Iterable[str], reason: str) -> tuple[str, ...]:
    names = list(dict.fromkeys(files))
    if not names:
        return ()
    more = f", and {len(names) - _MAX_LISTED_FILES} more" if len(names) > _MAX_LISTED_FILES else ""
    return (f"imports of {', '.join(names[:_MAX_LISTED_FILES])}{more} ({reason})",)


def _find_unprovided(
    project: Project, runconfig: RunConfig, dependencies: Dependencies, sources: _Sources, locks: Path
) -> list[Finding]:
    packages = {item.name for item in dependencies.conda} | {item.name for item in dependencies.pip if item.name}
    solved = _solved_packages(locks, packages)
    transitive = set() if solved else {name for item in packages for name in DEPENDENCY_IMPORTS.get(item, ())}
    available = {
        *sys.stdlib_module_names,
        *_REMOVED_MODULES,
        *_OWN_MODULES,
        *transitive,
        *_project_modules(project.root),
    }
    available |= _SPARK if "spark" in runconfig.framework.lower() else set()
    findings: dict[str, Finding] = {}
    for path, item in sources.imports:
        name = import_name(item.module)
        if name is None or {name, item.name} & available or name in findings:
            continue
        if not any(is_provider(package, name) for package in solved or packages):
            findings[name] = _finding(path, replace(item, name=name), runconfig, complete=bool(solved))
    return list(findings.values())


def _is_newer(dependencies: Dependencies | None) -> bool:
    """Return whether the pinned Python may accept syntax that mlw's own Python does not."""
    pin = re.match(r"=*\s*(\d+)\.(\d+)", (dependencies.python if dependencies else None) or "")
    return pin is not None and (int(pin[1]), int(pin[2])) > sys.version_info[:2]


def _syntax_finding(path: Path, error: SyntaxError, severity: str) -> Finding:
    version = ".".join(map(str, sys.version_info[:2]))
    message = f"Python {version} cannot parse the file: {str(error.msg)[:200]}"
    hint = "fix the line; mlw checks the imports of the file only after that"
    return Finding("syntax", severity, display_path(path), error.lineno or 1, message, hint)


def _finding(path: Path, missing: Import, runconfig: RunConfig, *, complete: bool) -> Finding:
    file = runconfig.conda_dependencies_file
    message = f"module {missing.name} is provided neither by the project nor by {file}"
    hint = f"add the line `- {suggest_package(missing.name)}` under `pip:` in {file}"
    if not complete:
        hint += ", unless another listed package installs it"
    return Finding("import", WARNING, display_path(path), missing.line, message, hint)


def _read_dependencies(project: Project, runconfig: RunConfig) -> Dependencies | None:
    """Return the dependencies, or None if they cannot be read, which is reported elsewhere."""
    from ..environments.dependency_files import read_dependencies  # noqa: PLC0415 - other checks need not wait for it

    try:
        path = referenced_file(project.root, runconfig, "CondaDependenciesFile")
        return read_dependencies(path, project.root) if path.exists() else Dependencies()
    except ConfigError:
        return None


def _solved_packages(locks: Path, packages: set[str]) -> set[str] | None:
    """Return all packages in the newest cached lock file that contains ``packages``, or None."""
    try:
        files = sorted(locks.glob("*.json"), key=lambda path: path.stat().st_mtime, reverse=True)[:_MAX_LOCKS]
    except OSError:
        return None
    for file in files:
        try:
            lock = parse_json(file.read_bytes())["lock"]
            names = {str(package["name"]).lower() for package in (*lock["conda"], *lock["pip"])}
        except (OSError, ValueError, KeyError, TypeError):
            continue  # ignore an unusable file in the cache
        if packages - {"python", "pip"} <= names:
            return names
    return None


# -- modules of the project --------------------------------------------------------------------------


def _project_modules(root: Path) -> set[str]:
    """Return the names of all modules and folders in the project.

    A script may add any folder to ``sys.path``.
    """
    names: set[str] = set()
    for folder, folders, files in os.walk(root):
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".")
            and name not in _SKIPPED
            and not os.path.exists(os.path.join(folder, name, "pyvenv.cfg"))
        ]
        names.update(folders)
        names.update(name.split(".")[0] for name in files if name.endswith((".py", ".so", ".pyd", ".pyx", ".zip")))
        if len(names) > _MAX_NAMES:
            break
    return names


def _read_all(root: Path, entries: Iterable[Entry]) -> _Sources:
    """Read the scripts and the project modules that they import."""
    sources = _Sources()
    queue = deque(file for item in entries for file in _entry_files(root, item))
    visited: set[Path] = set()
    while queue:
        path = queue.popleft()
        if path in visited or not path.is_file():
            continue
        if len(visited) == _MAX_FILES:
            sources.complete = False
            break
        visited.add(path)
        if is_outside(path, root):
            sources.unread.append((path, "the file is outside the project"))
            continue
        for item in _read_imports(path, sources):
            queue += _module_files(item, path, root)
            if not item.module.startswith("."):
                sources.imports.append((path, item))
    return sources


def _entry_files(root: Path, entry: Entry) -> list[Path]:
    if entry.kind == "script":
        return [root / entry.name] if entry.name.endswith(".py") else []
    if entry.kind != "module":
        return []
    path = root.joinpath(*entry.name.split("."))
    return [path / "__main__.py", path.with_name(path.name + ".py")]


def _module_files(imported: Import, path: Path, root: Path) -> list[Path]:
    """Return candidate files for a project module, near the importing file or in the project root."""
    level = len(imported.module) - len(imported.module.lstrip("."))
    parts = [part for part in imported.module.lstrip(".").split(".") if part]
    bases = [path.parents[min(level, len(path.parents)) - 1]] if level else [path.parent, root]
    files = []
    for base in bases:
        for length in range(1, len(parts) + 1):
            location = base.joinpath(*parts[:length])
            files += [location.with_name(location.name + ".py"), location / "__init__.py"]
    return files


# -- one file ----------------------------------------------------------------------------------------


def _read_imports(path: Path, sources: _Sources) -> list[Import]:
    """Return the required imports of a file. If it cannot be parsed, record that and return none."""
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            sources.unread.append((path, f"the file is larger than {_MAX_FILE_BYTES >> 10} KiB"))
            return []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            imports = _required_imports(ast.parse(decode(read_bytes(path, path.name), path.name)))
            return list(islice(filter(_is_plausible, imports), _MAX_IMPORTS))
    except SyntaxError as error:
        sources.errors.append((path, error))
    except ConfigError as error:
        sources.unread.append((path, error.text))
    except OSError as error:
        sources.unread.append((path, f"cannot read the file: {error.strerror}"))
    except (ValueError, RecursionError, MemoryError):
        sources.unread.append((path, "cannot parse the file"))
    return []


def _is_plausible(imported: Import) -> bool:
    parts = imported.module.split(".")
    return len(parts) <= _MAX_PARTS and max(map(len, parts)) <= _MAX_NAME_LENGTH


def _required_imports(tree: ast.AST) -> Iterator[Import]:
    """Yield the required imports. Not recursive, because code may be nested to any depth."""
    stack: list[ast.AST] = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Import):
            yield from (Import(alias.name.split(".")[0], alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from _from_import(node)
        elif not _is_optional(node):
            stack += reversed(list(ast.iter_child_nodes(node)))
        elif isinstance(node, ast.If) and _mentions(node.test, {"TYPE_CHECKING"}):
            stack += reversed(node.orelse)


def _from_import(node: ast.ImportFrom) -> Iterator[Import]:
    dots, module = "." * node.level, node.module or ""
    whole = Import(module.split(".")[0], dots + module, node.lineno)
    if dots or module:
        yield whole
    for alias in node.names:  # an imported name may be a submodule
        if dots or module:
            yield replace(whole, module=f"{whole.module}{'' if whole.module.endswith('.') else '.'}{alias.name}")


def _is_optional(node: ast.AST) -> bool:
    """Return whether a node handles a failed import or makes it conditional."""
    if isinstance(node, ast.Try) or type(node).__name__ == "TryStar":
        return any(_catches(item) for item in getattr(node, "handlers", ()))
    if isinstance(node, (ast.With, ast.AsyncWith)):
        return any(_mentions(item.context_expr, {"suppress"}) for item in node.items)
    return isinstance(node, ast.If) and _mentions(node.test, _CONDITIONS)


def _catches(handler: ast.ExceptHandler) -> bool:
    return handler.type is None or _mentions(handler.type, _CAUGHT_ERRORS)


def _mentions(expression: ast.AST, names: Iterable[str]) -> bool:
    names_to_find = set(names)
    identifiers = (getattr(node, "attr", None) or getattr(node, "id", None) for node in ast.walk(expression))
    return any(name in names_to_find for name in identifiers)
