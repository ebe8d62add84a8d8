"""Assets: outputs that were given a name and a version, kept apart from their run.

``<home>/assets/<project id>/<name>/<version>/`` holds ``asset.json`` and ``files/``. It appears by one rename, so
that a version is there whole or not at all, and never changes afterwards.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from ..errors import ConfigError, HistoryError, UnknownName, UsageError
from ..model import JsonDict, Run
from ..paths import UserPaths
from ..remote.shared.file_lock import try_lock
from ..remote.shared.files import read_json, write_whole
from ..remote.shared.tree import FOLDER, NEW, NOFOLLOW, READ, make_private, remove
from ..remote.shared.untrusted import parse_json
from .beneath import Beneath
from .download import check_known, check_source, covers, fetch, plain_name
from .manifest import LINK, ListWriter, Output, Outputs, outputs_of, read_outputs
from .stage import stage_key
from .transfer import Outcome, Report, Transfer

SOURCE = "mlw"
PART = ".part-"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_LARGEST_LINK = 1 << 16


@dataclass(frozen=True)
class Asset:
    """One version of an asset."""

    name: str
    version: str
    project_id: str
    run_id: str
    artifact: str
    created: float
    files: int
    size: int


def promote(
    paths: UserPaths, run: Run, artifact: str, name: str, report: Report | None = None
) -> tuple[Asset, Outcome]:
    """Copy an output, or a folder of outputs, to where no removal of the run reaches it; all files or nothing."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} is not a valid asset name", "use up to 100 letters, digits, '.', '_', and '-'")
    folder = paths.root.run(run.id)
    wanted = plain_name(artifact)
    outputs, recorded = outputs_of(folder)
    if not recorded:
        raise UsageError(f"run {run.id} has no list of outputs yet", "promote outputs after the run has ended")
    check_known([wanted], outputs)
    check_source(folder)
    versions = os.path.join(_assets(paths, run.spec.project_id), name)
    make_private(os.path.dirname(os.path.dirname(versions)), os.path.dirname(versions), versions)
    # The same name each time: the next attempt goes on with what a killed one has left.
    part = os.path.join(versions, PART + stage_key(run.id, wanted))
    held = _hold(part)
    try:
        outcome, count, size = _fill(part, folder.outputs, outputs, wanted, report)
        for path, why in outcome.failed:
            remove(part)
            raise HistoryError(f"nothing was promoted: output {path} of run {run.id}: {why}")
        _sync(held)
        made = Asset(name, "", run.spec.project_id, run.id, wanted, time.time(), count, size)
        return _publish(part, versions, made), outcome
    finally:
        os.close(held)


def _hold(part: str) -> int:
    """The folder under way, for us alone until the descriptor is closed."""
    while True:
        make_private(part)
        held = os.open(part, FOLDER | NOFOLLOW)
        if not try_lock(held):
            os.close(held)
            raise HistoryError("another command is promoting the same output", "wait until it finishes")
        try:
            if os.stat(part).st_ino == os.fstat(held).st_ino:
                return held
        except FileNotFoundError:
            pass
        os.close(held)  # whoever held it has given it its name, or removed it


def _fill(part: str, source: str, outputs: Outputs, wanted: str, report: Report | None) -> tuple[Outcome, int, int]:
    """What becomes the asset; tells how many files it has, and their bytes."""
    above = len(wanted.rpartition("/")[0]) + 1 if "/" in wanted else 0
    files = os.path.join(part, "files")
    make_private(files)
    for entry in os.listdir(part):
        if entry != "files":  # of a killed attempt, which the asset must not show
            os.unlink(os.path.join(part, entry))
    count = size = 0

    def entries() -> Iterator[tuple[Output, str]]:
        return ((one, one.path[above:]) for one in outputs() if covers(wanted, one.path))

    with (
        ListWriter(os.path.join(part, "outputs.json")) as kept,
        Beneath(files) as target,
        Transfer(source, target, whole=True, report=report) as transfer,
    ):

        def keep(one: Output, name: str) -> None:
            nonlocal count, size
            kept.add(replace(one, path=name))
            count += one.kind != LINK
            size += one.size

        outcome = transfer.run(entries, keep)
    return outcome, count, size


def _sync(folder: int) -> None:
    """The disk has all of it before it gets its name. One call: 100,000 files are not waited for one by one."""
    import ctypes  # noqa: PLC0415 - the other verbs have no use for it

    try:
        ctypes.CDLL(None, use_errno=True).syncfs(folder)
    except (OSError, AttributeError, TypeError):  # macOS, Windows
        getattr(os, "sync", lambda: None)()


def _assets(paths: UserPaths, project_id: str) -> str:
    if not _NAME.fullmatch(project_id):
        raise HistoryError(f"the project has an invalid ID: {project_id!r}")
    return os.path.join(paths.home, "assets", project_id)


def _publish(part: str, versions: str, made: Asset) -> Asset:
    """Under the next free number: the rename fails if another command was quicker."""
    while True:
        taken = [int(entry) for entry in os.listdir(versions) if entry.isdecimal()]
        version = str(max(taken, default=0) + 1)
        asset = replace(made, version=version)
        write_whole(os.path.join(part, "asset.json"), asdict(asset))
        try:
            os.rename(part, os.path.join(versions, version))
        except OSError:
            if os.path.isdir(os.path.join(versions, version)):
                continue
            raise
        return asset


# -- the pointer in the project ------------------------------------------------------------------------


def check_link(project: Path, name: str) -> None:
    """Before a promotion: a link file of the same name that is not ours is the user's."""
    path = project / "assets" / f"{name}.link"
    if os.path.lexists(path) and _read_link(path).get("assetSource") != SOURCE:
        raise UsageError(f"{path} was not created by mlw", "choose another name, or move that file")


def write_link(project: Path, asset: Asset) -> Path:
    """``assets/<name>.link``: one line of JSON, as the original had it."""
    text = json.dumps({"assetSource": SOURCE, "name": asset.name, "version": asset.version}) + "\n"
    name = f"{asset.name}.link"
    part = f".{name}.{os.urandom(6).hex()}"
    try:
        with Beneath(os.path.realpath(project)) as folders:
            handle = folders.make("assets")
            with open(os.open(part, NEW, 0o644, dir_fd=handle), "w", encoding="ascii") as file:
                file.write(text)
            os.rename(part, name, src_dir_fd=handle, dst_dir_fd=handle)
    except OSError as error:
        place = project / "assets" / name
        raise HistoryError(
            f"version {asset.version} of asset {asset.name} is stored, but {place} cannot be written: {error.strerror}"
        ) from error
    return project / "assets" / name


def _read_link(path: Path) -> JsonDict:
    try:
        with open(os.open(path, READ | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
            data = parse_json(file.read(_LARGEST_LINK))
    except FileNotFoundError:
        raise UsageError(f"file {path} not found", "pass a file such as assets/NAME.link with -l") from None
    except (OSError, ValueError):
        data = None
    if not isinstance(data, dict):
        raise ConfigError("not a link to an asset", path=str(path))
    return data


def read_link(path: Path) -> tuple[str, str]:
    """Name and version that a link file tells."""
    data = _read_link(path)
    source, name, version = (data.get(key) for key in ("assetSource", "name", "version"))
    if source == "azureml":
        raise ConfigError(
            "this is a link to an asset of Azure Machine Learning Workbench, which was retired in 2019: its files"
            " can no longer be downloaded",
            "if you have the files or can create them again: mlw history promote -r RUN -ap PATH -n NAME",
            path=str(path),
        )
    sound = isinstance(name, str) and _NAME.fullmatch(name) and isinstance(version, str) and version.isdecimal()
    if source != SOURCE or not sound:
        raise ConfigError("not a link to an asset of ML Workbench", path=str(path))
    return str(name), str(version)


# -- finding and fetching ------------------------------------------------------------------------------


def find_asset(paths: UserPaths, name: str, version: str, project_id: str | None) -> Asset:
    """That of the project: a cloned one must not get the files of another. Outside of projects, the only one."""
    known = list(assets(paths))
    fitting = [one for one in known if (one.name, one.version) == (name, version)]
    found = [one for one in fitting if project_id in (None, one.project_id)]
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError(f"several projects have version {version} of asset {name}", "run the command in the project")
    if fitting:
        raise UsageError(
            f"version {version} of asset {name} belongs to another project",
            f"to download it, use the link file in that project: mlw asset download -l PROJECT/assets/{name}.link",
        )
    raise UnknownName("asset", f"{name} {version}", [f"{one.name} {one.version}" for one in known])


def assets(paths: UserPaths, project_id: str | None = None) -> Iterator[Asset]:
    """All versions of all assets, by name and then newest first."""
    base = os.path.join(paths.home, "assets")
    for project in [project_id] if project_id else _names(base):
        for name in _names(os.path.join(base, project)):
            numbers = [int(one) for one in _names(os.path.join(base, project, name)) if one.isdecimal()]
            for number in sorted(numbers, reverse=True):
                data = read_json(os.path.join(base, project, name, str(number), "asset.json"))
                if data and set(data) >= set(Asset.__dataclass_fields__):
                    yield Asset(**{key: data[key] for key in Asset.__dataclass_fields__})


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def fetch_asset(
    paths: UserPaths, asset: Asset, folder: str, *, overwrite: bool = False, report: Report | None = None
) -> Outcome:
    """Copy an asset's files to a folder."""
    base = os.path.join(_assets(paths, asset.project_id), asset.name, asset.version)

    def entries() -> Iterator[tuple[Output, str]]:
        return ((one, one.path) for one in read_outputs(os.path.join(base, "outputs.json")))

    try:
        return fetch(os.path.join(base, "files"), folder, stage_key(base), entries, overwrite=overwrite, report=report)
    except OSError as error:
        raise HistoryError(f"asset {asset.name} {asset.version} is damaged: {error.strerror}") from error
