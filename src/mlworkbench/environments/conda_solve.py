"""Resolve conda packages with py-rattler: from requirements and a platform to exact builds."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from ..errors import ConfigError, NotFetched, SolveError
from ..model import JsonDict
from ..remote.shared.network_errors import find_network_error
from .package_sources import hosts_with_password, mask, strip_secret
from .platforms import Platform
from .solver_messages import shorten

if TYPE_CHECKING:
    from rattler import RepoDataRecord

Result = TypeVar("Result")
HINT = "change the versions in {file}, or add the channel that has them under `channels:`"
# Packages whose conda and PyPI names differ. All other packages have the same name in both.
_PYPI_NAMES = {
    "pytorch": "torch",
    "pytorch-cpu": "torch",
    "pytorch-gpu": "torch",
    "tensorflow-base": "tensorflow",
    "matplotlib-base": "matplotlib",
    "py-opencv": "opencv-python",
    "msgpack-python": "msgpack",
    "pytables": "tables",
    "python-graphviz": "graphviz",
    "dask-core": "dask",
    "seaborn-base": "seaborn",
    "py-xgboost": "xgboost",
    "faiss": "faiss-cpu",
}


@dataclass(frozen=True)
class CondaRequest:
    """The conda packages to resolve, the channels, and the platform."""

    specs: Sequence[str]
    channels: Sequence[str]
    platform: Platform
    file: str = "the project"
    root: Path = field(default_factory=Path)  # base of channels that are relative folders


def solve_conda(request: CondaRequest, cache: Path) -> list[JsonDict]:
    """Resolve the packages and return lock entries: Python first, then sorted by name."""
    rattler = load_rattler()
    try:
        records = run_async(_solve(request, cache))
    except rattler.exceptions.SolverError as error:
        raise SolveError(
            f"cannot resolve the conda packages of {request.file}:\n{shorten(mask(str(error)))}",
            HINT.format(file=request.file),
            more="cannot-be-solved",
        ) from None
    except (rattler.exceptions.InvalidMatchSpecError, rattler.exceptions.InvalidChannelError) as error:
        raise ConfigError(mask(str(error)), path=request.file) from None
    except (rattler.exceptions.GatewayError, rattler.exceptions.FetchRepoDataError, OSError) as error:
        raise _channel_error(request, mask(str(error))) from None
    closed = hosts_with_password(request.channels)
    entries = [lock_entry(item) for item in records]
    for item in entries:
        if urlsplit(item.get("url", "")).netloc in closed:
            item["private"] = True
    return sorted(entries, key=lambda item: (item["name"] != "python", item["name"]))


def _channel_error(request: CondaRequest, message: str) -> SolveError:
    """Return NotFetched if a channel is unreachable, perhaps temporarily.

    Otherwise, return SolveError, because the channel name is probably wrong.
    """
    names = ", ".join(strip_secret(channel)[0] for channel in request.channels)
    text = f"cannot read the conda channels ({names}):\n{shorten(message)}"
    if find_network_error(message):
        hint = f"check the internet connection, or add a reachable mirror under `channels:` in {request.file}"
        return NotFetched(text, hint, more="index-not-reached")
    return SolveError(text, f"check the names under `channels:` in {request.file}", more="index-not-reached")


def load_rattler() -> Any:
    """Import py-rattler and its exceptions on demand, because it loads tens of megabytes."""
    try:
        import rattler  # noqa: PLC0415
        import rattler.exceptions  # noqa: PLC0415
    except ImportError:
        raise SolveError(
            "conda packages require py-rattler, which is not installed",
            "install it in the environment of mlw: pip install py-rattler",
        ) from None
    return rattler


def run_async(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine, in a separate thread if the caller already has an event loop, as the UI does."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()


async def _solve(request: CondaRequest, cache: Path) -> list[RepoDataRecord]:
    rattler = load_rattler()
    config = rattler.ChannelConfig(root_dir=str(request.root.resolve()))
    virtual_packages = [
        rattler.GenericVirtualPackage(rattler.PackageName(name), rattler.Version(version), _build(rattler, build))
        for name, version, build in request.platform.virtual_packages()
    ]
    records = await rattler.solve(
        sources=[rattler.Channel(name, config) for name in request.channels],
        specs=[rattler.MatchSpec(spec) for spec in request.specs],
        gateway=rattler.Gateway(cache_dir=cache / "repodata"),
        platforms=[request.platform.subdir, "noarch"],
        virtual_packages=virtual_packages,
    )
    return list(records)


def _build(rattler: Any, text: str) -> Any:
    return rattler.BuildString(text) if hasattr(rattler, "BuildString") else text


def lock_entry(record: RepoDataRecord) -> JsonDict:
    """Return the lock entry for a package: its identity and what an installer needs to download it."""
    data = json.loads(record.to_json())
    url, private = strip_secret(str(record.url))
    entry: JsonDict = {
        "name": data["name"],
        "version": data["version"],
        "build": data["build"],
        "url": url,
        "sha256": data.get("sha256"),
        "size": data.get("size"),
        "build_number": data.get("build_number", 0),
        "subdir": data["subdir"],
        "depends": data.get("depends", []),
    }
    for name in ("md5", "noarch", "python_site_packages_path"):
        if data.get(name):
            entry[name] = data[name]
    if private:
        entry["private"] = True
    if url.startswith("file:"):  # a local channel: mlw uploads the package
        entry["file"] = url.rsplit("/", 1)[1]
        entry["here"] = entry.pop("url")
    if not entry["sha256"] and not entry.get("md5"):
        raise SolveError(f"the channel has no checksum for {data['name']} {data['version']}", "use another channel")
    return entry


def installed_for_pip(packages: Iterable[JsonDict]) -> dict[str, str]:
    """Return the packages that pip will find already installed, as PyPI name → version."""
    versions: dict[str, str] = {}
    for package in packages:
        names = {str(dependency).split()[0] for dependency in package["depends"]}
        if package.get("noarch") == "python" or names & {"python", "python_abi"}:
            name = str(package["name"])
            versions[_PYPI_NAMES.get(name, name)] = str(package["version"])
    return versions
