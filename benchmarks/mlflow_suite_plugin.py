"""A pytest plugin that runs MLflow's own tests on another tracking store: MLW_SUITE_STORE is sqlite, file, or mlw.

``mlflow_suites.py`` loads it with ``-p``. It replaces the values of two fixtures: ``store``, the store of the tests
of MLflow's SQL store, and ``db_uri``, the tracking URI of the tests of its client. The tests stay as they are. Each
test of ``mlw`` gets a run folder of its own.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_STORE = os.environ["MLW_SUITE_STORE"]
_RESULTS = os.environ["MLW_SUITE_RESULTS"]
_REPLACED = {"store": "sqlalchemy_store/conftest.py", "db_uri": "tests/conftest.py"}


def _replaces(definition: Any) -> bool:
    place = _REPLACED.get(definition.argname)
    return bool(place) and _STORE != "sqlite" and definition.func.__code__.co_filename.endswith(place)


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: Any, request: Any) -> Any:
    if not _replaces(fixturedef) or (fixturedef.argname == "db_uri" and "notrackingurimock" in request.keywords):
        return None
    folder = Path(tempfile.mkdtemp())
    value = {"store": _store, "db_uri": _address}[fixturedef.argname](folder)
    fixturedef.cached_result = (value, fixturedef.cache_key(request), None)
    return value


def _store(folder: Path) -> Any:
    artifacts = folder / "artifacts"
    artifacts.mkdir()
    if _STORE == "file":
        from mlflow.store.tracking.file_store import FileStore  # noqa: PLC0415

        return FileStore(str(folder / "mlruns"), artifacts.as_uri())
    _begin_run(folder)
    from mlworkbench._mlflow._store import Store  # noqa: PLC0415

    return Store(str(folder / "store"), str(artifacts))


def _address(folder: Path) -> str:
    if _STORE == "file":
        return str(folder / "mlruns")
    _begin_run(folder)
    return f"mlw:{folder.name}"  # MLflow keeps one store per URI


def _begin_run(folder: Path) -> None:
    from mlworkbench._run import run  # noqa: PLC0415

    (folder / "run" / "work" / "outputs").mkdir(parents=True)
    run._id, run._folder = None, str(folder / "run")
    os.environ["MLW_RUN_FOLDER"] = run._folder  # for child processes


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    """Keep the tests that use the replaced fixtures, without MLflow's workspaces, which only its server has."""
    kept = [item for item in items if _uses_store(item)]
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = kept


def _uses_store(item: Any) -> bool:
    if "workspace-enabled" in item.nodeid:
        return False
    if "sqlalchemy_store" in item.nodeid:
        return "store" in item.fixturenames
    return "notrackingurimock" not in item.keywords


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: Any, call: Any) -> Iterator[None]:
    outcome: Any = yield
    report = outcome.get_result()
    if report.when == "call" or report.outcome != "passed":
        line = {"test": report.nodeid, "outcome": report.outcome, "reason": _reason(call)}
        with open(_RESULTS, "a") as file:
            file.write(json.dumps(line) + "\n")


def _reason(call: Any) -> str:
    if not call.excinfo:
        return ""
    place = call.excinfo.traceback[-1]
    return f"{call.excinfo.typename}: {str(call.excinfo.value)[:300]} ({place.path.name}:{place.lineno + 1})"
