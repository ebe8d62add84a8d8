"""Outputs of a run that has ended on another machine → the history's run folder. Resumable, whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from .errors import HistoryError, HostError
from .hosts.host import Host
from .hosts.replies import Reply
from .model import Run
from .remote.shared.files import write_whole
from .remote.shared.layout import RunFolder
from .remote.shared.output_kinds import ONLY_THERE
from .remote.shared.tree import NEW
from .runfiles.home_state import count_listed
from .runfiles.home_state import is_home as all_is_home
from .runfiles.incoming import Incoming
from .runfiles.manifest import Output, read_outputs
from .runfiles.mirror import Mirror
from .runfiles.room import require_room
from .runfiles.transfer import Outcome

CHUNK = 4 * 1024 * 1024
_LONGEST_ENTRY = 64 * 1024  # of the list of outputs: two paths of 4 kB, each of whose bytes is written with six
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Brought:
    """What came, and what stays there until somebody asks for it."""

    outcome: Outcome
    left: int = 0
    left_bytes: int = 0


def most_bytes(fetch: str) -> float:
    """``FetchOutputs`` as the size up to which a file comes by itself."""
    word = fetch.strip().lower()
    if word in ("all", "none"):
        return float("inf") if word == "all" else -1.0
    number = word.rstrip("bkmgti ").strip()
    unit = word[len(number) :].strip().removesuffix("b")
    return float(number) * _UNITS[unit]


def is_home(folder: RunFolder) -> bool:
    """Whether all outputs have been brought here."""
    return os.path.exists(folder.home)


def bring_outputs(
    run: Run,
    host: Host,
    folder: RunFolder,
    progress: Progress,
    chosen: Callable[[Output], bool] | None = None,
) -> Brought | None:
    """Fetch what the run configuration asks for, or else what ``chosen`` says. None: there is nothing to fetch."""
    if not host.distant or not run.status.final:
        return None
    brought = None if is_home(folder) else _bring(run, host, folder, progress, chosen)
    acknowledge(run, host, folder)
    return brought


def acknowledge(run: Run, host: Host, folder: RunFolder) -> None:
    """Have the target record that everything of the run is at home: then others may delete it there.

    Only the laptop that submitted a run does so. Where it fails, the run counts as not fetched.
    """
    client = None if run.spec.origin else run.spec.client
    if client is None or os.path.exists(folder.acknowledged) or not all_is_home(run, folder):
        return
    log = Mirror(folder).size()
    try:
        reply = Reply(host.identity, host.ask({"do": "fetched", "run": run.id, "client": client, "log": log}))
    except HostError:
        return  # the results are here, which is what was asked for; the next fetch acknowledges them
    if reply.ok:
        write_whole(folder.acknowledged, {"log": log})


def _bring(
    run: Run, host: Host, folder: RunFolder, progress: Progress, chosen: Callable[[Output], bool] | None
) -> Brought | None:
    _bring_build_log(run, host, folder)
    if not count_listed(run):
        return None
    _bring_list(run, host, folder)
    most = most_bytes(run.spec.fetch)
    wanted = chosen or (lambda one: one.size <= most)
    total = sum(one.size for one in read_outputs(folder.manifest) if wanted(one))
    incoming = Incoming(folder.outputs, lambda files: host.outputs(run.id, files), lambda done: progress(done, total))
    outcome = incoming.fetch(one for one in read_outputs(folder.manifest) if wanted(one))
    left = left_bytes = only_there = 0
    for one in read_outputs(folder.manifest):  # read again rather than held: there may be very many
        if one.is_file and not wanted(one):
            left, left_bytes = left + 1, left_bytes + one.size
        only_there += one.kind in ONLY_THERE
    if outcome.whole and not left:
        write_whole(folder.home, {"outputs": run.outputs, "only_there": only_there})
    return Brought(outcome, left, left_bytes)


def _bring_list(run: Run, host: Host, folder: RunFolder) -> None:
    """The list of outputs with their digests, as the run's supervisor wrote it."""
    if os.path.exists(folder.manifest):
        return
    part = f"{folder.manifest}.{os.urandom(8).hex()}.part"
    try:
        with open(os.open(part, NEW, 0o600), "wb") as file:
            most = (count_listed(run) + 1) * _LONGEST_ENTRY
            for data in _whole_file(host, run.id, "outputs.json"):
                most -= len(data)
                if most < 0:
                    raise _unlike(run, "is too long")
                require_room(folder.path, len(data), "the list of outputs")
                file.write(data)
        _check_list(run, part)  # damaged: an error here, and no list that would be believed later
        os.replace(part, folder.manifest)
    except OSError as error:
        raise HistoryError(f"cannot write {folder.manifest}: {error.strerror}") from error
    finally:
        if os.path.exists(part):
            os.unlink(part)


def _check_list(run: Run, path: str) -> None:
    count = size = 0
    for one in read_outputs(path):
        count, size = count + 1, size + one.size
    if count != count_listed(run) or size != (size if run.output_bytes is None else run.output_bytes):
        raise _unlike(run, f"has {count:,} outputs with {size:,} bytes")


def _unlike(run: Run, what: str) -> HostError:
    told = f"{count_listed(run):,} outputs" + ("" if run.output_bytes is None else f" with {run.output_bytes:,} bytes")
    return HostError(f"the list of outputs of {run.id} {what}, but the run reported {told}")


def _bring_build_log(run: Run, host: Host, folder: RunFolder) -> None:
    mirror = Mirror(folder)
    at = mirror.size("build.log")
    for data in _whole_file(host, run.id, "build.log", at):
        mirror.write("build.log", at, data)
        at += len(data)


def _whole_file(host: Host, run_id: str, name: str, at: int = 0) -> Iterable[bytes]:
    while data := host.read_file(run_id, name, at, CHUNK):
        yield data
        at += len(data)
