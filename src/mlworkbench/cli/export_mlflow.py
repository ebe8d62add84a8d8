"""``mlw history export --mlflow``: send runs to an MLflow server."""

from __future__ import annotations

import os
import tempfile
import threading
from typing import BinaryIO

from ..errors import MlwError, UsageError
from ..export.mlflow.artifacts import ArtifactUploader, Withheld
from ..export.mlflow.rest_client import Server
from ..export.mlflow.run_export import Exporter, ExportResult
from ..export.run_data import Item, make_items
from ..fetch_outputs import are_outputs_downloaded, download_outputs
from ..history.store import History
from ..model import Run
from ..report import units
from ..report.run_records import record, to_display
from ..runfiles.fetch_state import count_listed
from ..runfiles.script_records import open_plain
from ..runfiles.secret_masking import Mask
from ..secret_sources import find_secret
from ..targets.target_factory import open_target
from . import render

_CHUNK = 1 << 20
_secret_lock = threading.Lock()  # not every keyring can be used by several threads


def export_to_server(history: History, runs: list[Run], uri: str, experiment: str | None) -> int:
    """Send the runs and print a row with the URL of each. Return 1 if something could not be sent."""
    with Server(uri) as server:
        results = _export(server, history, runs, experiment)
    render.emit([_row(result) for result in results], output="table")
    return 0 if all(result.is_complete for result in results) else 1


def _export(server: Server, history: History, runs: list[Run], experiment: str | None) -> list[ExportResult]:
    """Send the runs with progress. Return the results in the order of the runs."""
    server.post("experiments/search", {"max_results": 1})  # check the server before fetching outputs
    for run in runs:
        _fetch_outputs(history, run)
    items = make_items(history, runs, record, to_display)
    progress = _Progress(len(items))
    files = ArtifactUploader(_open_log, progress.report, progress.warn)
    results: dict[str, ExportResult] = {}
    with progress:
        for result in Exporter(server, experiment, files, progress.report, progress.warn).send(items):
            results[result.run] = result
            progress.finish(result)
    return [results[item.run.id] for item in items]


def _row(result: ExportResult) -> dict[str, str]:
    return {"run_id": result.run, "mlflow_run_id": result.id, "state": result.state, "address": result.address}


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
            with _secret_lock:
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
    """Progress line for all uploads. Several threads report to it."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._finished = 0
        self._sent = {"points": 0, "bytes": 0}
        self._lock = threading.Lock()
        self._line = render.Progress("exporting", show=lambda _: self._text())

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self._line.close()

    def report(self, kind: str, count: int) -> None:
        with self._lock:
            self._sent[kind] += count
            self._line.update(self._finished)

    def finish(self, result: ExportResult) -> None:
        with self._lock:
            self._finished += 1
            render.message(f"{result.state}: {result.run} ({self._finished} of {self._total})")

    def warn(self, text: str) -> None:
        with self._lock:
            render.warn(text)

    def _text(self) -> str:
        size = units.size(self._sent["bytes"])
        return f"{self._finished} of {self._total} runs, {self._sent['points']:,} points, {size}"
