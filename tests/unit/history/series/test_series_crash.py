"""The file of a run's points: killed at any moment, written by many, damaged anywhere. It can always be made anew."""

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

from mlworkbench.history.series import series
from mlworkbench.history.series.series import Series
from tests.unit.metric_places import Place, content, truth

COUNT = 6000
CATCH_UP = """
import sys
from mlworkbench.history.series import series
from mlworkbench.remote.shared.layout import RunFolder
series._STRIDE = int(sys.argv[2])
with series.Series(RunFolder(sys.argv[1])) as found:
    found.catch_up()
    if len(sys.argv) > 3:
        while len(found.points("loss")) < int(sys.argv[3]):
            found.catch_up()
"""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def fill(place: Place, count: int = COUNT) -> None:
    place.log(*({"n": f"m{n % 7}", "v": n / 3, "t": 1000.0 + n, "s": n} for n in range(count)))
    place.log({"n": "note", "v": ["word"] * 20, "t": 5.0}, {"k": "row", "d": {"name": "t", "row": {"x": 1}}, "t": 5.0})
    place.log({"k": "child", "d": {"run": "kid", "same": True}, "t": 9.0})


def catching_up(place: Place, *words: object, **environment: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", CATCH_UP, place.folder.path, *map(str, words)], env={**os.environ, **environment}
    )


# -- killed --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nth", [1, 2, 5])
def test_killed_in_mid_catch_up_nothing_is_lost_and_nothing_comes_twice(place, nth):
    fill(place)
    killed = catching_up(place, 50_000, MLW_FAILPOINT=f"points:kill:{nth}")
    assert killed.wait() == -signal.SIGKILL
    with place.read() as found:
        assert content(found) == truth(place)


def test_killed_at_any_moment(place):
    """Whatever the kernel was just doing for it: at the first sight of the file, of its journal, of its growth."""
    fill(place, 30_000)
    dice = random.Random(7)
    for _ in range(12):
        process, patience = catching_up(place, 20_000), dice.randrange(4000)
        while process.poll() is None and patience:
            patience -= place.database.exists()
        process.kill()
        process.wait()
    with place.read() as found:
        assert content(found) == truth(place)


# -- many at once --------------------------------------------------------------------------------------


def test_many_processes_catch_up_at_once_while_points_come(place):
    readers = [catching_up(place, 3000, 2000) for _ in range(4)]
    for part in range(20):
        place.log(*({"n": "loss", "v": n, "t": 1.0 + n} for n in range(part * 100, part * 100 + 100)))
    assert [reader.wait(120) for reader in readers] == [0] * 4
    with place.read() as found:
        assert list(found.points("loss").values) == list(range(2000))


def test_one_that_is_open_sees_what_another_took_in(place):
    fill(place)
    with place.read() as first, place.read() as second:
        place.log({"n": "new", "v": 5, "t": 1.0})
        second.catch_up()
        assert list(first.points("new").values) == [5]
        first.catch_up()
        assert list(first.points("new").values) == [5]


def test_one_that_is_open_sees_what_another_made_anew(place):
    fill(place)
    with place.read() as first:
        content(first)
        place.database.unlink()
        place.log({"n": "new", "v": 5, "t": 1.0})
        place.read().close()
        assert list(first.points("new").values) == [5]
        assert content(first) == truth(place)


def test_many_processes_while_the_file_is_damaged_again_and_again(place):
    readers = [catching_up(place, 3000, 2000) for _ in range(3)]
    for part in range(20):
        place.log(*({"n": "loss", "v": n, "t": 1.0 + n} for n in range(part * 100, part * 100 + 100)))
        if place.database.exists():
            with open(place.database, "r+b") as file:
                file.seek(4096 * (part % 7))
                file.write(b"\xaa" * 300)
    assert [reader.wait(120) for reader in readers] == [0] * 3
    with place.read() as found:
        assert content(found) == truth(place)


# -- damaged -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["garbage", "empty", "cut", "other", "version", "folder", "journal"])
def test_a_file_that_is_none_of_ours_is_made_anew(place, damage):
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
    with Series(place.folder) as found:
        assert content(found) == truth(place)
    with place.read() as found:
        assert content(found) == truth(place)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(at=st.floats(0, 1, exclude_max=True), bits=st.integers(1, 255), size=st.sampled_from([1, 1, 16, 4096]))
def test_a_byte_that_changed_on_the_disk_changes_no_answer(damaged, at, bits, size):
    """Whether it is noticed, or where nobody reads."""
    place, written, expected = damaged
    start = int(at * len(written))
    part = bytes(byte ^ bits for byte in written[start : start + size])
    place.database.write_bytes(written[:start] + part + written[start + size :])
    with place.read() as found:
        assert content(found) == expected


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    place = Place(tmp_path_factory.mktemp("damaged"))
    fill(place, 2500)
    with place.read() as found:
        content(found)
    return place, place.database.read_bytes(), truth(place)


@pytest.mark.parametrize("query", ["DELETE FROM chunks WHERE id = 3", "DELETE FROM others", "DELETE FROM bodies",
                                   "DELETE FROM files", "UPDATE series SET name = 'x' WHERE id = 1",
                                   "DELETE FROM series WHERE id = 2", "UPDATE files SET offset = offset - 99",
                                   "UPDATE chunks SET nr = nr + 1 WHERE id = 2"])  # fmt: skip
def test_rows_that_the_disk_lost_are_missed(place, query):
    fill(place)
    place.read().close()
    connection = apsw.Connection(str(place.database))
    connection.execute(query)
    connection.close()
    with place.read() as found:
        assert content(found) == truth(place)


def test_other_metric_files_make_it_anew(place):
    fill(place)
    place.read().close()
    Path(place.folder.metrics, "1-0").write_text(json.dumps({"n": "loss", "v": 1, "t": 1.0}) + "\n")
    with place.read() as found:
        assert [name.name for name in found.names()] == ["loss"]


# -- refused -------------------------------------------------------------------------------------------


def test_where_nothing_can_be_written_the_points_are_shown_all_the_same(place):
    fill(place)
    os.mkdir(f"{place.database}.lock")
    with place.read() as found:
        assert content(found) == truth(place)
    assert not place.database.exists()


def test_a_full_disk_keeps_nobody_from_looking(place):
    fill(place)
    script = f"{CATCH_UP}\n    assert len(found.points('m0')) == 858"
    done = subprocess.run(
        [sys.executable, "-c", script, place.folder.path, "10000000"],
        preexec_fn=_no_large_files, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    with place.read() as found:
        assert content(found) == truth(place)


def _no_large_files() -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))


def test_memory_stays_bounded(place, monkeypatch):
    """No more than a stride is held, however much there is."""
    fill(place, 3000)
    monkeypatch.setattr(series, "_STRIDE", 20_000)
    held = []
    write = series.tables.write

    def measured(connection, known, name, reached, lines):
        held.append(sum(len(points) for points in lines.points.values()))
        write(connection, known, name, reached, lines)

    monkeypatch.setattr(series.tables, "write", measured)
    with place.read() as found:
        assert content(found) == truth(place)
    assert max(held) < 500
