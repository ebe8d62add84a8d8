"""Reads projects that are described for uv or pixi: ``pyproject.toml``, ``uv.lock``, ``pixi.lock``.

What is asked for becomes a value here; ``locked.py`` makes a lock of what those files have fixed already.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..config.yamlfile import decode, read_bytes, require_inside, show_path
from ..errors import ConfigError
from .dependencies import PIXI_LOCK, PYPROJECT, UV_LOCK, Dependencies, Line, Option, PipLine, Requirement
from .named import normal
from .reading import check_length, links_folder, pip_entry

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def read_lockfile(path: Path, root: Path) -> Dependencies:
    """What such a file asks for, or has fixed. Raises ConfigError with the file."""
    if path.name == "pixi.toml":
        path = path.with_name("pixi.lock")
    project, lock = path.with_name("pyproject.toml"), path.with_name("uv.lock")
    for one in (path, project, lock):  # beside the one that was named there may be a link
        require_inside(one, root)
    if path.name == "pixi.lock":
        return _pixi(path)
    return _uv(project, lock, root) if lock.is_file() or path.name == "uv.lock" else _pyproject(project, root)


def load_toml(path: Path) -> tuple[dict[str, Any], str]:
    """The tables of a file, and its text."""
    shown = show_path(path)
    text = decode(read_bytes(path, shown), shown)
    try:
        return tomllib.loads(text), text
    except ValueError as error:  # also of an integer with more digits than Python reads
        raise ConfigError(f"not valid TOML: {str(error)[:300]}", path=shown) from None
    except RecursionError:
        raise ConfigError("the file is nested too deeply", path=shown) from None


def _pyproject(path: Path, root: Path) -> Dependencies:
    data, text = load_toml(path)
    shown = show_path(path)
    project = _table(data.get("project"))
    asked = _texts(project.get("dependencies"), "dependencies", shown)
    lines = [Line(one, shown, _line(text, one)) for one in asked]
    return Dependencies(
        file=shown,
        kind=PYPROJECT,
        name=_text(project.get("name"), "name", shown),
        python=_text(project.get("requires-python"), "requires-python", shown),
        python_at=_python_at(project, shown, text),
        pip=tuple(pip_entry(one, path.parent, root) for one in lines),
        options=tuple(_indexes(data, path, root, text)),
        files=(shown,),
    )


def _uv(project: Path, lock: Path, root: Path) -> Dependencies:
    """The packages of the lock, each at its one version; whose platform they are for is decided later."""
    said, said_text = load_toml(project)
    data, text = load_toml(lock)
    shown = show_path(lock)
    packages = []
    for one in _tables(data.get("package"), "package", shown):
        if not {"editable", "virtual", "directory"} & set(_table(one.get("source"))):
            name, version = _text(one.get("name"), "name", shown) or "", _text(one.get("version"), "version", shown)
            at = _line(text, f'name = "{name}"')
            specifier = f"=={version}" if version else ""
            packages.append(PipLine(name + specifier, shown, at, normal(name), specifier=specifier))
    return Dependencies(
        file=shown,
        kind=UV_LOCK,
        name=_text(_table(said.get("project")).get("name"), "name", show_path(project)),
        python=_text(data.get("requires-python"), "requires-python", shown),
        python_at=_python_at(_table(said.get("project")), show_path(project), said_text),
        pip=tuple(packages),
        options=tuple(_indexes(said, project, root, said_text)),
        files=(shown, show_path(project)),
        texts=(text, said_text),
    )


def _pixi(path: Path) -> Dependencies:
    """Names and versions out of the addresses, which is how pixi identifies packages."""
    shown = show_path(path)
    lines = decode(read_bytes(path, shown), shown).splitlines()
    start = next((number for number, line in enumerate(lines) if line.startswith("packages:")), len(lines))
    conda, pip = [], []
    for number, line in enumerate(lines[start:], start + 1):
        kind, _, address = line.strip().removeprefix("- ").partition(": ")
        file = address.rsplit("/", 1)[-1]
        if not line.startswith("- ") or not address:
            continue
        check_length(Line(address, shown, number), address)
        if kind == "conda" and file.endswith((".conda", ".tar.bz2")):
            name, version, *build = file.removesuffix(".conda").removesuffix(".tar.bz2").rsplit("-", 2) + [""]
            if len(build) < 2:
                hint = "recreate it with 'pixi lock'"
                raise ConfigError(f"{file[:200]!r} is not a package file name", hint, path=shown, line=number)
            conda.append(Requirement(f"{name}={version}", shown, number, name.lower(), None, f"={version}"))
        elif kind == "pypi":
            name, _, rest = file.partition("-")
            pip.append(PipLine(address, shown, number, normal(name), url=address))
    python = next((one for one in conda if one.name == "python"), None)
    return Dependencies(
        file=shown,
        kind=PIXI_LOCK,
        python=python.version.lstrip("=") if python else None,
        python_at=python,
        conda=tuple(conda),
        pip=tuple(pip),
        files=(shown,),
    )


def _indexes(data: dict[str, Any], path: Path, root: Path, text: str) -> Iterator[Option]:
    """What ``[tool.uv]`` says of indexes, in pip's words."""
    file = show_path(path)
    settings = _table(_table(data.get("tool")).get("uv"))
    for one in _tables(settings.get("index"), "index", file):
        address = _text(one.get("url"), "url", file) or ""
        name = "--index-url" if one.get("default") else "--extra-index-url"
        if address:
            yield Option(f"{name} {address}", file, _line(text, address), name, address)
    for name in ("index-url", "extra-index-url", "find-links"):
        said = settings.get(name)
        for address in _texts([said] if isinstance(said, str) else said, name, file):
            at = Line(f"--{name} {address}", file, _line(text, address))
            value = links_folder(at, address, path.parent, root) or address if name == "find-links" else address
            yield Option(at.text, at.file, at.line, f"--{name}", value)


def _python_at(project: dict[str, Any], file: str, text: str) -> Line | None:
    said = project.get("requires-python")
    return Line(f"requires-python = {said}", file, _line(text, "requires-python")) if said else None


def _line(text: str, part: str) -> int:
    return text[: max(text.find(part), 0)].count("\n") + 1


def _text(value: Any, what: str, file: str) -> str | None:
    if value is not None and not isinstance(value, str):
        raise ConfigError(f"{what} must be a string", path=file)
    check_length(Line(what, file, 0), value or "")
    return value


def _texts(value: Any, what: str, file: str) -> list[str]:
    if value is not None and not (isinstance(value, list) and all(isinstance(one, str) for one in value)):
        raise ConfigError(f"{what} must be a list of strings", path=file)
    return value or []


def _tables(value: Any, what: str, file: str) -> list[dict[str, Any]]:
    if value is not None and not (isinstance(value, list) and all(isinstance(one, dict) for one in value)):
        raise ConfigError(f"{what} must be a list of tables", path=file)
    return value or []


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
