"""Download the results of runs before a machine is detached, and list its unfinished runs."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from ..attachments import Attachment
from ..errors import MlwError
from ..fetch_outputs import DownloadResult, Progress, download_outputs, max_download_size
from ..follow import Follower
from ..history.run_query import Query
from ..history.store import History
from ..hosts.replies import printable
from ..hosts.ssh_host import SshHost
from ..inferred_state import INTERRUPTED
from ..model import IN_CONTACT, Compute, Run
from ..remote.shared.kept_reasons import UNCOLLECTED
from ..remote.shared.layout import is_untracked
from ..remote.shared.message_frames import CHUNK
from ..remote.shared.run_endings import TARGET_LOST
from ..remote.shared.untrusted_json import parse_json
from ..runfiles.fetch_state import is_fetched, unfetched_reason
from ..targets.open_remote import find_attachment
from ..targets.target_factory import open_target

_MAX_NAMES = 10
_NOT_COLLECTED = "outputs that could not be collected"
_MAX_SPEC_SIZE = 64 << 20


@dataclass
class MachineRuns:
    """State of a machine's runs. ``missing`` lists runs whose results exist only there, with reasons."""

    downloaded: list[str] = field(default_factory=list)
    unfinished: list[Run] = field(default_factory=list)
    missing: list[tuple[Run, str]] = field(default_factory=list)
    asked: bool = True  # the machine was contacted

    @property
    def busy(self) -> list[Run]:
        """Unfinished runs that the machine has accepted or may still accept."""
        return [run for run in self.unfinished if run.detail != INTERRUPTED]

    @property
    def uncollected(self) -> list[Run]:
        """Finished runs with outputs that mlw cannot download."""
        return [run for run, why in self.missing if why == _NOT_COLLECTED]

    @property
    def interrupted(self) -> list[Run]:
        """Runs whose submission was interrupted."""
        return [run for run in self.unfinished if run.detail == INTERRUPTED]


def listed(names: list[str]) -> str:
    more = f", and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return ", ".join(names[:_MAX_NAMES]) + more


def runs_to_collect(history: History) -> list[Run]:
    """Return runs on other machines that are unfinished or not fully downloaded, oldest first.

    Includes runs of all projects, but not runs that another laptop submitted.
    """
    all_runs = history.search(Query(hidden=True, inside=False))
    root = history.paths.root
    runs = [run for run in all_runs if run.spec.origin is None and not is_untracked(run.id)]
    elsewhere = [run for run in runs if run.spec.compute.address is not None]
    return [run for run in reversed(elsewhere) if not is_fetched(run, root.run(run.id))]


def download_results(history: History, host: SshHost, progress: Progress) -> MachineRuns:
    """Update the runs of this machine and download logs, metrics, and outputs of finished runs."""
    left = MachineRuns()
    for run in _machine_runs(history, host):
        try:
            now, why = _download_run(history, run, as_attached(run.spec.compute, host.attachment), progress)
        except MlwError as error:  # one failed download must not prevent the others
            now, why = history.load(run.id)[0], error.message
        if not now.status.final:
            left.unfinished.append(now)
        elif why is not None:
            left.missing.append((now, why))
        else:
            left.downloaded.append(now.id)
    return left


def find_missing(runs: list[Run], history: History) -> MachineRuns:
    """Return finished runs with outputs that were not collected or that FetchOutputs excludes."""
    left = MachineRuns()
    for run in runs:
        folder = history.paths.root.run(run.id)
        if unfetched_reason(run, folder) == UNCOLLECTED:
            left.missing.append((run, _NOT_COLLECTED))
        elif run.status.final and run.outputs and max_download_size(run.spec.fetch) < 0:
            left.missing.append((run, f"{run.outputs} outputs that FetchOutputs excludes"))
    return left


def known_runs(history: History, attachment: Attachment) -> MachineRuns:
    """Return the last known state of the machine's runs, without contacting the machine."""
    left = MachineRuns(asked=False)
    for run in runs_to_collect(history):
        if _is_on_machine(run, attachment, history):
            if run.ending == TARGET_LOST:
                continue  # the machine no longer has the run's files
            if run.status.final:
                left.missing.append((run, "the machine was not contacted"))
            else:
                left.unfinished.append(run)
    return left


def _is_on_machine(run: Run, attachment: Attachment, history: History) -> bool:
    current = find_attachment(run.spec.compute, history.paths)
    return current is not None and current.folder == attachment.folder


def _machine_runs(history: History, host: SshHost) -> Iterator[Run]:
    """Yield the machine's runs, and other machines' runs if this machine proves that it has their keys.

    Several machines may share a home folder. Without the proof, a hostile machine could forge results of
    another machine's runs. Host keys are no proof, because they may change.
    """
    attachment = host.attachment
    for run in runs_to_collect(history):
        current = find_attachment(run.spec.compute, history.paths)
        if current is not None and current.folder == attachment.folder:
            if not run.status.final or host.news(run.id, {}, 1).exists:
                yield run
        elif _has_spec(host, run):
            yield run


def _has_spec(host: SshHost, run: Run) -> bool:
    """Return whether the machine has the random key that was sent with the run."""
    data = b""
    while len(data) < _MAX_SPEC_SIZE:
        more = host.read_file(run.id, "spec.json", len(data), CHUNK)
        if not more:
            break
        data += more
    try:
        attachment = parse_json(data)
        return [attachment[name] for name in ("id", "key", "created")] == [run.id, run.spec.key, run.spec.created]
    except (ValueError, KeyError, TypeError):
        return False


def as_attached(compute: Compute, attachment: Attachment) -> Compute:
    """Return the target of a run with the machine's current name and route."""
    port, jump = attachment.file_port, attachment.jump
    return replace(compute, address=attachment.address, username=attachment.username, port=port, jump_host=jump)


def _download_run(history: History, run: Run, compute: Compute, progress: Progress) -> tuple[Run, str | None]:
    """Return the updated run, and a description of what could not be downloaded."""
    target = open_target(compute, history.paths)
    folder = history.paths.root.run(run.id)
    try:
        follower = Follower(history, run, target)
        if not follower.refresh().status.final:
            return follower.run, None
        for _ in follower.chunks(live=False):
            continue
        result = download_outputs(follower.run, target.host, folder, progress)
    finally:
        target.host.close()
    if is_fetched(follower.run, folder):
        return follower.run, None
    if unfetched_reason(follower.run, folder) == UNCOLLECTED:
        return follower.run, _NOT_COLLECTED
    return follower.run, _why(follower, result)


def _why(follower: Follower, result: DownloadResult | None) -> str:
    if not follower.is_log_complete():
        return "log not downloaded" if follower.run.contact == IN_CONTACT else follower.run.contact
    if result is not None and result.outcome.failed:
        path, why = result.outcome.failed[0]
        return f"{printable(path)}: {why}"
    if result is not None and result.left:
        return f"{result.left} outputs that FetchOutputs excludes"
    return "outputs not downloaded"


def copy_command(run: Run, attachment: Attachment) -> str:
    """Return the ``scp`` command that copies a run's working copy from its target."""
    command = ["scp", "-r"]
    command += ["-P", str(attachment.file_port)] if attachment.file_port is not None else []
    command += ["-J", attachment.jump] if attachment.jump else []
    command += ["-i", str(attachment.key_file)] if attachment.key_file else []
    address = f"[{attachment.address}]" if ":" in attachment.address else attachment.address
    # Relative to the home folder, because not every scp expands a tilde.
    return shlex.join([*command, f"{attachment.username}@{address}:.mlw/runs/{run.spec.folder}/work", f"{run.id}-work"])
