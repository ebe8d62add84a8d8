"""Projects that have a lock already: ``uv.lock`` and ``pixi.lock`` are read, not solved again.

uv itself says what its file holds; addresses for the target's platform are asked of the index, version for version.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError, SolveError
from ..model import JsonDict
from .channels import indexes_of, without_secret
from .conda import entry, load_rattler
from .dependencies import PIXI_LOCK, Line
from .local_files import conda_files
from .pip import Found, Wanted, solve_pip
from .pythons import choose_python
from .uv_export import export_lock
from .variables import refuse_variables

if TYPE_CHECKING:
    from .solve import Request

Parts = tuple[JsonDict, list[JsonDict], Found]


def read_locked(request: Request, environ: Mapping[str, str], cache: Path) -> Parts:
    """Interpreter, conda's packages and pip's, from the file that the project has."""
    asked = request.dependencies
    path = next((Path(one) for one in asked.files if Path(one).name == asked.kind), Path(asked.file))
    path = path.absolute()  # uv is started in the project's folder, and the name counts from ours
    if asked.kind == PIXI_LOCK:
        return _pixi(path, request)
    python = choose_python(asked, request.platform, request.host, environ, request.root)
    if python is None:
        raise SolveError(
            f"uv does not provide Python {asked.python or ''} for {request.platform.subdir}",
            "change requires-python in pyproject.toml",
        )
    return python, [], _uv(path, request, str(python["version"]), environ, cache)


def _uv(path: Path, request: Request, python: str, environ: Mapping[str, str], cache: Path) -> Found:
    lines = export_lock(request.dependencies.texts, environ, path.name)
    for line in lines:
        refuse_variables(line, Line(line, request.dependencies.file, 0))
    indexes = indexes_of(request.dependencies, environ, path.parent)
    wanted = Wanted(
        lines,
        request.platform,
        python,
        indexes,
        file=path.name,
        options=["--no-deps"],
        root=path.parent,
        builds=request.builds.within(request.dependencies),
        cache=cache,
        folders=request.folders,
    )
    found = solve_pip(wanted, environ)
    _compare(found, lines, path.name)
    return found


def _compare(found: Found, lines: list[str], file: str) -> None:
    """The index must have the very files that were locked."""
    known = {word.removeprefix("--hash=sha256:") for line in lines for word in line.split() if "--hash=sha256:" in word}
    for one in found.packages:
        if one.get("sha256") and known and one["sha256"] not in known:
            raise SolveError(
                f"the hash of {one['name']} {one['version']} on the index does not match {file}",
                "use the index that it was locked with, or update the lock file",
            )


def _pixi(path: Path, request: Request) -> Parts:
    rattler = load_rattler()
    subdir = request.platform.subdir
    try:
        environment = rattler.LockFile.from_path(path).default_environment()
        platform = next((one for one in environment.platforms() if str(_name(one)) == subdir), None)
        if platform is None:
            known = ", ".join(str(_name(one)) for one in environment.platforms())
            raise SolveError(
                f"{path.name} is not locked for {subdir}; available: {known}",
                f"add the platform with 'pixi workspace platform add {subdir}'",
            )
        conda = [entry(one) for one in environment.conda_repodata_records_for_platform(platform) or ()]
        pip = [_pypi(one) for one in environment.pypi_packages_for_platform(platform) or ()]
    except (rattler.exceptions.ParseCondaLockError, OSError) as error:
        raise ConfigError(str(error), "recreate it with 'pixi lock'", path=request.dependencies.file) from None
    python = next((one for one in conda if one["name"] == "python"), None)
    if python is None:
        raise ConfigError("the file has no python", "add it with 'pixi add python'", path=request.dependencies.file)
    conda.sort(key=lambda one: (one["name"] != "python", one["name"]))
    files = conda_files(conda, [request.root, *request.folders])
    packages = tuple(sorted(pip, key=lambda one: str(one["name"])))
    return {"source": "conda", "version": python["version"]}, conda, Found(packages, files)


def _name(platform: Any) -> Any:
    return getattr(platform, "name", platform)


def _pypi(one: Any) -> JsonDict:
    hashes = one.hashes
    sha256 = getattr(hashes, "sha256", None) if hashes is not None else None
    if not sha256 or "://" not in str(one.location):
        raise SolveError(f"the lock file has no URL or no SHA-256 for {one.name}", "recreate it with 'pixi lock'")
    url, private = without_secret(str(one.location))
    made = {"name": one.name, "version": str(one.version), "url": url, "sha256": bytes(sha256).hex(), "size": None}
    return {**made, "private": True} if private else made
