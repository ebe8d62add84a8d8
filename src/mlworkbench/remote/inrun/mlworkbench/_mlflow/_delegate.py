"""MLflow's own SQLite stores in the outputs, for what the journals do not contain: traces, prompts, the registry, …

A database is opened only when a script uses it. Before a call, the experiments and the runs that it refers to are
copied there with the same IDs, because traces and others refer to them.
"""

import inspect
import logging
import os

from mlflow.exceptions import MlflowException
from mlflow.store.tracking.abstract_store import AbstractStore

from ._journal import locked
from ._location import database_path

# Methods that AbstractStore implements with other methods of the store.
_INHERITED = frozenset(
    "end_async_logging filter_active_experiment_ids flush_async_logging get_metric_history_bulk_interval"
    " get_metric_history_bulk_interval_from_steps log_batch_async log_metric_async log_param_async"
    " resolve_trace_archival_config search_runs set_model_versions_tags set_tag_async shut_down_async_logging".split()
)
# Methods that MLflow calls although AbstractStore does not list them as public.
_UNLISTED = ("_delete_traces", "_load_dataset_records", "deprecated_start_trace_v2", "deprecated_end_trace_v2")
_MAX_DEPTH = 4
_RUN_ID_LENGTH = 32


class Database(object):
    """One of MLflow's stores in the SQLite file of this run. ``create`` opens the store at a database URI."""

    def __init__(self, create):
        self._path = os.path.abspath(database_path())
        self._create = create
        self._store = None
        self._pid = None

    def open(self):
        with locked():
            if self._store is None:
                self._store = self._open_quietly()
            elif self._pid != os.getpid():  # connections must not be used after a fork
                self._store.engine.dispose(close=False)
            self._pid = os.getpid()
            return self._store

    def _open_quietly(self):
        previous = logging.root.manager.disable
        logging.disable(logging.INFO)  # MLflow and Alembic print a line for each table
        try:
            if not os.path.exists(self._path):
                _create_tables(self._path)
            return self._create("sqlite:///" + self._path)
        except ImportError as error:
            message = "this function of MLflow needs a database, and the package %s is not installed"
            raise MlflowException((message + "; install mlflow instead of mlflow-skinny") % (error.name or error))
        finally:
            logging.disable(previous)


def _create_tables(path):
    """Create the database under another name first, because several processes may start at the same time."""
    part = "%s.%d-%s" % (path, os.getpid(), os.urandom(4).hex())
    os.makedirs(os.path.dirname(path), exist_ok=True)
    try:
        tracking_database("sqlite:///" + part, os.path.dirname(path)).engine.dispose()
        os.link(part, path)
    except FileExistsError:
        pass  # another process was faster
    finally:
        if os.path.exists(part):
            os.unlink(part)


def tracking_database(address, artifacts):
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore  # noqa: PLC0415 - slow

    return SqlAlchemyStore(address, artifacts)


class Delegate(object):
    """Forwards calls that the journals do not support to MLflow's SQLite tracking store."""

    def __init__(self, store):
        self._store = store  # the store with the journals
        self._copied = {}  # kind and ID -> copied fields
        self._database = Database(lambda address: tracking_database(address, store.artifact_root_uri))

    def call(self, method, args, kwargs):
        database = self._database.open()
        with locked():
            self._copy(database, _run_ids((args, kwargs), _MAX_DEPTH))
        return getattr(database, method)(*args, **kwargs)

    def _copy(self, database, run_ids):
        from mlflow.store.tracking.dbmodels.models import SqlExperiment, SqlRun  # noqa: PLC0415 - slow

        rows = [("experiment", facts) for facts in self._store._experiments.refresh().facts.values()]
        found = [self._store._find_facts(run_id) for run_id in sorted(run_ids)]
        rows += [("run", facts) for facts in found if facts]
        changed = [(kind, dict(facts)) for kind, facts in rows if self._copied.get((kind, _key(facts))) != facts]
        if not changed:
            return
        # Newer versions have separate sessions for reading.
        arguments = inspect.signature(database.ManagedSessionMaker).parameters
        with database.ManagedSessionMaker(**({"read_only": False} if "read_only" in arguments else {})) as session:
            for kind, facts in changed:
                session.merge(SqlExperiment(**_experiment(facts)) if kind == "experiment" else SqlRun(**_run(facts)))
        self._copied.update(((kind, _key(facts)), facts) for kind, facts in changed)


def _key(facts):
    return facts.get("run_id") or facts["experiment_id"]


def _experiment(facts):
    values = {name: value for name, value in facts.items() if name != "token"}
    return dict(values, experiment_id=int(facts["experiment_id"]))


def _run(facts):
    names = ("user_id", "status", "start_time", "end_time", "deleted_time", "lifecycle_stage", "artifact_uri")
    values = {name: facts.get(name) for name in names}
    values.update(run_uuid=facts["run_id"], name=facts["run_name"], experiment_id=int(facts["experiment_id"]))
    return values


def _run_ids(value, depth):
    """Return the strings in arguments that look like IDs of runs, also in the metadata of traces and spans."""
    if isinstance(value, str):
        return {value} if len(value) == _RUN_ID_LENGTH and value.isalnum() else set()
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple, set)):
        return set().union(*[_run_ids(item, depth - 1) for item in value]) if depth else set()
    return _run_ids(getattr(value, "trace_metadata", None), depth - 1) if depth else set()


def add_delegated_methods(store):
    """Add the methods that ``store`` inherits from AbstractStore without an implementation."""
    for name in dir(AbstractStore):
        inherited = getattr(AbstractStore, name)
        is_own = getattr(store, name) is not inherited or name in _INHERITED or not callable(inherited)
        if not name.startswith("_") and not is_own:
            setattr(store, name, _delegated(name))
    for name in _UNLISTED:
        setattr(store, name, _delegated(name))
    store.__abstractmethods__ = frozenset()


def _delegated(name):
    def call(self, *args, **kwargs):
        return self._delegate.call(name, args, kwargs)

    call.__name__ = name
    return call
