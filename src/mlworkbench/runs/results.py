"""Downloading the results of runs that have ended on other machines, including the children of a sweep."""

from __future__ import annotations

import re
from collections.abc import Callable

from ..errors import HistoryError, HostError, UsageError
from ..follow import Follower
from ..history.children import may_join
from ..history.store import History
from ..model import RunSpec
from ..remote.shared import endings
from ..report import units
from ..report.plain import plain
from ..runfiles.manifest import Output
from ..targets.target import Target
from .frontend import Frontend

_SHOWN = 8
_CHILD_LINE = re.compile(rb"^\d+/\d+ .*?(\S+)$", re.MULTILINE)


def fetch_outputs(follower: Follower, frontend: Frontend) -> None:
    """Download the outputs of a remote run that has ended, as far as its run configuration asks for it."""
    run, host = follower.run, follower.target.host
    if not host.distant or not run.status.final:
        return
    from ..fetch import bring_outputs  # noqa: PLC0415 - runs on this machine have nothing to fetch

    try:
        with frontend.progress("outputs") as progress:
            brought = bring_outputs(run, host, follower.history.paths.root.run(run.id), progress.report)
    except HostError as error:
        frontend.warning(f"outputs not downloaded: {error.message}")
        frontend.message(f"hint: download them with 'mlw history download -r {run.id}'")
        return
    if brought is None:
        return
    for path, why in brought.outcome.failed[:_SHOWN]:
        frontend.warning(f"output {plain(path)}: {why}")
    if brought.left:
        frontend.message(
            f"{brought.left} outputs ({units.size(brought.left_bytes)}) remain on {run.spec.compute.name};"
            f" download them with 'mlw history download -r {run.id}'"
        )


def bring_home(follower: Follower, frontend: Frontend, chosen: Callable[[Output], bool]) -> None:
    """Download the chosen outputs of a remote run and the list of all, whatever its run configuration says."""
    run, host = follower.run, follower.target.host
    folder = follower.history.paths.root.run(run.id)
    if not host.distant:
        return
    from ..fetch import bring_outputs, is_home  # noqa: PLC0415 - runs on this machine have nothing to fetch

    if is_home(folder):
        return
    if not run.status.final:
        raise UsageError(
            f"run {run.id} has not finished; its outputs are on {run.spec.compute.name}",
            f"follow it with 'mlw logs -f {run.id}'",
        )
    with frontend.progress("download") as progress:
        bring_outputs(run, host, folder, progress.report, chosen)


def forget_unusable_image(follower: Follower) -> None:
    """Examine the image again before the next run if this run could not start in it."""
    spec = follower.run.spec
    if spec.container and spec.container.libc and follower.run.ending == endings.COULD_NOT_START:
        from ..targets.images import forget  # noqa: PLC0415 - seldom needed

        forget(follower.target, spec.compute, follower.history.paths)


class SweepChildren:
    """The runs of one sweep, whose results are downloaded as they end."""

    def __init__(self, history: History, parent: RunSpec, target: Target, frontend: Frontend) -> None:
        self._history = history
        self._parent = parent
        self._target = target
        self._frontend = frontend
        self._names = dict.fromkeys((parent.sweep or {}).get("children", ()))
        self._rest = b""

    def feed(self, data: bytes) -> None:
        """Read more of the parent's log, and fetch the children that have ended according to it."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            match = _CHILD_LINE.match(line)
            name = match[1].decode(errors="replace") if match else ""
            if name in self._names:
                self._fetch(name)

    def fetch_all(self) -> None:
        """Update all children to their current state."""
        for name in self._names:
            self._fetch(name)

    def _fetch(self, name: str) -> None:
        try:
            run = self._history.known(name)[0]
        except HistoryError:
            return  # another command has removed it
        if run.status.final or not may_join(run.spec, self._parent):
            return
        follower = Follower(self._history, run, self._target)
        follower.refresh()
        if self._target.host.distant and follower.run.status.final:
            for _ in follower.chunks(live=False):
                continue
            fetch_outputs(follower, self._frontend)
