"""Imports of a project's Python files that nothing provides, and files that cannot be parsed.

The files are parsed, never imported. The scripts of a run are read, and the modules of the project that they import.
An import counts if it would fail the run: not one that a ``try`` or a condition makes optional. What could not be
checked is part of the result, so that "no problems found" is not claimed of it.
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

from ..config.place import leads_out
from ..config.project import Project, named_file
from ..config.yamlfile import decode, read_bytes, show_path
from ..environments.choose import is_managed
from ..environments.dependencies import Dependencies
from ..errors import ConfigError
from ..model import Compute, Entry, RunConfig
from ..remote.shared.untrusted import parse_json
from .finding import ERROR, WARNING, Case, Finding
from .import_names import BRINGS, import_name, is_provider, proposal
from .python2 import runs_python2

if TYPE_CHECKING:
    from ..environments.known import Known

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
_MOST_NAMED = 3  # files in one line about what was not checked
_MOST_IMPORTS = 2000  # of one file
_LONGEST_NAME, _DEEPEST = 200, 20  # characters of a part of a module's name, and parts: no file has more
_LONGEST = 1 << 18  # bytes of a file; longer ones are data, and slow to parse
_SKIPPED = frozenset({"node_modules", "__pycache__", "aml_config", "outputs"})


@dataclass(frozen=True)
class Import:
    """One import of a file. ``name`` is what has to be there; ``module`` the whole of it, relative ones with dots."""

    name: str
    module: str
    line: int


@dataclass(frozen=True)
class ImportCheck:
    """Result of the check. ``unchecked``: what was not checked and why, one phrase each."""

    findings: tuple[Finding, ...] = ()
    unchecked: tuple[str, ...] = ()


@dataclass
class _Sources:
    """The files that were read, with their imports. ``unread``: files that were not, each with the reason."""

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
    facts: Known | None = None,
) -> ImportCheck:
    """Syntax errors, and warnings about imports. Imports are checked only where mlw installs the packages.

    ``locks``: folder of solved environments, which name the packages that others bring.
    """
    entries = list(entries)
    managed = is_managed(compute, runconfig)
    dependencies = _dependencies(project, runconfig) if managed else None
    if _is_python2(Case(compute, dependencies, facts)):
        return ImportCheck(unchecked=_unchecked([one.name for one in entries], "runs in Python 2") if managed else ())
    sources = _read_all(project.root, entries)
    script = project.root / runconfig.argument_vector[0] if runconfig.argument_vector else None
    newer = _is_newer(dependencies)
    syntax = [
        _syntax_finding(path, error, ERROR if path == script and not newer else WARNING)
        for path, error in sources.errors
    ]
    unchecked = [line for path, reason in sources.unread for line in _unchecked([show_path(path)], reason)]
    if not sources.complete:
        unchecked += _unchecked(["other files"], f"at most {_MOST_FILES} files are checked")
    if not managed:
        return ImportCheck(tuple(syntax))
    file = runconfig.conda_dependencies_file
    if dependencies is None:
        unchecked += _unchecked([one.name for one in entries], f"cannot read {file}")
        return ImportCheck(tuple(syntax), tuple(unchecked))
    imports = _unprovided(project, runconfig, dependencies, sources, locks)
    if imports and any(one.name is None for one in dependencies.pip):  # such a package may provide anything
        reason = f"{file} lists a package by URL only; use NAME @ URL"
        unchecked += _unchecked([one.file for one in imports], reason)
        imports = []
    return ImportCheck((*syntax, *imports), tuple(unchecked))


def _is_python2(case: Case) -> bool:
    pin = (case.dependencies.python if case.dependencies else None) or ""
    return pin.lstrip("=").startswith("2") or runs_python2(case)


def _unchecked(files: Iterable[str], reason: str) -> tuple[str, ...]:
    names = list(dict.fromkeys(files))
    if not names:
        return ()
    more = f", and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return (f"imports of {', '.join(names[:_MOST_NAMED])}{more} ({reason})",)


def _unprovided(
    project: Project, runconfig: RunConfig, dependencies: Dependencies, sources: _Sources, locks: Path
) -> list[Finding]:
    packages = {one.name for one in dependencies.conda} | {one.name for one in dependencies.pip if one.name}
    solved = _solved(locks, packages)
    brought = set() if solved else {name for one in packages for name in BRINGS.get(one, ())}
    known = {*sys.stdlib_module_names, *_FORMER, *_OURS, *brought, *_modules(project.root)}
    known |= _SPARK if "spark" in runconfig.framework.lower() else set()
    findings: dict[str, Finding] = {}
    for path, one in sources.imports:
        name = import_name(one.module)
        if name is None or {name, one.name} & known or name in findings:
            continue
        if not any(is_provider(package, name) for package in solved or packages):
            findings[name] = _finding(path, replace(one, name=name), runconfig, complete=bool(solved))
    return list(findings.values())


def _is_newer(dependencies: Dependencies | None) -> bool:
    """Return whether the pinned Python may accept syntax that the one which runs mlw does not."""
    pin = re.match(r"=*\s*(\d+)\.(\d+)", (dependencies.python if dependencies else None) or "")
    return pin is not None and (int(pin[1]), int(pin[2])) > sys.version_info[:2]


def _syntax_finding(path: Path, error: SyntaxError, severity: str) -> Finding:
    ours = ".".join(map(str, sys.version_info[:2]))
    message = f"Python {ours} cannot parse the file: {str(error.msg)[:200]}"
    hint = "fix the line; mlw checks the imports of the file only after that"
    return Finding("syntax", severity, show_path(path), error.lineno or 1, message, hint)


def _finding(path: Path, one: Import, runconfig: RunConfig, *, complete: bool) -> Finding:
    file = runconfig.conda_dependencies_file
    message = f"module {one.name} is provided neither by the project nor by {file}"
    hint = f"add the line `- {proposal(one.name)}` under `pip:` in {file}"
    if not complete:
        hint += ", unless another listed package installs it"
    return Finding("import", WARNING, show_path(path), one.line, message, hint)


def _dependencies(project: Project, runconfig: RunConfig) -> Dependencies | None:
    """None if they cannot be read, which is a finding of its own."""
    from ..environments.dependency_files import read_dependencies  # noqa: PLC0415 - other checks need not wait for it

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


def _read_all(root: Path, entries: Iterable[Entry]) -> _Sources:
    """Read the scripts, and the modules of the project that they import."""
    sources = _Sources()
    waiting = deque(place for one in entries for place in _places(root, one))
    seen: set[Path] = set()
    while waiting:
        path = waiting.popleft()
        if path in seen or not path.is_file():
            continue
        if len(seen) == _MOST_FILES:
            sources.complete = False
            break
        seen.add(path)
        if leads_out(path, root):
            sources.unread.append((path, "the file is outside the project"))
            continue
        for one in _read(path, sources):
            waiting += _files_of(one, path, root)
            if not one.module.startswith("."):
                sources.imports.append((path, one))
    return sources


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


def _read(path: Path, sources: _Sources) -> list[Import]:
    """The imports of a file that count; none if it cannot be parsed, which is noted."""
    try:
        if path.stat().st_size > _LONGEST:
            sources.unread.append((path, f"the file is larger than {_LONGEST >> 10} KiB"))
            return []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            needed = _needed(ast.parse(decode(read_bytes(path, path.name), path.name)))
            return list(islice(filter(_is_plausible, needed), _MOST_IMPORTS))
    except SyntaxError as error:
        sources.errors.append((path, error))
    except ConfigError as error:
        sources.unread.append((path, error.text))
    except OSError as error:
        sources.unread.append((path, f"cannot read the file: {error.strerror}"))
    except (ValueError, RecursionError, MemoryError):
        sources.unread.append((path, "cannot parse the file"))
    return []


def _is_plausible(one: Import) -> bool:
    words = one.module.split(".")
    return len(words) <= _DEEPEST and max(map(len, words)) <= _LONGEST_NAME


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
