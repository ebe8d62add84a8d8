"""``mlw history export --mlflow``: send runs to an MLflow server."""

from __future__ import annotations

import os
import tempfile
from typing import BinaryIO

from ..errors import MlwError, UsageError
from ..export.mlflow.artifacts import ArtifactUploader, Withheld, open_plain
from ..export.mlflow.rest_client import Server
from ..export.mlflow.run_export import Exporter
from ..export.run_data import Item, make_items
from ..fetch_outputs import are_outputs_downloaded, download_outputs
from ..history.store import History
from ..model import Run
from ..report.run_records import record, to_display
from ..runfiles.fetch_state import count_listed
from ..runfiles.secret_masking import Mask
from ..secret_sources import find_secret
from ..targets.target_factory import open_target
from . import render

_CHUNK = 1 << 20
_BYTES_LABEL = "outputs"


def export_to_server(history: History, runs: list[Run], uri: str, experiment: str | None) -> int:
    """Send the runs and print a row with the URL of each. Return 1 if something could not be sent."""
    server = Server(uri)
    server.post("experiments/search", {"max_results": 1})  # check the server before fetching outputs
    for run in runs:
        _fetch_outputs(history, run)
    items = make_items(history, runs, record, to_display)
    progress = _Progress()
    files = ArtifactUploader(_open_log, progress.report, render.warn)
    sent, is_complete = [], True
    with progress:
        for result in Exporter(server, experiment, files, progress.report, render.warn).send(items):
            sent.append(
                {
                    "run_id": result.run,
                    "mlflow_run_id": result.id,
                    "state": _state(result.new),
                    "address": result.address,
                }
            )
            is_complete = is_complete and result.is_complete
            progress.close()
            render.message(f"{_state(result.new)}: {result.run} ({len(sent)} of {len(items)})")
    render.emit(sent, output="table")
    return 0 if is_complete else 1


def _state(new: bool) -> str:
    return "created" if new else "updated"


def _fetch_outputs(history: History, run: Run) -> None:
    """Fetch outputs that are still on the target, even if the run configuration excludes them."""
    folder = history.paths.root.run(run.spec.folder)
    if run.spec.inside or not run.status.final or not count_listed(run) or are_outputs_downloaded(folder):
        return
    try:
        host = open_target(run.spec.compute, history.paths).host
        if host.is_remote:
            with render.Progress(f"outputs of {run.id} from {run.spec.compute.name}") as progress:
                download_outputs(run, host, folder, progress.report, lambda output: True)
    except MlwError as error:
        render.warn(f"run {run.id}: cannot fetch outputs: {error.message}")


def _open_log(item: Item) -> BinaryIO | None:
    """Open the log with secrets masked. Nested runs have no log of their own."""
    if item.run.spec.inside:
        return None
    try:
        log = open_plain(item.folder.log)
    except OSError:
        return None
    if not item.run.spec.secrets:
        return log
    with log:
        return _mask_log(log, _find_secrets(item.run))


def _find_secrets(run: Run) -> list[bytes]:
    """Return the run's secret values. Raise if one is missing: an upload cannot be undone."""
    values = []
    for name in run.spec.secrets:
        try:
            values.append(os.fsencode(find_secret(name, ask=False)))
        except UsageError:
            raise Withheld(f"its secret {name} is not set here; set {name} and export again") from None
    return values


def _mask_log(log: BinaryIO, secrets: list[bytes]) -> BinaryIO:
    masked: BinaryIO = tempfile.TemporaryFile(prefix="mlw-export-")
    mask = Mask(secrets)
    while data := log.read(_CHUNK):
        masked.write(mask.feed(data))
    masked.write(mask.end())
    masked.seek(0)
    return masked


class _Progress:
    """Progress line for the current upload."""

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
            is_bytes = label.startswith(_BYTES_LABEL)
            self._shown = (
                render.Progress(label) if is_bytes else render.Progress(label, show=lambda count: f"{count:,.0f}")
            )
        self._shown.report(done, total)

    def close(self) -> None:
        if self._shown is not None:
            self._shown.close()
        self._shown = None
