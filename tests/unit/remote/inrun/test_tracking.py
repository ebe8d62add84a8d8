"""Records other than single metrics, with the oldest and the newest Python on this machine."""

import json
import os
import struct
import sys
import zlib
from pathlib import Path

import pytest

from mlworkbench.history.journal_parsing import parse_metric_lines
from mlworkbench.paths import user_paths

from .run_process import ON_POSIX, parse_strict


def stored(runner):
    files = [path for path in runner.outputs.rglob("*") if path.is_file()]
    return {path.relative_to(runner.outputs).as_posix(): path.read_bytes() for path in files}


def pixels(png):
    """Return (width, height, color type, rows as bytes) of a PNG, and check that its rows are not filtered."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    at, data, header = 8, b"", None
    while at < len(png):
        size, kind = struct.unpack(">I4s", png[at : at + 8])
        body = png[at + 8 : at + 8 + size]
        assert struct.unpack(">I", png[at + 8 + size : at + 12 + size])[0] == zlib.crc32(kind + body)
        header = struct.unpack(">IIBBBBB", body) if kind == b"IHDR" else header
        data += body if kind == b"IDAT" else b""
        at += 12 + size
    rows, line = zlib.decompress(data), len(zlib.decompress(data)) // header[1]
    assert set(rows[::line]) == {0}
    return header[0], header[1], header[3], [rows[at + 1 : at + line] for at in range(0, len(rows), line)]


# -- parameters, tags ----------------------------------------------------------------------------------------


def test_parameters_from_dicts_keywords_and_argparse(runner):
    runner.run(
        """
        import argparse
        from mlworkbench import log_param, log_params

        class Odd(object):
            def __repr__(self): return "<odd>"

        log_params({"lr": 0.1, "net": {"depth": 3, "names": ["a", "b"], "empty": {}}, 7: None}, seed=1)
        log_params(argparse.Namespace(batch=32, odd=Odd(), nan=float("nan")))
        assert log_param("lr", 0.2) == 0.2
        """
    )
    stored_files = [(data["name"], repr(data["value"])) for data in runner.records("param")]
    assert sorted(stored_files) == sorted(
        [
            ("lr", "0.1"),
            ("net.depth", "3"),
            ("net.names", "['a', 'b']"),
            ("net.empty", "'{}'"),
            ("7", "None"),
            ("seed", "1"),
            ("batch", "32"),
            ("odd", "'<odd>'"),
            ("nan", "nan"),
            ("lr", "0.2"),
        ]
    )
    assert stored_files[-1] == ("lr", "0.2")


def test_a_cycle_of_dicts(runner):
    runner.run(
        """
        from mlworkbench import log_params
        round_about = {}
        round_about["a"] = round_about
        log_params(round_about)
        """
    )
    assert len(runner.records("param")) == 1


def test_tags_are_strings_and_none_removes_a_tag(runner):
    runner.run(
        """
        from mlworkbench import set_tag, set_tags
        set_tag("good")
        set_tag("version", 3)
        set_tags({"version": None})
        """
    )
    assert [(data["name"], data["value"]) for data in runner.records("tag")] == [
        ("good", ""),
        ("version", "3"),
        ("version", None),
    ]


def test_readers_of_metrics_skip_other_records(runner):
    runner.run(
        """
        from mlworkbench import log, log_params, log_text, set_tag
        log_params({"lr": 0.1})
        log("loss", 0.5)
        set_tag("name", "value")
        log_text("notes", "text")
        """
    )
    (file,) = runner.metrics.iterdir()
    lines = parse_metric_lines(file.read_bytes())[0]
    assert {line["n"]: line["v"] for line in lines if "n" in line} == {"loss": 0.5}


# -- files ---------------------------------------------------------------------------------------------------


def test_a_folder_that_contains_outputs_is_stored_without_them(runner):
    (runner.work / "data").mkdir()
    (runner.work / "data" / "a.bin").write_bytes(b"a")
    (runner.outputs / "own.txt").write_bytes(b"own")
    runner.run("import mlworkbench; mlworkbench.log_file('.', 'all')")
    stored_files = stored(runner)
    assert stored_files["own.txt"] == b"own" and stored_files["all/data/a.bin"] == b"a"
    assert not [name for name in stored_files if name.startswith("all/outputs")]


def test_texts_files_and_folders_are_stored_and_recorded(runner):
    (runner.work / "model").mkdir()
    (runner.work / "model" / "deep").mkdir()
    (runner.work / "model" / "a.bin").write_bytes(b"a")
    (runner.work / "model" / "deep" / "b.bin").write_bytes(b"b")
    (runner.outputs / "own.txt").write_bytes(b"own")
    out = runner.run(
        """
        import os
        from mlworkbench import log_file, log_text
        print(log_text("notes", "caf\\u00e9"))
        print(log_text("outputs/deep/page.html", "<p>"))
        print(log_file("model/a.bin"))
        print(log_file(os.path.abspath("model/a.bin"), "weights/first.bin"))
        print(log_file("outputs/own.txt"))          # is there already
        print(log_file("model"))
        """
    )
    paths = ["notes.txt", "deep/page.html", "a.bin", "weights/first.bin", "own.txt", "model"]
    assert out.split() == paths
    assert stored(runner) == {
        "notes.txt": "café".encode(),
        "deep/page.html": b"<p>",
        "a.bin": b"a",
        "weights/first.bin": b"a",
        "own.txt": b"own",
        "model/a.bin": b"a",
        "model/deep/b.bin": b"b",
    }
    records = [(data["as"], data["path"]) for data in runner.records("file")]
    assert records == [
        ("text", "notes.txt"),
        ("text", "deep/page.html"),
        *[("file", path) for path in paths[2:5]],
        ("file", "model/a.bin"),
        ("file", "model/deep/b.bin"),
    ]


def test_invalid_arguments_raise_and_store_nothing(runner):
    out = runner.run(
        """
        import mlworkbench as mlw
        for call in (
            lambda: mlw.log_file("missing.bin"), lambda: mlw.log_file("script.py", "../x"),
            lambda: mlw.log_text("/x", "text"), lambda: mlw.log_text("x", 1), lambda: mlw.log_image("i", "missing.png"),
            lambda: mlw.log_image("i", [[1, 2], [3]]), lambda: mlw.log_image("i", object()),
            lambda: mlw.log_figure("f", object()), lambda: mlw.log_table("t", {"a": [1], "b": [1, 2]}),
            lambda: mlw.log_table("t", [[1], [1, 2]]), lambda: mlw.set_tag(1, 2),
            lambda: mlw.log_image("i", [[1]], "x"), lambda: mlw.log_image(1, [[1]]),
        ):
            try:
                print("taken", call())
            except Exception as error:
                print(type(error).__name__)
        """
    )
    names = "FileNotFound Value Value Type FileNotFound Value Type Type Value Value Type Type Type"
    assert out.split() == [name + "Error" for name in names.split()]
    assert stored(runner) == {}
    assert not runner.metrics.exists()


def test_error_messages(runner):
    out = runner.run(
        """
        import mlworkbench as mlw
        for call in (
            lambda: mlw.set_tag(None), lambda: mlw.log_figure(object(), "roc"), lambda: mlw.log_params("lr"),
            lambda: mlw.log_params(object), lambda: mlw.log_table("t", "xx"), lambda: mlw.log_table("t", 1),
            lambda: mlw.set_tag(" "),
        ):
            try:
                print("taken", call())
            except (TypeError, ValueError) as error:
                print(error)
        """
    )
    assert out.splitlines() == [
        "a tag's name must be a str, not NoneType",
        "a figure's name must be a str, not object",
        "parameters must be a dict, keyword arguments, or an argparse namespace, not str",
        "parameters must be a dict, keyword arguments, or an argparse namespace, not type",
        "a table must be a dict of columns, a list of rows, or a data frame, not str",
        "a table must be a dict of columns, a list of rows, or a data frame, not int",
        "a tag's name must not be empty: ' '",
    ]
    assert not runner.metrics.exists()


def test_images_from_lists_are_png(runner):
    runner.run(
        """
        from mlworkbench import log_image
        log_image("grey", [[0, 128], [255, 300]])
        log_image("unit", [[0.0, 0.5], [1.0, float("nan")]])
        log_image("colour", [[(1, 2, 3), (4, 5, 6)]], step=7)
        log_image("grey", [[1]])
        log_image("../odd/name", [[True, False]])
        """
    )
    files = stored(runner)
    assert pixels(files["images/grey.png"]) == (2, 2, 0, [bytes([0, 128]), bytes([255, 255])])
    assert pixels(files["images/unit.png"]) == (2, 2, 0, [bytes([0, 128]), bytes([255, 0])])
    assert pixels(files["images/colour-7.png"]) == (2, 1, 2, [bytes([1, 2, 3, 4, 5, 6])])
    assert pixels(files["images/grey-2.png"]) == (1, 1, 0, [bytes([1])])
    assert pixels(files["images/_odd_name.png"]) == (2, 1, 0, [bytes([255, 0])])
    assert runner.records("file")[2] == {"path": "images/colour-7.png", "as": "image", "name": "colour", "step": 7}
    assert runner.records("file")[4]["name"] == "../odd/name"


def test_images_and_figures_of_other_libraries(runner):
    (runner.work / "photo.JPG").write_bytes(b"\xff\xd8\xff photo")
    runner.run(
        """
        from mlworkbench import log_figure, log_image

        class Pillow(object):
            mode = "F"
            def convert(self, mode): self.mode = mode; return self
            def save(self, file, format): file.write((self.mode + format).encode())

        class Figure(object):
            def savefig(self, file, format): file.write(b"drawn as " + format.encode())

        class Plotly(object):
            def to_html(self): return "<html>"

        log_image("photo", "photo.JPG")
        log_image("bytes", b"GIF89a")
        log_image("pillow", Pillow())
        log_figure("roc", Figure(), step=1)
        log_figure("roc.svg", Figure())
        log_figure("live", Plotly())
        log_figure("sub/deep/roc.png", Figure())
        """
    )
    assert stored(runner) == {
        "images/photo.jpg": b"\xff\xd8\xff photo",
        "images/bytes.gif": b"GIF89a",
        "images/pillow.png": b"RGBPNG",
        "figures/roc-1.png": b"drawn as png",
        "figures/roc.svg": b"drawn as svg",
        "figures/live.html": b"<html>",
        "figures/sub/deep/roc.png": b"drawn as png",
    }


def test_tables_of_columns_rows_and_frames(runner):
    runner.run(
        """
        from mlworkbench import log_table

        class Values(object):
            def tolist(self): return [[1, "x"], [2, object]]

        class Frame(object):
            columns, values = ["a", "b"], Values()
            def to_dict(self): raise AssertionError("not needed")

        log_table("columns", {"x": [1, 2], "y": [0.5, float("nan")], "z": (float("inf"), None)})
        log_table("rows", [{"x": 1}, {"x": 2, "y": "two"}])
        log_table("lists", [[1, 2], [3, 4]], columns=["a", "b"])
        log_table("named by number", [[1, 2]])
        log_table("frame", Frame(), step=3)
        log_table("empty", [])
        """
    )
    tables = {name: parse_strict(data.decode()) for name, data in stored(runner).items()}
    assert tables["tables/columns.json"] == {
        "columns": ["x", "y", "z"],
        "data": [[1, 0.5, "Infinity"], [2, None, None]],
    }
    assert tables["tables/rows.json"] == {"columns": ["x", "y"], "data": [[1, None], [2, "two"]]}
    assert tables["tables/lists.json"] == {"columns": ["a", "b"], "data": [[1, 2], [3, 4]]}
    assert tables["tables/named by number.json"]["columns"] == ["column 1", "column 2"]
    assert tables["tables/frame-3.json"] == {"columns": ["a", "b"], "data": [[1, "x"], [2, "<class 'object'>"]]}
    assert tables["tables/empty.json"] == {"columns": [], "data": []}


@ON_POSIX
def test_processes_that_store_the_same_name_keep_all_files(runner):
    runner.run(
        """
        import os
        from mlworkbench import log_image
        children = []
        for nth in range(4):
            pid = os.fork()
            if pid == 0:
                for i in range(5): log_image("same", [[nth * 5 + i]])
                os._exit(0)
            children.append(pid)
        for pid in children: assert os.waitpid(pid, 0)[1] == 0
        """
    )
    files = stored(runner)
    assert len(files) == 20
    assert sorted(pixels(data)[3][0][0] for data in files.values()) == list(range(20))


@ON_POSIX
def test_a_full_disk_causes_a_warning(runner):
    out = runner.run(
        """
        import errno, resource, signal
        import mlworkbench as mlw
        import mlworkbench._outputs as outputs
        outputs._DISK_ERRORS.add(errno.EFBIG)        # what a limit on the size of files looks like
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
        print(mlw.log_text("big", "x" * 5000), mlw.log_text("small", "x"))
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        """,
        stderr="mlworkbench: big.txt was not stored: File too large\n",
    )
    assert out == "None small.txt\n"
    assert stored(runner) == {"small.txt": b"x"}


# -- long values ---------------------------------------------------------------------------------------------


def test_long_values_are_written_in_short_lines(runner):
    runner.run(
        """
        from mlworkbench import log
        log("floats", [i / 7 for i in range(300000)], step=2)
        log("after", 1)
        log("text", "\\U0001f600x" * 300000)
        log("row vector", [[float("nan")] + list(range(200000))])
        log("words", ["x" * 400000, "y", "z" * 600000])
        log("matrix", [[i, i] for i in range(100000)])
        log("short", [1, 2])
        """
    )
    (file,) = runner.metrics.iterdir()
    assert max(len(line) for line in file.read_bytes().splitlines()) < 1024 * 1024
    points = {name: (value, step) for name, value, step in runner.points()}
    assert points["floats"] == ([i / 7 for i in range(300000)], 2)
    assert points["after"] == (1, None)
    assert points["text"][0] == "\U0001f600x" * 300000
    (row,), _ = points["row vector"]
    assert row[0] != row[0] and row[1:] == list(range(200000))
    assert points["words"][0] == ["x" * 400000, "y", "z" * 600000]
    assert points["matrix"][0] == [[i, i] for i in range(100000)]
    assert points["short"][0] == [1, 2]


def test_long_values_are_not_all_encoded_in_memory(current_runner):
    out = current_runner.run(
        """
        import mlworkbench._writer as writer
        from mlworkbench import flush, log
        writer.INTERVAL = 1000
        long, sizes = [0.123456789] * 20000, []
        import os
        write = os.write
        def noted(fd, data):
            sizes.append(len(data))
            return write(fd, data)
        os.write = noted
        for i in range(2000): log("a", long, step=i)
        flush()
        os.write = write
        print(max(sizes), sum(sizes))
        """
    )
    most, everything = (int(word) for word in out.split())
    assert everything > 500_000_000
    assert most < 64_000_000


# -- outside a run -------------------------------------------------------------------------------------------


def test_a_local_run_outside_a_run(runner):
    del runner.env["MLW_RUN_FOLDER"], runner.env["MLW_RUN_ID"]
    out = runner.run(
        """
        import multiprocessing, subprocess, sys
        from azureml.logging import get_azureml_logger
        from mlworkbench import flush, log, log_text, run
        assert repr(run) == "<not inside a run>"
        for i in range(3): log("a", i)
        get_azureml_logger().upload("a.txt", "text")
        subprocess.check_call([sys.executable, "-c", "import mlworkbench; mlworkbench.log('child', 1)"])
        print(run.id, run.folder, run.outputs, sep="\\n")
        """,
        stderr=None,
    )
    run_id, folder, outputs = out.splitlines()
    assert runner.stderr == f"mlworkbench: not inside a run, recording into {folder}\n"
    assert Path(folder) == runner.home / "local" / run_id
    assert (Path(outputs) / "a.txt").read_bytes() == b"text"
    facts = json.loads((Path(folder) / "local.json").read_text())
    assert (facts["id"], facts["script"]) == (run_id, str(runner.work / "script.py"))
    runner.metrics = Path(folder) / "metrics"
    assert sorted(runner.points()) == [("a", 0, None), ("a", 1, None), ("a", 2, None), ("child", 1, None)]
    if os.name == "posix":
        assert Path(folder).stat().st_mode & 0o777 == 0o700


def test_no_data_folder_outside_a_run(runner):
    del runner.env["MLW_RUN_FOLDER"], runner.env["MLW_RUN_ID"]
    runner.home.write_text("not a folder")
    out = runner.run(
        """
        from mlworkbench import log, log_image, log_text, run
        for i in range(3): log("a", i)
        print(log_text("a", "b"), log_image("i", [[1]]), run.id, run.outputs)
        """,
        stderr=None,
    )
    assert out == "None None None None\n"
    assert runner.stderr.startswith("mlworkbench: not inside a run, and nothing is recorded: ")
    assert len(runner.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "given", [{}, {"XDG_DATA_HOME": "data"}, {"MLW_HOME": "mine"}], ids=["home", "XDG", "MLW_HOME"]
)
def test_local_runs_are_in_the_data_folder_of_the_installed_package(current_runner, tmp_path, monkeypatch, given):
    for name in ("MLW_RUN_FOLDER", "MLW_RUN_ID", "MLW_HOME"):
        del current_runner.env[name]
    for name in ("XDG_DATA_HOME", "MLW_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"HOME": "", **given}.items():
        current_runner.env[name] = str(tmp_path / value)
        monkeypatch.setenv(name, current_runner.env[name])
    out = current_runner.run("from mlworkbench import run; print(run.folder)", stderr=None)
    assert Path(out.strip()).parent == user_paths().home / "local"


def test_the_installed_package_has_the_same_functions(current_runner):
    current_runner.env["PYTHONPATH"] = str(Path(__file__).parents[4] / "src")
    current_runner.python = sys.executable
    current_runner.run(
        """
        import mlworkbench
        assert {"log", "log_params", "set_tag", "submit", "History", "__version__"} <= {*dir(mlworkbench)}
        assert not {"importlib", "annotations", "_LAZY_IMPORTS"} & {*dir(mlworkbench)}
        mlworkbench.log("a", 1)
        mlworkbench.log_params({"lr": 0.1})
        mlworkbench.set_tag("t")
        mlworkbench.log_text("notes", "x")
        assert mlworkbench.run.id == "run-1"
        mlworkbench.flush()
        """
    )
    assert record_kinds(current_runner) == ["param", "tag", "file"]


def record_kinds(runner):
    return [kind for kind, _ in runner.records()]


# -- Run of Azure ML Workbench -------------------------------------------------------------------------------


def test_azureml_run(runner):
    (runner.work / "plot.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    (runner.work / "model.pkl").write_bytes(b"model")
    runner.run(
        """
        import io, os
        from azureml.core.run import Run

        class Plot(object):
            def savefig(self, file, format): file.write(b"plot")

        assert Run.get_submitted_run().id == "run-1"
        run = Run.get_context()
        run.log("alpha", 0.03)
        run.log("alpha", 0.3)
        run.log("accuracy", 0.95, "in percent")
        run.log_list("accuracies", [0.6, 0.7, 0.87])
        run.log_list("words", ("a", "b"))
        run.log_row("Y over X", x=1, y=0.4)
        run.log_row("Y over X", x=2, y=float("nan"))
        run.log_table("table", {"x": [1, 2], "y": [0.6, 0.7]})
        run.log_image("ROC", path="plot.png")
        run.log_image("ROC", plot=Plot())
        run.upload_file("outputs/model.pkl", "model.pkl")
        run.upload_file(name="stream.txt", path_or_stream=io.BytesIO(b"stream"))
        run.tag("quality", "great run")
        run.tag("plain")
        run.complete()
        os._exit(0)         # everything before complete() is written
        """
    )
    assert runner.points() == [
        ("alpha", 0.03, None),
        ("alpha", 0.3, None),
        ("accuracy", 0.95, None),
        ("accuracies", [0.6, 0.7, 0.87], None),
        ("words", ["a", "b"], None),
    ]
    rows = [{"x": 1, "y": 0.4}, {"x": 2, "y": float("nan")}]
    assert repr(runner.records("row")) == repr([{"name": "Y over X", "row": row} for row in rows])
    assert [data["path"] for data in runner.records("file")] == [
        "tables/table.json",
        "images/ROC.png",
        "figures/ROC.png",
        "model.pkl",
        "stream.txt",
    ]
    assert runner.records("tag") == [{"name": "quality", "value": "great run"}, {"name": "plain", "value": ""}]
    assert runner.records("ended") == [{"status": "completed"}]
    assert stored(runner)["model.pkl"] == b"model"


def test_an_installed_azureml_core_takes_precedence(runner, tmp_path):
    out = runner.run("from azureml.core import Run; print(Run.get_context().id)")
    assert out == "run-1\n"
    site = tmp_path / "site" / "azureml" / "core"
    site.mkdir(parents=True)
    (site.parent / "__init__.py").write_text("__path__ = __import__('pkgutil').extend_path(__path__, __name__)")
    (site / "__init__.py").write_text("Workspace = 'the real one'")
    (site / "run.py").write_text("class Run: real = True")
    runner.env["PYTHONPATH"] += os.pathsep + str(tmp_path / "site")
    out = runner.run(
        """
        from azureml.core import Workspace
        from azureml.core.run import Run
        from azureml.logging import get_azureml_logger
        print(Workspace, Run.real)
        """
    )
    assert out == "the real one True\n"
