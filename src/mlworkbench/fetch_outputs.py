"""Download the outputs of a finished run from another machine to its run folder.

Downloads can be resumed. A file appears under its name only when it is complete.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from .errors import HistoryError, HostError
from .hosts.host import Host
from .hosts.replies import Reply
from .model import Run
from .remote.shared.atomic_files import write_atomic
from .remote.shared.folder_tree import NEW
from .remote.shared.layout import RunFolder
from .remote.shared.output_kinds import ONLY_ON_TARGET
from .runfiles.disk_limit import require_room
from .runfiles.fetch_state import count_listed, is_fetched
from .runfiles.local_copy import LocalCopy
from .runfiles.output_fetch import OutputFetcher
from .runfiles.output_manifest import Output, read_outputs
from .runfiles.verified_copy import Outcome

CHUNK = 4 * 1024 * 1024
_MAX_ENTRY_LENGTH = 64 * 1024  # maximum line length of the list: two 4 kB paths, with six characters per escaped byte
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class DownloadResult:
    """The downloaded outputs, and those that remain on the target until requested."""

    outcome: Outcome
    left: int = 0
    left_bytes: int = 0


def max_download_size(fetch: str) -> float:
    """Return the maximum file size, in bytes, for automatic downloads with this ``FetchOutputs`` setting."""
    setting = fetch.strip().lower()
    if setting in ("all", "none"):
        return float("inf") if setting == "all" else -1.0
    number = setting.rstrip("bkmgti ").strip()
    unit = setting[len(number) :].strip().removesuffix("b")
    return float(number) * _UNITS[unit]


def are_outputs_downloaded(folder: RunFolder) -> bool:
    """Return whether all outputs have been downloaded."""
    return os.path.exists(folder.fetch_marker)


def download_outputs(
    run: Run,
    host: Host,
    folder: RunFolder,
    progress: Progress,
    chosen: Callable[[Output], bool] | None = None,
) -> DownloadResult | None:
    """Download the outputs that the run configuration selects, or those that ``chosen`` accepts.

    Returns None if there is nothing to download.
    """
    if not host.is_remote or not run.status.final:
        return None
    result = None if are_outputs_downloaded(folder) else _download_outputs(run, host, folder, progress, chosen)
    acknowledge(run, host, folder)
    return result


def acknowledge(run: Run, host: Host, folder: RunFolder) -> None:
    """Record on the target that all results were downloaded, so that its run folder may be deleted.

    Only the client that submitted the run does so. If this fails, the run counts as not downloaded.
    """
    client = None if run.spec.origin else run.spec.client
    if client is None or os.path.exists(folder.acknowledged) or not is_fetched(run, folder):
        return
    log = LocalCopy(folder).size()
    try:
        reply = Reply(host.identity, host.ask({"do": "fetched", "run": run.id, "client": client, "log": log}))
    except HostError:
        return  # the results are already local; the next download tries again
    if reply.ok:
        write_atomic(folder.acknowledged, {"log": log})


def _download_outputs(
    run: Run, host: Host, folder: RunFolder, progress: Progress, chosen: Callable[[Output], bool] | None
) -> DownloadResult | None:
    _download_build_log(run, host, folder)
    if not count_listed(run):
        return None
    _download_manifest(run, host, folder)
    most = max_download_size(run.spec.fetch)
    is_selected = chosen or (lambda output: output.size <= most)
    total = sum(output.size for output in read_outputs(folder.manifest) if is_selected(output))
    incoming = OutputFetcher(
        folder.outputs, lambda files: host.outputs(run.id, files), lambda done: progress(done, total)
    )
    outcome = incoming.fetch(output for output in read_outputs(folder.manifest) if is_selected(output))
    left = left_bytes = target_only = 0
    for output in read_outputs(folder.manifest):  # read twice to save memory: the list may be long
        if output.is_file and not is_selected(output):
            left, left_bytes = left + 1, left_bytes + output.size
        target_only += output.kind in ONLY_ON_TARGET
    if outcome.is_complete and not left:
        write_atomic(folder.fetch_marker, {"outputs": run.outputs, "only_there": target_only})
    return DownloadResult(outcome, left, left_bytes)


def _download_manifest(run: Run, host: Host, folder: RunFolder) -> None:
    """Download the list of outputs and their digests, which the supervisor wrote."""
    if os.path.exists(folder.manifest):
        return
    part = f"{folder.manifest}.{os.urandom(8).hex()}.part"
    try:
        with open(os.open(part, NEW, 0o600), "wb") as file:
            most = (count_listed(run) + 1) * _MAX_ENTRY_LENGTH
            for data in _whole_file(host, run.id, "outputs.json"):
                most -= len(data)
                if most < 0:
                    raise _manifest_mismatch(run, "is too long")
                require_room(folder.path, len(data), "the list of outputs")
                file.write(data)
        _check_manifest(run, part)  # raise an error for a damaged list, because a stored list is trusted
        os.replace(part, folder.manifest)
    except OSError as error:
        raise HistoryError(f"cannot write {folder.manifest}: {error.strerror}") from error
    finally:
        if os.path.exists(part):
            os.unlink(part)


def _check_manifest(run: Run, path: str) -> None:
    count = size = 0
    for output in read_outputs(path):
        count, size = count + 1, size + output.size
    if count != count_listed(run) or size != (size if run.output_bytes is None else run.output_bytes):
        raise _manifest_mismatch(run, f"has {count:,} outputs with {size:,} bytes")


def _manifest_mismatch(run: Run, what: str) -> HostError:
    expected = f"{count_listed(run):,} outputs" + (
        "" if run.output_bytes is None else f" with {run.output_bytes:,} bytes"
    )
    return HostError(f"the list of outputs of {run.id} {what}, but the run reported {expected}")


def _download_build_log(run: Run, host: Host, folder: RunFolder) -> None:
    mirror = LocalCopy(folder)
    at = mirror.size("build.log")
    for data in _whole_file(host, run.id, "build.log", at):
        mirror.write("build.log", at, data)
        at += len(data)


def _whole_file(host: Host, run_id: str, name: str, at: int = 0) -> Iterable[bytes]:
    while data := host.read_file(run_id, name, at, CHUNK):
        yield data
        at += len(data)
