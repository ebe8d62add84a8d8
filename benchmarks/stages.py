"""Time spent in each stage of a submit, computed from the run's records, so that tracing adds no overhead."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import machine
from context import Context, events
from table import Line, Section, median, time_of
from timing import Contestant, take_turns

STAGES = (
    "client: interpreter, imports, configuration, snapshot, plan",
    "client: record in the history; supervisor: start, claim",
    "supervisor: working copy; launcher: fork, gate",
    "script: its interpreter, to the print",
    "client: until the line is at the reader",
)


def stages_section(context: Context) -> Section:
    section = Section("where the time of a submit goes")
    section.notes.append(f"load average before: {machine.load()}")
    project = context.project("stages")
    quiet = context.quiet()
    contestant = Contestant("mlw", lambda: _submit(context, project), None, context.settle)
    rounds = take_turns([contestant], context.quick, quiet)["mlw"]
    whole = [sum(one) for one in rounds]
    for number, what in enumerate(STAGES):
        spent = [one[number] for one in rounds]
        section.lines.append(Line(what, time_of(spent), "", f"{median(spent) / median(whole):.0%}"))
    section.lines.append(Line("all", time_of(whole)))
    section.notes.append(f"median and smallest of {context.quick} rounds; {quiet.words()}")
    return section


def _submit(context: Context, project: Path) -> list[float]:
    """Submit a run, and return the seconds spent in each stage."""
    program = context.mlw(project, "submit", "stamp.py")
    began = time.time()
    with subprocess.Popen(
        program.command, cwd=project, env=program.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, bufsize=0,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        line = os.read(process.stdout.fileno(), 4096)
        arrived = time.time()
    run = context.newest()
    marks = [
        began,
        json.loads((run / "spec.json").read_text())["created"],
        next(event["t"] for event in events(run) if event["kind"] == "accepted"),
        json.loads((run / "started.json").read_text())["time"],
        float(line),
        arrived,
    ]
    return [after - before for before, after in zip(marks, marks[1:], strict=False)]
