"""A run folder and an interpreter: scripts with the in-run library, judged from the files that they leave."""

import json
import os
import subprocess
import textwrap
from pathlib import Path

import pytest

from tests.interpreters import from_version, oldest_and_newest

INRUN = Path(__file__).parents[2] / "src/mlworkbench/remote/inrun"
PYTHONS = from_version((3, 6))
ENDS = oldest_and_newest((3, 6))


def names_of(pythons):
    return ["{}.{}".format(*version) for version, _ in pythons]


# Every test runs in the oldest and in the newest Python. Those marked with this one run in all, because Pythons are
# known to differ in what they test: 3.7 tells of forks (os.register_at_fork), 3.8 ends by the signal of Ctrl-C, 3.9
# ends threads before functions of atexit, 3.12 starts no thread at the end and warns of forks beside threads; what
# finds modules changes now and then.
EVERY_PYTHON = pytest.mark.parametrize("place", PYTHONS, ids=names_of(PYTHONS), indirect=True)
ON_POSIX = pytest.mark.skipif(os.name == "nt", reason="needs fork and signals")


class Place:
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
        """Run to the end; gives stdout. ``stderr=None``: the caller judges ``self.stderr`` itself."""
        with self.start(script, options) as process:
            stdout, self.stderr = process.communicate(timeout=120)
        assert process.returncode == code, self.stderr
        assert stderr is None or self.stderr == stderr
        return stdout

    def files(self):
        """The lines of every metrics file: whole strict JSON, numbered from 1 without a gap."""
        return [lines_of(path.read_bytes()) for path in sorted(self.metrics.iterdir())]

    def records(self, kind=None):
        """(kind, data) of everything else than metrics, or the data of one kind."""
        found = [(line["k"], from_leaf(line["d"])) for file in self.files() for line in file if "k" in line]
        return found if kind is None else [data for one, data in found if one == kind]

    def points(self):
        found = []
        for line in (line for file in self.files() for line in file if "n" in line):
            if "of" not in line:
                found.append((line["n"], value_of(line), line.get("s")))
            elif line["of"][:2] == [[], 0]:
                found.append((line["n"], from_leaf(line["v"]), line.get("s")))
            else:
                found[-1] = (line["n"], joined(found[-1][1], line), line.get("s"))
        return found


def lines_of(data):
    assert data.endswith(b"\n")
    lines = [strict(line) for line in data.decode("ascii").splitlines()]
    # The pieces of a long value have one number.
    numbers = [line["i"] for line in lines if "lost" not in line and line.get("of", [[], 0])[:2] == [[], 0]]
    assert numbers == list(range(1, len(numbers) + 1))
    return lines


def strict(text):
    def refuse(word):
        raise AssertionError("not strict JSON: " + word)

    return json.loads(text, parse_constant=refuse)


def value_of(line):
    """What a reader at home makes of a line: the reference for the format."""
    return float(line["v"]) if "f" in line else from_leaf(line["v"])


def joined(value, line):
    """A long value with one more of its pieces."""
    way, start, _ = line["of"]
    if way:
        value[way[0]] = joined(value[way[0]], dict(line, of=[way[1:], *line["of"][1:]]))
        return value
    assert len(value) == start
    return value + from_leaf(line["v"])


def from_leaf(value):
    if isinstance(value, dict):
        return float(value["f"]) if list(value) == ["f"] else {name: from_leaf(one) for name, one in value.items()}
    return [from_leaf(element) for element in value] if isinstance(value, list) else value
