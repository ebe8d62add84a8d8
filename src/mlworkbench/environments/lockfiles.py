"""Reads projects that are described for uv or pixi: ``pyproject.toml``, ``uv.lock``, ``pixi.lock``.

What is asked for becomes a value here; ``locked.py`` makes a lock of what those files have fixed already.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..config.yamlfile import decode, read_bytes, show_path
from ..errors import ConfigError
from .dependencies import PIXI_LOCK, PYPROJECT, UV_LOCK, Dependencies, Line, Option, PipLine, Requirement
from .named import normal

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def read_lockfile(path: Path, root: Path) -> Dependencies:
    """What such a file asks for, or has fixed. Raises ConfigError with the file."""
    if path.name == "pixi.toml":
        path = path.with_name("pixi.lock")
    if path.name == "pixi.lock":
        return _pixi(path)
    project, lock = path.with_name("pyproject.toml"), path.with_name("uv.lock")
    return _uv(project, lock) if lock.is_file() or path.name == "uv.lock" else _pyproject(project, root)


def _toml(path: Path) -> tuple[dict[str, Any], str]:
    shown = show_path(path)
    text = decode(read_bytes(path, shown), shown)
    try:
        return tomllib.loads(text), text
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"the file is not TOML: {error}", path=shown) from None


def _pyproject(path: Path, root: Path) -> Dependencies:
    from .reading import pip_entry  # noqa: PLC0415 - it reads this module's files through here

    data, text = _toml(path)
    shown = show_path(path)
    project = _table(data.get("project"))
    asked = [str(one) for one in project.get("dependencies") or ()]
    lines = [Line(one, shown, _line(text, one)) for one in asked]
    return Dependencies(
        file=shown,
        kind=PYPROJECT,
        name=project.get("name"),
        python=project.get("requires-python"),
        python_at=_python_at(project, shown, text),
        pip=tuple(pip_entry(one, path.parent, root) for one in lines),
        options=tuple(_indexes(data, shown, text)),
        files=(shown,),
    )


def _uv(project: Path, lock: Path) -> Dependencies:
    """The packages of the lock, each at its one version; whose platform they are for is decided later."""
    said, said_text = _toml(project)
    data, text = _toml(lock)
    shown = show_path(lock)
    packages = []
    for one in data.get("package") or ():
        if not {"editable", "virtual", "directory"} & set(_table(one.get("source"))):
            name, version = str(one.get("name")), one.get("version")
            at = _line(text, f'name = "{name}"')
            specifier = f"=={version}" if version else ""
            packages.append(PipLine(name + specifier, shown, at, normal(name), specifier=specifier))
    return Dependencies(
        file=shown,
        kind=UV_LOCK,
        name=_table(said.get("project")).get("name"),
        python=data.get("requires-python"),
        python_at=_python_at(_table(said.get("project")), show_path(project), said_text),
        pip=tuple(packages),
        options=tuple(_indexes(said, show_path(project), said_text)),
        files=(shown, show_path(project)),
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
        if kind == "conda" and file.endswith((".conda", ".tar.bz2")):
            name, version, _ = file.removesuffix(".conda").removesuffix(".tar.bz2").rsplit("-", 2)
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


def _indexes(data: dict[str, Any], file: str, text: str) -> Iterator[Option]:
    """What ``[tool.uv]`` says of indexes, in pip's words."""
    settings = _table(_table(data.get("tool")).get("uv"))
    for one in settings.get("index") or ():
        address = str(_table(one).get("url") or "")
        name = "--index-url" if _table(one).get("default") else "--extra-index-url"
        if address:
            yield Option(f"{name} {address}", file, _line(text, address), name, address)
    for name in ("index-url", "extra-index-url", "find-links"):
        said = settings.get(name) or ()
        for address in [said] if isinstance(said, str) else said:
            yield Option(f"--{name} {address}", file, _line(text, str(address)), f"--{name}", str(address))


def _python_at(project: dict[str, Any], file: str, text: str) -> Line | None:
    said = project.get("requires-python")
    return Line(f"requires-python = {said}", file, _line(text, "requires-python")) if said else None


def _line(text: str, part: str) -> int:
    return text[: max(text.find(part), 0)].count("\n") + 1


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
