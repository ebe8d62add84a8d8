"""Read the project files of uv and pixi: ``pyproject.toml``, ``uv.lock``, and ``pixi.lock``.

This module reads the dependencies; ``project_locks`` converts the locked packages to a lock.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..config.yaml_tree import decode, display_path, read_bytes, require_inside
from ..errors import ConfigError
from .dependencies import PIXI_LOCK, PYPROJECT, UV_LOCK, Dependencies, Line, Option, PipLine, Requirement
from .dependency_parser import check_length, parse_pip_entry, resolve_find_links
from .requirement import normalize_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def read_lockfile(path: Path, root: Path) -> Dependencies:
    """Return the dependencies in a project or lock file. Raises ConfigError with the name of the file."""
    if path.name == "pixi.toml":
        path = path.with_name("pixi.lock")
    project, lock = path.with_name("pyproject.toml"), path.with_name("uv.lock")
    for file in (path, project, lock):  # neighboring files are read, too, and may be links
        require_inside(file, root)
    if path.name == "pixi.lock":
        return _read_pixi_lock(path)
    return (
        _read_uv_lock(project, lock, root)
        if lock.is_file() or path.name == "uv.lock"
        else _read_pyproject(project, root)
    )


def load_toml(path: Path) -> tuple[dict[str, Any], str]:
    """Return the tables of a TOML file and its text."""
    filename = display_path(path)
    text = decode(read_bytes(path, filename), filename)
    try:
        return tomllib.loads(text), text
    except ValueError as error:  # a syntax error, or an integer with too many digits
        raise ConfigError(f"not valid TOML: {str(error)[:300]}", path=filename) from None
    except RecursionError:
        raise ConfigError("the file is nested too deeply", path=filename) from None


def _read_pyproject(path: Path, root: Path) -> Dependencies:
    data, text = load_toml(path)
    filename = display_path(path)
    project = _table(data.get("project"))
    entries = _texts(project.get("dependencies"), "dependencies", filename)
    lines = [Line(item, filename, _find_line(text, item)) for item in entries]
    return Dependencies(
        file=filename,
        kind=PYPROJECT,
        name=_text(project.get("name"), "name", filename),
        python=_text(project.get("requires-python"), "requires-python", filename),
        python_line=_python_line(project, filename, text),
        pip=tuple(parse_pip_entry(item, path.parent, root) for item in lines),
        options=tuple(_read_indexes(data, path, root, text)),
        files=(filename,),
    )


def _read_uv_lock(project: Path, lock: Path, root: Path) -> Dependencies:
    """Return the packages in a uv lock with their exact versions, for all platforms."""
    project_data, project_text = load_toml(project)
    data, text = load_toml(lock)
    filename = display_path(lock)
    packages = []
    for package in _tables(data.get("package"), "package", filename):
        if not {"editable", "virtual", "directory"} & set(_table(package.get("source"))):
            name, version = (
                _text(package.get("name"), "name", filename) or "",
                _text(package.get("version"), "version", filename),
            )
            line = _find_line(text, f'name = "{name}"')
            specifier = f"=={version}" if version else ""
            packages.append(PipLine(name + specifier, filename, line, normalize_name(name), specifier=specifier))
    return Dependencies(
        file=filename,
        kind=UV_LOCK,
        name=_text(_table(project_data.get("project")).get("name"), "name", display_path(project)),
        python=_text(data.get("requires-python"), "requires-python", filename),
        python_line=_python_line(_table(project_data.get("project")), display_path(project), project_text),
        pip=tuple(packages),
        options=tuple(_read_indexes(project_data, project, root, project_text)),
        files=(filename, display_path(project)),
        texts=(text, project_text),
    )


def _read_pixi_lock(path: Path) -> Dependencies:
    """Return package names and versions from the URLs with which pixi identifies packages."""
    filename = display_path(path)
    lines = decode(read_bytes(path, filename), filename).splitlines()
    start = next((number for number, line in enumerate(lines) if line.startswith("packages:")), len(lines))
    conda, pip = [], []
    for number, line in enumerate(lines[start:], start + 1):
        kind, _, address = line.strip().removeprefix("- ").partition(": ")
        file = address.rsplit("/", 1)[-1]
        if not line.startswith("- ") or not address:
            continue
        check_length(Line(address, filename, number), address)
        if kind == "conda" and file.endswith((".conda", ".tar.bz2")):
            name, version, *build = file.removesuffix(".conda").removesuffix(".tar.bz2").rsplit("-", 2) + [""]
            if len(build) < 2:
                hint = "recreate it with 'pixi lock'"
                raise ConfigError(f"{file[:200]!r} is not a package file name", hint, path=filename, line=number)
            conda.append(Requirement(f"{name}={version}", filename, number, name.lower(), None, f"={version}"))
        elif kind == "pypi":
            name, _, rest = file.partition("-")
            pip.append(PipLine(address, filename, number, normalize_name(name), url=address))
    python = next((package for package in conda if package.name == "python"), None)
    return Dependencies(
        file=filename,
        kind=PIXI_LOCK,
        python=python.version.lstrip("=") if python else None,
        python_line=python,
        conda=tuple(conda),
        pip=tuple(pip),
        files=(filename,),
    )


def _read_indexes(data: dict[str, Any], path: Path, root: Path, text: str) -> Iterator[Option]:
    """Yield the indexes in ``[tool.uv]`` as pip options."""
    file = display_path(path)
    settings = _table(_table(data.get("tool")).get("uv"))
    for index in _tables(settings.get("index"), "index", file):
        address = _text(index.get("url"), "url", file) or ""
        name = "--index-url" if index.get("default") else "--extra-index-url"
        if address:
            yield Option(f"{name} {address}", file, _find_line(text, address), name, address)
    for name in ("index-url", "extra-index-url", "find-links"):
        configured = settings.get(name)
        for address in _texts([configured] if isinstance(configured, str) else configured, name, file):
            at = Line(f"--{name} {address}", file, _find_line(text, address))
            value = resolve_find_links(at, address, path.parent, root) or address if name == "find-links" else address
            yield Option(at.text, at.file, at.line, f"--{name}", value)


def _python_line(project: dict[str, Any], file: str, text: str) -> Line | None:
    pin = project.get("requires-python")
    return Line(f"requires-python = {pin}", file, _find_line(text, "requires-python")) if pin else None


def _find_line(text: str, part: str) -> int:
    return text[: max(text.find(part), 0)].count("\n") + 1


def _text(value: Any, what: str, file: str) -> str | None:
    if value is not None and not isinstance(value, str):
        raise ConfigError(f"{what} must be a string", path=file)
    check_length(Line(what, file, 0), value or "")
    return value


def _texts(value: Any, what: str, file: str) -> list[str]:
    if value is not None and not (isinstance(value, list) and all(isinstance(item, str) for item in value)):
        raise ConfigError(f"{what} must be a list of strings", path=file)
    return value or []


def _tables(value: Any, what: str, file: str) -> list[dict[str, Any]]:
    if value is not None and not (isinstance(value, list) and all(isinstance(item, dict) for item in value)):
        raise ConfigError(f"{what} must be a list of tables", path=file)
    return value or []


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
