"""Upload the outputs, log, and records of a run as artifacts of an MLflow run."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from ...errors import HostError
from ...history.journal_parsing import strict_json
from ...history.series.series_store import Series
from ...model import JsonDict
from ...runfiles.script_records import open_plain
from ..run_data import Item, files_of, open_output, points_of
from .name_mapping import NameMapper
from .remote_run import RemoteRun
from .rest_client import Server

_MLW_FOLDER = "mlw"  # folder for artifacts that are not outputs
_MAX_VALUES = 1000  # maximum strings or lists per name

Report = Callable[[str, int], None]  # what was sent, and how much
Warn = Callable[[str], None]
Log = Callable[[Item], "BinaryIO | None"]


class Withheld(Exception):
    """A file that must not be uploaded; the message is the reason."""


class ArtifactUploader:
    """An uploader for the files of runs.

    ``log`` opens a run's log with secrets masked. It returns None if there is no log, and raises
    Withheld if the secrets cannot be masked.
    """

    def __init__(self, log: Log, report: Report, warn: Warn) -> None:
        self._log = log
        self._report = report
        self._warn = warn
        self._warned = False

    def state(self, item: Item) -> str:
        """Return a digest that changes when there is something new to upload."""
        record = {name: value for name, value in item.record.items() if name != "age"}
        files = [(name, output.size, output.sha256) for name, output in files_of(item)]
        return hashlib.sha256(json.dumps([files, record], default=str, sort_keys=True).encode()).hexdigest()[:32]

    def send(self, server: Server, remote: RemoteRun, item: Item, renamed: JsonDict, excluded: tuple[str, ...]) -> bool:
        """Upload the files, except outputs whose path has an excluded prefix.

        Return whether all of them are now on the server.
        """
        send = self._choose_upload(server, remote.id, remote.artifacts)
        if send is None:
            return False
        names = NameMapper(for_files=True)
        is_complete = self._send_log(item, lambda name, file: send(names(name), file))
        for name, file in self._record_files(item):
            with file:
                send(names(f"{_MLW_FOLDER}/{name}"), file)
        listed = [(name, output) for name, output in files_of(item) if not output.path.startswith(excluded)]
        # Without the manifest, only the number of outputs is known.
        missing = (item.run.outputs or 0) if not listed and not os.path.exists(item.folder.manifest) else 0
        for name, output in listed:
            try:
                with open_output(item, output) as file:
                    send(names(name), file)
            except OSError:
                missing += 1
            self._report("bytes", output.size)
        if missing:
            self._warn(
                f"run {item.run.id}: {missing} outputs were not fetched; "
                f"run 'mlw history download {item.run.id}' and export again"
            )
        record = {**item.record, "renamed": {**renamed, "files": names.changed()}}
        send(f"{_MLW_FOLDER}/record.json", _json(record))
        return is_complete and not missing

    def _send_log(self, item: Item, send: Callable[[str, BinaryIO], None]) -> bool:
        try:
            log = self._log(item)
        except Withheld as reason:
            self._warn(f"the log of run {item.run.id} was not sent: {reason}")
            return False
        if log is not None:
            with log:
                send(f"{_MLW_FOLDER}/log.txt", log)
        return True

    def _choose_upload(self, server: Server, run_id: str, root: str) -> Callable[[str, BinaryIO], None] | None:
        """Return a function that uploads a file.

        Uploads use the server's own API if possible, and otherwise MLflow's client if it is installed.
        """
        if server.accepts_uploads(root):
            return lambda name, file: server.put(root, name, file, file_size(file))
        try:
            from mlflow import MlflowClient, MlflowException  # noqa: PLC0415 - slow to import, and rarely installed
        except ImportError:
            if not self._warned:
                self._warn(
                    f"outputs and logs were not sent: this server stores them in {root} and does not accept uploads; "
                    "install mlworkbench[mlflow], or start the server with --serve-artifacts"
                )
            self._warned = True
            return None
        client = MlflowClient(server.uri)

        def send(name: str, file: BinaryIO) -> None:
            try:
                _upload_with_client(client, run_id, name, file)
            except (MlflowException, OSError) as error:
                raise HostError(f"the MLflow client cannot write {name} to {root}: {error}") from None

        return send

    def _record_files(self, item: Item) -> Iterator[tuple[str, BinaryIO]]:
        if item.run.spec.inside:
            return
        for name, path in (("git.diff", item.folder.git_diff), ("gpu.jsonl", item.folder.gpu)):
            with suppress(OSError):
                yield name, open_plain(path)
        values = _non_numeric_values(item)
        if values:
            yield "values.json", _json(values)


def _non_numeric_values(item: Item) -> JsonDict:
    """Return logged strings, lists, and tables, because MLflow metrics can only be numbers."""
    with points_of(item) as series:
        return {
            metric.name: _logged_values(series, metric.name, metric.kind, item.child)
            for metric in series.names(item.child)
            if metric.kind != "number"
        }


def _logged_values(series: Series, name: str, kind: str, child: str | None) -> list[Any]:
    if kind == "row":
        return series.rows(name, child)[-_MAX_VALUES:]
    values = series.values(name, child, _MAX_VALUES)
    return [{"step": entry.step, "time": entry.time, "value": entry.value} for entry in values]


def _json(value: Any) -> BinaryIO:
    return io.BytesIO(json.dumps(strict_json(value), indent=1, default=str).encode())


def file_size(file: BinaryIO) -> int:
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    return size


def _upload_with_client(client: Any, run_id: str, name: str, file: BinaryIO) -> None:
    """Upload with MLflow's client, which requires a file with the final name."""
    folder, _, last = name.rpartition("/")
    with tempfile.TemporaryDirectory(prefix="mlw-export-") as temporary:
        copy = Path(temporary) / last
        with open(copy, "wb") as target:
            while data := file.read(1 << 20):
                target.write(data)
        client.log_artifact(run_id, str(copy), folder or None)
