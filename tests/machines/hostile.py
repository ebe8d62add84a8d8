"""A user whose data are all hostile texts: names, notes, arguments, metrics, logs, files, targets, projects."""

from __future__ import annotations

import base64
import json
import os
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mlworkbench.history.store import History
from mlworkbench.model import Command, Compute, Entry, Git, RunSpec
from mlworkbench.paths import UserPaths
from tests.machines.payloads import PAYLOADS, file_names, representative_payloads
from tests.unit.history.test_run_state import SPEC

# A script that records, prints, and writes into files all texts that it receives.
_SCRIPT = """
import base64, json, os, sys
import mlworkbench as mlw
texts = json.load(open("texts.json"))
names = json.load(open("names.json"))
os.makedirs("outputs", exist_ok=True)
for number, text in enumerate(texts):
    print(text)
    for step in range(3):
        mlw.log(text[:200] or "x", 0.5 * step)
    mlw.log("text %d" % number, text)
    mlw.log_param(text[:200], text)
    mlw.set_tag("tag-%d" % number, text)
png = base64.b64decode(PNG)
for number, name in enumerate(names):
    with open(os.path.join("outputs", name), "w") as file:
        file.write(texts[number])
with open(os.path.join("outputs", names[1] + ".png"), "wb") as file:
    file.write(png)
whole = "\\n\\n".join(texts)
table = ",".join(json.dumps(one).replace('\\\\"', '""') for one in texts[:8])
svg = '<svg xmlns="http://www.w3.org/2000/svg" onload="xss(900)"><script>xss(901)</script></svg>'
page = "<!doctype html><title>x</title><script>xss(902); parent.xss(903); top.xss(904)</script>" + whole
for name, text in {
    "all.html": page, "all.svg": svg, "all.md": whole, "all.csv": table + "\\n" + table, "all.txt": whole,
    "all.json": json.dumps({text: text for text in texts}), "all.js": "xss(905)",
    "all.xml": "<?xml version='1.0'?>" + svg,
    "all.pdf": "%PDF-1.4 " + whole, "all.ipynb": json.dumps({"cells": [{"cell_type": "markdown", "source": texts}]}),
    "fake.png": page, "fake.gif": "GIF89a" + page,
}.items():
    with open(os.path.join("outputs", name), "w") as file:
        file.write(text)
raise ValueError(texts[27])
"""
_PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
OUTPUTS = (
    "all.html", "all.svg", "all.md", "all.csv", "all.txt", "all.json", "all.xml", "all.js", "all.pdf", "all.ipynb",
    "fake.png", "fake.gif",
)  # fmt: skip


@dataclass(frozen=True)
class Hostile:
    """The hostile projects and runs."""

    root: Path  # the project that contains all payloads
    others: list[Path]  # projects with hostile names
    run: str  # the real run that recorded all payloads
    going: list[str]  # runs that are still active
    made: list[str]  # one run per payload, for fields with a single text


def prepare(user: Any) -> Hostile:
    root = _project(user, "all", PAYLOADS[27])
    _fill(root)
    done = user.mlw("submit", "-c", "local", "--name", PAYLOADS[28], "--tag", PAYLOADS[29], "train.py", cwd=root)
    assert done.code == 1, done
    going = []
    for text in (PAYLOADS[30], PAYLOADS[107]):
        arguments = ("submit", "-c", "local", "--detach", "--name", text, "--tag", text, "wait.py", text)
        going.append(user.mlw(*arguments, cwd=root).run)
    others = [_project(user, f"other-{number}", text) for number, text in enumerate(representative_payloads())]
    runs = _runs(user, root)
    (user.store / "ui").mkdir(mode=0o700, exist_ok=True)
    projects = {str(path): time.time() - number for number, path in enumerate((root, *others))}
    (user.store / "ui" / "projects.json").write_text(json.dumps(projects))
    return Hostile(root, others, done.run, going, runs)


def _project(user: Any, folder: str, name: str) -> Path:
    root: Path = user.project(folder)
    file = root / "aml_config" / "project.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "Name": name}))
    names = file_names()
    hostile = root.with_name(names[len(folder) % len(names)] + folder)
    os.rename(root, hostile)
    (hostile / "readme.md").write_text(f"# {name}\n\n{name}\n")
    return hostile


def _fill(root: Path) -> None:
    names = file_names()
    (root / "texts.json").write_text(json.dumps(PAYLOADS))
    (root / "names.json").write_text(json.dumps(names))
    (root / "train.py").write_text(_SCRIPT.replace("PNG)", f'"{_PNG}")'))
    (root / "wait.py").write_text("import sys, time\nprint(sys.argv)\nwhile True: time.sleep(600)\n")
    (root / "readme.md").write_text("\n\n".join(("# Hostile", *PAYLOADS)))
    (root / "data").mkdir()
    for number, name in enumerate(names):
        (root / "data" / name).write_text(PAYLOADS[number])
    (root / names[3]).mkdir()
    (root / names[3] / f"{names[4]}.py").write_text("\n".join(PAYLOADS))
    (root / f"{names[5]}.md").write_text("\n\n".join(PAYLOADS))
    (root / f"{names[6]}.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg" onload="xss(910)"/>')
    (root / "picture.png").write_bytes(base64.b64decode(_PNG))
    config = root / "aml_config"
    for number, name in enumerate((*names[7:10], *(f"t{number}" for number in range(12)))):
        text = json.dumps(PAYLOADS[27 + number * 9])
        (config / f"{name}.compute").write_text(f"type: remote\naddress: {text}\nusername: {text}\n")
        (config / f"{name}.runconfig").write_text(
            f"Target: {json.dumps(name)}\nFramework: Python\nArgumentVector:\n  - {text}\n"
            f"EnvironmentVariables:\n  X: {text}\n"
        )
    (config / "broken.compute").write_text(f"type: {json.dumps(PAYLOADS[27])}\n{PAYLOADS[0]}: [\n")
    (config / "broken.runconfig").write_text(f"Target: {json.dumps(PAYLOADS[27])}\nNo: {json.dumps(PAYLOADS[28])}\n")


def _runs(user: Any, root: Path) -> list[str]:
    history = History(UserPaths(user.store))
    project = json.loads((root / "aml_config" / "project.json").read_text())["Id"]
    ids = []
    for number, text in enumerate(PAYLOADS):
        spec, _ = history.add(_spec(number, text, project, root))
        folder = Path(history.paths.root.run(spec.id).path)
        parts = _parts(number, text)
        for name, data in parts.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(data)
        (folder / "log").write_text(f"{text}\nTraceback: {text}\n")
        history.append(spec.id, history.load(spec.id)[1], parts)
        history.annotate(spec.id, lambda noted, text=text: replace(noted, note=text, tags=(text,)))  # type: ignore[misc]
        ids.append(spec.id)
    history.close()
    return ids


def _spec(number: int, text: str, project: str, root: Path) -> RunSpec:
    distant = number % 2
    return replace(
        SPEC,
        id=f"x-{number:04}",
        key=f"x-{number}",
        name=text,
        project_id=project,
        project_name=text,
        project_path=str(root),
        created=time.time() - 3600 - number,
        compute=Compute(text, "remote", text, text) if distant else Compute(text, "local"),
        runconfig=text,
        framework=text,
        entry=Entry("script", text, (text, f"--{text}", f"--lr={text}")),
        commands=(Command("run", ("python", text, text)),),
        environment={"X": text, text: "x"},
        secrets=(text,),
        git=Git(text, text, True),
        tags=(text,),
        user=text,
        varied={text: text},
    )


def _parts(number: int, text: str) -> dict[str, bytes]:
    diagnosis = {"cause": text, "remedy": text}
    kinds: list[tuple[str, dict[str, Any]]] = [
        ("accepted", {}),
        ("gpus", {"gpus": [{"uuid": text, "name": text, "index": 0}], "held": True, "driver": text, "cuda": text}),
        ("started", {}),
        ("finished", {"ending": "failed", "exit": 1, "elapsed": 3, "cause": text, "outputs": 0,
                      "gpu": {"used": "no", "line": text, "diagnosis": diagnosis}}),
    ]  # fmt: skip
    began = time.time() - 3000 - number
    events = [
        {"w": "sup", "seq": n, "t": began + n, "kind": kind, "data": data} for n, (kind, data) in enumerate(kinds, 1)
    ]
    lines: list[dict[str, Any]] = [{"n": "loss", "v": 0.5 * step, "t": began, "s": step} for step in range(3)]
    lines += [{"n": text, "v": 0.5 * step, "t": began, "s": step} for step in range(3)]
    lines += [{"n": f"text of {text}", "v": text}, {"k": "param", "d": {"name": text, "value": text}, "t": began}]
    lines += [{"k": "tag", "d": {"name": text, "value": text}, "t": began}]
    return {
        "events.jsonl": b"".join(json.dumps(event).encode() + b"\n" for event in events),
        "metrics/1-0": b"".join(json.dumps(event).encode() + b"\n" for event in lines),
    }
