"""Conda packages by py-rattler: from what the project asks for and a platform to exact builds."""

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
from ..remote.shared.network_errors import why_not_reached
from .channels import hosts_with_password, mask, without_secret
from .platforms import Platform
from .words import shorten

if TYPE_CHECKING:
    from rattler import RepoDataRecord

Answer = TypeVar("Answer")
HINT = "change the versions in {file}, or add the channel that has them under `channels:`"
# Under one name at conda and under another at PyPI; the rest are called the same there.
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
class Asked:
    """What to look for, and where."""

    specs: Sequence[str]
    channels: Sequence[str]
    platform: Platform
    file: str = "the project"
    root: Path = field(default_factory=Path)  # channels may be folders of the project


def solve_conda(asked: Asked, cache: Path) -> list[JsonDict]:
    """The packages, as entries of a lock; an interpreter first, then by name."""
    rattler = load_rattler()
    try:
        records = wait(_solve(asked, cache))
    except rattler.exceptions.SolverError as error:
        raise SolveError(
            f"cannot resolve the conda packages of {asked.file}:\n{shorten(mask(str(error)))}",
            HINT.format(file=asked.file),
            more="cannot-be-solved",
        ) from None
    except (rattler.exceptions.InvalidMatchSpecError, rattler.exceptions.InvalidChannelError) as error:
        raise ConfigError(mask(str(error)), path=asked.file) from None
    except (rattler.exceptions.GatewayError, rattler.exceptions.FetchRepoDataError, OSError) as error:
        raise _unread(asked, mask(str(error))) from None
    closed = hosts_with_password(asked.channels)
    found = [entry(one) for one in records]
    for one in found:
        if urlsplit(one.get("url", "")).netloc in closed:
            one["private"] = True
    return sorted(found, key=lambda one: (one["name"] != "python", one["name"]))


def _unread(asked: Asked, said: str) -> SolveError:
    """A channel that does not answer may do so tomorrow; one that is not there is misspelt."""
    names = ", ".join(without_secret(one)[0] for one in asked.channels)
    text = f"cannot read the conda channels ({names}):\n{shorten(said)}"
    if why_not_reached(said):
        hint = f"check the internet connection, or add a reachable mirror under `channels:` in {asked.file}"
        return NotFetched(text, hint, more="index-not-reached")
    return SolveError(text, f"check the names under `channels:` in {asked.file}", more="index-not-reached")


def load_rattler() -> Any:
    """py-rattler with its exceptions; loads tens of megabytes, so only when it is needed."""
    try:
        import rattler  # noqa: PLC0415
        import rattler.exceptions  # noqa: PLC0415
    except ImportError:
        raise SolveError(
            "conda packages require py-rattler, which is not installed",
            "install it in the environment of mlw: pip install py-rattler",
        ) from None
    return rattler


def wait(work: Coroutine[Any, Any, Answer]) -> Answer:
    """Run it to its end; on a thread of its own if the caller has an event loop already, as pages do."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


async def _solve(asked: Asked, cache: Path) -> list[RepoDataRecord]:
    rattler = load_rattler()
    alias = rattler.ChannelConfig(root_dir=str(asked.root.resolve()))
    given = [
        rattler.GenericVirtualPackage(rattler.PackageName(name), rattler.Version(version), _build(rattler, build))
        for name, version, build in asked.platform.virtual_packages()
    ]
    found = await rattler.solve(
        sources=[rattler.Channel(name, alias) for name in asked.channels],
        specs=[rattler.MatchSpec(one) for one in asked.specs],
        gateway=rattler.Gateway(cache_dir=cache / "repodata"),
        platforms=[asked.platform.subdir, "noarch"],
        virtual_packages=given,
    )
    return list(found)


def _build(rattler: Any, text: str) -> Any:
    return rattler.BuildString(text) if hasattr(rattler, "BuildString") else text


def entry(record: RepoDataRecord) -> JsonDict:
    """A package as the lock has it: what identifies it, and what an installer must know before it has it."""
    known = json.loads(record.to_json())
    url, private = without_secret(str(record.url))
    made: JsonDict = {
        "name": known["name"],
        "version": known["version"],
        "build": known["build"],
        "url": url,
        "sha256": known.get("sha256"),
        "size": known.get("size"),
        "build_number": known.get("build_number", 0),
        "subdir": known["subdir"],
        "depends": known.get("depends", []),
    }
    for name in ("md5", "noarch", "python_site_packages_path"):
        if known.get(name):
            made[name] = known[name]
    if private:
        made["private"] = True
    if url.startswith("file:"):  # a channel on this machine: it has to be sent along
        made["file"] = url.rsplit("/", 1)[1]
        made["here"] = made.pop("url")
    if not made["sha256"] and not made.get("md5"):
        raise SolveError(f"the channel has no checksum for {known['name']} {known['version']}", "use another channel")
    return made


def provided(packages: Iterable[JsonDict]) -> dict[str, str]:
    """What pip will find installed already: name at PyPI → version."""
    found: dict[str, str] = {}
    for one in packages:
        needs = {str(depend).split()[0] for depend in one["depends"]}
        if one.get("noarch") == "python" or needs & {"python", "python_abi"}:
            name = str(one["name"])
            found[_PYPI_NAMES.get(name, name)] = str(one["version"])
    return found
