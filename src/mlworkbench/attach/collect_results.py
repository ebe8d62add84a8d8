"""Before a machine is let go: what runs left there comes home, and those that go on are named."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from ..attachments import Attachment
from ..errors import MlwError
from ..fetch import Brought, Progress, bring_outputs, most_bytes
from ..follow import Follower
from ..history.query import Query
from ..history.store import History
from ..hosts.replies import printable
from ..hosts.ssh import SshHost
from ..inferred_state import INTERRUPTED
from ..model import IN_CONTACT, Compute, Run
from ..remote.shared.endings import TARGET_LOST
from ..remote.shared.frames import CHUNK
from ..remote.shared.kept_reasons import UNCOLLECTED
from ..remote.shared.layout import is_outside
from ..remote.shared.untrusted import parse_json
from ..runfiles.home_state import is_home, why_not_home
from ..targets.opening import open_target
from ..targets.remote import find_attachment

_NAMED = 10
_NOT_COLLECTED = "outputs that could not be collected"
_LARGEST_SPEC = 64 << 20


@dataclass
class Left:
    """How the runs of the machine stand. ``missing``: results that are there alone, and why."""

    brought: list[str] = field(default_factory=list)
    going: list[Run] = field(default_factory=list)
    missing: list[tuple[Run, str]] = field(default_factory=list)
    asked: bool = True  # the machine itself

    @property
    def busy(self) -> list[Run]:
        """Those that were taken on there, or may be just now, and have not ended."""
        return [run for run in self.going if run.detail != INTERRUPTED]

    @property
    def uncollected(self) -> list[Run]:
        """Those that have ended, with outputs that mlw cannot fetch."""
        return [run for run, why in self.missing if why == _NOT_COLLECTED]

    @property
    def interrupted(self) -> list[Run]:
        """Those whose submit died before."""
        return [run for run in self.going if run.detail == INTERRUPTED]


def named(words: list[str]) -> str:
    more = f", and {len(words) - _NAMED} more" if len(words) > _NAMED else ""
    return ", ".join(words[:_NAMED]) + more


def unsettled(history: History) -> list[Run]:
    """Runs of all projects, on any machine elsewhere, that have not ended or are not all at home. Oldest first.

    Those that another laptop submitted are that one's.
    """
    found = history.search(Query(hidden=True, inside=False))
    root = history.paths.root
    own = [run for run in found if run.spec.origin is None and not is_outside(run.id)]
    elsewhere = [run for run in own if run.spec.compute.address is not None]
    return [run for run in reversed(elsewhere) if not is_home(run, root.run(run.id))]


def bring_home(history: History, host: SshHost, progress: Progress) -> Left:
    """Ask how the runs of this machine stand, and fetch log, metrics and outputs of those that have ended."""
    left = Left()
    for run in _its_runs(history, host):
        try:
            now, why = _bring(history, run, as_attached(run.spec.compute, host.attachment), progress)
        except MlwError as error:  # one that cannot be had must not keep the others there
            now, why = history.known(run.id)[0], error.message
        if not now.status.final:
            left.going.append(now)
        elif why is not None:
            left.missing.append((now, why))
        else:
            left.brought.append(now.id)
    return left


def left_at_home(runs: list[Run], history: History) -> Left:
    """Runs that have ended, with results that no fetch brings: not collected, or left there by FetchOutputs."""
    left = Left()
    for run in runs:
        folder = history.paths.root.run(run.id)
        if why_not_home(run, folder) == UNCOLLECTED:
            left.missing.append((run, _NOT_COLLECTED))
        elif run.status.final and run.outputs and most_bytes(run.spec.fetch) < 0:
            left.missing.append((run, f"{run.outputs} outputs that FetchOutputs excludes"))
    return left


def as_known(history: History, found: Attachment) -> Left:
    """The same without a word from the machine."""
    left = Left(asked=False)
    for run in unsettled(history):
        if _is_of(run, found, history):
            if run.ending == TARGET_LOST:
                continue  # nothing of it was there any more
            if run.status.final:
                left.missing.append((run, "the machine was not contacted"))
            else:
                left.going.append(run)
    return left


def _is_of(run: Run, found: Attachment, history: History) -> bool:
    known = find_attachment(run.spec.compute, history.paths)
    return known is not None and known.folder == found.folder


def _its_runs(history: History, host: SshHost) -> Iterator[Run]:
    """Also those that went there by another name, if the machine proves that it has them.

    A machine that may be hostile is not believed about runs of another one: it would forge their results. The same
    home may have several machines, or one that got a new host key, so the proof alone counts.
    """
    there = host.attachment
    for run in unsettled(history):
        own = find_attachment(run.spec.compute, history.paths)
        if own is not None and own.folder == there.folder:
            if not run.status.final or host.news(run.id, {}, 1).exists:
                yield run
        elif _has_spec(host, run):
            yield run


def _has_spec(host: SshHost, run: Run) -> bool:
    """Whether the machine has what was sent with the run: a random key, which no other machine knows."""
    data = b""
    while len(data) < _LARGEST_SPEC:
        more = host.read_file(run.id, "spec.json", len(data), CHUNK)
        if not more:
            break
        data += more
    try:
        found = parse_json(data)
        return [found[name] for name in ("id", "key", "created")] == [run.id, run.spec.key, run.spec.created]
    except (ValueError, KeyError, TypeError):
        return False


def as_attached(compute: Compute, found: Attachment) -> Compute:
    """The target of a run by the name and the way that lead to its machine now."""
    port, jump = found.file_port, found.jump
    return replace(compute, address=found.address, username=found.username, port=port, jump_host=jump)


def _bring(history: History, run: Run, compute: Compute, progress: Progress) -> tuple[Run, str | None]:
    """How the run stands, and what of it could not be had."""
    target = open_target(compute, history.paths)
    folder = history.paths.root.run(run.id)
    try:
        follower = Follower(history, run, target)
        if not follower.refresh().status.final:
            return follower.run, None
        for _ in follower.chunks(live=False):
            continue
        brought = bring_outputs(follower.run, target.host, folder, progress)
    finally:
        target.host.close()
    if is_home(follower.run, folder):
        return follower.run, None
    if why_not_home(follower.run, folder) == UNCOLLECTED:
        return follower.run, _NOT_COLLECTED
    return follower.run, _why(follower, brought)


def _why(follower: Follower, brought: Brought | None) -> str:
    if not follower.log_is_home():
        return "log not downloaded" if follower.run.contact == IN_CONTACT else follower.run.contact
    if brought is not None and brought.outcome.failed:
        path, why = brought.outcome.failed[0]
        return f"{printable(path)}: {why}"
    if brought is not None and brought.left:
        return f"{brought.left} outputs that FetchOutputs excludes"
    return "outputs not downloaded"
