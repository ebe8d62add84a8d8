"""Exported files: CSV, JSON, and the HTML report. Names and values are untrusted."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import combinations
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlworkbench.export.csv_export import cell, write_points, write_runs
from mlworkbench.export.html.charts import COLORS, Curve, draw_chart
from mlworkbench.export.html.document import write_page
from mlworkbench.export.html.inline_images import detect_image_type
from mlworkbench.export.html.markup import escape_text, format_duration
from mlworkbench.export.html.stylesheet import DARK, LIGHT
from mlworkbench.export.json_export import write_json
from mlworkbench.export.run_data import Item, make_items, with_children
from mlworkbench.history.series.downsampling import Column
from mlworkbench.history.store import History
from mlworkbench.model import Entry, Run, Status
from mlworkbench.remote.shared.layout import RunFolder
from mlworkbench.report.run_records import record, to_display
from tests.unit.history.test_store import paths, spec

EVIL = ('"><script>alert(1)</script>', "<img src=x onerror=alert(1)>", "' onclick='alert(1)", "javascript:alert(1)")


def item(folder, *, lines=(), files=(), **facts):
    """Create a run in the folder, with these metric lines and outputs."""
    (folder / "metrics").mkdir(parents=True, exist_ok=True)
    (folder / "metrics" / "1-a").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for name, data in dict(files).items():
        path = folder / "work" / "outputs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    run = Run(spec(1, **facts.pop("spec", {})), **facts)
    return Item(run, record(run), to_display(record(run)), RunFolder(str(folder)))


def written(write, *words, **more):
    pieces = []
    write(*words, pieces.append, **more)
    return "".join(pieces)


# -- CSV -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (True, "true"),
        (3, "3"),
        (-0.5, "-0.5"),
        (nan, "NaN"),
        (-inf, "-inf"),
        ("-0.5", "-0.5"),
        ("+1e3", "+1e3"),
        ("=1+1", "'=1+1"),
        ("  =1+1", "'  =1+1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("-cmd|' /C calc'!A0", "'-cmd|' /C calc'!A0"),
        ("\t=1", "'\t=1"),
        ("-1_0", "'-1_0"),
        ("plain", "plain"),
        ([1, nan], '[1, "NaN"]'),
    ],
)
def test_a_cell(value, text):
    assert cell(value) == text


@given(st.text(max_size=20))
def test_no_text_is_a_formula(text):
    found = cell(text)
    assert found.lstrip(" ")[:1] not in tuple("=@\t\r\n") or not found
    if found.lstrip(" ")[:1] in ("+", "-"):
        float(found)


def test_rows_have_the_names_of_all_runs(tmp_path):
    first = item(tmp_path / "a", metrics={"loss": 0.5}, spec={"entry": Entry("script", "t.py", ("--fast",))})
    second = item(tmp_path / "b", metrics={"=evil": [1, 2]}, params={"lr": 0.1})
    rows = list(csv.DictReader(io.StringIO(written(write_runs, [first, second]))))
    assert [row["metrics.loss"] for row in rows] == ["0.5", ""]
    assert [row["metrics.=evil"] for row in rows] == ["", "[1, 2]"]
    assert [(row["params.fast"], row["params.lr"]) for row in rows] == [("true", ""), ("", "0.1")]


def test_points_of_every_kind(tmp_path):
    lines = [
        {"n": "loss", "v": 0.5, "t": 10.5, "s": 1, "i": 1},
        {"n": "loss", "v": "NaN", "f": 1, "t": 11.0, "i": 2},
        {"n": "word", "v": "=2", "t": 12.0, "i": 3},
    ]
    rows = list(csv.reader(io.StringIO(written(write_points, [item(tmp_path, lines=lines)]))))
    assert [row[1:] for row in rows] == [
        ["metric", "step", "time_utc", "value"],
        ["loss", "1", "1970-01-01T00:00:10.500000+00:00", "0.5"],
        ["loss", "", "1970-01-01T00:00:11.000000+00:00", "NaN"],
        ["word", "", "1970-01-01T00:00:12.000000+00:00", "'=2"],
    ]


# -- JSON ----------------------------------------------------------------------------------------------


def test_json_is_strict_and_keeps_what_is_no_number(tmp_path):
    lines = [{"n": "odd", "v": "-Infinity", "f": 1, "t": 1.0, "i": 1}]
    lines.append({"k": "row", "d": {"name": "table", "row": {"a": 1}}, "t": 2.0, "i": 2})
    given = item(tmp_path, lines=lines, params={"big": inf}, files={"a/b.txt": b"12"})
    text = written(write_json, [given], all_points=False)
    (run,) = json.loads(text, parse_constant=pytest.fail)["runs"]
    assert text.isascii()
    series = {(one["name"], one["kind"]): one for one in run["series"]}
    assert series["odd", "number"]["points"]["value"] == ["-Infinity"]
    assert series["table", "row"]["rows"] == [{"a": 1}]
    assert run["params"]["big"] == "Infinity"
    assert [(one["path"], one["size"]) for one in run["files"]] == [("a/b.txt", 2)]


def test_json_has_datasets_and_description(tmp_path):
    dataset = {"name": "iris", "digest": "1f", "source_type": "http", "source": '{"url": "x"}', "context": "training"}
    told = {"mlflow.dataset.iris": "1f", "mlflow.note.content": "what it is"}
    given = item(tmp_path, lines=[{"k": "dataset", "d": dataset, "t": 1.0}], told_tags=told)
    (run,) = json.loads(written(write_json, [given], all_points=False))["runs"]
    assert run["description"] == "what it is"
    assert [(one["name"], one["source"], one["context"]) for one in run["datasets"]] == [
        ("iris", {"url": "x"}, "training")
    ]


# -- HTML report ---------------------------------------------------------------------------------------

ELEMENTS = set(
    "html head meta title style body main header h1 h2 h3 p section details summary div span table thead tbody tr th td"
    " a br dl dt dd strong ul li svg g line text polyline polygon circle figure img figcaption footer".split()
)
ATTRIBUTES = set(
    "lang charset http-equiv content name class id open colspan href viewbox role aria-label aria-hidden x y x1 x2"
    " y1 y2 cx cy r points text-anchor width height alt src".split()
)


class StrictParser(HTMLParser):
    """A parser that accepts only the elements and attributes that a report uses."""

    def __init__(self):
        super().__init__()
        self.texts = []

    def handle_starttag(self, tag, attrs):
        assert tag in ELEMENTS, tag
        for name, value in attrs:
            assert name in ATTRIBUTES, (tag, name, value)
            assert name != "href" or value.startswith("#r")
            assert name != "src" or value.startswith("data:image/")

    def handle_data(self, data):
        self.texts.append(data)


def page(*items):
    text = written(write_page, items)
    strict = StrictParser()
    strict.feed(text)
    return text, " ".join(strict.texts)


def evil_item(folder, evil):
    lines = [{"n": evil, "v": value, "t": 1.0 + value, "s": value, "i": value + 1} for value in range(3)]
    gpu = {"used": "no", "line": f"GPU used: {evil}", "diagnosis": {"cause": evil, "remedy": evil}}
    facts = {
        "entry": Entry("script", evil, (evil, f"--{evil}", evil)),
        "project_name": evil,
        "user": evil,
        "name": evil,
    }
    facts.update(
        tags=(evil,), parent=evil, lock={"kind": evil, evil: evil, "pip": [{"name": evil, "version": evil}, 7]}
    )
    told = {
        "metrics": {evil: evil, "n": 1},
        "params": {evil: evil},
        "told_tags": {evil: evil},
        "cause": evil,
        "gpu": gpu,
    }
    names = {evil.replace("/", "") + ".png": b"\x89PNG\r\n\x1a\n", "fake.png": b"<svg onload=alert(1)>"}
    return item(folder, lines=lines, files=names, status=Status.FAILED, ending="failed", exit=1, **told, spec=facts)


@pytest.mark.parametrize("evil", EVIL)
@pytest.mark.parametrize("count", [1, 2])
def test_no_name_becomes_markup(tmp_path, evil, count):
    text, said = page(*(evil_item(tmp_path / str(at), evil) for at in range(count)))
    assert evil in said, "shown as what it is"
    assert text.count("data:image/png;base64,") == count


@given(text=st.text(alphabet=st.characters(), max_size=30))
def test_any_text_is_shown_and_obeyed_by_nobody(text):
    strict = StrictParser()
    strict.feed(f'<p class="{escape_text(text)}">{escape_text(text)}</p>')
    assert "\u202e" not in escape_text(text) and "<" not in escape_text(text) and "\x00" not in escape_text(text)
    escape_text(text).encode()


def test_the_page_allows_its_own_style_only(tmp_path):
    text, _ = page(item(tmp_path))
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in text and "default-src 'none'" in text
    assert "style=" not in text


def test_the_page_of_a_failed_run_says_why_and_of_its_gpu(tmp_path):
    gpu = {"used": "no", "line": "GPU used: no – it was idle", "diagnosis": {"cause": "CPU build", "remedy": "pip it"}}
    _, said = page(item(tmp_path, status=Status.FAILED, ending="failed", exit=3, cause="ValueError: x", gpu=gpu))
    for words in ("failed (exit 3)", "ValueError: x", "GPU used: no – it was idle", "CPU build", "pip it"):
        assert words in said


def test_what_differs_and_what_does_not(tmp_path):
    runs = [item(tmp_path / str(at), params={"lr": at, "depth": 3}, metrics={"loss": at / 7}) for at in range(2)]
    text, said = page(*runs)
    assert re.search(r"Same in all runs: [^<]*depth = 3", text)
    assert "<th>lr</th>" in text and "<th>depth</th>" not in text and "0.142857" in said


def test_metrics_keep_half_of_the_columns_and_common_names_come_first(tmp_path):
    rare = {f"rare{at}": 1 for at in range(20)}
    runs = [
        item(tmp_path / "a", params={**rare, "lr": 1}, metrics={f"m{at}": 1.0 for at in range(20)}, cause="x" * 50),
        item(tmp_path / "b", params={"lr": 2}, metrics={}),
    ]
    text, _ = page(*runs)
    table = text.partition("<tbody>")[0] + text.partition("<tbody>")[2].partition("</tbody>")[0]
    assert re.findall(r"<th class=n>(m\d+)</th>", table) == [f"m{at}" for at in range(6)]
    assert re.findall(r"<th>(lr|rare\d+)</th>", table) == ["lr", *(f"rare{at}" for at in range(5))]
    assert "xxxxx" not in table, "why it failed is told below"


@pytest.mark.parametrize("colours", [LIGHT, DARK])
def test_colours_of_curves_are_well_apart(colours):
    def light(part):
        return part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4

    def lab(colour):
        r, g, b = (light(int(colour[at : at + 2], 16) / 255) for at in (1, 3, 5))
        whole = ((0.434, 0.376, 0.19), (0.2126, 0.7152, 0.0722), (0.0177, 0.1095, 0.873))
        x, y, z = ((a * r + b_ * g + c * b) ** (1 / 3) for a, b_, c in whole)
        return 116 * y, 500 * (x - y), 200 * (y - z)

    assert len(colours) == COLORS
    assert min(math.dist(lab(one), lab(other)) for one, other in combinations(colours, 2)) > 35


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"\x89PNG\r\n\x1a\nrest", "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"RIFF1234WEBPVP8", "image/webp"),
        (b'\xef\xbb\xbf<?xml version="1.0"?>\n<svg/>', "image/svg+xml"),
        (b"<svg onload=alert(1)>", None),
        (b"<html>", None),
        (b"", None),
    ],
)
def test_a_picture_is_told_by_its_bytes(data, kind):
    assert detect_image_type(data) == kind


finite = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(st.lists(st.tuples(finite, finite, finite), min_size=1, max_size=5), min_size=1, max_size=3))
def test_any_numbers_can_be_drawn(curves):
    """The values can be very large, very small, or constant."""
    made = []
    for at, points in enumerate(curves):
        columns = [Column(x, min(a, b), max(a, b), a) for x, a, b in sorted(points)]
        made.append(Curve("run", at, columns))
    picture = draw_chart("loss", made)
    StrictParser().feed(picture)
    assert "nan" not in picture.replace("aria", "") and "inf" not in picture
    for x, y in re.findall(r"(-?[\d.e+-]+),(-?[\d.e+-]+)", " ".join(re.findall(r'points="([^"]*)"', picture))):
        assert -1 <= float(x) <= 481 and -1 <= float(y) <= 261


def test_a_curve_is_drawn_where_its_values_are():
    rising = [Column(float(x), float(x), float(x), float(x)) for x in range(3)]
    places = re.search(r'<polyline[^>]*points="([^"]*)"', draw_chart("loss", [Curve("a", 0, rising)]))[1].split()
    xs, ys = zip(*(map(float, place.split(",")) for place in places), strict=True)
    assert xs[0] < xs[1] < xs[2] and ys[0] > ys[1] > ys[2]
    assert "Logarithmic" in draw_chart("x", [Curve("a", 0, [Column(0, 1, 1, 1), Column(1, 1e5, 1e5, 1e5)])])
    assert draw_chart("x", [Curve("a", 0, [])]) == ""


@pytest.mark.parametrize(("seconds", "text"), [(None, ""), (0.44, "0.4 s"), (250, "4 min 10 s"), (11_100, "3 h 5 min")])
def test_how_long_it_took(seconds, text):
    assert format_duration(seconds) == text


# -- selection of runs ---------------------------------------------------------------------------------


def test_children_come_with_their_parents(tmp_path):
    history = History(paths(tmp_path))
    for at in range(4):
        parent = {1: spec(0).id, 2: spec(1).id, 3: spec(3).id}.get(at)
        history.add(replace(spec(at), parent=parent, sweep={"children": []}))
    found = with_children(history, [history.get(spec(0).id), history.get(spec(1).id)])
    assert [run.id for run in found] == [spec(at).id for at in range(3)]
    assert [run.id for run in with_children(history, [history.get(spec(3).id)])] == [spec(3).id], "no trap"
    history.close()


def test_what_a_script_made_inside_has_its_own_points_and_files(tmp_path):
    history = History(paths(tmp_path))
    history.add(spec(0))
    inner, same = "a" * 32, "b" * 32
    told = {inner: {"name": "inner"}, same: {"name": "first", "same": True}}
    folder = tmp_path / "runs" / spec(0).id
    lines = [{"n": "x", "v": 1.0, "t": 1.0, "i": 1}]
    lines.append({"k": "metric", "d": {"run": inner, "name": "x", "value": 2.0, "step": 1}, "t": 1.0, "i": 2})
    lines.append({"k": "child", "d": {"run": same, "same": True}, "t": 1.0, "i": 3})
    files = {f"mlflow/{inner}/own.txt": b"1", "mlflow/other.txt": b"2", "main.txt": b"3"}
    item(folder, lines=lines, files=files)
    from mlworkbench.history.nested_runs import children_of

    run = replace(history.get(spec(0).id), children=told)
    history.update(run.id, lambda _: run)
    items = make_items(history, [run, *children_of(run)], record, to_display)
    found = json.loads(written(write_json, items, all_points=True))["runs"]
    assert [[one["points"]["value"] for one in run["series"]] for run in found] == [[[1.0]], [[2.0]], [[1.0]]]
    assert [[one["path"] for one in run["files"]] for run in found] == [
        ["main.txt", "mlflow/other.txt"],
        ["own.txt"],
        [],
    ]
    history.close()
