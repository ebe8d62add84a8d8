"""Journals of the MLflow store: several writers, and lines that a killed process left incomplete."""

from __future__ import annotations

import json

from .run_process import ON_POSIX

JOURNAL = """
import json, os
from mlworkbench._mlflow._journal import Journal

def open_journal():
    lines = []
    return Journal("journal.jsonl", lines.append), lines
"""


@ON_POSIX
def test_processes_append_whole_lines(runner):
    out = runner.run(
        JOURNAL
        + """
first, seen = open_journal()
children = []
for process in range(4):
    pid = os.fork()
    if pid == 0:
        journal, own = open_journal()
        for number in range(200):
            journal.append(["metric", "a/b", process, number], ["tag", "x" * 5000, process])
        journal.refresh()
        assert [line[3] for line in own if line[:3] == ["metric", "a/b", process]] == list(range(200))
        os._exit(0)
    children.append(pid)
for pid in children:
    assert os.waitpid(pid, 0)[1] == 0
    first.refresh()
print(len(seen), len(list(first.read_all())))
"""
    )
    assert out.split() == ["1600", "1600"]


def test_an_incomplete_line_is_skipped(runner):
    out = runner.run(
        JOURNAL
        + """
journal, seen = open_journal()
journal.append(["tag", "a", "1"])
with open("journal.jsonl", "a") as file:
    file.write('["tag", "killed')
other, lines = open_journal()
other.refresh()
other.append(["metric", "value", float("nan")], ["tag", "b", "2"])
journal.refresh()
other.refresh()
print(json.dumps([[line[0] for line in seen], [line[1] for line in lines]]))
"""
    )
    assert json.loads(out) == [["tag", "metric", "tag"], ["a", "value", "b"]]
