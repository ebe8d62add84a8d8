"""Series files survive kills at any moment, concurrent writers, and damage. They can always be rebuilt."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import subprocess
import sys
from pathlib import Path

import apsw
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlworkbench.history.series import series_store
from mlworkbench.history.series.series_store import Series
from tests.unit.history.series.metric_folders import MetricFolder, content, expected_content

COUNT = 6000
CATCH_UP = """
import sys
from mlworkbench.history.series import series_store
from mlworkbench.remote.shared.layout import RunFolder
series_store._TRANSACTION_BYTES = int(sys.argv[2])
with series_store.Series(RunFolder(sys.argv[1])) as found:
    found.catch_up()
    if len(sys.argv) > 3:
        while len(found.points("loss")) < int(sys.argv[3]):
            found.catch_up()
"""


@pytest.fixture
def place(tmp_path: Path) -> MetricFolder:
    return MetricFolder(tmp_path)


def fill(place: MetricFolder, count: int = COUNT) -> None:
    place.log(*({"n": f"m{n % 7}", "v": n / 3, "t": 1000.0 + n, "s": n} for n in range(count)))
    place.log({"n": "note", "v": ["word"] * 20, "t": 5.0}, {"k": "row", "d": {"name": "t", "row": {"x": 1}}, "t": 5.0})
    place.log({"k": "child", "d": {"run": "kid", "same": True}, "t": 9.0})


def start_catch_up(place: MetricFolder, *arguments: object, **environment: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", CATCH_UP, place.folder.path, *map(str, arguments)], env={**os.environ, **environment}
    )


# -- killed processes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("nth", [1, 2, 5])
def test_a_kill_during_catch_up_loses_and_duplicates_nothing(place, nth):
    fill(place)
    killed = start_catch_up(place, 50_000, MLW_FAILPOINT=f"points:kill:{nth}")
    assert killed.wait() == -signal.SIGKILL
    with place.read() as series:
        assert content(series) == expected_content(place)


def test_killed_at_any_moment(place):
    """Kill the writer at random moments after it has created the file."""
    fill(place, 30_000)
    dice = random.Random(7)
    for _ in range(12):
        process, polls = start_catch_up(place, 20_000), dice.randrange(4000)
        while process.poll() is None and polls:
            polls -= place.database.exists()
        process.kill()
        process.wait()
    with place.read() as series:
        assert content(series) == expected_content(place)


# -- concurrent processes ------------------------------------------------------------------------------


def test_many_processes_catch_up_while_points_arrive(place):
    readers = [start_catch_up(place, 3000, 2000) for _ in range(4)]
    for part in range(20):
        place.log(*({"n": "loss", "v": n, "t": 1.0 + n} for n in range(part * 100, part * 100 + 100)))
    assert [reader.wait(120) for reader in readers] == [0] * 4
    with place.read() as series:
        assert list(series.points("loss").values) == list(range(2000))


def test_an_open_series_sees_what_another_ingested(place):
    fill(place)
    with place.read() as first, place.read() as second:
        place.log({"n": "new", "v": 5, "t": 1.0})
        second.catch_up()
        assert list(first.points("new").values) == [5]
        first.catch_up()
        assert list(first.points("new").values) == [5]


def test_an_open_series_sees_what_another_rebuilt(place):
    fill(place)
    with place.read() as first:
        content(first)
        place.database.unlink()
        place.log({"n": "new", "v": 5, "t": 1.0})
        place.read().close()
        assert list(first.points("new").values) == [5]
        assert content(first) == expected_content(place)


def test_many_processes_while_the_file_is_damaged_repeatedly(place):
    readers = [start_catch_up(place, 3000, 2000) for _ in range(3)]
    for part in range(20):
        place.log(*({"n": "loss", "v": n, "t": 1.0 + n} for n in range(part * 100, part * 100 + 100)))
        if place.database.exists():
            with open(place.database, "r+b") as file:
                file.seek(4096 * (part % 7))
                file.write(b"\xaa" * 300)
    assert [reader.wait(120) for reader in readers] == [0] * 3
    with place.read() as series:
        assert content(series) == expected_content(place)


# -- damaged files -------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["garbage", "empty", "cut", "other", "version", "folder", "journal"])
def test_a_foreign_or_damaged_file_is_rebuilt(place, damage):
    fill(place)
    place.read().close()
    database = place.database
    if damage == "garbage":
        database.write_bytes(random.Random(1).randbytes(50_000))
    elif damage == "empty":
        database.write_bytes(b"")
    elif damage == "cut":
        os.truncate(database, database.stat().st_size // 2)
    elif damage == "folder":
        database.unlink()
        database.mkdir()
    elif damage == "journal":
        Path(f"{database}-journal").write_bytes(database.read_bytes())
    else:
        connection = apsw.Connection(str(database))
        connection.execute("DROP TABLE chunks" if damage == "other" else "PRAGMA user_version = 99")
        connection.close()
    with Series(place.folder) as series:
        assert content(series) == expected_content(place)
    with place.read() as series:
        assert content(series) == expected_content(place)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(at=st.floats(0, 1, exclude_max=True), bits=st.integers(1, 255), size=st.sampled_from([1, 1, 16, 4096]))
def test_changed_bytes_on_disk_change_no_result(damaged, at, bits, size):
    """The damage is detected and repaired, or it is in a part of the file that is not read."""
    place, written, expected = damaged
    start = int(at * len(written))
    part = bytes(byte ^ bits for byte in written[start : start + size])
    place.database.write_bytes(written[:start] + part + written[start + size :])
    with place.read() as series:
        assert content(series) == expected


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    place = MetricFolder(tmp_path_factory.mktemp("damaged"))
    fill(place, 2500)
    with place.read() as series:
        content(series)
    return place, place.database.read_bytes(), expected_content(place)


@pytest.mark.parametrize("query", ["DELETE FROM chunks WHERE id = 3", "DELETE FROM others", "DELETE FROM bodies",
                                   "DELETE FROM files", "UPDATE series SET name = 'x' WHERE id = 1",
                                   "DELETE FROM series WHERE id = 2", "UPDATE files SET offset = offset - 99",
                                   "UPDATE chunks SET nr = nr + 1 WHERE id = 2"])  # fmt: skip
def test_lost_rows_are_detected(place, query):
    fill(place)
    place.read().close()
    connection = apsw.Connection(str(place.database))
    connection.execute(query)
    connection.close()
    with place.read() as series:
        assert content(series) == expected_content(place)


def test_replaced_metrics_files_cause_a_rebuild(place):
    fill(place)
    place.read().close()
    Path(place.folder.metrics, "1-0").write_text(json.dumps({"n": "loss", "v": 1, "t": 1.0}) + "\n")
    with place.read() as series:
        assert [name.name for name in series.names()] == ["loss"]


# -- disk errors and limits ----------------------------------------------------------------------------


def test_points_are_shown_if_nothing_can_be_written(place):
    fill(place)
    os.mkdir(f"{place.database}.lock")
    with place.read() as series:
        assert content(series) == expected_content(place)
    assert not place.database.exists()


def test_points_are_shown_on_a_full_disk(place):
    fill(place)
    script = f"{CATCH_UP}\n    assert len(found.points('m0')) == 858"
    done = subprocess.run(
        [sys.executable, "-c", script, place.folder.path, "10000000"],
        preexec_fn=_no_large_files, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    with place.read() as series:
        assert content(series) == expected_content(place)


def _no_large_files() -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))


def test_memory_stays_bounded(place, monkeypatch):
    """At most one transaction is in memory, whatever the total size."""
    fill(place, 3000)
    monkeypatch.setattr(series_store, "_TRANSACTION_BYTES", 20_000)
    sizes = []
    write = series_store.series_schema.write

    def measured(connection, known, name, reached, lines):
        sizes.append(sum(len(points) for points in lines.points.values()))
        write(connection, known, name, reached, lines)

    monkeypatch.setattr(series_store.series_schema, "write", measured)
    with place.read() as series:
        assert content(series) == expected_content(place)
    assert max(sizes) < 500
