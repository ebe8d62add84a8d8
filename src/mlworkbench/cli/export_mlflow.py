"""``mlw history export --mlflow``: what it takes to send runs to a server, and what is said of it."""

from __future__ import annotations

import os
import tempfile
from typing import BinaryIO

from ..errors import MlwError, UsageError
from ..export.material import Item, make_items
from ..export.mlflow.export import Exporter
from ..export.mlflow.files import Files, Withheld, open_plain
from ..export.mlflow.rest import Server
from ..fetch import bring_outputs, is_home
from ..history.store import History
from ..model import Run
from ..report.records import for_people, record
from ..runfiles.home_state import count_listed
from ..runfiles.mask import Mask
from ..secret import find_secret
from ..targets.opening import open_target
from . import render

_CHUNK = 1 << 20
_BYTES = "outputs"


def to_server(history: History, runs: list[Run], uri: str, experiment: str | None) -> int:
    """Send them; a line for each, with its address for a browser. 1 if something could not be sent."""
    server = Server(uri)
    server.post("experiments/search", {"max_results": 1})  # is it one? Before outputs are fetched from anywhere
    for run in runs:
        _bring_home(history, run)
    items = make_items(history, runs, record, for_people)
    progress = _Progress()
    files = Files(_open_log, progress.report, render.warn)
    sent, whole = [], True
    with progress:
        for one in Exporter(server, experiment, files, progress.report, render.warn).send(items):
            sent.append({"run_id": one.run, "mlflow_run_id": one.id, "state": _state(one.new), "address": one.address})
            whole = whole and one.whole
            progress.close()
            render.message(f"{_state(one.new)}: {one.run} ({len(sent)} of {len(items)})")
    render.emit(sent, output="table")
    return 0 if whole else 1


def _state(new: bool) -> str:
    return "created" if new else "updated"


def _bring_home(history: History, run: Run) -> None:
    """Outputs that are still on their target, whatever the run configuration said of that."""
    folder = history.paths.root.run(run.spec.folder)
    if run.spec.inside or not run.status.final or not count_listed(run) or is_home(folder):
        return
    try:
        host = open_target(run.spec.compute, history.paths).host
        if host.distant:
            with render.Progress(f"outputs of {run.id} from {run.spec.compute.name}") as progress:
                bring_outputs(run, host, folder, progress.report, lambda one: True)
    except MlwError as error:
        render.warn(f"run {run.id}: cannot fetch outputs: {error.message}")


def _open_log(item: Item) -> BinaryIO | None:
    """With what is known of its secrets hidden. A run inside another has that one's."""
    if item.run.spec.inside:
        return None
    try:
        log = open_plain(item.folder.log)
    except OSError:
        return None
    if not item.run.spec.secrets:
        return log
    with log:
        return _hidden(log, _secrets(item.run))


def _secrets(run: Run) -> list[bytes]:
    """All of them: what leaves this machine cannot be called back."""
    found = []
    for name in run.spec.secrets:
        try:
            found.append(os.fsencode(find_secret(name, ask=False)))
        except UsageError:
            raise Withheld(f"its secret {name} is not set here; set {name} and export again") from None
    return found


def _hidden(log: BinaryIO, secrets: list[bytes]) -> BinaryIO:
    hidden: BinaryIO = tempfile.TemporaryFile(prefix="mlw-export-")
    mask = Mask(secrets)
    while data := log.read(_CHUNK):
        hidden.write(mask.feed(data))
    hidden.write(mask.end())
    hidden.seek(0)
    return hidden


class _Progress:
    """A line for what is sent right now."""

    def __init__(self) -> None:
        self._label = ""
        self._shown: render.Progress | None = None

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def report(self, label: str, done: int, total: int) -> None:
        if self._shown is None or label != self._label:
            self.close()
            self._label = label
            counted = label.startswith(_BYTES)
            self._shown = (
                render.Progress(label) if counted else render.Progress(label, show=lambda count: f"{count:,.0f}")
            )
        self._shown.report(done, total)

    def close(self) -> None:
        if self._shown is not None:
            self._shown.close()
        self._shown = None
