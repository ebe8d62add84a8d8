"""Texts that users and programs read, compared with recorded ones. ``MLW_GOLDEN=write`` records them anew."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from mlworkbench.cli.verbs import mlw

TEXTS = Path(__file__).parent / "texts"


def commands(command: click.Command, words: list[str]) -> Iterator[list[str]]:
    yield words
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from commands(command.get_command(context, name), [*words, name])


HELP = list(commands(mlw, []))


def compare(name: str, text: str) -> None:
    path = TEXTS / f"{name}.txt"
    if os.environ.get("MLW_GOLDEN") == "write":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize("words", HELP, ids=lambda words: " ".join(["mlw", *words]))
def test_help(user, words):
    done = user.mlw(*words, "--help", env={"COLUMNS": "80"})
    assert done.code == 0
    compare("-".join(["help", *words]), done.out)


def test_every_recorded_help_is_of_a_command():
    names = {"-".join(["help", *words]) for words in HELP}
    assert {path.stem for path in TEXTS.glob("help*.txt")} == names


class Transcript:
    """What a user types, and what they see."""

    def __init__(self, user):
        self.user = user
        user.env["LOGNAME"] = "ada"
        self.lines = []

    def type_in(self, *words, cwd=None):
        done = self.user.mlw(*words, cwd=cwd, env={"COLUMNS": "100"})
        self.lines.append(f"$ mlw {' '.join(words)}   # exit code {done.code}")
        self.lines.extend(done.out.splitlines() + [f"! {line}" for line in done.err.splitlines()] + [""])
        return done

    def compare(self, name, *runs):
        """With what differs from run to run blotted out."""
        text = "\n".join(self.lines) + "\n"
        for number, run in enumerate(runs, 1):
            text = text.replace(run, f"RUN-{number}".ljust(len(run)))
        for value, word in ((str(self.user.home), "HOME"), (str(self.user.store), "STORE")):
            text = text.replace(value, word)
        compare(name, _blot(text))

    def hide(self, *patterns):
        """Take out what this machine has and another has not: (what, instead of it)."""
        for pattern, instead in patterns:
            self.lines = re.sub(pattern, instead, "\n".join(self.lines), flags=re.MULTILINE).split("\n")


def test_transcript_of_a_first_hour(user):
    """What a newcomer types, and what they see."""
    seen = Transcript(user)
    type_in = seen.type_in
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
    seen.compare("first-hour", done.run, bad.run)


def test_transcript_of_a_second_hour(user):
    """The commands that a newcomer comes to later."""
    seen = Transcript(user)
    project = user.project("demo")
    one = user.mlw("submit", "train.py", "--epochs", "20", "--lr", "0.1", cwd=project).run
    two = user.mlw("submit", "train.py", "--epochs", "20", "--lr", "0.2", cwd=project).run
    for words in (
        "project show",
        "project sample list",
        "computetarget list",
        "computetarget show docker",
        "computetarget check local",
        "runconfiguration create -n fast -t local",
        "runconfiguration list",
        "runconfiguration delete -n fast -y",
        "experiment prepare -c local",
        f"experiment status {two}",
        f"logs {two}",
        f"cancel {two}",
        f"show {two}",
        "history best --metric loss",
        "history list --group lr",
        f"history metrics {two}",
        f"history metrics {two} loss --width 60 --height 8",
        f"history compare {one} {two}",
        f"history tag {two} --add best",
        f"history note {two} promising",
        f"history rename {two} baseline",
        f"history archive {one}",
        "history list --archived",
        f"history archive {one} --undo",
        f"history download {one} -d results",
        f"history promote -r {one} --artifact-path model.json -n moons",
        "asset list",
        "asset download -l assets/moons.link -d models",
        f"project restore --run-id {one} --path code",
        f"experiment diagnostics {one} --to bundle.zip",
        "experiment clean",
        "history rebuild",
        f"history remove {one} -y",
        "show nosuch",
    ):
        seen.type_in(*words.split(), cwd=project)
    seen.hide(
        (r"^(?:gpu|docker|podman|sessions) +(?:ok|warning) .*\n", ""),
        (r"^! (?:hint|more): (?:gpu|docker|podman|sessions): .*\n", ""),
        (r"^(system|python|store|processors|memory)( +)(?:ok|warning) .*", r"\1\2ok  …"),
        (r"[\d.]+ (?:B|kB|MB)\b", "SIZE"),
        (r"\d+-[0-9a-f]{16}$", "PID-NAME"),
        (r"\d{4}-\d\d-\d\dT[\d:]+Z", "TIME"),
        (r"^((?:Environment +Python|Code +snapshot)) .*", r"\1 …"),
    )
    seen.compare("second-hour", one, two)


def _blot(text: str) -> str:
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "TIME", text)
    text = re.sub(r"\d:\d\d:\d\d(\.\d+)?", "DURATION", text)
    text = re.sub(r"after [\d.]+ s", "after N s", text)
    text = re.sub(r"^(ID|Project ID|Submit key|Python\w*(?: \w+)?) .*", r"\1 …", text, flags=re.MULTILINE)
    text = re.sub(r'"SnapshotId":"[0-9a-f]+"', '"SnapshotId":"…"', text)
    text = re.sub(r"just now|\d+ s ago", "AGE", text)
    text = re.sub(r" [\d.]+ s$", " N s", text, flags=re.MULTILINE)
    text = re.sub(r"Traceback \(most recent call last\):\n(?:  .*\n)+", "Traceback …\n", text)
    text = re.sub(r"Log size \(bytes\) +\d+", "Log size (bytes) N", text)
    return re.sub(r"[ \t]+", " ", re.sub(r"-{3,}", "---", text))


def test_record_keys(user):
    """Programs depend on them: a key may be added, not lost."""
    project = user.project("demo", train="print(1)")
    user.mlw("submit", "train.py", cwd=project)
    record = json.loads(user.mlw("history", "last", "-o", "json", cwd=project).out)
    compare("record-keys", "\n".join(record) + "\n")
