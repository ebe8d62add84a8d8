"""Download the checkpoints of a run to a folder that the user chooses."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence

from ..errors import HistoryError
from ..follow import Follower
from ..hosts.replies import Reply
from ..remote.shared.atomic_files import write_atomic
from ..remote.shared.folder_tree import NEW, parents
from ..remote.shared.layout import RunFolder
from ..remote.shared.message_frames import CHUNK
from ..runfiles.disk_limit import require_room
from ..runfiles.output_download import covers, fetch, require_outputs
from ..runfiles.output_fetch import OutputFetcher
from ..runfiles.output_manifest import Output, read_outputs
from ..runfiles.safe_paths import SafeFolders, path_problem
from ..runfiles.staging import staging_key
from ..runfiles.verified_copy import Outcome
from .submission_frontend import Frontend

_LISTING_TIMEOUT = 3600.0  # seconds: the target reads all checkpoints to compute their digests
_MAX_LIST = 256 * 1024 * 1024  # bytes


def download_checkpoints(
    follower: Follower, frontend: Frontend, directory: str, names: Sequence[str], *, overwrite: bool
) -> Outcome | None:
    """Copy checkpoints to a folder, and verify their digests. Return None if the run has none.

    They are first downloaded to the local run folder, so that an interrupted download continues.
    """
    run, host = follower.run, follower.target.host
    folder = follower.history.paths.root.run(run.id)
    frontend.message("reading the checkpoints on the target …")
    reply = Reply(host.identity, host.ask({"do": "checkpoints", "run": run.id}, timeout=_LISTING_TIMEOUT))
    reply.require_ok(f"{host.identity} cannot list the checkpoints")
    outputs = list(_download_list(follower, folder) if host.is_remote else read_outputs(folder.checkpoint_list))
    require_outputs(names, lambda: iter(outputs))
    chosen = [output for output in outputs if not names or any(covers(name, output.path) for name in names)]
    if not chosen:
        return None
    if host.is_remote:
        downloaded = _download_files(follower, frontend, folder, chosen)
        if not downloaded.is_complete:
            return downloaded
        if run.status.final and not names:  # 'mlw experiment clean' may now remove them from the target
            write_atomic(folder.checkpoint_list, {"downloaded": len(chosen)})
    with frontend.progress("checkpoints", least=1e6) as progress:
        total = sum(output.size for output in chosen)
        key = staging_key(folder.path, "checkpoints", *sorted(names))
        outcome = fetch(
            folder.checkpoints,
            directory,
            key,
            lambda: ((output, output.path) for output in chosen),
            overwrite=overwrite,
            report=lambda done: progress.report(int(done), total),
        )
    if outcome.is_complete:
        restore_times(directory, chosen)
    return outcome


def _download_list(follower: Follower, folder: RunFolder) -> Iterator[Output]:
    part = f"{folder.checkpoint_list}.{os.urandom(8).hex()}.part"
    try:
        with open(os.open(part, NEW, 0o600), "wb") as file:
            while data := follower.target.host.read_file(follower.run.id, "checkpoints.json", file.tell(), CHUNK):
                if file.tell() + len(data) > _MAX_LIST:
                    raise HistoryError(f"the list of checkpoints of {follower.run.id} is too long")
                require_room(folder.path, len(data), "the list of checkpoints")
                file.write(data)
        yield from list(read_outputs(part))
    finally:
        os.unlink(part)


def _download_files(follower: Follower, frontend: Frontend, folder: RunFolder, chosen: Sequence[Output]) -> Outcome:
    host, run_id = follower.target.host, follower.run.id

    def request(files: Sequence[tuple[str, int, int]]) -> Iterator[tuple[int, bytes]]:
        for index, (path, offset, size) in enumerate(files):
            while offset < size and (
                data := host.read_file(run_id, f"checkpoints/{path}", offset, min(CHUNK, size - offset))
            ):
                yield index, data
                offset += len(data)

    for output in chosen:
        _remove_outdated(folder, output)
    with frontend.progress("download") as progress:
        total = sum(output.size for output in chosen)
        fetcher = OutputFetcher(folder.checkpoints, request, lambda done: progress.report(int(done), total))
        outcome = fetcher.fetch(chosen)
    restore_times(folder.checkpoints, chosen)
    return outcome


def restore_times(base: str, outputs: Sequence[Output]) -> None:
    """Give downloaded files the times of the originals, and each folder that of its newest file.

    Scripts choose the newest checkpoint, which is a file or a folder.
    """
    times: dict[str, int] = {}
    for output in outputs:
        if output.is_file and output.modified is not None and not path_problem(output.path):
            times[output.path] = output.modified
            for folder in parents([output.path]):
                times[folder] = max(times.get(folder, output.modified), output.modified)
    with SafeFolders(base) as folders:
        for path, time in times.items():
            try:
                handle, name = folders.parent(path)
                os.utime(name, ns=(time, time), dir_fd=handle, follow_symlinks=False)
            except OSError:
                continue  # it was not downloaded, or the file system refuses this time


def _remove_outdated(folder: RunFolder, output: Output) -> None:
    """Remove an earlier version of a checkpoint, which often has the same name and size."""
    path = os.path.join(folder.checkpoints, output.path)
    if path_problem(output.path) or not os.path.isfile(path):
        return
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while data := file.read(CHUNK):
            digest.update(data)
    if digest.hexdigest() != output.sha256:
        os.unlink(path)
