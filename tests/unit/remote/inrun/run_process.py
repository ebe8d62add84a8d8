"""Run scripts with the in-run library in a run folder, and read the files that they write."""

import json
import os
import subprocess
import textwrap
from pathlib import Path

import pytest

from tests.interpreters import from_version, oldest_and_newest

INRUN = Path(__file__).parents[4] / "src/mlworkbench/remote/inrun"
PYTHONS = from_version((3, 6))
OLDEST_AND_NEWEST = oldest_and_newest((3, 6))


def version_names(pythons):
    return ["{}.{}".format(*version) for version, _ in pythons]


# Every test runs with the oldest and the newest Python. Tests with this mark run with all versions, which differ:
# 3.7 has fork hooks (os.register_at_fork), 3.8 exits with the signal of Ctrl-C, 3.9 ends threads before atexit
# functions, and 3.12 starts no thread at exit and warns about forks with threads. The import system also changes
# in some versions.
EVERY_PYTHON = pytest.mark.parametrize("runner", PYTHONS, ids=version_names(PYTHONS), indirect=True)
ON_POSIX = pytest.mark.skipif(os.name == "nt", reason="needs fork and signals")


class ScriptRunner:
    """A run folder, and an interpreter that runs scripts in it with a clean environment."""

    def __init__(self, version, python, library, tmp_path):
        self.version = version
        self.python = python
        self.folder = tmp_path / "run-1"
        self.home = tmp_path / "home"
        self.work = self.folder / "work"
        self.metrics = self.folder / "metrics"
        self.outputs = self.work / "outputs"
        self.outputs.mkdir(parents=True)
        self.env = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(library),
            "MLW_HOME": str(self.home),
            "MLW_RUN_FOLDER": str(self.folder),
            "MLW_RUN_ID": "run-1",
        }

    def start(self, script, options=()):
        path = self.work / "script.py"
        path.write_text(textwrap.dedent(script), encoding="utf-8")
        return subprocess.Popen(
            [self.python, *options, str(path)],
            cwd=self.work,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, script, code=0, stderr="", options=()):
        """Run a script, check its exit code and stderr, and return stdout. ``stderr=None``: do not check stderr."""
        with self.start(script, options) as process:
            stdout, self.stderr = process.communicate(timeout=240)
        assert process.returncode == code, self.stderr
        assert stderr is None or self.stderr == stderr
        return stdout

    def files(self):
        """Return the lines of every metrics file: strict JSON, numbered from 1 without gaps."""
        return [parse_lines(path.read_bytes()) for path in sorted(self.metrics.iterdir())]

    def records(self, kind=None):
        """Return (kind, data) of all records except metrics, or the data of one kind."""
        records = [(line["k"], from_leaf(line["d"])) for file in self.files() for line in file if "k" in line]
        return records if kind is None else [data for record_kind, data in records if record_kind == kind]

    def points(self):
        points = []
        for line in (line for file in self.files() for line in file if "n" in line):
            if "of" not in line:
                points.append((line["n"], value_of(line), line.get("s")))
            elif line["of"][:2] == [[], 0]:
                points.append((line["n"], from_leaf(line["v"]), line.get("s")))
            else:
                points[-1] = (line["n"], join_piece(points[-1][1], line), line.get("s"))
        return points


def parse_lines(data):
    assert data.endswith(b"\n")
    lines = [parse_strict(line) for line in data.decode("ascii").splitlines()]
    # All pieces of a long value have the same number.
    numbers = [line["i"] for line in lines if "lost" not in line and line.get("of", [[], 0])[:2] == [[], 0]]
    assert numbers == list(range(1, len(numbers) + 1))
    return lines


def parse_strict(text):
    def reject(word):
        raise AssertionError("not strict JSON: " + word)

    return json.loads(text, parse_constant=reject)


def value_of(line):
    """Return the value of a line as the client parses it."""
    return float(line["v"]) if "f" in line else from_leaf(line["v"])


def join_piece(value, line):
    """Return a long value with the piece in this line added."""
    path, start, _ = line["of"]
    if path:
        value[path[0]] = join_piece(value[path[0]], dict(line, of=[path[1:], *line["of"][1:]]))
        return value
    assert len(value) == start
    return value + from_leaf(line["v"])


def from_leaf(value):
    if isinstance(value, dict):
        return float(value["f"]) if list(value) == ["f"] else {name: from_leaf(item) for name, item in value.items()}
    return [from_leaf(element) for element in value] if isinstance(value, list) else value
