"""A project of a stranger stays data: whatever looks at it executes, reads and sends nothing of it.

The lists of verbs, pages and routes are made from the program: whatever is added is tried as well, or named in
one of the tables here as something that runs the project's code, which its documentation must say.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import click
import pytest

from mlworkbench.cli.verbs import mlw
from mlworkbench.ui.answers.projects import key_of
from mlworkbench.ui.pages.run.page import _TABS
from tests.conftest import User, end_processes
from tests.machines import canary as trapped
from tests.machines.browser import looking, workbench
from tests.machines.canary import CARELESS_PATH, SECRET, SECRET_NAME, Canary, Listener, listener
from tests.machines.doors import Route, openapi, pages, program

TRAIN = """
import os
from mlworkbench import log
log("loss", 0.5)
os.makedirs("outputs", exist_ok=True)
open("outputs/model.txt", "w").write("x")
"""


class Stage:
    """A user who cloned the project, looked after by nobody; their PATH is a careless one."""

    def __init__(self, user: User, root: Path, runs: list[str], canary: Canary, ear: Listener) -> None:
        self.user, self.root, self.runs, self.canary, self.ear = user, root, runs, canary, ear
        self.place = user.home.parent

    def must_be_quiet(self, what: object) -> None:
        assert self.canary.fired() == [], what
        assert self.ear.secrets_heard() == [], what


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    place = tmp_path_factory.mktemp("canary")
    user = User(place)
    root = user.project("cloned", train=TRAIN)
    runs = [user.mlw("submit", "-c", "local", "train.py", cwd=root).run for _ in range(3)]
    assert user.mlw("history", "promote", "-ap", "model.txt", "-n", "kept", cwd=root).code == 0
    with listener() as ear:
        canary = trapped.lay(root, place / "fired", ear.address)
        trapped.engine(place / "engine", place / "fired")
        user.env["PATH"] = os.pathsep.join((CARELESS_PATH, str(place / "engine"), user.env["PATH"]))
        user.env |= {SECRET_NAME: SECRET, "SHELL": "/bin/bash"}
        (user.home / ".bashrc").write_text('PS1="$(git status; hostname)ready> "; eval "$(dircolors)"; tput cols\n')
        yield Stage(user, root, runs, canary, ear)
    end_processes(user.store)


@pytest.fixture(autouse=True)
def _set_anew(stage):
    stage.canary.reset()
    del stage.ear.heard[:]


# -- the traps themselves ------------------------------------------------------------------------------------


def test_every_trap_works(stage):
    """Else all that follows would prove nothing."""
    canary = stage.canary
    for path in canary.scripts.values():
        subprocess.run([str(path)], check=False, stdout=subprocess.DEVNULL)
    reader = "import runpy, sys\nfor path in sys.argv[1:]: runpy.run_path(path)"
    subprocess.run([sys.executable, "-I", "-c", reader, *map(str, canary.modules.values())], check=True)
    assert set(canary.fired()) == {*canary.scripts, *canary.modules}
    canary.reset()


def test_a_run_springs_them(stage):
    """What is documented to run the project's code does."""
    done = stage.user.mlw("submit", "-c", "local", "train.py", cwd=stage.root)
    assert "pythonLocation" in stage.canary.fired(), done
    end_processes(stage.user.store)
    stage.canary.reset()


# -- verbs -----------------------------------------------------------------------------------------------------

# Documented to run code of the project, or to act on a machine that the user names.
RUNS = {
    "submit": "runs a script of the project",
    "experiment submit": "runs a script of the project",
    "experiment resume": "starts the run that it finishes to submit",
    "experiment prepare": "builds the project's environment, and tries its Python",
    "doctor gpu": "tries the target's Python and its frameworks",
}
# Verb → the words behind it, in the project's folder. RUN, OTHER and SPENT are runs of it.
LOOKS: dict[str, tuple[str, ...]] = {
    "asset download": ("-l assets/kept.link -d {place}/asset",),
    "asset list": ("",),
    "cancel": ("RUN",),
    "completion": ("bash", "zsh", "fish"),
    "computetarget attach": ("remote -n mine -a 127.0.0.1 --port 1 -u nobody --host-key SHA256:x",),
    "computetarget check": tuple("local absolute named searched made docker image shared far cluster".split()),
    "computetarget detach": ("far --yes",),
    "computetarget list": ("", "-o json"),
    "computetarget reset-key": ("far",),
    "computetarget show": tuple("local named docker far cluster".split()),
    "computetarget update": ("far --allow-mount /",),
    "doctor": ("",),
    "environment list": ("", "-t made", "-t far"),
    "environment remove": ("--unused --dry-run",),
    "environment show": ("abc",),
    "experiment cancel": ("RUN",),
    "experiment clean": ("", "-t far", "-t local"),
    "experiment diagnostics": ("RUN --yes -o {place}/bundle.zip",),
    "experiment logs": ("RUN",),
    "experiment ps": ("",),
    "experiment status": ("RUN",),
    "explain": ("", "not-attached"),
    "gpus": ("", "-t local", "-t far", "-t docker"),
    "history archive": ("RUN --undo",),
    "history best": ("--metric loss",),
    "history compare": ("RUN OTHER",),
    "history download": ("RUN -d {place}/outputs",),
    "history export": ("-o {place}/runs.html", "RUN"),
    "history info": ("RUN",),
    "history last": ("",),
    "history list": ("", "--all"),
    "history metrics": ("RUN loss",),
    "history note": ("RUN noted",),
    "history promote": ("-r RUN -ap model.txt -n kept",),
    "history rebuild": ("",),
    "history remove": ("SPENT --yes",),
    "history rename": ("RUN renamed",),
    "history show": ("RUN",),
    "history tag": ("RUN --add good",),
    "logs": ("RUN",),
    "project create": ("--name inner --path {place}",),
    "project doctor": ("", "-c made", "-c docker", "--fix"),
    "project init": ("--path {place}/outputs",),
    "project restore": ("-r RUN --path {place}/restored",),
    "project sample list": ("",),
    "project schema": ("compute",),
    "project show": ("", "-o json"),
    "project validate": ("",),
    "ps": ("",),
    "runconfiguration create": ("-n more -t local",),
    "runconfiguration delete": ("-n more --yes",),
    "runconfiguration list": ("",),
    "show": ("RUN",),
    "status": ("RUN",),
    "ui": ("--help",),  # its pages are visited below
}
DRY = tuple("local absolute named searched docker image shared far cluster spark plugin".split())


def verbs(command: click.Command, above: tuple[str, ...] = ()) -> Iterator[str]:
    """All that can be typed."""
    if isinstance(command, click.Group):
        if above and command.invoke_without_command:
            yield " ".join(above)
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from verbs(below, (*above, name))
    else:
        yield " ".join(above)


def test_every_verb_is_tried_or_documented_to_run_code():
    assert {*verbs(mlw)} == {*LOOKS, *RUNS}
    assert not {*LOOKS} & {*RUNS}


def test_no_verb_that_looks_springs_a_trap(stage):
    filled = dict(zip(("RUN", "OTHER", "SPENT"), stage.runs, strict=True))
    said, sprung = {}, {}
    for verb, given in LOOKS.items():
        for words in given:
            typed = [filled.get(word, word) for word in f"{verb} {words.format(place=stage.place)}".split()]
            done = said[" ".join(typed)] = stage.user.mlw(*typed, cwd=stage.root)
            assert done.code not in (2, 70), f"mlw {typed} was not understood: {done}"
            if stage.canary.fired():
                sprung[" ".join(typed)] = stage.canary.fired()
                stage.canary.reset()
    assert sprung == {}
    assert stage.ear.contacts == 0, "machines that nobody attached were called"
    assert "not tried" in said["computetarget check local"].out
    assert str(stage.root / "evil/env/bin/python") in said["project show"].out


@pytest.mark.parametrize("name", DRY)
def test_a_dry_run_springs_no_trap(stage, name):
    done = stage.user.mlw("submit", "--dry-run", "-c", name, cwd=stage.root)
    assert done.code not in (2, 70), done
    stage.must_be_quiet(done)
    if name in ("local", "absolute", "searched"):
        assert done.code == 0, done


def test_completion_springs_no_trap(stage):
    for words in ("submit -c", "submit", "computetarget show", "logs", "gpus -t"):
        done = stage.user.mlw(*words.split(), "", cwd=stage.root, env={"_MLW_COMPLETE": "bash"})
        assert done.out, words
        stage.must_be_quiet((words, done))


# -- the browser -----------------------------------------------------------------------------------------------

# Page → what follows its address, and what is to be seen there once all of it is.
PAGES: dict[str, dict[str, str]] = {
    "/": {"": "text=cloned"},
    "/p/{key}": {"": "text=mlw project validate"},
    "/p/{key}/files": {"": "text=evil_plugin.py", "?path=mlworkbench.py": "text=module-mlworkbench"},
    "/p/{key}/targets": {"": ".mlw-targets > :last-child >> text=processors"},
    "/p/{key}/terminal": {"": ".xterm-rows >> text=ready>"},
    "/p/{key}/runs": {"": "text=train.py"},
    "/runs": {"": "text=train.py"},
    "/runs/{name}": {f"?tab={tab}": ".mlw-run-tab >> visible=true" for tab in _TABS},
    "/compare": {"?runs={name}": "h1"},
}


def test_every_page_is_visited():
    assert {page.path for page in pages()} == {*PAGES}


def test_no_page_springs_a_trap(stage, tmp_path):
    sprung = {}
    with looking(stage.user, stage.root, tmp_path) as looker:
        for page, addresses in PAGES.items():
            for more, shown in addresses.items():
                path = Route(page + more, ()).filled(key=key_of(stage.root), name=stage.runs[0])
                looker.go(path).locator(shown).first.wait_for(timeout=60_000)
                if stage.canary.fired():
                    sprung[path] = stage.canary.fired()
                    stage.canary.reset()
        looker.bench.stop()
    sprung["afterwards"] = stage.canary.fired()
    assert sprung == {"afterwards": []}
    assert stage.ear.contacts == 0 and stage.ear.secrets_heard() == []


# Requests that change something, and their bodies; None: documented to run the project's code.
REQUESTS: dict[str, dict[str, object] | None] = {
    "POST /api/submit": None,
    "POST /api/prepare": None,
    "POST /api/targets/attach": {"project": "KEY", "name": "mine", "kind": "remote", "address": "127.0.0.1", "port": 1},
    "POST /api/targets/{name}/check": {},
    "POST /api/targets/{name}/detach": {},
    "POST /api/clean": {},
    "POST /api/runs/tags": {"runs": ["RUN"], "add": ["good"]},
    "POST /api/runs/archive": {"runs": ["RUN"], "undo": True},
    "PUT /api/runs/{run}/name": {"name": "named"},
    "PUT /api/runs/{run}/note": {"note": "noted"},
    "POST /api/runs/{run}/cancel": {},
    "DELETE /api/runs/{run}": {},
    "POST /api/projects": {"folder": "ROOT"},
    "DELETE /api/projects/{key}": {},
    "POST /api/projects/{key}/files/listings": {"folders": ["", "evil"]},
    "POST /api/projects/{key}/file/check": {"path": "mlworkbench.py", "text": "import evil_plugin\n"},
    "PUT /api/projects/{key}/file": {"path": "written.py", "text": "import evil_plugin\n"},
    "POST /api/projects/{key}/file": {"path": "made.py"},
    "POST /api/projects/{key}/folder": {"path": "made"},
    "POST /api/projects/{key}/files/rename": {"path": "made.py", "to": "moved.py"},
    "DELETE /api/projects/{key}/files": {},
    "POST /api/link": {},
}
# What stands in the gaps of addresses, and what must be asked for; more than one: each of them.
WORDS = {
    "path": ["mlworkbench.py"],
    "text": ["evil"],
    "errand": ["0"],
}


def questions(stage: Stage) -> Iterator[tuple[str, str, str]]:
    """Method, path with gaps, and the address: of all that the API can be asked, whatever will be added to it."""
    known = {"key": [key_of(stage.root)], "project": [key_of(stage.root)], "run": [stage.runs[0]], **WORDS}
    for path, methods in openapi()["paths"].items():
        names = ["local", "absolute", "made", "docker", "far"] if "/targets/" in path else ["loss"]
        for method, told in methods.items():
            needed = [one["name"] for one in told.get("parameters", ()) if one.get("required")]
            choices = [{**known, "name": names}[name] for name in needed]
            for chosen in itertools.product(*choices):
                values = dict(zip(needed, chosen, strict=True))
                asked = {name: value for name, value in values.items() if f"{{{name}}}" not in path}
                yield method.upper(), path, Route(path, ()).filled(**values) + "?" + urlencode(asked)


def test_no_request_springs_a_trap(stage, tmp_path):
    words = {"KEY": key_of(stage.root), "RUN": stage.runs[1], "ROOT": str(stage.root)}
    asked, sprung = set(), {}
    with workbench(stage.user, stage.root, tmp_path) as bench:
        mine = program(bench, stage.user.store)
        for method, path, address in sorted(questions(stage), key=lambda one: one[0] == "DELETE"):
            body = None
            if method != "GET":
                name = f"{method} {path}"
                assert name in REQUESTS, f"{name} is new: say what to send, or that it runs code"
                asked.add(name)
                if REQUESTS[name] is None:
                    continue
                body = json.dumps(REQUESTS[name])
                for word, value in words.items():
                    body = body.replace(f'"{word}"', json.dumps(value))
            answer = mine.ask(method, address, body and body.encode(), Content_Type="application/json")
            assert answer.status not in (405, 422, 500), (method, address, answer)
            if stage.canary.fired():
                sprung[f"{method} {address}"] = stage.canary.fired()
                stage.canary.reset()
        bench.stop()
    assert asked == {*REQUESTS}
    sprung["afterwards"] = stage.canary.fired()
    assert sprung == {"afterwards": []}
    assert stage.ear.contacts == 0 and stage.ear.secrets_heard() == []
