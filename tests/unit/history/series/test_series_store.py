"""Series contain every point once, in order, however the bytes arrive; charts are exact."""

from __future__ import annotations

import json
import math
import os
import pickle
from collections.abc import Collection, Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlworkbench.history.series import metric_sources, parallel_parse, series_store
from mlworkbench.history.series.downsampling import Column, columns
from mlworkbench.history.series.series_store import NO_STEP, Name, Series
from tests.unit.history.series.metric_folders import MetricFolder, content

SPECIAL_FLOATS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


@pytest.fixture
def place(tmp_path: Path) -> MetricFolder:
    return MetricFolder(tmp_path)


# -- ingestion -----------------------------------------------------------------------------------------


def test_numbers_keep_their_steps_and_times(place):
    place.append(
        b'{"n": "loss", "v": 0.5, "t": 1763190000.123456, "s": 3, "i": 1}\n'
        b'{"n": "loss", "v": "NaN", "f": 1, "t": 1763190000.2, "i": 2}\n'
        b'{"n": "loss", "v": 7, "t": 1763190001.5, "s": -1, "o": [0, 4711, 1]}\n'
        b'{"n": "gr\\u00f6\\u00dfe", "v": 1e-3, "t": 1763190000.3, "i": 3}\n'
    )
    with place.read() as series:
        points = series.points("loss")
        assert list(points.steps) == [3, NO_STEP, -1]
        assert list(points.times) == [1763190000.123456, 1763190000.2, 1763190001.5]
        assert str(list(points.values)) == "[0.5, nan, 7.0]"
        assert list(series.points("größe").values) == [0.001]
        assert series.names() == [Name("loss", "number", 3), Name("größe", "number", 1)]


def test_other_values_and_rows_are_returned(place):
    place.log(
        {"n": "note", "v": "first", "t": 1.0, "s": 1},
        {"n": "note", "v": 0.5, "t": 2.0},
        {"n": "note", "v": [1, {"f": "-Infinity"}, "NaN", None, True], "t": 3.0},
        {"n": "flag", "v": True, "t": 4.0},
        {"k": "row", "d": {"name": "table", "row": {"f": "NaN", "y": {"f": "Infinity"}}}, "t": 5.0},
        {"k": "row", "d": {"name": "table", "row": {"f": "NaN"}}, "t": 5.0},
        {"k": "param", "d": {"name": "lr", "value": 0.1}, "t": 6.0},
        {"lost": 7},
    )
    with place.read() as series:
        assert series.values("note") == [(1, 1.0, "first"), (None, 3.0, [1, -math.inf, "NaN", None, True])]
        assert series.values("note", newest=1) == [(None, 3.0, [1, -math.inf, "NaN", None, True])]
        assert list(series.points("note").values) == [0.5]
        assert series.values("flag") == [(None, 4.0, True)]
        assert series.rows("table") == [{"f": "NaN", "y": math.inf}, {"f": "NaN"}]
        assert [(name.name, name.kind, name.count) for name in series.names()] == [
            ("note", "number", 1), ("note", "value", 2), ("flag", "value", 1), ("table", "row", 2),
        ]  # fmt: skip


def test_nested_runs_have_separate_series(place):
    place.log(
        {"n": "loss", "v": 1.0, "t": 1.0},
        {"k": "metric", "d": {"run": "kid", "name": "loss", "value": 2.0, "step": 5}, "t": 2.5},
        {"k": "metric", "d": {"run": "kid", "name": "loss", "value": {"f": "NaN"}, "step": 6}, "t": 3.5},
        {"k": "child", "d": {"run": "twin", "same": True}, "t": 4.0},
    )
    with place.read() as series:
        assert list(series.points("loss").values) == [1.0]
        kids = series.points("loss", child="kid")
        assert (list(kids.steps), list(kids.times), str(list(kids.values))) == ([5, 6], [2.5, 3.5], "[2.0, nan]")
        assert list(series.points("loss", child="twin").values) == [1.0], "what the run recorded is that child's"
        assert series.names("kid") == [Name("loss", "number", 2)]
        assert series.names("unknown") == [] and series.downsample("loss", 10, child="unknown") == []


def test_long_values_are_joined(place):
    library = {}
    inrun = Path(__file__).parents[4] / "src/mlworkbench/remote/inrun/mlworkbench"
    text = (
        (inrun / "_lines.py")
        .read_text()
        .replace("from ._values import non_finite_text", "non_finite_text = lambda number: None")
    )
    exec(text, library)
    values = [
        list(range(100_000)),
        "wörter " * 50_000,
        [["a" * 300_000, "b"], list(range(90_000))],
        [["x" * 9] * 99_000],
    ]
    lines, _ = library["Encoder"]().lines([("long", value, 5.0, 1) for value in values], 0)
    assert any('"of"' in line for line in lines)
    place.append("".join(lines).encode())
    with place.read() as series:
        assert series.values("long") == [(1, 5.0, value) for value in values]
        assert series.names() == [Name("long", "value", 4)]


def test_only_the_newest_values(place):
    for file in ("1-0", "2-0"):
        for number in range(5):
            pieces = [([f"{file} {number}"], 0), (["more"], 1)]
            place.log(*({"n": "a", "v": v, "of": [[], at, 2], "t": number} for v, at in pieces), file=file)
    with place.read() as series:
        assert [value.value for value in series.values("a", newest=3)] == [
            ["2-0 3", "more"], ["1-0 4", "more"], ["2-0 4", "more"],
        ]  # fmt: skip
        assert series.values("a", newest=99) == series.values("a") and len(series.values("a")) == 10
        assert series.values("a", newest=0) == []


def test_a_piece_replaces_existing_content(place):
    pieces = [([1, 2, 3], 0), ([9, ["x"]], 1), ([5], 3)]
    place.log(*({"n": "long", "v": value, "of": [[], start, 4], "t": 1.0} for value, start in pieces))
    place.log({"n": "long", "v": ["y", "z"], "of": [[2], 0, 2], "t": 1.0})
    with place.read() as series:
        assert series.values("long") == [(None, 1.0, [1, 9, ["y", "z"], 5])]


@pytest.mark.parametrize(
    "line",
    [
        b"", b"[]", b"7", b"{", b"null", b'{"n": 5, "v": 1}', b'{"n": ["x"], "v": 1}', b'{"n": "x"}', b"\xff\xfe",
        b'{"n": "x", "v": 1-2, "t": 1.0}',
        b'{"n": "x", "v": ' + b"9" * 5000 + b', "t": 1.0}', b'{"n": "x", "v": "word", "f": 1}',
        b'{"n": "x", "v": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", b'{"n": "' + b"x" * 20_000 + b'", "v": 1}',
        b'{"n": "x", "v": [1], "of": 7}', b'{"n": "x", "v": [1], "of": [[-1], 0, 1]}', b'{"k": "metric", "d": {}}',
        b'{"k": "metric", "d": {"run": 7, "name": "x", "value": 1}}', b'{"k": "row", "d": {"name": "x", "row": 1}}',
        b'{"n": "x", "v": [5], "of": [[9, 9], 3, 4]}', b'{"n": "\\u00', b'{"n": "a\\qb", "v": 1, "t": 1.0, "i": 2}',
        b'{"n": "x", "v": "' + b"y" * (4 * 1024 * 1024) + b'"}',
    ],
)  # fmt: skip
def test_invalid_lines_are_skipped(place, line):
    place.log({"n": "loss", "v": 1.0, "t": 1.0})
    place.append(line + b"\n")
    place.log({"n": "loss", "v": 2.0, "t": 2.0})
    with place.read() as series:
        assert list(series.points("loss").values) == [1.0, 2.0]
        assert [len(series.values(name.name)) for name in series.names()][1:] == []


def test_odd_names_times_and_steps(place):
    place.log({"n": "a\0b", "v": 1}, {"n": "\ud800", "v": 2, "t": "noon", "s": "three"})
    place.log({"n": "", "v": 3, "t": -5, "s": 2**63})
    with place.read() as series:
        assert [name.name for name in series.names()] == ["a\\0b", "\\ud800", ""]
        for name in ("a\0b", "\ud800", ""):
            assert (series.points(name).times[0], series.points(name).steps[0]) == (0, NO_STEP)


def test_an_incomplete_line_waits_for_its_end(place):
    place.append(b'{"n": "loss", "v": 1, "t": 1.0, "i": 1}\n{"n": "loss", "v": 2')
    with place.read() as series:
        assert list(series.points("loss").values) == [1]
        series.catch_up()
        place.append(b'5, "t": 2.0, "i": 2}\n')
        series.catch_up()
        assert list(series.points("loss").values) == [1, 25]


def test_only_a_line_that_is_too_long_is_skipped(place):
    with Series(place.folder) as series:
        for _ in range(5):
            place.append(b"x" * (1024 * 1024))
            series.catch_up()
        place.append(b'"}\n{"n": "loss", "v": 1, "t": 1.0, "i": 1}\n')
        series.catch_up()
        place.append(b'{"n": "loss", "v": 2, "t": 1.0, "i": 1}\n')
        series.catch_up()
        assert list(series.points("loss").values) == [1, 2]


def test_a_killed_worker_is_replaced(place, monkeypatch):
    """Three processes parse parts of a long file. Two of them are killed, and this process parses their parts."""
    place.log(*({"n": "loss", "v": n, "t": 1.0 + n} for n in range(5000)))
    monkeypatch.setattr(parallel_parse, "_MIN_SHARE", 30_000)
    monkeypatch.setattr(parallel_parse, "worker_count", lambda: 4)
    parse, parent, forks = parallel_parse._parse, os.getpid(), []

    def die(*arguments):
        return os.kill(os.getpid(), 9) if forks[1:] and os.getpid() != parent else parse(*arguments)

    monkeypatch.setattr(parallel_parse, "_parse", die)
    fork = os.fork
    monkeypatch.setattr(os, "fork", lambda: forks.append(1) or fork())
    with place.read() as series:
        assert list(series.points("loss").values) == list(range(5000))
    assert len(forks) == 3 and os.getpid() == parent


def test_a_run_without_points_gets_no_file(place):
    with place.read() as series:
        assert series.names() == [] and series.downsample("loss", 10) == [] and series.values("loss") == []
        assert len(series.points("loss")) == 0
    os.rmdir(place.folder.metrics)
    with place.read() as series:
        assert series.names() == []
    assert os.listdir(place.folder.path) == []


def test_a_reader_that_is_overtaken_deletes_nothing(place, monkeypatch):
    place.log({"n": "loss", "v": 1.0, "t": 1.0})
    place.read().close()
    before = place.database.stat().st_ino

    def stale(folder: str, known: Collection[bytes]) -> dict[bytes, int]:
        sizes = metric_sources.list_file_sizes(folder, known)
        monkeypatch.setattr(series_store, "list_file_sizes", metric_sources.list_file_sizes)
        place.log({"n": "loss", "v": 2.0, "t": 2.0})
        place.read().close()
        return sizes

    monkeypatch.setattr(series_store, "list_file_sizes", stale)
    place.read().close()
    assert place.database.stat().st_ino == before
    with place.read() as series:
        assert list(series.points("loss").values) == [1.0, 2.0]


def test_metrics_entries_that_are_not_files_are_skipped(place):
    place.log({"n": "loss", "v": 1, "t": 1.0})
    os.mkfifo(os.path.join(place.folder.metrics, "0-fifo"))
    os.symlink("/dev/zero", os.path.join(place.folder.metrics, "0-link"))
    os.mkdir(os.path.join(place.folder.metrics, "0-folder"))
    place.log({"n": "loss", "v": 2, "t": 2.0}, file="2-\udcff")
    with place.read() as series:
        assert list(series.points("loss").values) == [1, 2]


def test_points_of_several_processes_are_merged_by_time(place):
    place.log(*({"n": "loss", "v": n, "t": 10.0 + n} for n in (0, 2, 4)), file="1-0")
    place.log(*({"n": "loss", "v": n, "t": 10.0 + n} for n in (1, 3, 5)), file="2-0")
    with place.read() as series:
        assert list(series.points("loss").values) == [0, 1, 2, 3, 4, 5]
        place.log({"n": "loss", "v": 9, "t": 2.0}, file="1-0")  # the clock of this file's writer was set back
        series.catch_up()
        assert list(series.points("loss").values) == [0, 1, 2, 3, 4, 9, 5]


# -- results do not depend on how the bytes are split --------------------------------------------------

numbers = st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.integers(-(10**20), 10**20), st.booleans())
names = st.sampled_from(["loss", "größe", 'a"b', ""])


@st.composite
def lines(draw: Any) -> bytes:
    """Draw a line, or many similar lines, which may be longer than a chunk."""
    kind = draw(st.sampled_from(["point", "word", "value", "piece", "child", "row", "bad", "stretch", "long"]))
    name, when = draw(names), draw(st.floats(0, 1e10))
    point: dict[str, Any] = {"n": name, "v": draw(numbers), "t": round(when, 6), "i": 1}
    if draw(st.booleans()):
        point["s"] = draw(st.integers(-5, 5))
    if kind == "stretch":
        count, back = draw(st.integers(1, 1500)), draw(st.sampled_from([1, -1, 0]))
        points = ({**point, "v": n % 97 / 7, "s": n * back, "t": 100.0 + n} for n in range(count))
        return b"".join(json.dumps(item).encode() + b"\n" for item in points)
    if kind == "long":
        return b'{"n": "loss", "v": "' + b"x" * draw(st.integers(0, 300)) + b'"}\n'
    changes: dict[str, dict[str, Any]] = {
        "word": {"v": draw(st.sampled_from(list(SPECIAL_FLOATS))), "f": 1},
        "value": {"v": draw(st.one_of(st.text(), st.none(), st.lists(st.integers())))},
        "piece": {"v": draw(st.lists(st.integers(), max_size=3)), "of": [[], draw(st.sampled_from([0, 0, 2])), 4]},
    }
    if kind == "child":
        point = {"k": "metric", "d": {"run": "kid", "name": name, "value": point["v"]}, "t": 5.0}
    elif kind == "row":
        point = {"k": "row", "d": {"name": name, "row": {"x": 1}}, "t": 5.0}
    elif kind == "bad":
        return draw(st.binary(max_size=20)) + b"\n"
    return json.dumps({**point, **changes.get(kind, {})}).encode() + b"\n"


class InlineWorker:
    """A worker that runs its tasks in this process, because a thousand forks of the test process would take minutes."""

    def __init__(self, tasks):
        self._tasks = iter(tasks)

    def next(self):
        return pickle.loads(pickle.dumps(next(self._tasks)()))

    def close(self):
        return None


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_split_of_the_bytes_gives_the_same(data, tmp_path_factory, monkeypatch):
    monkeypatch.setattr(series_store, "_TRANSACTION_BYTES", data.draw(st.sampled_from([700, 5000, 10**7])))
    monkeypatch.setattr(metric_sources, "_PIECE", data.draw(st.sampled_from([7, 100, 10**5])))
    for module in ("metric_sources", "metric_lines", "parallel_parse"):
        monkeypatch.setattr(f"mlworkbench.history.series.{module}.MAX_LINE", 250)
    monkeypatch.setattr(parallel_parse, "_MIN_SHARE", data.draw(st.sampled_from([300, 10**7])))
    monkeypatch.setattr(parallel_parse, "_SEARCH_BYTES", data.draw(st.sampled_from([5, 10**5])))
    monkeypatch.setattr(parallel_parse, "worker_count", lambda: 3)
    monkeypatch.setattr(parallel_parse, "Worker", InlineWorker)
    files = {name: b"".join(data.draw(st.lists(lines(), max_size=8))) for name in ("1-a", "2-b")}
    whole, parts = MetricFolder(tmp_path_factory.mktemp("whole")), MetricFolder(tmp_path_factory.mktemp("parts"))
    for name, written in files.items():
        whole.append(written, name)
    with Series(parts.folder) as live:
        remaining = dict(files)
        order = data.draw(st.lists(st.sampled_from(sorted(files)), max_size=20))
        for number, name in enumerate([*order, *files]):  # finally, append the rest of each file
            more = (
                data.draw(st.integers(1, max(1, len(remaining[name])))) if number < len(order) else len(remaining[name])
            )
            parts.append(remaining[name][:more], name)
            remaining[name] = remaining[name][more:]
            live.catch_up()
        with whole.read() as series:
            assert content(live) == content(series)
            assert sorted((item.name, item.kind) for item in live.names()) == sorted(
                (item.name, item.kind) for item in series.names()
            )
            check_against_model(series, files)


def check_against_model(series: Series, files: dict[str, bytes]) -> None:
    """Compare the numbers of the run with those of a naive parser."""
    expected: dict[str, list[list[tuple[float, float]]]] = {}
    for written in files.values():
        by_name: dict[str, list[tuple[float, float]]] = {}
        for line in written.split(b"\n"):
            try:
                data = json.loads(line.decode("utf-8", "surrogateescape"))
                value = SPECIAL_FLOATS[data["v"]] if "f" in data else data["v"]
                if len(line) <= 250 and isinstance(data["n"], str) and type(value) in (int, float):
                    by_name.setdefault(data["n"], []).append((float(data["t"]), float(value)))
            except (ValueError, TypeError, KeyError):
                continue
        for name, points in by_name.items():
            expected.setdefault(name, []).append(points)
    names = {item.name for item in series.names() if item.kind == "number"}
    assert names == set(expected)
    for name, parts in expected.items():
        latest = [newest for part in parts for newest in accumulate((when for when, _ in part), max)]
        together = [point for part in parts for point in part]
        in_order = [together[at] for at in sorted(range(len(latest)), key=latest.__getitem__)]
        points = series.points(name)
        assert str(list(zip(points.times, points.values, strict=True))) == str(in_order)


# -- charts --------------------------------------------------------------------------------------------


def draw_naively(points: list[tuple[int | None, float, float]], width: int, x: str, span: Any) -> list[Column]:
    """Compute the columns by visiting every point."""
    stepped = all(step is not None for step, _, _ in points) and len({step for step, _, _ in points}) > 1
    placed = []
    for number, (step, when, value) in enumerate(points):
        at = when if x == "time" else step if stepped else number
        if at is not None:
            placed.append((at, when, value))
    if not placed:
        return []
    start, end = span or (min(at for at, _, _ in placed), max(at for at, _, _ in placed))
    by_column: dict[int, list[tuple[float, float, float]]] = {}
    for at, when, value in placed:
        if start <= at <= end:
            column = min(int((float(at) - start) / (end - start) * width), width - 1) if end > start else 0
            by_column.setdefault(column, []).append((at, when, value))
    drawn = []
    for _, points_in_column in sorted(by_column.items()):
        finite = [(when, value) for _, when, value in points_in_column if math.isfinite(value)]
        if finite:
            newest = max(when for when, _ in finite)
            last = [value for when, value in finite if when == newest][-1]
            values = [value for _, value in finite]
            drawn.append(Column(float(min(at for at, _, _ in points_in_column)), min(values), max(values), last))
            end = float(max(at for at, _, _ in points_in_column))
    return [*drawn[:-1], drawn[-1]._replace(x=end)] if drawn else []


@st.composite
def point_lists(draw: Any) -> Iterator[tuple[int | None, float, float]]:
    """Draw points in sections: steps rise, fall, stay, or are missing; values may be NaN; clocks may be set back."""
    points = []
    step, when = draw(st.integers(-(10**6), 10**6)), 1000.0
    for _ in range(draw(st.integers(1, 4))):
        rise, tick = draw(st.sampled_from([1, 1, 7, 0, -3])), draw(st.sampled_from([0.5, 0.0, -1.0]))
        bare, odd = draw(st.sampled_from([0, 0, 1, 3])), draw(st.sampled_from([0, 0, 1, 5]))
        for number in range(draw(st.integers(1, 1500))):
            step, when = step + rise, max(0.0, when + tick)
            value = math.nan if odd and number % odd == 0 else math.sin(step / 50) * number
            points.append((None if bare and number % bare == 0 else step, when, value))
    return points  # type: ignore[return-value]


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    points=point_lists(), width=st.sampled_from([1, 2, 7, 60, 300]), x=st.sampled_from(["step", "time"]), data=st.data()
)
def test_downsampling_equals_visiting_every_point(points, width, x, data, tmp_path_factory):
    place = MetricFolder(tmp_path_factory.mktemp("drawn"))
    for step, when, value in points:
        point: dict[str, Any] = {"n": "loss", "v": value, "t": when}
        if value != value:
            point.update(v="NaN", f=1)
        place.log(point if step is None else {**point, "s": step})
    span = None
    if data.draw(st.booleans()):
        places = [when if x == "time" else at if step is None else step for at, (step, when, _) in enumerate(points)]
        ends = [data.draw(st.sampled_from(places)) + data.draw(st.sampled_from([-0.5, 0, 30])) for _ in range(2)]
        span = min(ends), max(ends)
    with place.read() as series:
        drawn = series.downsample("loss", width, x, span=span)
    assert drawn == draw_naively(points, width, x, span)
    assert len(drawn) <= width


def test_of_points_with_equal_times_the_last_one_counts(place):
    place.log(*({"n": "loss", "v": n, "t": 5.0, "s": n} for n in range(3000)))
    with place.read() as series:
        assert series.downsample("loss", 5, "time") == [(5.0, 0, 2999, 2999)]
        assert series.downsample("loss", 2) == [(0, 0, 1499, 1499), (2999, 1500, 2999, 2999)]


def test_points_without_a_step_are_drawn_by_number(place):
    place.log(*({"n": "loss", "v": n, "t": n, **({} if n in (0, 9) else {"s": 5 * n})} for n in range(10)))
    place.log(*({"n": "same", "v": n, "t": n, "s": 0} for n in range(4)))
    place.log(*({"n": "odd", "v": "NaN", "f": 1, "t": n} for n in range(4)))
    with place.read() as series:
        assert [(column.x, column.last) for column in series.downsample("loss", 10)] == [(n, n) for n in range(10)]
        assert [column.x for column in series.downsample("same", 4)] == [0, 1, 2, 3], (
            "steps that are all the same tell nothing"
        )
        assert (
            series.value_range("loss") == (0, 9) and series.value_range("odd") is series.value_range("unknown") is None
        )
        assert not series.has_steps("loss") and not series.has_steps("same")


def test_a_column_of_rows_is_a_series(place):
    rows = [{"x": 1, "y": "a"}, {"x": 0.5, "y.z": True}, {"y": "b"}, {"x": 4}]
    place.log(*({"k": "row", "d": {"name": "t.u", "row": row}, "t": at} for at, row in enumerate(rows)))
    place.log({"n": "t.u.own", "v": 3, "t": 9})
    with place.read() as series:
        assert (list(series.points("t.u.x").values), list(series.points("t.u.x").times)) == ([1, 0.5, 4], [0, 1, 3])
        assert series.downsample("t.u.x", 3) == [(0, 1, 1, 1), (1, 0.5, 0.5, 0.5), (2, 4, 4, 4)]
        assert series.value_range("t.u.x") == (0.5, 4)
        assert [value.value for value in series.values("t.u.y")] == ["a", "b"] and series.values("t.u.y", newest=1)[
            0
        ].time == 2
        assert series.values("t.u.y.z") == [(None, 1, True)]
        assert series.column("t.u.own") == series.column("t.u.no") == series.column("t.x") == []
        assert series.rows("t.u", newest=1) == [{"x": 4}]


def test_a_number_too_large_for_a_float_is_infinite(place):
    place.append(b'{"n": "big", "v": 1%s, "t": 1.0}\n{"n": "big", "v": -1%s, "t": 2.0}\n' % (b"0" * 400, b"0" * 400))
    with place.read() as series:
        assert list(series.points("big").values) == [math.inf, -math.inf]


def test_only_a_span_is_drawn(place):
    place.log(*({"n": "loss", "v": n, "t": 5.0, "s": n} for n in range(3000)))
    with place.read() as series:
        assert series.downsample("loss", 2, span=(500.5, 1000)) == [(501, 501, 750, 750), (1000, 751, 1000, 1000)]
        assert series.downsample("loss", 2, span=(5000, 6000)) == []


def test_extreme_steps_are_drawn(place):
    place.log(*({"n": "loss", "v": n, "t": 1.0, "s": step} for n, step in enumerate((1 - 2**63, 0, 2**63 - 1))))
    with place.read() as series:
        assert [column.last for column in series.downsample("loss", 3)] == [0, 1, 2]
        assert [column.last for column in series.downsample("loss", 3, span=(-5, 5))] == [1]
        assert series.downsample("loss", 3, span=(5, -5)) == []


def test_any_numbers_become_columns():
    assert columns(range(4), [3, 1, math.nan, 2], 2) == [(0, 1, 3, 1), (3, 2, 2, 2)]
    assert columns([], [], 5) == []
    assert [column.x for column in columns([0, 1e308, -1e308], [1, 2, 3], 5)] == [1e308]
