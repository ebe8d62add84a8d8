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

Progress = Callable[[int, int], None]


class CheckpointStore(Root):
    """The checkpoints in a folder on this machine, with the interface of a content store."""

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self._blobs: dict[str, str] = {}
        files, links = [], []
        for path in _list_paths(folder):
            name = portable(os.path.relpath(path, folder))
            status = os.lstat(path)
            if stat.S_ISLNK(status.st_mode):
                links.append([name, portable(_link_target(folder, path))])
            elif stat.S_ISREG(status.st_mode):
                sha256, size = _digest(path)
                self._blobs[sha256] = path
                files.append([name, sha256, size, stat.S_IMODE(status.st_mode)])
        content = {"version": 1, "files": sorted(files), "links": sorted(links), "folders": []}
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


def plan_checkpoints(run: Run | None, compute: Compute, paths: UserPaths) -> tuple[str | None, str | None]:
    """Return the ID of the resumed run, and the digest of its checkpoints if they must be sent to another machine.

    Raise ``UsageError`` if they are on another machine, and not on this one.
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
            more="no-checkpoints",
        )
    if target == ():
        return run.id, None  # the target finds them in the run folder on this machine
    try:
        return run.id, CheckpointStore(folder.checkpoints).digest
    except OSError as error:
        raise UsageError(f"--resume: cannot read the checkpoints of run {run.id}: {error.strerror}") from error


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


def _list_paths(folder: str) -> Iterator[str]:
    """Yield the paths of all files and links."""
    if os.path.islink(folder):
        raise NotADirectoryError(20, os.strerror(20), folder)

    def refuse(error: OSError) -> None:
        raise error

    for place, folders, names in os.walk(folder, onerror=refuse):
        yield from (os.path.join(place, name) for name in names)
        yield from (path for name in folders if os.path.islink(path := os.path.join(place, name)))


def _link_target(folder: str, path: str) -> str:
    """Return the target of a link. Raise ``UsageError`` if it is outside of the folder."""
    text = os.readlink(path)
    target = os.path.normpath(os.path.join(os.path.dirname(path), text))
    if os.path.isabs(text) or os.path.commonpath((folder, target)) != folder:
        raise UsageError(f"--resume: {path} is a link to {text}, which cannot be sent", "replace the link by a file")
    return text


def _digest(path: str) -> tuple[str, int]:
    digest, size = hashlib.sha256(), 0
    with Path(path).open("rb") as file:
        while data := file.read(_BLOCK):
            digest.update(data)
            size += len(data)
    return digest.hexdigest(), size
