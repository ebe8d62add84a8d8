"""Send the checkpoints of a run to another machine, where a new run starts with them. They travel like a snapshot."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType

from .errors import LaunchError, UsageError
from .history.child_runs import machine_of
from .model import Compute, Run, RunSpec
from .paths import UserPaths
from .remote.shared.folder_tree import portable
from .remote.shared.layout import Root, RunFolder
from .targets.target import Target

_BLOCK = 1 << 20
_PAGE = "no-checkpoints"  # of mlw explain

# Path and status of a file → digest and size: a submission needs them when it is planned, and when it is sent.
_DIGESTS: dict[tuple[str, int, int, int, int, int], tuple[str, int]] = {}

Progress = Callable[[int, int], None]


class CheckpointStore(Root):
    """The checkpoints in a folder on this machine, with the interface of a content store."""

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self._blobs: dict[str, str] = {}
        files, links, folders, times = [], [], [], {}
        for path, status in _list_paths(folder):
            name = portable(os.path.relpath(path, folder))
            if stat.S_ISLNK(status.st_mode):
                links.append([name, portable(_link_target(folder, path))])
                continue
            if stat.S_ISDIR(status.st_mode):
                folders.append(name)
            elif stat.S_ISREG(status.st_mode):
                sha256, size = _recorded_digest(path, status)
                self._blobs[sha256] = path
                # The two modes of a snapshot: others depend on the umask, and on how a library creates its files.
                files.append([name, sha256, size, 0o755 if status.st_mode & stat.S_IXUSR else 0o644])
            else:
                continue
            times[name] = status.st_mtime_ns  # scripts choose the newest checkpoint
        content = {"version": 1, "files": sorted(files), "links": sorted(links), "folders": sorted(folders)}
        content["times"] = dict(sorted(times.items()))
        self._manifest = json.dumps(content, separators=(",", ":"), ensure_ascii=True).encode("ascii")
        self.digest = hashlib.sha256(self._manifest).hexdigest()
        self._manifest_path = ""

    def __enter__(self) -> CheckpointStore:
        descriptor, self._manifest_path = tempfile.mkstemp(prefix="mlw-checkpoints-")
        with open(descriptor, "wb") as file:
            file.write(self._manifest)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.unlink(self._manifest_path)

    def snapshot(self, digest: str) -> str:
        return self._manifest_path if digest == self.digest else super().snapshot(digest)

    def blob(self, digest: str) -> str:
        return self._blobs.get(digest) or super().blob(digest)


def plan_checkpoints(
    run: Run | None, compute: Compute, paths: UserPaths, *, dry_run: bool = False
) -> tuple[str | None, str | None]:
    """Return the ID of the resumed run, and the digest of its checkpoints if they must be sent to another machine.

    Raise ``UsageError`` if they are on another machine, and not on this one. ``dry_run``: do not read their content.
    """
    if run is None:
        return None, None
    source, target = machine_of(run.spec.compute), machine_of(compute)
    if source == target:
        return run.id, None
    folder = paths.root.run(run.id)
    if source != () and not _is_downloaded(folder):
        raise UsageError(
            f"--resume: the checkpoints of run {run.id} are on target {run.spec.compute.name}, not on {compute.name}",
            f"download all of them with 'mlw history download {run.id} --checkpoints -d FOLDER' after the run has"
            f" ended, and submit again; or submit to {run.spec.compute.name}",
            more=_PAGE,
        )
    if target == ():
        return run.id, None  # the target finds them in the run folder on this machine
    if not os.path.lexists(folder.checkpoints):
        raise UsageError(f"--resume: run {run.id} has no checkpoints", more=_PAGE)
    try:
        if dry_run:
            _check_links(folder.checkpoints)
            return run.id, None
        return run.id, CheckpointStore(folder.checkpoints).digest
    except OSError as error:
        text = f"--resume: cannot read the checkpoints of run {run.id}: {error.strerror}"
        raise UsageError(text, more=_PAGE) from error


def send_checkpoints(spec: RunSpec, paths: UserPaths, target: Target, progress: Progress | None) -> None:
    """Upload the checkpoints that this run starts with, if they come from another machine. May be repeated."""
    if spec.checkpoints is None or spec.resumed is None:
        return
    try:
        store = CheckpointStore(paths.root.run(spec.resumed).checkpoints)
    except (OSError, UsageError):
        store = None
    if store is None or store.digest != spec.checkpoints:
        raise LaunchError(f"the checkpoints of run {spec.resumed} have changed on this machine", "submit again")
    with store:
        target.host.send_code(store.digest, store, progress)


def _is_downloaded(folder: RunFolder) -> bool:
    """Return whether all checkpoints of a run on another machine were downloaded after it had ended."""
    return os.path.exists(folder.checkpoint_list) and os.path.isdir(folder.checkpoints)


def _list_paths(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the path and the status of each file, link, and folder."""
    if os.path.islink(folder):
        raise NotADirectoryError(20, os.strerror(20), folder)

    def refuse(error: OSError) -> None:
        raise error

    for place, folders, names in os.walk(folder, onerror=refuse):
        for name in (*names, *folders):
            path = os.path.join(place, name)
            yield path, os.lstat(path)


def _check_links(folder: str) -> None:
    for path, status in _list_paths(folder):
        if stat.S_ISLNK(status.st_mode):
            _link_target(folder, path)


def _link_target(folder: str, path: str) -> str:
    """Return the target of a link. Raise ``UsageError`` if it is outside of the folder."""
    text = os.readlink(path)
    target = os.path.normpath(os.path.join(os.path.dirname(path), text))
    if os.path.isabs(text) or os.path.commonpath((folder, target)) != folder:
        message = f"--resume: {path} is a link to {text}, which cannot be sent"
        raise UsageError(message, "replace the link with a file", more=_PAGE)
    return text


def _recorded_digest(path: str, status: os.stat_result) -> tuple[str, int]:
    """Return the digest and the size of a file. A file that was not changed is read only once by this process."""
    key = (path, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    if key not in _DIGESTS:
        _DIGESTS[key] = _digest(path)
    return _DIGESTS[key]


def _digest(path: str) -> tuple[str, int]:
    digest, size = hashlib.sha256(), 0
    with Path(path).open("rb") as file:
        while data := file.read(_BLOCK):
            digest.update(data)
            size += len(data)
    return digest.hexdigest(), size
