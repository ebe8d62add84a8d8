"""Texts that users and programs read, compared with recorded ones. ``MLW_GOLDEN=write`` records them anew."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

TEXTS = Path(__file__).parent / "texts"
HELP = [
    [],
    ["project"],
    ["project", "create"],
    ["project", "show"],
    ["project", "validate"],
    ["experiment"],
    ["submit"],
    ["experiment", "logs"],
    ["experiment", "status"],
    ["experiment", "ps"],
    ["experiment", "cancel"],
    ["experiment", "resume"],
    ["history"],
    ["history", "list"],
    ["history", "last"],
    ["history", "info"],
    ["history", "remove"],
    ["history", "compare"],
    ["history", "download"],
    ["history", "promote"],
    ["asset"],
    ["asset", "download"],
    ["asset", "list"],
    ["experiment", "diagnostics"],
    ["experiment", "clean"],
    ["project", "restore"],
    ["completion"],
    ["history", "rebuild"],
    ["project", "init"],
    ["project", "sample", "list"],
    ["project", "schema"],
    ["runconfiguration"],
    ["runconfiguration", "create"],
    ["runconfiguration", "list"],
    ["runconfiguration", "delete"],
    ["computetarget"],
    ["computetarget", "list"],
    ["computetarget", "show"],
]


def compare(name: str, text: str) -> None:
    path = TEXTS / f"{name}.txt"
    if os.environ.get("MLW_GOLDEN") == "write":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize("words", HELP, ids=lambda words: " ".join(["mlw", *words]))
def test_help(user, words):
    done = user.mlw(*words, "--help", env={"COLUMNS": "80"})
    compare("-".join(["help", *words]), done.out)


def test_transcript_of_a_first_hour(user):
    """What a newcomer types, and what they see; what differs from run to run is blotted out."""
    lines = []

    def type_in(*words, cwd=None):
        done = user.mlw(*words, cwd=cwd, env={"COLUMNS": "100"})
        lines.append(f"$ mlw {' '.join(words)}   # exit code {done.code}")
        lines.extend(done.out.splitlines() + [f"! {line}" for line in done.err.splitlines()] + [""])
        return done

    type_in("project", "create", "--name", "demo")
    project = user.home / "demo"
    done = type_in("experiment", "submit", "-c", "local", "train.py", "--epochs", "20", cwd=project)
    (project / "bad.py").write_text("import json\n\ndef load():\n    return json.loads('nonsense')\n\nload()\n")
    bad = type_in("submit", "bad.py", cwd=project)
    type_in("history", "list", cwd=project)
    type_in("history", "info", bad.run, cwd=project)
    type_in("ps", cwd=project)
    type_in("submit", "trian.py", cwd=project)
    type_in("project", "validate", cwd=project)
    config = project / "aml_config" / "local.compute"
    config.write_text(config.read_text() + "\nsharedVolumne: true\n")
    type_in("project", "validate", cwd=project)
    text = "\n".join(lines) + "\n"
    for value, word in ((done.run, "RUN-1"), (bad.run, "RUN-2"), (str(user.home), "HOME"), (str(user.store), "STORE")):
        text = text.replace(value, word.ljust(len(value)) if word.startswith("RUN") else word)
    compare("first-hour", _blot(text))


def _blot(text: str) -> str:
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "TIME", text)
    text = re.sub(r"\d:\d\d:\d\d(\.\d+)?", "DURATION", text)
    text = re.sub(r"after [\d.]+ s", "after N s", text)
    text = re.sub(r"(Experiment_id|Submit_key|Python) .*", r"\1 …", text)
    text = re.sub(r'"SnapshotId":"[0-9a-f]+"', '"SnapshotId":"…"', text)
    text = re.sub(r"just now|\d+ s ago", "AGE", text)
    text = re.sub(r"Traceback \(most recent call last\):\n(?:  .*\n)+", "Traceback …\n", text)
    text = re.sub(r"Log_bytes +\d+", "Log_bytes N", text)
    return re.sub(r"[ \t]+", " ", re.sub(r"-{3,}", "---", text))


def test_record_keys(user):
    """Programs depend on them: a key may be added, not lost."""
    project = user.project("demo", train="print(1)")
    user.mlw("submit", "train.py", cwd=project)
    record = json.loads(user.mlw("history", "last", "-o", "json", cwd=project).out)
    compare("record-keys", "\n".join(record) + "\n")
