"""Several runs in one process, as in a notebook."""

import json
from pathlib import Path

import pytest

from tests.unit.remote.inrun.run_process import ON_POSIX, ScriptRunner


@pytest.fixture
def outside(runner) -> ScriptRunner:
    """A script that was not submitted."""
    del runner.env["MLW_RUN_FOLDER"], runner.env["MLW_RUN_ID"]
    return runner


def read(runner, folder):
    """Return the facts, the end, and the points of a run."""
    facts, end = (json.loads((Path(folder) / name).read_text()) for name in ("local.json", "ended.json"))
    runner.metrics = Path(folder) / "metrics"
    return facts, end, runner.points()


def test_each_block_is_a_run(outside):
    out = outside.run(
        """
        import os
        import mlworkbench
        for number in range(2):
            with mlworkbench.start_run(name="trial %d" % number, tags={"team": "vision"}) as run:
                mlworkbench.log("loss", number)
                assert (mlworkbench.run.id, os.environ["MLW_RUN_FOLDER"]) == (run.id, run.folder)
            assert "MLW_RUN_FOLDER" not in os.environ
            print(run.folder)
        """
    )
    first, second = (read(outside, folder) for folder in out.split())
    assert [facts["name"] for facts, _, _ in (first, second)] == ["trial 0", "trial 1"]
    assert [end["status"] for _, end, _ in (first, second)] == ["completed"] * 2
    assert (first[2], second[2]) == ([("loss", 0, None)], [("loss", 1, None)])
    assert outside.records("tag") == [{"name": "team", "value": "vision"}]


def test_a_new_run_ends_the_previous_one(outside):
    """In a notebook, each run may begin in a cell of its own."""
    out = outside.run(
        """
        import mlworkbench
        mlworkbench.log("before", 1)  # starts a run without a name
        print(mlworkbench.run.folder)
        for name in ("a", "b"):
            print(mlworkbench.start_run(name).folder)
            mlworkbench.log(name, 2)
        """,
        stderr=None,
    )
    runs = [read(outside, folder) for folder in out.split()]
    assert [points for _, _, points in runs] == [[("before", 1, None)], [("a", 2, None)], [("b", 2, None)]]
    assert [end["status"] for _, end, _ in runs] == ["completed"] * 3


@pytest.mark.parametrize(
    ("error", "status", "cause"),
    [("ValueError('x')", "failed", "ValueError: x"), ("KeyboardInterrupt", "cancelled", "interrupted")],
)
def test_an_exception_ends_the_run_and_is_raised(outside, error, status, cause):
    out = outside.run(
        """
        import mlworkbench
        try:
            with mlworkbench.start_run() as run:
                mlworkbench.log("a", 1)
                raise ERROR
        except BaseException as error:
            print(type(error).__name__, run.folder)
        """.replace("ERROR", error)
    )
    name, folder = out.split()
    assert error.startswith(name)
    _, end, points = read(outside, folder)
    assert (end["status"], end["cause"], points) == (status, cause, [("a", 1, None)])


def test_points_after_a_run_start_a_new_one(outside):
    out = outside.run(
        """
        import mlworkbench
        with mlworkbench.start_run() as run:
            mlworkbench.log("a", 1)
        run.end()
        mlworkbench.log("b", 2)
        print(run.folder, mlworkbench.run.folder)
        """,
        stderr=None,
    )
    first, second = (read(outside, folder) for folder in out.split())
    assert (first[2], second[2]) == ([("a", 1, None)], [("b", 2, None)])


def test_a_submitted_script_logs_into_its_run(runner):
    runner.run(
        """
        import mlworkbench
        with mlworkbench.start_run(name="trial", tags={"team": "vision"}) as run:
            assert run.id == mlworkbench.run.id == "run-1"
            mlworkbench.log("a", 1)
        mlworkbench.log("a", 2)
        """
    )
    assert runner.points() == [("a", 1, None), ("a", 2, None)]
    assert runner.records("tag") == [{"name": "team", "value": "vision"}]
    assert not (runner.folder / "ended.json").exists()


@ON_POSIX
def test_a_forked_process_does_not_end_the_run(outside):
    out = outside.run(
        """
        import os
        import mlworkbench
        run = mlworkbench.start_run("a")
        pid = os.fork()
        if pid == 0:
            mlworkbench.start_run("b")
            mlworkbench.log("child", 1)
            mlworkbench.flush()
            os._exit(0)
        os.waitpid(pid, 0)
        assert not os.path.exists(os.path.join(run.folder, "ended.json"))
        mlworkbench.log("parent", 2)
        print(run.folder)
        """
    )
    facts, _, points = read(outside, out.strip())
    assert (facts["name"], sorted(points)) == ("a", [("child", 1, None), ("parent", 2, None)])


@pytest.mark.parametrize("name", ["", "  ", 7, "x" * 20000])
def test_invalid_names(outside, name):
    out = outside.run(
        """
        import mlworkbench
        try:
            mlworkbench.start_run(NAME)
        except (TypeError, ValueError) as error:
            print(error)
        print(repr(mlworkbench.run))
        """.replace("NAME", repr(name))
    )
    message, state = out.splitlines()
    assert "a run's name" in message and state == "<not inside a run>"
