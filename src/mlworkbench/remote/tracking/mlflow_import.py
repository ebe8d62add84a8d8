"""Record the runs of MLflow stores that the script created itself, at the end of the run.

A script that sets its own tracking URI, such as ``sqlite:///mlflow.db`` or ``file:./mlruns``, bypasses the in-run
library. Its runs are written to ``metrics/mlflow`` in one step, so that a killed supervisor leaves no part of them.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack

from ..kept_files import move_into
from ..shared.folder_tree import FolderHandles, remove
from ..shared.layout import MLFLOW_DATABASE, MLFLOW_METRICS
from ..shared.snapshot_manifest import read_record
from .metrics_appender import MetricsAppender
from .mlflow_database import MlflowDatabase, copy_database
from .mlflow_entities import MlflowEntities
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
_INCOMPLETE = "MLflow store is only partly recorded: %s"
_MORE_DATA = "traces and similar data in it are not recorded; to collect the file, add it to Keep"
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
        self._databases: List[Tuple[str, MlflowEntities]] = []  # with their paths
        self._unrecorded: Dict[str, str] = {}  # path of a database with more data → path of a copy, or ""

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
                        self._add_error(path, error)
                self._add_experiments(paths)
                if self._runs or self._databases or self._unrecorded:
                    is_new = self._write(deadline)
                    self._keep_database(handles, is_new)
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
        entities = MlflowEntities(database)
        runs = database.runs(self._since)
        for run in runs:
            self._add(path, run, lambda run=run: database.points(run.id))  # type: ignore[misc]
            self._files.recorded.add(path)
        if runs or any(entities.models(self._since)):
            self._databases.append((path, entities))
        # A database that came with the project also has the data of earlier runs.
        is_from_project = path in ((read_record(self._run.placed) or {}).get("files") or ())
        if entities.has_more(self._since if is_from_project else None):
            copy = os.path.join(folder, "whole.db")
            if not is_from_project:
                database.copy_to(copy)
            self._unrecorded[path] = "" if is_from_project else copy

    def _add_error(self, path: str, error: UnreadableStore) -> None:
        """Add a message about a store. The runs that were found before the error are recorded."""
        is_partial = path in {store for store, *_ in (*self._runs.values(), *self._databases)}
        self._files.recorded.discard(path)
        self._files.unread.add(path, (_INCOMPLETE if is_partial else _NOT_RECORDED) % error)

    def _add(self, path: str, run: StoredRun, points: Callable[[], Iterator[Point]]) -> None:
        if len(self._runs) >= MAX_RUNS:
            raise UnreadableStore("there are more than %d runs" % MAX_RUNS)
        self._runs.setdefault(run.id, (path, run, points))

    # -- metrics file --------------------------------------------------------------------------------------

    def _write(self, deadline: float) -> bool:
        """Write the file, or return False if an earlier supervisor did."""
        target = os.path.join(self._run.metrics, MLFLOW_METRICS)
        if os.path.lexists(target):
            return False
        temporary = os.path.join(self._run.path, "mlflow.part")
        remove(temporary)
        file = MetricsAppender(temporary)
        try:
            file.open()
            self._write_runs(file, deadline)
            file.write()
            os.rename(temporary, target)
        finally:
            file.close()
            remove(temporary)  # after an error
        return True

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
                self._add_error(path, error)
        for path, entities in self._databases:
            try:
                self._write_entities(runs, entities)
            except UnreadableStore as error:
                self._add_error(path, error)

    def _write_entities(self, runs: ScriptRuns, entities: MlflowEntities) -> None:
        for run_id, (_, run, _) in self._runs.items():
            for dataset in entities.datasets(run_id):
                runs.add(run_id, "dataset", dataset, run.started / 1000.0)
        for model, uri in entities.models(self._since):
            run_id = model["source_run"]
            if run_id is None or run_id in self._runs:
                runs.add(run_id, "model", dict(model, path=self._output_path(uri)), 0.0)
                for point in entities.model_metrics(model["id"]):
                    runs.add(run_id, "model_metric", dict(point, model=model["id"]), 0.0)

    def _keep_database(self, handles: FolderHandles, is_new: bool) -> None:
        """Move a copy of the first database with more data to the place of the one of the in-run library."""
        for path, copy in self._unrecorded.items():
            try:
                is_kept = copy and move_into(handles, copy, "outputs/" + MLFLOW_DATABASE)
            except OSError:  # the script may have replaced the folder
                is_kept = False
            if is_kept or (copy and not is_new):  # an earlier supervisor may have moved it
                self._files.recorded.add(path)
            else:
                self._files.recorded.discard(path)
                self._files.unread.add(path, _MORE_DATA)

    def _list_artifacts(self, handles: FolderHandles) -> None:
        """Name artifacts that are not collected."""
        for _, run, _ in self._runs.values():
            folder = run.folder + "/artifacts" if isinstance(run, FolderRun) else self._relative(run.artifacts)
            if not folder or self._is_collected(folder):
                continue
            for _, path in list_files(handles, folder):
                self._files.unread.add(path, _ARTIFACT)

    def _output_path(self, uri: str) -> str:
        """Return the path of an artifact below ``outputs/``, or "" if it is not collected."""
        path = self._relative(uri)
        if not self._is_collected(path):
            return ""
        return path[len("outputs/") :] if path.startswith("outputs/") else path

    def _is_collected(self, path: str) -> bool:
        return any(path == folder or path.startswith(folder + "/") for folder in ("outputs", *self._keep))

    def _relative(self, uri: str) -> str:
        """Return the path of a folder in the working copy, which may have another path in a container."""
        parts = uri.partition("/%s/work/" % os.path.basename(self._run.path))[2].split("/")
        return "" if ".." in parts else "/".join(filter(None, parts))
