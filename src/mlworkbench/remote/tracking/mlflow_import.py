"""Record the runs of MLflow stores that the script created itself, at the end of the run.

A script that sets its own tracking URI, such as ``sqlite:///mlflow.db`` or ``file:./mlruns``, bypasses the in-run
library. Its runs are written to ``metrics/mlflow`` in one step, so that a killed supervisor leaves no part of them.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack

from ..shared.folder_tree import FolderHandles, remove
from ..shared.layout import MLFLOW_METRICS
from .metrics_appender import MetricsAppender
from .mlflow_database import MlflowDatabase, copy_database
from .mlflow_folders import DATA_FOLDERS, METADATA, FolderRun, list_files, read_run
from .mlflow_run import StoredRun, UnreadableStore
from .script_runs import MAX_RUNS, ScriptRuns

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Callable, Dict, Iterator, List, Sequence, Tuple

    from ..script_files import ScriptFiles
    from ..shared.layout import RunFolder
    from .mlflow_run import Point

_CLOCK_TOLERANCE = 2000  # milliseconds by which clocks may differ: older runs are not from this run
_CHECK_INTERVAL = 1000  # points between two checks of the time
_NOT_RECORDED = "MLflow runs are not recorded: %s"
_INCOMPLETE = "not all MLflow metrics are recorded: %s"
_ARTIFACT = "an MLflow artifact outside of outputs/"


class MlflowImport:
    """The stores in the working copy of one run. ``started`` is the time at which the script started."""

    def __init__(self, run: RunFolder, started: float, keep: Sequence[str], files: ScriptFiles) -> None:
        self._run = run
        self._since = int(started * 1000) - _CLOCK_TOLERANCE
        self._keep = keep
        self._files = files
        # ID → path of the store, run, and function that yields its points
        self._runs: Dict[str, Tuple[str, StoredRun, Callable[[], Iterator[Point]]]] = {}

    def record(self, paths: Sequence[str], deadline: float) -> None:
        """Record the runs of these files. Errors become messages in the summary of the run."""
        copies = os.path.join(self._run.path, "mlflow-copies")
        try:
            remove(copies)  # of a supervisor that was killed
            with ExitStack() as stack:
                handles = stack.enter_context(FolderHandles(self._run.work))
                stack.callback(remove, copies)
                for number, path in enumerate(paths):
                    try:
                        if path.rpartition("/")[2] == METADATA:
                            self._add_folder(handles, path)
                        else:
                            folder = os.path.join(copies, str(number))
                            self._add_database(handles, path, folder, stack, deadline)
                    except UnreadableStore as error:
                        self._files.unread.add(path, _NOT_RECORDED % error)
                self._add_experiments(paths)
                if self._runs:
                    self._write(deadline)
                    self._list_artifacts(handles)
        except OSError as error:
            self._files.recorded.clear()
            self._files.unread.add("mlflow", _NOT_RECORDED % (error.strerror or error))

    # -- stores --------------------------------------------------------------------------------------------

    def _add_folder(self, handles: FolderHandles, path: str) -> None:
        run = read_run(handles, path)
        if run is None or run.started < self._since:
            return
        self._add(path, run, lambda: run.points(handles))
        self._files.recorded.update(run.folder + "/" + name for name in (METADATA, *DATA_FOLDERS))

    def _add_experiments(self, paths: Sequence[str]) -> None:
        """Regard the descriptions of experiments as recorded if a run of the same store is."""
        roots = {run.folder.rpartition("/")[0].rpartition("/")[0] for run in self._folder_runs()}
        for path in paths:
            if path.rpartition("/")[0].rpartition("/")[0] in roots and path.endswith("/" + METADATA):
                self._files.recorded.add(path)

    def _folder_runs(self) -> List[FolderRun]:
        return [run for _, run, _ in self._runs.values() if isinstance(run, FolderRun)]

    def _add_database(self, handles: FolderHandles, path: str, folder: str, stack: ExitStack, deadline: float) -> None:
        copy = copy_database(handles, path, folder, self._since / 1000.0)
        if not copy:
            return
        database = MlflowDatabase(copy, deadline)
        stack.callback(database.close)
        if not database.is_mlflow():
            return
        runs = database.runs(self._since)
        for run in runs:
            self._add(path, run, lambda run=run: database.points(run.id))  # type: ignore[misc]
        if runs:
            self._files.recorded.add(path)

    def _add(self, path: str, run: StoredRun, points: Callable[[], Iterator[Point]]) -> None:
        if len(self._runs) >= MAX_RUNS:
            raise UnreadableStore("there are more than %d runs" % MAX_RUNS)
        self._runs.setdefault(run.id, (path, run, points))

    # -- metrics file --------------------------------------------------------------------------------------

    def _write(self, deadline: float) -> None:
        target = os.path.join(self._run.metrics, MLFLOW_METRICS)
        if os.path.lexists(target):  # written by an earlier supervisor
            return
        temporary = os.path.join(self._run.path, "mlflow.part")
        remove(temporary)
        file = MetricsAppender(temporary)
        file.open()
        try:
            self._write_runs(file, deadline)
            file.write()
        finally:
            file.close()
        os.rename(temporary, target)

    def _write_runs(self, file: MetricsAppender, deadline: float) -> None:
        ordered = sorted(self._runs.values(), key=lambda entry: entry[1].started)
        top = [run for _, run, _ in ordered if run.parent not in self._runs]
        # A run that the in-run library recorded already represents this run.
        is_taken = os.path.lexists(os.path.join(self._run.work, ".mlflow", "first"))
        first = top[0] if top and not is_taken else None
        runs = ScriptRuns(file, first.id if first else None)
        for path, run, points in ordered:
            parent = run.parent if run.parent in self._runs else None
            if run is not first:
                runs.child(run.id, run.facts(), parent=parent, deleted=run.deleted)
            elif len(top) > 1 or run.deleted:
                runs.child(run.id, run.facts(), parent=None, deleted=run.deleted, same=True)
            for kind, entries in (("param", run.params), ("tag", run.tags)):
                for name, text in entries.items():
                    runs.record(run.id, kind, name, text, run.started / 1000.0)
            source = file.sources.get(path) or file.add_source(path)
            try:
                for number, (name, value, when, step) in enumerate(points()):
                    runs.point(source, run.id, name, value, when / 1000.0, step)
                    if number % _CHECK_INTERVAL == 0 and time.monotonic() > deadline:
                        raise UnreadableStore("it took too long")
            except UnreadableStore as error:
                self._files.unread.add(path, _INCOMPLETE % error)
                self._files.recorded.discard(path)

    def _list_artifacts(self, handles: FolderHandles) -> None:
        """Name artifacts that are not collected."""
        for _, run, _ in self._runs.values():
            folder = run.folder + "/artifacts" if isinstance(run, FolderRun) else self._relative(run.artifacts)
            if not folder or any(folder == kept or folder.startswith(kept + "/") for kept in ("outputs", *self._keep)):
                continue
            for _, path in list_files(handles, folder):
                self._files.unread.add(path, _ARTIFACT)

    def _relative(self, uri: str) -> str:
        """Return the path of a folder in the working copy, which may have another path in a container."""
        parts = uri.partition("/%s/work/" % os.path.basename(self._run.path))[2].split("/")
        return "" if ".." in parts else "/".join(filter(None, parts))
