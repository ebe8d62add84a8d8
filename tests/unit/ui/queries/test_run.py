"""What the page of a run is told: logs, series, samples, outputs, GPUs, code. Much of it comes from strangers."""

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
from mlworkbench.report.codediff import folder_difference
from mlworkbench.report.linediff import LineDiff
from mlworkbench.runfiles import loglines
from mlworkbench.runfiles.manifest import ListWriter, Output, outputs_of
from mlworkbench.runfiles.outputfile import as_typed, open_output, read_at
from mlworkbench.snapshot.take import take
from mlworkbench.ui.answers import code, gpu, logs, outputs, samples, series, tables
from mlworkbench.ui.answers import run as answers
from tests.unit.test_history_store import paths, spec

PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)


class Place:
    """A history with one run that has ended."""

    def __init__(self, folder: Path, **changes: object) -> None:
        self.history = History(paths(folder))
        self.id = spec(0).id
        self.history.add(replace(spec(0), **changes))  # type: ignore[arg-type]
        self.folder = self.history.paths.root.run(self.id)
        os.makedirs(self.folder.outputs, exist_ok=True)
        os.makedirs(self.folder.metrics, exist_ok=True)
        self.note(status=Status.COMPLETED, started=100.0, ended=110.0, accepted=99.0)

    def note(self, **changes: object) -> Run:
        return self.history.note(self.id, lambda run: replace(run, **changes))  # type: ignore[arg-type]

    def output(self, path: str, data: bytes) -> None:
        whole = Path(self.folder.outputs, path)
        whole.parent.mkdir(parents=True, exist_ok=True)
        whole.write_bytes(data)

    def measured(self, *lines: dict[str, object]) -> None:
        Path(self.folder.metrics, "1-a").write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture
def place(tmp_path):
    made = Place(tmp_path)
    yield made
    made.history.close()


# -- logs ----------------------------------------------------------------------------------------------------------


def test_lines_of_a_log_are_as_a_terminal_leaves_them(place):
    Path(place.folder.log).write_bytes(b"one\nbar 10%\rbar 90%\r\n" + b"\xff\n" + b"x" * 20_000 + b"\nend")
    known = logs.Logs()
    piece = known.piece(place.history, place.id, 0, 10)
    assert piece.lines[:3] == ["one", "bar 90%", "\ufffd"]
    assert len(piece.lines[3]) == logs.SHOWN + 1 and piece.lines[3].endswith("…")
    assert (piece.first, piece.total, piece.final) == (0, 5, True)
    assert known.piece(place.history, place.id, -1, 10).lines == ["end"]
    assert known.piece(place.history, place.id, 99, 10).lines == []
    assert known.find(place.history, place.id, "BAR").lines == [1]
    name, data = logs.raw(place.history, place.id)
    assert name == f"{place.id}.log" and b"".join(data) == Path(place.folder.log).read_bytes()


def test_secrets_that_are_known_here_are_hidden(tmp_path, monkeypatch):
    monkeypatch.setenv("API_TOKEN", "s3cret-value")
    place = Place(tmp_path, secrets=("API_TOKEN", "NOWHERE"))
    monkeypatch.setattr("mlworkbench.secret._from_keyring", lambda name: None)
    Path(place.folder.log).write_text("token s3cret-value!\n")
    assert logs.Logs().piece(place.history, place.id, 0, 5).lines == ["token ***!"]
    assert b"".join(logs.raw(place.history, place.id)[1]) == b"token ***!\n"
    place.history.close()


def test_only_so_many_logs_stay_counted(place):
    known = logs.Logs(most=1)
    Path(place.folder.log).write_text("a\n")
    Path(place.folder.build_log).write_text("b\nc\n")
    assert known.piece(place.history, place.id, 0, 5).total == 1
    assert known.piece(place.history, place.id, 0, 5, "build").lines == ["b", "c"]
    assert list(known._open) == [place.folder.build_log]
    with pytest.raises(UnknownName):
        known.piece(place.history, place.id, 0, 5, "../spec.json")


def test_a_log_that_is_a_link_is_not_followed(place, tmp_path):
    (tmp_path / "other").write_text("of somebody else\n")
    os.symlink(tmp_path / "other", place.folder.log)
    with pytest.raises(HistoryError, match="symbolic"):
        logs.Logs().piece(place.history, place.id, 0, 5)


@pytest.fixture
def endless(place, monkeypatch):
    """A log of 8 TB that takes no room on the disk, as a script makes it with one call."""
    monkeypatch.setattr(logs, "SECONDS", 0.0)
    monkeypatch.setattr(loglines, "INDEXED", 3 * 1024 * 1024)
    with open(place.folder.log, "wb") as file:
        file.write(b"begin\n")
        file.seek(8 << 40)
        file.write(b"\nlast line\n")
    yield place
    os.unlink(place.folder.log)


def test_of_an_endless_log_the_beginning_and_the_end_are_shown(endless):
    known = logs.Logs()
    pieces = [known.piece(endless.history, endless.id, 0, 10) for _ in range(4)]
    assert [piece.indexing for piece in pieces] == [True, True, False, False]
    assert "not indexed yet" in pieces[0].lines[2]
    first, zeros, words, last = pieces[-1].lines
    assert (first, zeros[:3], last) == ("begin", "\0\0\0", "last line")
    assert words.startswith("[8.8 TB omitted") and f"mlw logs {endless.id}" in words
    assert (pieces[-1].total, pieces[-1].gap, pieces[-1].final) == (4, 2, True)
    assert known.piece(endless.history, endless.id, -1, 10).lines == ["last line"]
    assert known.piece(endless.history, endless.id, 2, 1).lines == [words]


def test_a_search_in_an_endless_log_ends(endless):
    known, start, requests = logs.Logs(), 0, 0
    while start is not None:
        hits = known.find(endless.history, endless.id, "no such text", 0, start)
        start, requests = hits.rest, requests + 1
    assert 3 <= requests < 20
    assert known.find(endless.history, endless.id, "begin").lines == [0]


def test_a_run_that_was_not_submitted_has_no_log(place, monkeypatch):
    monkeypatch.setattr(logs, "is_outside", lambda name: True)
    with pytest.raises(UsageError, match="started without mlw"):
        logs.Logs().piece(place.history, place.id, 0, 5)


# -- series --------------------------------------------------------------------------------------------------------


def test_series_over_steps_time_and_within_a_span(place):
    place.measured(*({"n": "loss", "v": 1.0 / (at + 1), "t": 100.0 + at, "s": 10 * at} for at in range(100)))
    place.note(metrics={"loss": 0.01})
    whole = series.drawn(place.history, place.id, "loss", 10)
    assert (whole.over, whole.count, whole.start, whole.final) == ("step", 100, 100.0, True)
    assert len(whole.columns) == 10 and whole.columns[0].hi == 1.0 and whole.last == 0.01
    assert (whole.least, whole.greatest) == (0.01, 1.0)
    part = series.drawn(place.history, place.id, "loss", 10, "time", (150.0, 159.0))
    assert [column.x for column in part.columns] == [150.0 + at for at in range(10)]
    assert series.names(place.history, place.id)[0].name == "loss"
    total, points = series.points(place.history, place.id, "loss", -2, 5)
    assert total == 100 and [one.step for one in points] == [980, 990]


def test_lists_and_texts_are_told_as_they_are(place):
    place.measured(
        {"n": "curve", "v": [1, 2, 5], "t": 101.0},
        {"n": "words", "v": "<b>x</b>", "t": 101.0, "s": 3},
        {"k": "row", "d": {"name": "table", "row": {"a": 1, "b": None}}, "t": 102.0},
    )
    drawn = series.drawn(place.history, place.id, "curve", 100)
    assert [column.last for column in drawn.columns] == [1, 2, 5] and drawn.over == "points"
    told = {one.name: one for one in series.told_values(place.history, place.id)}
    assert told["curve"].curve and not told["words"].curve
    assert told["words"].rows == [["3", "<b>x</b>"]]
    assert told["table"].titles == ["a", "b"] and told["table"].rows == [["1", ""]]
    with pytest.raises(UnknownName):
        series.drawn(place.history, place.id, "words", 100)


def test_samples_of_machine_and_gpus(place):
    Path(place.folder.effort).write_text('{"t":1,"cores":1.5,"memory":1073741824,"processes":2}\n')
    rows = [{"uuid": f"GPU-{at}", "utilisation": 50 + at, "memory": 2**30, "own": None} for at in range(2)]
    hostile = ["nonsense", "[1]", '{"t":"x"}', '{"t":-5,"gpus":[]}', '{"t":3,"gpus":[7,{"uuid":1}]}', "[" * 100_000]
    lines = [json.dumps({"t": at, "gpus": rows}) for at in (0.5, 1.0)]
    later = json.dumps({"t": 12, "gpus": rows}) + "\n"  # of which only the beginning is there yet
    Path(place.folder.gpu).write_text("\n".join([lines[0], *hostile, lines[1], later[:30]]))
    known = samples.Samples()
    found = {gauge.title: gauge for gauge in known.gauges(place.history, place.id)}
    assert set(found) == {"CPU cores used", "Memory of the run", "GPU utilization", "GPU memory in use"}
    assert found["GPU utilization"].curves == [("GPU 0", "gpu0.utilisation"), ("GPU 1", "gpu1.utilisation")]
    drawn = known.drawn(place.history, place.id, "gpu1.utilisation", 50, "time", None)
    assert [(column.x, column.last) for column in drawn.columns] == [(100.5, 51.0), (101.0, 51.0)]
    with open(place.folder.gpu, "a") as file:
        file.write(later[30:])
    assert known.drawn(place.history, place.id, "gpu1.utilisation", 50, "time", None).count == 3
    assert known.drawn(place.history, place.id, "run.memory", 50, "time", None).last == 1.0
    with open(place.folder.effort, "a") as file:
        for how in ('"rss"', '"<b>"', "[1]"):
            file.write(f'{{"t":2,"cores":1,"memory":1073741824,"processes":2,"counted":{how}}}\n')
    titles = {gauge.title for gauge in known.gauges(place.history, place.id)}
    assert "Memory of the run (RSS; shared memory is counted for each process)" in titles
    for name in ("gpu9.utilisation", "gpu-1.utilisation", "gpu0", "run.x", "", "gpu0.uuid"):
        with pytest.raises(UnknownName):
            known.drawn(place.history, place.id, name, 50, "time", None)


# -- outputs -------------------------------------------------------------------------------------------------------


def test_outputs_are_listed_folder_by_folder(place):
    place.output("a.txt", b"hello")
    place.output("plots/x.png", PNG)
    place.output("plots/deep/y.png", PNG)
    os.symlink("/etc/passwd", Path(place.folder.outputs, "link"))
    top = outputs.listing(place.history, place.id)
    assert [(one.name, one.kind, one.count) for one in top.entries] == [
        ("plots", "folder", 2),
        ("a.txt", "file", 1),
        ("link", "link", 1),
    ]
    assert [one.path for one in outputs.listing(place.history, place.id, "plots/").entries] == [
        "plots/deep",
        "plots/x.png",
    ]
    with pytest.raises(UnknownName):
        outputs.listing(place.history, place.id, "nothing")
    assert [one.path for one in outputs.pictures(place.history, place.id)] == ["plots/deep/y.png", "plots/x.png"]


def test_a_look_into_an_output_does_no_harm(place, tmp_path):
    place.output("page.html", b"<script>alert(1)</script>")
    place.output("a.csv", b'x,y\n1,"=cmd()"\n')
    place.output("a.json", b'{"b":[1]}')
    place.output("bad.json", b"[" * 200_000)
    place.output("x.bin", b"\0\1")
    place.output("fake.txt", PNG)
    place.output("long.txt", b"x" * (outputs.TEXT + 5))
    look = lambda path: outputs.preview(place.history, place.id, path)  # noqa: E731
    place.output("page.svg", b"<!DOCTYPE html><html>")
    assert look("page.svg").kind == "text"
    assert look("page.html").kind == "text" and look("page.html").text == "<script>alert(1)</script>"
    assert look("a.csv").titles == ("x", "y") and look("a.csv").rows == (("1", "=cmd()"),)
    assert look("a.json").text == '{\n  "b": [\n    1\n  ]\n}'
    assert look("bad.json").kind == "text" and look("x.bin").kind == "none" and look("fake.txt").kind == "image"
    assert look("long.txt").cut and len(look("long.txt").text) == outputs.TEXT
    os.symlink("/etc/passwd", Path(place.folder.outputs, "link"))
    with pytest.raises(HistoryError, match="link"):
        look("link")
    for path in ("../../spec.json", "..", "/etc/passwd", "a.csv/x", "", "x\0y", "nothing"):
        with pytest.raises(UnknownName):
            look(path)
    handle, kind, growing = outputs.opened(place.history, place.id, "page.html")
    os.close(handle)
    assert (kind, growing) == ("application/octet-stream", False)


def test_a_folder_of_the_name_outputs_among_the_outputs(place):
    place.output("x.txt", b"above")
    place.output("outputs/x.txt", b"below")
    paths = [one.path for one in outputs.listing(place.history, place.id, "outputs").entries]
    assert paths == ["outputs/x.txt"]
    assert outputs.preview(place.history, place.id, paths[0]).text == "below"
    assert outputs.preview(place.history, place.id, "x.txt").text == "above"
    with open(outputs.opened(place.history, place.id, paths[0])[0], "rb") as file:
        assert file.read() == b"below"
    with pytest.raises(UnknownName):
        outputs.preview(place.history, place.id, "outputs/outputs/x.txt")
    for typed, data in (("outputs/outputs/x.txt", b"below"), ("outputs/x.txt", b"above"), ("x.txt", b"above")):
        with open(open_output(place.folder, as_typed(typed)), "rb") as file:
            assert file.read() == data, typed


def test_a_hostile_json_costs_no_more_than_what_is_shown(place):
    depth = 900
    place.output("deep.json", b"[" * depth + b",".join([b"1"] * 120_000) + b"]" * depth)
    place.output("wide.json", b"[" + b",".join([b"[[[[]]]]"] * 28_000) + b"]")
    place.output("half.json", b'["\\ud83d"]')
    place.output("fine.json", b"[" * 30 + b"]" * 30)
    tracemalloc.start()
    try:
        deep = outputs.preview(place.history, place.id, "deep.json")
        wide = outputs.preview(place.history, place.id, "wide.json")
        assert tracemalloc.get_traced_memory()[1] < 50 << 20
    finally:
        tracemalloc.stop()
    assert (deep.kind, deep.text[:3]) == ("text", "[[[")
    assert (wide.kind, wide.cut, len(wide.text)) == ("json", True, outputs.TEXT)
    assert outputs.preview(place.history, place.id, "half.json").text == '[\n  "?"\n]'
    assert outputs.preview(place.history, place.id, "fine.json").kind == "json"


def listed(place, count: int) -> None:
    with ListWriter(place.folder.manifest + ".new") as made:
        for at in range(count):
            made.add(Output(f"many/{at:06}.bin" if at else "x.png", 1, None, "file"))
    os.replace(place.folder.manifest + ".new", place.folder.manifest)


def test_the_list_of_a_run_that_has_ended_is_read_once(place, monkeypatch):
    listed(place, 5000)
    place.note(files={"x.png": ["not", "as", "we", "write", "it"]})
    reads = []
    monkeypatch.setattr(outputs, "outputs_of", lambda run: reads.append(run) or outputs_of(run))
    found = outputs.listing(place.history, place.id, "many")
    assert (len(found.entries), found.count, found.more) == (2000, 4999, True)
    found = outputs.listing(place.history, place.id, "many", "4998")
    assert ([one.path for one in found.entries], found.more) == (["many/004998.bin"], False)
    assert [one.name for one in outputs.listing(place.history, place.id, "", "4998").entries] == ["many/004998.bin"]
    assert [one.title for one in outputs.pictures(place.history, place.id)] == [""]
    assert len(reads) == 1
    listed(place, 3)
    assert outputs.listing(place.history, place.id, "many").count == 2 and len(reads) == 2


def test_reading_at_a_place_without_pread(tmp_path, monkeypatch):
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
def test_an_image_is_what_begins_as_one(head, kind):
    assert outputs.picture_type(head) == kind


def test_tables_that_a_script_logged(place):
    place.output("tables/a.json", b'{"columns":["<i>x</i>","y"],"data":[[1,"a"],[2,null]]}')
    place.output("tables/b.json", b'{"columns":7}')
    told = {"as": "table", "name": "report"}
    place.note(files={"tables/a.json": {**told, "step": 3}, "tables/b.json": told, "tables/gone.json": told})
    gone, damaged, good = tables.tables(place.history, place.id)
    assert good.title == "report, step 3" and good.titles == ["<i>x</i>", "y"]
    assert good.rows == [["1", "a"], ["2", ""]]
    assert gone.problem and damaged.problem


# -- GPUs ----------------------------------------------------------------------------------------------------------

VERDICT = {
    "used": "partly",
    "asked": "2",
    "line": "GPU used: partly – NVIDIA H200, 68 % of the time",
    "diagnosis": {"cause": "1 of the 2 GPUs were never opened", "remedy": "ask for fewer"},
    "got": {"gpus": [{"index": 0, "name": "NVIDIA H200", "memory_total": 2**34}], "held": True},
    "gpus": [{"index": 0, "name": "H200", "busy_share": 0.68, "pids": {"12": {"name": "x.py", "memory": 2**30}}}],
    "evidence": {"driver": "580", "cpu_share": 0.5, "frameworks": {"torch": {"version": "2"}}, "signs": ["a"]},
}


def test_the_verdict_on_gpus_and_what_it_rests_on(place):
    found = gpu.verdict(place.note(gpu=VERDICT))
    assert found is not None and found.doubtful
    assert (found.line, found.cause, found.remedy) == (
        "NVIDIA H200, 68 % of the time",
        "1 of the 2 GPUs were never opened",
        "ask for fewer",
    )
    assert found.asked == "2" and found.held and "16.00 GiB" in found.got[0]
    assert ("Time busy", "68 %") in found.cards[0].figures and found.cards[0].processes == ["x.py (PID 12), 1.0 GiB"]
    assert ("NVIDIA driver", "580") in found.evidence and ("CPU utilization", "50 %") in found.evidence


@pytest.mark.parametrize("odd", [None, 7, "x", [], {}, [7], {"a": []}, {"x": {"y": [1]}}, float("nan"), True])
def test_whatever_a_target_tells_of_gpus_is_shown_somehow(place, odd):
    for name in VERDICT:
        if name != "line":
            assert gpu.verdict(place.note(gpu={**VERDICT, name: odd}))
    for name in ("index", "name", "busy_share", "pids", "lost", "reasons", "energy_wh", "memory_total"):
        assert gpu.verdict(place.note(gpu={**VERDICT, "gpus": [{"index": 0, name: odd}], "got": {"gpus": [{}]}}))


# -- the run, its code, its environment ----------------------------------------------------------------------------


def test_how_a_run_stands(place):
    run = place.note(status=Status.FAILED, ending="failed", exit=3, cause="it broke\nbadly; hint: mend it")
    assert answers.ending(run) == "exit 3"
    assert answers.cause(run) == (["it broke", "badly"], "mend it")
    found = answers.look(place.history, place.id)
    assert found.home and not found.outside and found.lost is None and found.family is None
    place.note(status=Status.RUNNING, contact="no contact since noon")
    changed = answers.look(place.history, place.id)
    assert changed.lost == "no contact since noon" and changed.stamp() != found.stamp()
    with pytest.raises(UnknownName):
        answers.look(place.history, "nothing")


def test_code_files_and_differences(tmp_path):
    project = tmp_path / "project"
    (project / "lib").mkdir(parents=True)
    (project / "train.py").write_text("print(1)\n")
    (project / "lib" / "a.py").write_text("a = 1\n")
    (project / "data.bin").write_bytes(b"\0")
    store = paths(tmp_path / "store")
    taken = take(project, "p", store.root, tmp_path / "digests.json")
    place = Place(tmp_path / "store", snapshot=taken.digest)
    assert [one.path for one in code.tree(place.history, place.id).files] == ["data.bin", "lib/a.py", "train.py"]
    assert code.text(place.history, place.id, "train.py").text == "print(1)\n"
    assert code.text(place.history, place.id, "data.bin").problem
    with pytest.raises(UnknownName):
        code.text(place.history, place.id, "../../history.db")
    run = place.history.get(place.id)
    root = place.history.paths.root
    assert folder_difference(root, run, str(project), LineDiff(100)) == {"files": [], "diff": []}
    (project / "train.py").write_text("print(2)\n")
    (project / "lib" / "a.py").unlink()
    (project / "new.py").write_text("x\n")
    os.symlink("train.py", project / "link.py")
    found = folder_difference(root, run, str(project), LineDiff(100))
    assert [(one["path"], one["change"]) for one in found["files"]] == [
        ("lib/a.py", "removed"),
        ("link.py", "added"),
        ("new.py", "added"),
        ("train.py", "changed"),
    ]
    assert "-print(1)" in found["diff"] and "+print(2)" in found["diff"]
    assert code.since(place.history, place.id).problem, "its project is elsewhere"
    place.history.close()


def test_the_environment_tells_no_secret(tmp_path):
    lock = {"kind": "managed", "pip": [{"name": "b", "version": "2"}, 7], "conda": [{"name": "A", "version": "1"}]}
    variables = {"API_KEY": "s3cret", "MODE": "fast"}
    place = Place(tmp_path, lock=lock, environment=variables, secrets=("TOKEN",))
    found = code.environment(place.history, place.id)
    assert [(one.name, one.version, one.source) for one in found.packages] == [("A", "1", "conda"), ("b", "2", "pip")]
    assert found.variables == [("API_KEY", "***"), ("MODE", "fast")] and found.secrets == ["TOKEN"]
    assert "s3cret" not in repr(found)
    place.history.close()
