"""Use a project's existing lock files, ``uv.lock`` and ``pixi.lock``, instead of resolving again.

uv exports the contents of its lock file. For each version, the index provides the URLs for the
target's platform.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError, SolveError
from ..model import JsonDict
from .conda_solve import load_rattler, lock_entry
from .dependencies import PIXI_LOCK, Line
from .interpreter_choice import choose_python
from .local_files import conda_files
from .package_sources import indexes_of, strip_secret
from .pip_solve import PipRequest, PipResult, solve_pip
from .url_variables import refuse_variables
from .uv_export import export_lock

if TYPE_CHECKING:
    from .solve import Request

LockParts = tuple[JsonDict, list[JsonDict], PipResult]


def read_locked(request: Request, environ: Mapping[str, str], cache: Path) -> LockParts:
    """Return the interpreter, the conda packages, and the pip packages from the project's lock file."""
    dependencies = request.dependencies
    path = next(
        (Path(file) for file in dependencies.files if Path(file).name == dependencies.kind), Path(dependencies.file)
    )
    path = path.absolute()  # uv runs in the project folder, but the path is relative to the current folder
    if dependencies.kind == PIXI_LOCK:
        return _read_pixi_lock(path, request)
    python = choose_python(dependencies, request.platform, request.host, environ, request.root)
    if python is None:
        raise SolveError(
            f"uv does not provide Python {dependencies.python or ''} for {request.platform.subdir}",
            "change requires-python in pyproject.toml",
        )
    return python, [], _resolve_uv_lock(path, request, str(python["version"]), environ, cache)


def _resolve_uv_lock(path: Path, request: Request, python: str, environ: Mapping[str, str], cache: Path) -> PipResult:
    lines = export_lock(request.dependencies.texts, environ, path.name)
    for line in lines:
        refuse_variables(line, Line(line, request.dependencies.file, 0))
    indexes = indexes_of(request.dependencies, environ, path.parent)
    pip_request = PipRequest(
        lines,
        request.platform,
        python,
        indexes,
        file=path.name,
        options=["--no-deps"],
        root=path.parent,
        builds=request.builds.for_project(request.dependencies),
        cache=cache,
        folders=request.folders,
    )
    result = solve_pip(pip_request, environ)
    _check_hashes(result, lines, path.name)
    return result


def _check_hashes(result: PipResult, lines: list[str], file: str) -> None:
    """Raise SolveError unless the files on the index match the locked ones."""
    locked = {
        part.removeprefix("--hash=sha256:") for line in lines for part in line.split() if "--hash=sha256:" in part
    }
    for package in result.packages:
        if package.get("sha256") and locked and package["sha256"] not in locked:
            raise SolveError(
                f"the hash of {package['name']} {package['version']} on the index does not match {file}",
                "use the index that it was locked with, or update the lock file",
            )


def _read_pixi_lock(path: Path, request: Request) -> LockParts:
    rattler = load_rattler()
    subdir = request.platform.subdir
    try:
        environment = rattler.LockFile.from_path(path).default_environment()
        platform = next((item for item in environment.platforms() if str(_platform_name(item)) == subdir), None)
        if platform is None:
            platforms = ", ".join(str(_platform_name(item)) for item in environment.platforms())
            raise SolveError(
                f"{path.name} is not locked for {subdir}; available: {platforms}",
                f"add the platform with 'pixi workspace platform add {subdir}'",
            )
        conda = [lock_entry(item) for item in environment.conda_repodata_records_for_platform(platform) or ()]
        pip = [_pypi_entry(item) for item in environment.pypi_packages_for_platform(platform) or ()]
    except (rattler.exceptions.ParseCondaLockError, OSError) as error:
        raise ConfigError(str(error), "recreate it with 'pixi lock'", path=request.dependencies.file) from None
    python = next((item for item in conda if item["name"] == "python"), None)
    if python is None:
        raise ConfigError("the file has no python", "add it with 'pixi add python'", path=request.dependencies.file)
    conda.sort(key=lambda item: (item["name"] != "python", item["name"]))
    files = conda_files(conda, [request.root, *request.folders])
    packages = tuple(sorted(pip, key=lambda item: str(item["name"])))
    return {"source": "conda", "version": python["version"]}, conda, PipResult(packages, files)


def _platform_name(platform: Any) -> Any:
    return getattr(platform, "name", platform)


def _pypi_entry(package: Any) -> JsonDict:
    hashes = package.hashes
    sha256 = getattr(hashes, "sha256", None) if hashes is not None else None
    if not sha256 or "://" not in str(package.location):
        raise SolveError(f"the lock file has no URL or no SHA-256 for {package.name}", "recreate it with 'pixi lock'")
    url, private = strip_secret(str(package.location))
    entry = {
        "name": package.name,
        "version": str(package.version),
        "url": url,
        "sha256": bytes(sha256).hex(),
        "size": None,
    }
    return {**entry, "private": True} if private else entry
