"""Assets: outputs with a name and a version, stored independently of their run.

``<home>/assets/<project id>/<name>/<version>/`` contains ``asset.json`` and ``files/``. A version
is published by a single rename, so it is either complete or absent. It never changes afterwards.
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
from ..remote.shared.atomic_files import read_json, write_atomic
from ..remote.shared.file_lock import try_lock
from ..remote.shared.folder_tree import FOLDER, NEW, NOFOLLOW, READ, make_private, remove
from ..remote.shared.untrusted_json import parse_json
from .output_download import covers, fetch, normalize_name, require_outputs, require_source
from .output_manifest import LINK, ManifestWriter, Output, Outputs, outputs_of, read_outputs
from .safe_paths import SafeFolders
from .staging import staging_key
from .verified_copy import Outcome, Report, Transfer

SOURCE = "mlw"
PART = ".part-"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_MAX_LINK_BYTES = 1 << 16


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
    """Copy outputs into a new asset version that remains when the run is removed.

    If any file fails, nothing is promoted.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} is not a valid asset name", "use up to 100 letters, digits, '.', '_', and '-'")
    folder = paths.root.run(run.id)
    artifact_path = normalize_name(artifact)
    outputs, recorded = outputs_of(folder)
    if not recorded:
        raise UsageError(f"run {run.id} has no list of outputs yet", "promote outputs after the run has ended")
    require_outputs([artifact_path], outputs)
    require_source(folder)
    versions = os.path.join(_project_folder(paths, run.spec.project_id), name)
    make_private(os.path.dirname(os.path.dirname(versions)), os.path.dirname(versions), versions)
    # The name depends only on the run and the output, so that the next attempt can resume a killed one.
    part = os.path.join(versions, PART + staging_key(run.id, artifact_path))
    lock = _lock_folder(part)
    try:
        outcome, count, size = _fill(part, folder.outputs, outputs, artifact_path, report)
        for path, why in outcome.failed:
            remove(part)
            raise HistoryError(f"nothing was promoted: output {path} of run {run.id}: {why}")
        _sync(lock)
        asset = Asset(name, "", run.spec.project_id, run.id, artifact_path, time.time(), count, size)
        return _publish(part, versions, asset), outcome
    finally:
        os.close(lock)


def _lock_folder(part: str) -> int:
    """Create and lock the partial folder. Closing the descriptor releases the lock."""
    while True:
        make_private(part)
        descriptor = os.open(part, FOLDER | NOFOLLOW)
        if not try_lock(descriptor):
            os.close(descriptor)
            raise HistoryError("another command is promoting the same output", "wait until it finishes")
        try:
            if os.stat(part).st_ino == os.fstat(descriptor).st_ino:
                return descriptor
        except FileNotFoundError:
            pass
        os.close(descriptor)  # the last lock holder published or removed the folder


def _fill(part: str, source: str, outputs: Outputs, selected: str, report: Report | None) -> tuple[Outcome, int, int]:
    """Copy the selected outputs into the partial folder. Return the outcome, file count, and bytes."""
    prefix_length = len(selected.rpartition("/")[0]) + 1 if "/" in selected else 0
    files = os.path.join(part, "files")
    make_private(files)
    for entry in os.listdir(part):
        if entry != "files":  # left by a killed attempt; not part of the asset
            os.unlink(os.path.join(part, entry))
    count = size = 0

    def entries() -> Iterator[tuple[Output, str]]:
        return ((output, output.path[prefix_length:]) for output in outputs() if covers(selected, output.path))

    with (
        ManifestWriter(os.path.join(part, "outputs.json")) as manifest,
        SafeFolders(files) as target,
        Transfer(source, target, atomic=True, report=report) as transfer,
    ):

        def keep(output: Output, name: str) -> None:
            nonlocal count, size
            manifest.add(replace(output, path=name))
            count += output.kind != LINK
            size += output.size

        outcome = transfer.run(entries, keep)
    return outcome, count, size


def _sync(folder: int) -> None:
    """Flush the asset to disk in one call before publishing: syncing 100,000 single files is slow."""
    import ctypes  # noqa: PLC0415 - the other verbs have no use for it

    try:
        ctypes.CDLL(None, use_errno=True).syncfs(folder)
    except (OSError, AttributeError, TypeError):  # macOS and Windows lack syncfs()
        getattr(os, "sync", lambda: None)()


def _project_folder(paths: UserPaths, project_id: str) -> str:
    if not _NAME.fullmatch(project_id):
        raise HistoryError(f"the project has an invalid ID: {project_id!r}")
    return os.path.join(paths.home, "assets", project_id)


def _publish(part: str, versions: str, unversioned: Asset) -> Asset:
    """Rename the partial folder to the next free version. Retry if another command took that version."""
    while True:
        versions_taken = [int(entry) for entry in os.listdir(versions) if entry.isdecimal()]
        version = str(max(versions_taken, default=0) + 1)
        asset = replace(unversioned, version=version)
        write_atomic(os.path.join(part, "asset.json"), asdict(asset))
        try:
            os.rename(part, os.path.join(versions, version))
        except OSError:
            if os.path.isdir(os.path.join(versions, version)):
                continue
            raise
        return asset


# -- the pointer in the project ------------------------------------------------------------------------


def check_link(project: Path, name: str) -> None:
    """Check before a promotion that an existing link file with this name was created by mlw."""
    path = project / "assets" / f"{name}.link"
    if os.path.lexists(path) and _read_link(path).get("assetSource") != SOURCE:
        raise UsageError(f"{path} was not created by mlw", "choose another name, or move that file")


def write_link(project: Path, asset: Asset) -> Path:
    """Write ``assets/<name>.link``: one line of JSON in the Azure ML Workbench format."""
    text = json.dumps({"assetSource": SOURCE, "name": asset.name, "version": asset.version}) + "\n"
    name = f"{asset.name}.link"
    part = f".{name}.{os.urandom(6).hex()}"
    try:
        with SafeFolders(os.path.realpath(project)) as folders:
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
            data = parse_json(file.read(_MAX_LINK_BYTES))
    except FileNotFoundError:
        raise UsageError(f"file {path} not found", "pass a file such as assets/NAME.link with -l") from None
    except (OSError, ValueError):
        data = None
    if not isinstance(data, dict):
        raise ConfigError("not a link to an asset", path=str(path))
    return data


def read_link(path: Path) -> tuple[str, str]:
    """Return the asset name and version from a link file."""
    data = _read_link(path)
    source, name, version = (data.get(key) for key in ("assetSource", "name", "version"))
    if source == "azureml":
        raise ConfigError(
            "this is a link to an asset of Azure Machine Learning Workbench, which was retired in 2019: its files"
            " can no longer be downloaded",
            "if you have the files or can create them again: mlw history promote -r RUN -ap PATH -n NAME",
            path=str(path),
        )
    is_valid = isinstance(name, str) and _NAME.fullmatch(name) and isinstance(version, str) and version.isdecimal()
    if source != SOURCE or not is_valid:
        raise ConfigError("not a link to an asset of ML Workbench", path=str(path))
    return str(name), str(version)


# -- finding and fetching ------------------------------------------------------------------------------


def find_asset(paths: UserPaths, name: str, version: str, project_id: str | None) -> Asset:
    """Return the project's own asset; a clone must not receive files of another project.

    Outside of a project, return the only match.
    """
    available = list(list_assets(paths))
    same_version = [asset for asset in available if (asset.name, asset.version) == (name, version)]
    matches = [asset for asset in same_version if project_id in (None, asset.project_id)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise UsageError(f"several projects have version {version} of asset {name}", "run the command in the project")
    if same_version:
        raise UsageError(
            f"version {version} of asset {name} belongs to another project",
            f"to download it, use the link file in that project: mlw asset download -l PROJECT/assets/{name}.link",
        )
    raise UnknownName("asset", f"{name} {version}", [f"{asset.name} {asset.version}" for asset in available])


def list_assets(paths: UserPaths, project_id: str | None = None) -> Iterator[Asset]:
    """Yield all versions of all assets, sorted by project and name, newest version first."""
    base = os.path.join(paths.home, "assets")
    for project in [project_id] if project_id else _list_names(base):
        for name in _list_names(os.path.join(base, project)):
            numbers = [int(entry) for entry in _list_names(os.path.join(base, project, name)) if entry.isdecimal()]
            for number in sorted(numbers, reverse=True):
                data = read_json(os.path.join(base, project, name, str(number), "asset.json"))
                if data and set(data) >= set(Asset.__dataclass_fields__):
                    yield Asset(**{key: data[key] for key in Asset.__dataclass_fields__})


def _list_names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def fetch_asset(
    paths: UserPaths, asset: Asset, folder: str, *, overwrite: bool = False, report: Report | None = None
) -> Outcome:
    """Copy an asset's files to a folder."""
    base = os.path.join(_project_folder(paths, asset.project_id), asset.name, asset.version)

    def entries() -> Iterator[tuple[Output, str]]:
        return ((output, output.path) for output in read_outputs(os.path.join(base, "outputs.json")))

    try:
        return fetch(
            os.path.join(base, "files"), folder, staging_key(base), entries, overwrite=overwrite, report=report
        )
    except OSError as error:
        raise HistoryError(f"asset {asset.name} {asset.version} is damaged: {error.strerror}") from error
