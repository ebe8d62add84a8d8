"""Download the results of runs that ended on other machines, including the children of sweeps."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..errors import HistoryError, HostError, UsageError
from ..follow import Follower
from ..history.child_runs import may_join
from ..history.store import History
from ..model import RunSpec
from ..remote.shared import run_endings
from ..report import units
from ..sanitize import plain
from ..targets.target import Target
from .submission_frontend import Frontend

if TYPE_CHECKING:
    from ..runfiles.output_manifest import Output

_SHOWN = 8
_CHILD_LINE = re.compile(rb"^\d+/\d+ .*?(\S+)$", re.MULTILINE)


def fetch_outputs(follower: Follower, frontend: Frontend) -> None:
    """Download the outputs of an ended remote run, as specified by its run configuration."""
    run, host = follower.run, follower.target.host
    if not host.is_remote or not run.status.final:
        return
    from ..fetch_outputs import download_outputs  # noqa: PLC0415 - runs on this machine have nothing to fetch

    try:
        with frontend.progress("outputs") as progress:
            result = download_outputs(run, host, follower.history.paths.root.run(run.id), progress.report)
    except HostError as error:
        frontend.warning(f"outputs not downloaded: {error.message}")
        frontend.message(f"hint: download them with 'mlw history download -r {run.id}'")
        return
    if result is None:
        return
    for path, why in result.outcome.failed[:_SHOWN]:
        frontend.warning(f"output {plain(path)}: {why}")
    if result.left:
        frontend.message(
            f"{result.left} outputs ({units.size(result.left_bytes)}) remain on {run.spec.compute.name};"
            f" download them with 'mlw history download -r {run.id}'"
        )


def download_selected_outputs(follower: Follower, frontend: Frontend, chosen: Callable[[Output], bool]) -> None:
    """Download the chosen outputs of a remote run and its list of outputs.

    The setting ``FetchOutputs`` in the run configuration is ignored.
    """
    run, host = follower.run, follower.target.host
    folder = follower.history.paths.root.run(run.id)
    if not host.is_remote:
        return
    from ..fetch_outputs import are_outputs_downloaded, download_outputs  # noqa: PLC0415 - runs on this machine have nothing to fetch

    if are_outputs_downloaded(folder):
        return
    if not run.status.final:
        raise UsageError(
            f"run {run.id} has not finished; its outputs are on {run.spec.compute.name}",
            f"follow it with 'mlw logs -f {run.id}'",
        )
    with frontend.progress("download") as progress:
        download_outputs(run, host, folder, progress.report, chosen)


def forget_unusable_image(follower: Follower) -> None:
    """If the run could not start in its image, forget the image, so that the next run examines it again."""
    spec = follower.run.spec
    if spec.container and spec.container.libc and follower.run.ending == run_endings.COULD_NOT_START:
        from ..targets.image_libc import forget  # noqa: PLC0415 - seldom needed

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
        """Read more of the parent's log and fetch the results of children that it reports as ended."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            match = _CHILD_LINE.match(line)
            name = match[1].decode(errors="replace") if match else ""
            if name in self._names:
                self._fetch(name)

    def fetch_all(self) -> None:
        """Update all children, and fetch the results of those that have ended."""
        for name in self._names:
            self._fetch(name)

    def _fetch(self, name: str) -> None:
        try:
            run = self._history.load(name)[0]
        except HistoryError:
            return  # removed by another command
        if run.status.final or not may_join(run.spec, self._parent):
            return
        follower = Follower(self._history, run, self._target)
        follower.refresh()
        if self._target.host.is_remote and follower.run.status.final:
            for _ in follower.chunks(live=False):
                continue
            fetch_outputs(follower, self._frontend)
