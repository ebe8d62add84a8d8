"""Compare texts that users and programs read with recorded ones. ``MLW_GOLDEN=write`` records them again."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from mlworkbench.cli.command_tree import mlw
from tests.machines.network import wait_until

TEXTS = Path(__file__).parent / "texts"


def iterate_commands(command: click.Command, arguments: list[str]) -> Iterator[list[str]]:
    yield arguments
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from iterate_commands(command.get_command(context, name), [*arguments, name])


COMMANDS = list(iterate_commands(mlw, []))


def compare(name: str, text: str) -> None:
    path = TEXTS / f"{name}.txt"
    if os.environ.get("MLW_GOLDEN") == "write":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda arguments: " ".join(["mlw", *arguments]))
def test_help(user, arguments):
    result = user.mlw(*arguments, "--help", env={"COLUMNS": "80"})
    assert result.code == 0
    compare("-".join(["help", *arguments]), result.out)


def test_every_recorded_help_belongs_to_a_command():
    names = {"-".join(["help", *arguments]) for arguments in COMMANDS}
    assert {path.stem for path in TEXTS.glob("help*.txt")} == names


class Transcript:
    """Commands that a user types, and their output."""

    def __init__(self, user):
        self.user = user
        user.env["LOGNAME"] = "ada"
        self.lines = []

    def type_in(self, *arguments, cwd=None):
        # A list of runs has room for all columns: otherwise, the age of a run would decide which ones are shown.
        columns = "180" if arguments[:2] == ("history", "list") else "100"
        result = self.user.mlw(*arguments, cwd=cwd, env={"COLUMNS": columns})
        self.lines.append(f"$ mlw {' '.join(arguments)}   # exit code {result.code}")
        self.lines.extend(result.out.splitlines() + [f"! {line}" for line in result.err.splitlines()] + [""])
        return result

    def compare(self, name, *runs):
        """Compare the transcript, with parts masked that vary between runs."""
        text = "\n".join(self.lines) + "\n"
        for number, run in enumerate(runs, 1):
            text = text.replace(run, f"RUN-{number}".ljust(len(run)))
        for value, placeholder in ((str(self.user.home), "HOME"), (str(self.user.store), "STORE")):
            text = text.replace(value, placeholder)
        compare(name, _mask_variable_parts(text))

    def hide(self, *patterns):
        """Replace parts that depend on the machine: (pattern, replacement)."""
        for pattern, replacement in patterns:
            self.lines = re.sub(pattern, replacement, "\n".join(self.lines), flags=re.MULTILINE).split("\n")


def test_transcript_of_first_steps(user):
    transcript = Transcript(user)
    type_in = transcript.type_in
    type_in("project", "create", "--name", "demo")
    project = user.home / "demo"
    good = type_in("experiment", "submit", "-c", "local", "train.py", "--epochs", "20", cwd=project)
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
    transcript.compare("first-hour", good.run, bad.run)


def test_transcript_of_other_commands(user):
    transcript = Transcript(user)
    project = user.project("demo")
    first = user.mlw("submit", "train.py", "--epochs", "20", "--lr", "0.1", cwd=project).run
    second = user.mlw("submit", "train.py", "--epochs", "20", "--lr", "0.2", cwd=project).run
    wait_until((user.folder(first) / "metrics" / "packages").exists, "the list of packages")
    for command in (
        "project show",
        "project sample list",
        "computetarget list",
        "computetarget show docker",
        "computetarget check local",
        "runconfiguration create -n fast -t local",
        "runconfiguration list",
        "runconfiguration delete -n fast -y",
        "experiment prepare -c local",
        f"experiment status {second}",
        f"logs {second}",
        f"cancel {second}",
        f"show {second}",
        "history best --metric loss",
        "history list --group lr",
        f"history metrics {second}",
        f"history metrics {second} loss --width 60 --height 8",
        f"history compare {first} {second}",
        f"history tag {second} --add best",
        f"history note {second} promising",
        f"history rename {second} baseline",
        f"history archive {first}",
        "history list --archived",
        f"history archive {first} --undo",
        f"history download {first} -d results",
        f"history promote -r {first} --artifact-path model.json -n moons",
        "asset list",
        "asset download -l assets/moons.link -d models",
        f"project restore --run-id {first} --path code",
        f"experiment diagnostics {first} --to bundle.zip",
        "experiment clean",
        "history rebuild",
        f"history remove {first} -y",
        "show nosuch",
    ):
        transcript.type_in(*command.split(), cwd=project)
    transcript.hide(
        (r"^(?:gpu|docker|podman|sessions) +(?:ok|warning) .*\n", ""),
        (r"^! (?:hint|more): (?:gpu|docker|podman|sessions): .*\n", ""),
        (r"^(system|python|store|processors|memory)( +)(?:ok|warning) .*", r"\1\2ok  …"),
        (r"[\d.]+ (?:B|kB|MB)\b", "SIZE"),
        (r"\d+-[0-9a-f]{16}$", "PID-NAME"),
        (r"\d{4}-\d\d-\d\dT[\d:]+Z", "TIME"),
        (r"^((?:Environment +Python|Code +snapshot)) .*", r"\1 …"),
    )
    transcript.compare("second-hour", first, second)


def _mask_variable_parts(text: str) -> str:
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "TIME", text)
    text = re.sub(r"\d:\d\d:\d\d(\.\d+)?", "DURATION", text)
    text = re.sub(r"after [\d.]+ s", "after N s", text)
    text = re.sub(r"^(ID|Project ID|Submit key|Python\w*(?: \w+)?) .*", r"\1 …", text, flags=re.MULTILINE)
    text = re.sub(r'"SnapshotId":"[0-9a-f]+"', '"SnapshotId":"…"', text)
    text = re.sub(r"just now|\d+ s ago", "AGE", text)
    text = re.sub(r" [\d.]+ s(?= |$)", " N s", text, flags=re.MULTILINE)
    text = re.sub(r"Traceback \(most recent call last\):\n(?:  .*\n)+", "Traceback …\n", text)
    text = re.sub(r"Log size \(bytes\) +\d+", "Log size (bytes) N", text)
    return re.sub(r"[ \t]+", " ", re.sub(r"-{3,}", "---", text))


def test_record_keys(user):
    """Compare the keys of a run record with the recorded ones, because programs depend on them."""
    project = user.project("demo", train="print(1)")
    user.mlw("submit", "train.py", cwd=project)
    record = json.loads(user.mlw("history", "last", "-o", "json", cwd=project).out)
    compare("record-keys", "\n".join(record) + "\n")
