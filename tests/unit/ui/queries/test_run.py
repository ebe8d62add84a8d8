"""Data of the run page: logs, series, samples, outputs, GPUs, and code. Much of it is untrusted."""

from __future__ import annotations

import json
import os
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest

from mlworkbench.errors import HistoryError, UnknownName, UsageError
from mlworkbench.history.store import History
from mlworkbench.model import Run, Status
from mlworkbench.report.code_diff import folder_difference
from mlworkbench.report.line_diff import LineDiff
from mlworkbench.runfiles import log_lines
from mlworkbench.runfiles.output_file import open_output, read_at, strip_outputs_prefix
from mlworkbench.runfiles.output_manifest import ManifestWriter, Output, outputs_of
from mlworkbench.snapshot.take_snapshot import take
from mlworkbench.ui.queries import code, gpu_verdict, logged_tables, logs, outputs, series, system_metrics
from mlworkbench.ui.queries import run as queries
from tests.unit.history.test_store import paths, spec

PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)


class StoredRun:
    """A history with one finished run."""

    def __init__(self, folder: Path, **changes: object) -> None:
        self.history = History(paths(folder))
        self.id = spec(0).id
        self.history.add(replace(spec(0), **changes))  # type: ignore[arg-type]
        self.folder = self.history.paths.root.run(self.id)
        os.makedirs(self.folder.outputs, exist_ok=True)
        os.makedirs(self.folder.metrics, exist_ok=True)
        self.update(status=Status.COMPLETED, started=100.0, ended=110.0, accepted=99.0)

    def update(self, **changes: object) -> Run:
        return self.history.update(self.id, lambda run: replace(run, **changes))  # type: ignore[arg-type]

    def write_output(self, path: str, data: bytes) -> None:
        file = Path(self.folder.outputs, path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)

    def write_metrics(self, *lines: dict[str, object]) -> None:
        Path(self.folder.metrics, "1-a").write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture
def stored(tmp_path):
    stored = StoredRun(tmp_path)
    yield stored
    stored.history.close()


# -- logs ----------------------------------------------------------------------------------------------------------


def test_log_lines_look_as_in_a_terminal(stored):
    Path(stored.folder.log).write_bytes(b"one\nbar 10%\rbar 90%\r\n" + b"\xff\n" + b"x" * 20_000 + b"\nend")
    open_logs = logs.Logs()
    chunk = open_logs.read(stored.history, stored.id, 0, 10)
    assert chunk.lines[:3] == ["one", "bar 90%", "\ufffd"]
    assert len(chunk.lines[3]) == logs.MAX_LINE + 1 and chunk.lines[3].endswith("…")
    assert (chunk.first, chunk.total, chunk.final) == (0, 5, True)
    assert open_logs.read(stored.history, stored.id, -1, 10).lines == ["end"]
    assert open_logs.read(stored.history, stored.id, 99, 10).lines == []
    assert open_logs.find(stored.history, stored.id, "BAR").lines == [1]
    name, data = logs.raw(stored.history, stored.id)
    assert name == f"{stored.id}.log" and b"".join(data) == Path(stored.folder.log).read_bytes()


def test_known_secrets_are_masked(tmp_path, monkeypatch):
    monkeypatch.setenv("API_TOKEN", "s3cret-value")
    stored = StoredRun(tmp_path, secrets=("API_TOKEN", "NOWHERE"))
    monkeypatch.setattr("mlworkbench.secret_sources._from_keyring", lambda name: None)
    Path(stored.folder.log).write_text("token s3cret-value!\n")
    assert logs.Logs().read(stored.history, stored.id, 0, 5).lines == ["token ***!"]
    assert b"".join(logs.raw(stored.history, stored.id)[1]) == b"token ***!\n"
    stored.history.close()


def test_number_of_cached_logs_is_limited(stored):
    open_logs = logs.Logs(max_open=1)
    Path(stored.folder.log).write_text("a\n")
    Path(stored.folder.build_log).write_text("b\nc\n")
    assert open_logs.read(stored.history, stored.id, 0, 5).total == 1
    assert open_logs.read(stored.history, stored.id, 0, 5, "build").lines == ["b", "c"]
    assert list(open_logs._logs) == [stored.folder.build_log]
    with pytest.raises(UnknownName):
        open_logs.read(stored.history, stored.id, 0, 5, "../spec.json")


def test_log_symlink_is_not_followed(stored, tmp_path):
    (tmp_path / "other").write_text("of somebody else\n")
    os.symlink(tmp_path / "other", stored.folder.log)
    with pytest.raises(HistoryError, match="symbolic"):
        logs.Logs().read(stored.history, stored.id, 0, 5)


@pytest.fixture
def endless(stored, monkeypatch):
    """A sparse log of 8 TB, which a script can create with one call."""
    monkeypatch.setattr(logs, "TIME_LIMIT", 0.0)
    monkeypatch.setattr(log_lines, "MAX_INDEXED_BYTES", 3 * 1024 * 1024)
    with open(stored.folder.log, "wb") as file:
        file.write(b"begin\n")
        file.seek(8 << 40)
        file.write(b"\nlast line\n")
    yield stored
    os.unlink(stored.folder.log)


def test_endless_log_shows_start_and_end(endless):
    open_logs = logs.Logs()
    chunks = [open_logs.read(endless.history, endless.id, 0, 10) for _ in range(4)]
    assert [piece.indexing for piece in chunks] == [True, True, False, False]
    assert "not indexed yet" in chunks[0].lines[2]
    first, zeros, message, last = chunks[-1].lines
    assert (first, zeros[:3], last) == ("begin", "\0\0\0", "last line")
    assert message.startswith("[8.8 TB omitted") and f"mlw logs {endless.id}" in message
    assert (chunks[-1].total, chunks[-1].gap, chunks[-1].final) == (4, 2, True)
    assert open_logs.read(endless.history, endless.id, -1, 10).lines == ["last line"]
    assert open_logs.read(endless.history, endless.id, 2, 1).lines == [message]


def test_search_in_endless_log_terminates(endless):
    open_logs, start, requests = logs.Logs(), 0, 0
    while start is not None:
        hits = open_logs.find(endless.history, endless.id, "no such text", 0, start)
        start, requests = hits.rest, requests + 1
    assert 3 <= requests < 20
    assert open_logs.find(endless.history, endless.id, "begin").lines == [0]


def test_untracked_run_has_no_log(stored, monkeypatch):
    monkeypatch.setattr(logs, "is_untracked", lambda name: True)
    with pytest.raises(UsageError, match="started without mlw"):
        logs.Logs().read(stored.history, stored.id, 0, 5)


# -- series --------------------------------------------------------------------------------------------------------


def test_series_over_steps_and_time_span(stored):
    stored.write_metrics(*({"n": "loss", "v": 1.0 / (at + 1), "t": 100.0 + at, "s": 10 * at} for at in range(100)))
    stored.update(metrics={"loss": 0.01})
    whole = series.load_series(stored.history, stored.id, "loss", 10)
    assert (whole.over, whole.count, whole.start, whole.final) == ("step", 100, 100.0, True)
    assert len(whole.columns) == 10 and whole.columns[0].hi == 1.0 and whole.last == 0.01
    assert (whole.least, whole.greatest) == (0.01, 1.0)
    part = series.load_series(stored.history, stored.id, "loss", 10, "time", (150.0, 159.0))
    assert [column.x for column in part.columns] == [150.0 + at for at in range(10)]
    assert series.names(stored.history, stored.id)[0].name == "loss"
    total, points = series.points(stored.history, stored.id, "loss", -2, 5)
    assert total == 100 and [point.step for point in points] == [980, 990]


def test_logged_lists_and_texts(stored):
    stored.write_metrics(
        {"n": "curve", "v": [1, 2, 5], "t": 101.0},
        {"n": "words", "v": "<b>x</b>", "t": 101.0, "s": 3},
        {"k": "row", "d": {"name": "table", "row": {"a": 1, "b": None}}, "t": 102.0},
    )
    drawn = series.load_series(stored.history, stored.id, "curve", 100)
    assert [column.last for column in drawn.columns] == [1, 2, 5] and drawn.over == "points"
    values = {value.name: value for value in series.logged_values(stored.history, stored.id)}
    assert values["curve"].curve and not values["words"].curve
    assert values["words"].rows == [["3", "<b>x</b>"]]
    assert values["table"].titles == ["a", "b"] and values["table"].rows == [["1", ""]]
    with pytest.raises(UnknownName):
        series.load_series(stored.history, stored.id, "words", 100)


def test_machine_and_gpu_samples(stored):
    Path(stored.folder.usage_samples).write_text('{"t":1,"cores":1.5,"memory":1073741824,"processes":2}\n')
    rows = [{"uuid": f"GPU-{at}", "utilisation": 50 + at, "memory": 2**30, "own": None} for at in range(2)]
    hostile = ["nonsense", "[1]", '{"t":"x"}', '{"t":-5,"gpus":[]}', '{"t":3,"gpus":[7,{"uuid":1}]}', "[" * 100_000]
    lines = [json.dumps({"t": at, "gpus": rows}) for at in (0.5, 1.0)]
    later = json.dumps({"t": 12, "gpus": rows}) + "\n"  # only its first 30 characters are written
    Path(stored.folder.gpu).write_text("\n".join([lines[0], *hostile, lines[1], later[:30]]))
    samples = system_metrics.Telemetry()
    gauges = {gauge.title: gauge for gauge in samples.gauges(stored.history, stored.id)}
    assert set(gauges) == {"CPU cores used", "Memory of the run", "GPU utilization", "GPU memory in use"}
    assert gauges["GPU utilization"].curves == [("GPU 0", "gpu0.utilisation"), ("GPU 1", "gpu1.utilisation")]
    loaded = samples.load_series(stored.history, stored.id, "gpu1.utilisation", 50, "time", None)
    assert [(column.x, column.last) for column in loaded.columns] == [(100.5, 51.0), (101.0, 51.0)]
    with open(stored.folder.gpu, "a") as file:
        file.write(later[30:])
    assert samples.load_series(stored.history, stored.id, "gpu1.utilisation", 50, "time", None).count == 3
    assert samples.load_series(stored.history, stored.id, "run.memory", 50, "time", None).last == 1.0
    with open(stored.folder.usage_samples, "a") as file:
        for how in ('"rss"', '"<b>"', "[1]"):
            file.write(f'{{"t":2,"cores":1,"memory":1073741824,"processes":2,"counted":{how}}}\n')
    titles = {gauge.title for gauge in samples.gauges(stored.history, stored.id)}
    assert "Memory of the run (RSS; shared memory is counted for each process)" in titles
    for name in ("gpu9.utilisation", "gpu-1.utilisation", "gpu².utilisation", "gpu0", "run.x", "", "gpu0.uuid"):
        with pytest.raises(UnknownName):
            samples.load_series(stored.history, stored.id, name, 50, "time", None)


@pytest.mark.parametrize("value", ["NaN", "1e999", '"x"', "true", "[1]"])
def test_metric_without_a_number_has_no_gauge(stored, value):
    Path(stored.folder.usage_samples).write_text(f'{{"t":1,"cores":{value}}}\n')
    Path(stored.folder.gpu).write_text(f'{{"t":1,"gpus":[{{"uuid":"GPU-a","power":{value}}}]}}\n')
    samples = system_metrics.Telemetry()
    assert samples.gauges(stored.history, stored.id) == []
    for name in ("run.cores", "gpu0.power"):
        with pytest.raises(UnknownName):
            samples.load_series(stored.history, stored.id, name, 50, "time", None)


# -- outputs -------------------------------------------------------------------------------------------------------


def test_outputs_are_listed_folder_by_folder(stored):
    stored.write_output("a.txt", b"hello")
    stored.write_output("plots/x.png", PNG)
    stored.write_output("plots/deep/y.png", PNG)
    os.symlink("/etc/passwd", Path(stored.folder.outputs, "link"))
    top = outputs.listing(stored.history, stored.id)
    assert [(entry.name, entry.kind, entry.count) for entry in top.entries] == [
        ("plots", "folder", 2),
        ("a.txt", "file", 1),
        ("link", "link", 1),
    ]
    assert [entry.path for entry in outputs.listing(stored.history, stored.id, "plots/").entries] == [
        "plots/deep",
        "plots/x.png",
    ]
    with pytest.raises(UnknownName):
        outputs.listing(stored.history, stored.id, "nothing")
    assert [image.path for image in outputs.list_images(stored.history, stored.id)] == [
        "plots/deep/y.png",
        "plots/x.png",
    ]


def test_output_preview_is_harmless(stored, tmp_path):
    stored.write_output("page.html", b"<script>alert(1)</script>")
    stored.write_output("a.csv", b'x,y\n1,"=cmd()"\n')
    stored.write_output("a.json", b'{"b":[1]}')
    stored.write_output("bad.json", b"[" * 200_000)
    stored.write_output("x.bin", b"\0\1")
    stored.write_output("fake.txt", PNG)
    stored.write_output("long.txt", b"x" * (outputs.MAX_TEXT + 5))
    look = lambda path: outputs.preview(stored.history, stored.id, path)  # noqa: E731
    stored.write_output("page.svg", b"<!DOCTYPE html><html>")
    assert look("page.svg").kind == "text"
    assert look("page.html").kind == "text" and look("page.html").text == "<script>alert(1)</script>"
    assert look("a.csv").titles == ("x", "y") and look("a.csv").rows == (("1", "=cmd()"),)
    assert look("a.json").text == '{\n  "b": [\n    1\n  ]\n}'
    assert look("bad.json").kind == "text" and look("x.bin").kind == "none" and look("fake.txt").kind == "image"
    assert look("long.txt").cut and len(look("long.txt").text) == outputs.MAX_TEXT
    os.symlink("/etc/passwd", Path(stored.folder.outputs, "link"))
    with pytest.raises(HistoryError, match="link"):
        look("link")
    for path in ("../../spec.json", "..", "/etc/passwd", "a.csv/x", "", "x\0y", "nothing"):
        with pytest.raises(UnknownName):
            look(path)
    handle, kind, growing = outputs.open_for_download(stored.history, stored.id, "page.html")
    os.close(handle)
    assert (kind, growing) == ("application/octet-stream", False)


def test_output_folder_named_outputs(stored):
    stored.write_output("x.txt", b"above")
    stored.write_output("outputs/x.txt", b"below")
    paths = [entry.path for entry in outputs.listing(stored.history, stored.id, "outputs").entries]
    assert paths == ["outputs/x.txt"]
    assert outputs.preview(stored.history, stored.id, paths[0]).text == "below"
    assert outputs.preview(stored.history, stored.id, "x.txt").text == "above"
    with open(outputs.open_for_download(stored.history, stored.id, paths[0])[0], "rb") as file:
        assert file.read() == b"below"
    with pytest.raises(UnknownName):
        outputs.preview(stored.history, stored.id, "outputs/outputs/x.txt")
    for typed, data in (("outputs/outputs/x.txt", b"below"), ("outputs/x.txt", b"above"), ("x.txt", b"above")):
        with open(open_output(stored.folder, strip_outputs_prefix(typed)), "rb") as file:
            assert file.read() == data, typed


def test_hostile_json_preview_is_bounded(stored):
    depth = 900
    stored.write_output("deep.json", b"[" * depth + b",".join([b"1"] * 120_000) + b"]" * depth)
    stored.write_output("wide.json", b"[" + b",".join([b"[[[[]]]]"] * 28_000) + b"]")
    stored.write_output("half.json", b'["\\ud83d"]')
    stored.write_output("fine.json", b"[" * 30 + b"]" * 30)
    tracemalloc.start()
    try:
        deep = outputs.preview(stored.history, stored.id, "deep.json")
        wide = outputs.preview(stored.history, stored.id, "wide.json")
        assert tracemalloc.get_traced_memory()[1] < 50 << 20
    finally:
        tracemalloc.stop()
    assert (deep.kind, deep.text[:3]) == ("text", "[[[")
    assert (wide.kind, wide.cut, len(wide.text)) == ("json", True, outputs.MAX_TEXT)
    assert outputs.preview(stored.history, stored.id, "half.json").text == '[\n  "?"\n]'
    assert outputs.preview(stored.history, stored.id, "fine.json").kind == "json"


def listed(stored, count: int) -> None:
    with ManifestWriter(stored.folder.manifest + ".new") as manifest:
        for at in range(count):
            manifest.add(Output(f"many/{at:06}.bin" if at else "x.png", 1, None, "file"))
    os.replace(stored.folder.manifest + ".new", stored.folder.manifest)


def test_output_list_of_finished_run_is_read_once(stored, monkeypatch):
    listed(stored, 5000)
    stored.update(files={"x.png": ["not", "as", "we", "write", "it"]})
    reads = []
    monkeypatch.setattr(outputs, "outputs_of", lambda run: reads.append(run) or outputs_of(run))
    listing = outputs.listing(stored.history, stored.id, "many")
    assert (len(listing.entries), listing.count, listing.more) == (2000, 4999, True)
    listing = outputs.listing(stored.history, stored.id, "many", "4998")
    assert ([entry.path for entry in listing.entries], listing.more) == (["many/004998.bin"], False)
    assert [entry.name for entry in outputs.listing(stored.history, stored.id, "", "4998").entries] == [
        "many/004998.bin"
    ]
    assert [image.title for image in outputs.list_images(stored.history, stored.id)] == [""]
    assert len(reads) == 1
    listed(stored, 3)
    assert outputs.listing(stored.history, stored.id, "many").count == 2 and len(reads) == 2


def test_read_at_without_pread(tmp_path, monkeypatch):
    (tmp_path / "x").write_bytes(b"0123456789")
    with open(tmp_path / "x", "rb", buffering=0) as file:
        file.seek(2)
        for missing in (False, True):
            if missing:
                monkeypatch.delattr(os, "pread", raising=False)
            assert (read_at(file.fileno(), 3, 5), file.tell()) == (b"567", 2)


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a..", "image/gif"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
        (b"RIFF\0\0\0\0WAVEfmt ", None),
        (b"<svg xmlns=", "image/svg+xml"),
        (b"<?xml version='1.0'?>\n<!-- a -->\n<!DOCTYPE svg>\n<svg>", "image/svg+xml"),
        (b"<!---->" * 500 + b"x", None),
        (b"<!-- <svg >", None),
        (b"<svgx", None),
        (b"<html><svg>", None),
        (b"%PDF-1.7", None),
        (b"", None),
    ],
)
def test_image_type_from_first_bytes(head, kind):
    assert outputs.image_type(head) == kind


def test_logged_tables(stored):
    stored.write_output("tables/a.json", b'{"columns":["<i>x</i>","y"],"data":[[1,"a"],[2,null]]}')
    stored.write_output("tables/b.json", b'{"columns":7}')
    record = {"as": "table", "name": "report"}
    bad = {path: {**record, "name": path} for path in ("tables/b.json", "tables/gone.json")}
    stored.update(files={"tables/a.json": {**record, "step": 3}, **bad})
    gone, damaged, good = logged_tables.tables(stored.history, stored.id)
    assert good.title == "report, step 3" and good.titles == ["<i>x</i>", "y"]
    assert good.rows == [["1", "a"], ["2", ""]]
    assert gone.problem and damaged.problem


def test_table_of_several_calls_is_one_table(stored):
    stored.write_output("tables/a.json", b'{"columns":["x","y"],"data":[[1,"a"]]}')
    stored.write_output("tables/a-2.json", b'{"columns":["x","y"],"data":[[2,"b"]]}')
    stored.write_output("tables/a-3.json", b'{"columns":["z","x"],"data":[[9,3]]}')
    record = {"as": "table", "name": "report"}
    stored.update(files={"tables/a.json": record, "tables/a-2.json": record})
    (table,) = logged_tables.tables(stored.history, stored.id)
    assert (table.titles, table.rows) == (["x", "y"], [["1", "a"], ["2", "b"]])
    stored.update(files={f"tables/{name}.json": record for name in ("a", "a-2", "a-3", "gone")})
    (table,) = logged_tables.tables(stored.history, stored.id)
    assert (table.titles, table.rows[2]) == (["x", "y", "z"], ["3", "", "9"])
    assert table.problem and len(table.rows) == 3, "the other parts are shown"


def test_plots_of_tensorboard_tables(stored):
    histogram = {"columns": ["step", "min", "max"], "data": [[1, 0, 2]], "buckets": [[1, 3]]}
    stored.write_output("tensorboard/histograms/w.json", json.dumps(histogram).encode())
    stored.write_output("tables/a.json", b'{"columns":["x"],"data":[[1]]}')
    name = {"as": "table", "name": "histograms/w"}
    stored.update(files={"tables/a.json": {"as": "table", "name": "report"}, "tensorboard/histograms/w.json": name})
    report, weights = logged_tables.tables(stored.history, stored.id)
    assert (report.title, report.plot) == ("report", None), "tables of the script come first"
    assert weights.plot and (weights.plot.kind, weights.plot.low, weights.plot.high) == ("histogram", 0, 2)


# -- GPUs ----------------------------------------------------------------------------------------------------------

VERDICT = {
    "used": "partly",
    "asked": "2",
    "line": "GPU used: partly – NVIDIA H200, 68 % of the time",
    "diagnosis": {"cause": "1 of the 2 GPUs were never opened", "remedy": "ask for fewer"},
    "got": {"gpus": [{"index": 0, "name": "NVIDIA H200", "memory_total": 2**34}], "held": True},
    "gpus": [
        {
            "index": 0,
            "name": "H200",
            "busy_share": 0.68,
            "pids": {"12": {"name": "x.py", "peak": 2**30, "rank": 1, "load": 60}},
        }
    ],
    "evidence": {"driver": "580", "cpu_share": 0.5, "frameworks": {"torch": {"version": "2"}}, "signs": ["a"]},
}


def test_gpu_verdict_and_evidence(stored):
    verdict = gpu_verdict.verdict(stored.update(gpu=VERDICT))
    assert verdict is not None and verdict.needs_attention
    assert (verdict.line, verdict.cause, verdict.remedy) == (
        "NVIDIA H200, 68 % of the time",
        "1 of the 2 GPUs were never opened",
        "ask for fewer",
    )
    assert verdict.asked == "2" and verdict.held and "16.00 GiB" in verdict.got[0]
    assert ("Time busy", "68 %") in verdict.cards[0].figures and verdict.cards[0].processes == [
        "rank 1, x.py (PID 12), 1.0 GiB, 60 % of the GPU"
    ]
    assert ("NVIDIA driver", "580") in verdict.evidence and ("CPU utilization", "50 %") in verdict.evidence


@pytest.mark.parametrize("odd", [None, 7, "x", [], {}, [7], {"a": []}, {"x": {"y": [1]}}, float("nan"), True])
def test_malformed_gpu_data_is_displayed(stored, odd):
    for name in VERDICT:
        if name != "line":
            assert gpu_verdict.verdict(stored.update(gpu={**VERDICT, name: odd}))
    for name in ("index", "name", "busy_share", "pids", "lost", "reasons", "energy_wh", "memory_total"):
        assert gpu_verdict.verdict(
            stored.update(gpu={**VERDICT, "gpus": [{"index": 0, name: odd}], "got": {"gpus": [{}]}})
        )


# -- the run, its code, its environment ----------------------------------------------------------------------------


def test_run_facts(stored):
    run = stored.update(status=Status.FAILED, ending="failed", exit=3, cause="it broke\nbadly; hint: mend it")
    assert queries.ending(run) == "exit 3"
    assert queries.cause(run) == (["it broke", "badly"], "mend it")
    facts = queries.load_run(stored.history, stored.id)
    assert (
        facts.has_all_outputs and not facts.is_untracked and facts.contact_problem is None and facts.child_runs is None
    )
    stored.update(status=Status.RUNNING, contact="no contact since noon")
    changed = queries.load_run(stored.history, stored.id)
    assert changed.contact_problem == "no contact since noon" and changed.stamp() != facts.stamp()
    with pytest.raises(UnknownName):
        queries.load_run(stored.history, "nothing")


def test_code_files_and_differences(tmp_path):
    project = tmp_path / "project"
    (project / "lib").mkdir(parents=True)
    (project / "train.py").write_text("print(1)\n")
    (project / "lib" / "a.py").write_text("a = 1\n")
    (project / "data.bin").write_bytes(b"\0")
    store = paths(tmp_path / "store")
    taken = take(project, "p", store.root, tmp_path / "digests.json")
    stored = StoredRun(tmp_path / "store", snapshot=taken.digest)
    assert [source.path for source in code.list_code(stored.history, stored.id).files] == [
        "data.bin",
        "lib/a.py",
        "train.py",
    ]
    assert code.read_text(stored.history, stored.id, "train.py").text == "print(1)\n"
    assert code.read_text(stored.history, stored.id, "data.bin").problem
    with pytest.raises(UnknownName):
        code.read_text(stored.history, stored.id, "../../history.db")
    run = stored.history.get(stored.id)
    root = stored.history.paths.root
    assert folder_difference(root, run, str(project), LineDiff(100)) == {"files": [], "diff": []}
    (project / "train.py").write_text("print(2)\n")
    (project / "lib" / "a.py").unlink()
    (project / "new.py").write_text("x\n")
    os.symlink("train.py", project / "link.py")
    changes = folder_difference(root, run, str(project), LineDiff(100))
    assert [(file["path"], file["change"]) for file in changes["files"]] == [
        ("lib/a.py", "removed"),
        ("link.py", "added"),
        ("new.py", "added"),
        ("train.py", "changed"),
    ]
    assert "-print(1)" in changes["diff"] and "+print(2)" in changes["diff"]
    assert code.project_difference(stored.history, stored.id).problem, "its project is elsewhere"
    stored.history.close()


def test_environment_hides_secrets(tmp_path):
    lock = {"kind": "managed", "pip": [{"name": "b", "version": "2"}, 7], "conda": [{"name": "A", "version": "1"}]}
    variables = {"API_KEY": "s3cret", "MODE": "fast"}
    stored = StoredRun(tmp_path, lock=lock, environment=variables, secrets=("TOKEN",), passed=("MODE",))
    environment = code.environment(stored.history, stored.id)
    assert [(package.name, package.version, package.source) for package in environment.packages] == [
        ("A", "1", "conda"),
        ("b", "2", "pip"),
    ]
    assert environment.variables == [("API_KEY", "***"), ("MODE", "fast")] and environment.secrets == ["TOKEN"]
    assert environment.passed == ["MODE"]
    assert "s3cret" not in repr(environment)
    stored.history.close()
