"""A run's outputs, its log and all else that is known of it → the artifacts of a run on an MLflow server."""

from __future__ import annotations

import hashlib
import io
import json
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from ...errors import HostError
from ...history.series.series import Series
from ...model import JsonDict
from ...remote.shared.tree import READ
from ..material import Item, files_of, open_output, plain_value, points_of
from .names import Names
from .rest import Server

_FOLDER = "mlw"  # among the artifacts, for what is not an output
_VALUES = 1000  # of texts and lists, of each name

Report = Callable[[str, int, int], None]
Tell = Callable[[str], None]
Log = Callable[[Item], "BinaryIO | None"]


class Withheld(Exception):
    """A file that must not be sent; its text says why."""


class Files:
    """``log`` opens a run's log with its secrets hidden; None if there is none, Withheld if they cannot be hidden."""

    def __init__(self, log: Log, report: Report, tell: Tell) -> None:
        self._log = log
        self._report = report
        self._tell = tell
        self._told = False

    def state(self, item: Item) -> str:
        """Differs where there is something new to send."""
        record = {name: value for name, value in item.record.items() if name != "age"}
        files = [(name, one.size, one.sha256) for name, one in files_of(item)]
        return hashlib.sha256(json.dumps([files, record], default=str, sort_keys=True).encode()).hexdigest()[:32]

    def send(self, server: Server, run_id: str, root: str, item: Item, renamed: JsonDict) -> bool:
        """Whether all of them are there now."""
        send = self._way(server, run_id, root)
        if send is None:
            return False
        names = Names(of_files=True)
        whole = self._send_log(item, lambda name, file: send(names(name), file))
        for name, file in self._ours(item):
            with file:
                send(names(f"{_FOLDER}/{name}"), file)
        listed = list(files_of(item))
        total, done = sum(one.size for _, one in listed), 0
        # Without their list nobody here knows more than how many there are.
        missing = (item.run.outputs or 0) if not listed and not os.path.exists(item.folder.manifest) else 0
        for name, one in listed:
            try:
                with open_output(item, one) as file:
                    send(names(name), file)
            except OSError:
                missing += 1
            done += one.size
            self._report(f"outputs of {item.run.id}", done, total)
        if missing:
            self._tell(
                f"run {item.run.id}: {missing} outputs were not fetched; "
                f"run 'mlw history download {item.run.id}' and export again"
            )
        record = {**item.record, "renamed": {**renamed, "files": names.changed()}}
        send(f"{_FOLDER}/record.json", _json(record))
        return whole and not missing

    def _send_log(self, item: Item, send: Callable[[str, BinaryIO], None]) -> bool:
        try:
            log = self._log(item)
        except Withheld as why:
            self._tell(f"the log of run {item.run.id} was not sent: {why}")
            return False
        if log is not None:
            with log:
                send(f"{_FOLDER}/log.txt", log)
        return True

    def _way(self, server: Server, run_id: str, root: str) -> Callable[[str, BinaryIO], None] | None:
        """Through the server, as a rule; else with MLflow's own client, where it is installed beside us."""
        if server.takes(root):
            return lambda name, file: server.put(root, name, file, _size(file))
        try:
            from mlflow import MlflowClient, MlflowException  # noqa: PLC0415 - heavy, and seldom there
        except ImportError:
            if not self._told:
                self._tell(
                    f"outputs and logs were not sent: this server stores them in {root} and does not accept uploads; "
                    "install mlworkbench[mlflow], or start the server with --serve-artifacts"
                )
            self._told = True
            return None
        client = MlflowClient(server.uri)

        def send(name: str, file: BinaryIO) -> None:
            try:
                _by_client(client, run_id, name, file)
            except (MlflowException, OSError) as error:
                raise HostError(f"the MLflow client cannot write {name} to {root}: {error}") from None

        return send

    def _ours(self, item: Item) -> Iterator[tuple[str, BinaryIO]]:
        if item.run.spec.inside:
            return
        for name, path in (("git.diff", item.folder.git_diff), ("gpu.jsonl", item.folder.gpu)):
            with suppress(OSError):
                yield name, open_plain(path)
        values = _values(item)
        if values:
            yield "values.json", _json(values)


def open_plain(path: str) -> BinaryIO:
    """A file of a run's folder; OSError if it is none."""
    handle = os.open(path, READ | getattr(os, "O_NONBLOCK", 0))
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise FileNotFoundError(path)
    return open(handle, "rb")


def _values(item: Item) -> JsonDict:
    """Texts, lists and tables that were logged: MLflow's metrics are numbers."""
    with points_of(item) as series:
        return {
            known.name: _of_name(series, known.name, known.kind, item.child)
            for known in series.names(item.child)
            if known.kind != "number"
        }


def _of_name(series: Series, name: str, kind: str, child: str | None) -> list[Any]:
    if kind == "row":
        return series.rows(name, child)[-_VALUES:]
    found = series.values(name, child, _VALUES)
    return [{"step": one.step, "time": one.time, "value": one.value} for one in found]


def _json(value: Any) -> BinaryIO:
    return io.BytesIO(json.dumps(plain_value(value), indent=1, default=str).encode())


def _size(file: BinaryIO) -> int:
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    return size


def _by_client(client: Any, run_id: str, name: str, file: BinaryIO) -> None:
    """It wants a file with the right name."""
    folder, _, last = name.rpartition("/")
    with tempfile.TemporaryDirectory(prefix="mlw-export-") as place:
        copy = Path(place) / last
        with open(copy, "wb") as target:
            while data := file.read(1 << 20):
                target.write(data)
        client.log_artifact(run_id, str(copy), folder or None)
