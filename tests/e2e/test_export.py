"""``history export``: a table for a spreadsheet, JSON for a program, and one page for colleagues."""

from __future__ import annotations

import csv
import io
import json
import os
import re

import pytest

TRAIN = """
import argparse, os, struct, zlib
import mlworkbench
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--note", default="")
lr = parser.parse_args().lr
for step in range(5000):
    mlworkbench.log("loss", 1 / (1 + lr * step), step=step)
mlworkbench.log("odd", float("nan"))
mlworkbench.log("odd", float("-inf"))
mlworkbench.log("accuracy", 1 - lr)
mlworkbench.log("verdict", "=1+1")
mlworkbench.log_params({"depth": 3, "<b>bold</b>": "<script>alert(1)</script>"})
mlworkbench.set_tag("team", "vision")
def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
rows = b"".join(b"\\0" + bytes([200, 30, 30] * 8) for _ in range(8))
picture = b"\\x89PNG\\r\\n\\x1a\\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 2, 0, 0, 0))
picture += chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
os.makedirs("outputs/deep")
open("outputs/deep/curve.png", "wb").write(picture)
open("outputs/fake.png", "w").write("<svg onload=alert(1)>")
open("outputs/model.bin", "wb").write(b"\\0" * 1000)
os.symlink("/etc/passwd", "outputs/link.png")
if lr > 0.5:
    raise SystemExit("the rate is too high")
"""


@pytest.fixture(scope="module")
def three_runs(tmp_path_factory):
    """Three runs of one project; the last one failed."""
    from tests.conftest import User, end_processes

    user = User(tmp_path_factory.mktemp("export"))
    project = user.project("demo", train=TRAIN)
    ids = []
    for lr, code in (("0.1", 0), ("0.01", 0), ("0.9", 1)):
        done = user.mlw("submit", "--tag", f"rate={lr}", "train.py", "--lr", lr, "--note==2+5", cwd=project)
        assert done.code == code, done
        ids.append(done.run)
    yield user, project, ids
    end_processes(user.store)


def table(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_export_runs_as_table(three_runs):
    user, project, ids = three_runs
    done = user.mlw("history", "export", cwd=project)
    assert done.code == 0, done
    rows = {row["run_id"]: row for row in table(done.out)}
    assert list(rows) == ids[::-1], "newest first"
    first = rows[ids[0]]
    assert first["status"] == "Completed" and rows[ids[2]]["status"] == "Failed"
    assert "the rate is too high" in rows[ids[2]]["cause"]
    assert float(first["params.lr"]) == 0.1 and first["params.depth"] == "3"
    assert float(first["metrics.accuracy"]) == 0.9
    assert first["metrics.odd"] == "-inf"
    assert set(first["tags"].split("; ")) == {"rate=0.1", "team=vision"}
    assert float(first["duration_seconds"]) > 0


def test_text_is_not_a_spreadsheet_formula(three_runs):
    user, project, ids = three_runs
    row = table(user.mlw("history", "export", ids[0], cwd=project).out)[0]
    assert row["params.note"] == "'=2+5" and row["metrics.verdict"] == "'=1+1"


def test_export_points_as_table(three_runs):
    user, project, ids = three_runs
    done = user.mlw("history", "export", ids[0], "--points", "-o", "points.csv", cwd=project)
    assert done.code == 0 and done.out == "", done
    rows = table((project / "points.csv").read_text())
    loss = [row for row in rows if row["metric"] == "loss"]
    assert [int(row["step"]) for row in loss] == list(range(5000))
    assert float(loss[4999]["value"]) == 1 / (1 + 0.1 * 4999)
    assert [row["value"] for row in rows if row["metric"] == "odd"] == ["NaN", "-inf"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00", loss[0]["time_utc"])
    (project / "points.csv").unlink()


def parse_strict_json(text):
    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse)


def test_export_as_json(three_runs):
    user, project, ids = three_runs
    done = user.mlw("history", "export", "--format", "json", "--sort", "lr", cwd=project)
    assert done.code == 0, done
    exported = parse_strict_json(done.out)
    assert [run["run_id"] for run in exported["runs"]] == [ids[1], ids[0], ids[2]]
    run = exported["runs"][0]
    series = {entry["name"]: entry for entry in run["series"]}
    assert series["loss"]["count"] == 5000
    assert 100 < len(series["loss"]["drawn"]["x"]) <= 1000
    assert series["odd"]["points"]["value"] == ["NaN", "-Infinity"]
    assert series["verdict"]["values"][0]["value"] == "=1+1"
    assert run["params"]["depth"] == 3
    assert {"path": "deep/curve.png", "size": os.path.getsize(_output(user, ids[1], "deep/curve.png"))}.items() <= next(
        entry for entry in run["files"] if entry["path"] == "deep/curve.png"
    ).items()
    whole = parse_strict_json(user.mlw("history", "export", ids[1], "--format", "json", "--points", cwd=project).out)
    points = next(entry for entry in whole["runs"][0]["series"] if entry["name"] == "loss")["points"]
    assert points["step"] == list(range(5000)) and len(points["time"]) == 5000
    assert points["value"][7] == 1 / (1 + 0.01 * 7)


def test_o_option_is_format_or_file_with_a_hint(three_runs):
    user, project, ids = three_runs
    new = user.mlw("history", "export", ids[1], "-o", "json", cwd=project)
    assert parse_strict_json(new.out)["runs"][0]["run_id"] == ids[1] and new.err == "", new
    named = user.mlw("history", "export", ids[1], "-o", "json", "--to", "runs.txt", cwd=project)
    assert named.err == "wrote 1 run to runs.txt\n", named
    assert parse_strict_json((project / "runs.txt").read_text())["runs"][0]["run_id"] == ids[1]
    old = user.mlw("history", "export", ids[1], "-o", "old-spelling.csv", cwd=project)
    assert old.code == 0 and "use '--to old-spelling.csv'" in old.err, old
    older = user.mlw("history", "export", ids[1], "--format", "csv", "--file", "older.txt", cwd=project)
    assert older.code == 0 and older.err == "wrote 1 run to older.txt\n", older
    assert table((project / "older.txt").read_text()) == table((project / "old-spelling.csv").read_text())
    for name in ("runs.txt", "old-spelling.csv", "older.txt"):
        (project / name).unlink()


def _output(user, run, path):
    return user.folder(run) / "work" / "outputs" / path


def test_export_as_html_page(three_runs):
    user, project, ids = three_runs
    done = user.mlw("history", "export", "-o", str(user.home / "report.html"), cwd=project)
    assert done.code == 0, done
    page = (user.home / "report.html").read_text()
    assert all(run in page for run in ids)
    assert "the rate is too high" in page
    assert page.count("data:image/png;base64,") == 3, "the pictures, and neither the fake nor the link"
    assert "<script" not in page and "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "<b>" not in page
    assert page.count("<polyline") >= 3 and ">loss<" in page
    assert not re.search(r"""(src|href|url)\s*[=(]\s*["']?\s*(https?:)?//""", page), "no request to any other host"
    assert "Content-Security-Policy" in page and "default-src 'none'" in page


def test_export_filters_and_usage_errors(three_runs):
    user, project, ids = three_runs
    picked = user.mlw("history", "export", "--where", "accuracy > 0.95", cwd=project)
    assert [row["run_id"] for row in table(picked.out)] == [ids[1]]
    for arguments, message in (
        (["--format", "html"], "--to report.html"),
        (["-o", "html"], "--to report.html"),
        (["nonesuch"], "unknown run 'nonesuch'"),
        (["--format", "xml"], "html"),
        (["--where", "accuracy > 7"], "no runs match"),
        (["--experiment", "x"], "--mlflow"),
        (["--mlflow", "http://u:secret@127.0.0.1:9", ids[0]], "MLFLOW_TRACKING_USERNAME"),
        (["--mlflow", "sqlite:///x.db", ids[0]], "mlflow server"),
        (["--mlflow", "http://127.0.0.1:9", ids[0]], "cannot connect to the MLflow server at http://127.0.0.1:9"),
        (["--mlflow", "http://127.0.0.1:9", ids[0]], "mlw explain mlflow-server"),
        (["-o", "no/such/folder/x.csv"], "no/such/folder"),
        (["-o", "nosuch", "--to", "x.csv"], "unknown output format 'nosuch'"),
        (["-o", "a.xlsx"], "csv, json, html"),
        (["-o", "x.html", "--points"], "--points cannot be combined with html output"),
    ):
        done = user.mlw("history", "export", *arguments, cwd=project)
        assert done.code not in (0, 70) and message in done.err, done
        assert "Traceback" not in done.err and done.out == "" and "secret" not in done.err


def test_existing_file_is_replaced_completely(three_runs):
    user, project, ids = three_runs
    (project / "old.csv").write_text("x" * 100_000)
    assert user.mlw("history", "export", ids[0], "-o", "old.csv", cwd=project).code == 0
    assert len(table((project / "old.csv").read_text())) == 1
    assert [path.name for path in project.glob("*.part")] == []
    (project / "old.csv").unlink()


SWEPT = """
import argparse
import mlworkbench
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
mlworkbench.log("loss", parser.parse_args().lr)
"""


def test_export_of_sweep_includes_children(user):
    project = user.project("demo", train=SWEPT)
    done = user.mlw("submit", "train.py", "--sweep", "lr=0.1,0.2", cwd=project)
    assert done.code == 0, done
    rows = table(user.mlw("history", "export", done.run, cwd=project).out)
    assert [row["run_id"] for row in rows][0] == done.run and len(rows) == 3
    assert {(row["params.lr"], row["metrics.loss"]) for row in rows[1:]} == {("0.1", "0.1"), ("0.2", "0.2")}
    assert {row["parent_run_id"] for row in rows[1:]} == {done.run}
    for arguments in ([done.run], []):
        alone = table(user.mlw("history", "export", *arguments, "--no-children", cwd=project).out)
        assert [row["run_id"] for row in alone] == [done.run]
    best = table(user.mlw("history", "export", done.run, "--where", "loss < 0.15", cwd=project).out)
    assert [row["metrics.loss"] for row in best] == ["0.1"]
