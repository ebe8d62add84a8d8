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

pytestmark = pytest.mark.installed

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
        (user.home / ".bashrc").write_text('git --version; hostname; eval "$(dircolors)"; tput cols; PS1="ready> "\n')
        yield Stage(user, root, runs, canary, ear)
    end_processes(user.store)


@pytest.fixture(autouse=True)
def _set_anew(stage):
    stage.canary.reset()
    stage.ear.heard, stage.ear.contacts = [], 0


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
    "rerun": "runs a script of the project",
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
    "computetarget detach": ("leaves --yes",),
    "computetarget list": ("", "-o json"),
    "computetarget reset-key": ("far",),
    "computetarget show": tuple("local named docker far cluster".split()),
    "computetarget update": ("far --allow-mount /data",),
    "doctor": ("",),
    "environment list": ("", "-t made", "-t far"),
    "environment remove": ("--unused --dry-run",),
    "environment show": ("abc",),
    "experiment cancel": ("RUN",),
    "experiment clean": ("", "-t far", "-t local"),
    "experiment diagnostics": ("RUN --yes --to {place}/bundle.zip",),
    "experiment logs": ("RUN",),
    "experiment ps": ("",),
    "experiment status": ("RUN",),
    "explain": ("", "not-attached"),
    "gpus": ("", "-t local", "-t far", "-t docker"),
    "help": ("", "submit", "history list"),
    "history archive": ("RUN --undo",),
    "history best": ("--metric loss",),
    "history compare": ("RUN OTHER",),
    "history download": ("RUN -d {place}/outputs",),
    "history export": ("--to {place}/runs.html", "RUN"),
    "history fetch": ("-t far",),
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
    "ls": ("", "--all"),
    "project create": ("--name inner --path {place}",),
    "project doctor": ("", "-c made", "-c docker", "--fix"),
    "project init": ("--path {place}/outputs",),
    "project link": ("",),
    "project new-id": ("--project {place}/inner",),  # runs and pages that are looked at later need the old one here
    "project restore": ("-r RUN --path {place}/restored",),
    "project sample list": ("",),
    "project schema": ("compute",),
    "project show": ("", "-o json"),
    "project validate": ("",),
    "ps": ("",),
    "runconfiguration create": ("-n more -t local",),
    "runconfiguration delete": ("-n more --yes",),
    "runconfiguration list": ("",),
    "settings add": ("index-hosts index.example.org",),
    "settings list": ("",),
    "settings remove": ("index-hosts index.example.org",),
    "show": ("RUN",),
    "status": ("RUN",),
    "target attach": ("--help",),  # the same commands as those of computetarget
    "target check": ("local",),
    "target detach": ("--help",),
    "target list": ("",),
    "target reset-key": ("--help",),
    "target show": ("local",),
    "target update": ("--help",),
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


# All of them in one process, in the folder of the project: a start of Python for each would take most of the time.
TYPIST = """
import contextlib, io, json, os, sys
from mlworkbench.cli.main import _run
told, fired = [], sys.argv[1]
for words in json.load(sys.stdin):
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        code = _run(words)
    told.append([words, code, out.getvalue(), sorted(os.listdir(fired))])
    for name in os.listdir(fired):
        os.unlink(os.path.join(fired, name))
print(json.dumps(told))
"""


def typed(stage: Stage) -> list[list[str]]:
    filled = dict(zip(("RUN", "OTHER", "SPENT"), stage.runs, strict=True))
    lines = [f"{verb} {words.format(place=stage.place)}" for verb, given in LOOKS.items() for words in given]
    lines += [f"{submit} --dry-run -c {name}" for submit in ("submit", "experiment submit") for name in DRY]
    return [[filled.get(word, word) for word in line.split()] for line in lines]


def test_no_verb_that_looks_springs_a_trap(stage):
    script = stage.place / "typist.py"
    script.write_text(TYPIST)
    done = subprocess.run(
        [sys.executable, str(script), str(stage.canary.place)],
        input=json.dumps(typed(stage)).encode(),
        cwd=stage.root,
        env=stage.user.env,
        capture_output=True,
        check=True,
    )
    told = json.loads(done.stdout.splitlines()[-1])
    assert len(told) == len(typed(stage))
    said = {" ".join(words): text for words, _, text, _ in told}
    assert [(words, text) for words, code, text, _ in told if code == 2 or "error: internal error" in text] == []
    assert {" ".join(words): sprung for words, _, _, sprung in told if sprung} == {}
    assert stage.ear.secrets_heard() == []
    assert "not checked" in said["computetarget check local"]
    assert str(stage.root / "evil/env/bin/python") in said["project show"]
    assert "was not checked" in said["submit --dry-run -c local"]


@pytest.mark.parametrize("words", ["project validate", "computetarget check local", "doctor", "submit --dry-run"])
def test_nor_does_one_in_a_process_of_its_own(stage, words):
    done = stage.user.mlw(*words.split(), cwd=stage.root)
    assert done.code not in (2, 70), done
    assert stage.canary.fired() == [], done


@pytest.mark.parametrize("name", ["image", "made", "built"])
def test_resolving_packages_springs_no_trap(stage, name):
    """Neither are packages built here, nor do variables of the user reach the project's index."""
    done = stage.user.mlw("submit", "--dry-run", "-c", name, cwd=stage.root)
    assert done.code not in (0, 2, 70), done
    stage.must_be_quiet(done)


def test_a_workspace_above_is_not_read(stage):
    """Of uv's two lock files the one of the project is read."""
    done = stage.user.mlw("submit", "--dry-run", "-c", "nested", cwd=stage.root)
    assert [words for words in stage.ear.heard if "/workspace/" in words] == [], done
    stage.must_be_quiet(done)


@pytest.mark.parametrize("manager", ["asdf", "mise"])
def test_shims_of_version_managers_are_not_started(stage, tmp_path, manager):
    """They start what the project's .tool-versions names, which only a run is documented to do."""
    shims = trapped.shims(tmp_path / manager, manager)
    environ = {"PATH": os.pathsep.join((str(shims), stage.user.env["PATH"]))}
    for words in ("computetarget check searched", "submit --dry-run -c searched", "submit --dry-run -c nested"):
        done = stage.user.mlw(*words.split(), cwd=stage.root, env=environ)
        assert f"{shims}/python" in done.out + done.err and "not checked" in done.out + done.err, done
        stage.must_be_quiet(done)
    stage.user.mlw("submit", "-c", "searched", "train.py", cwd=stage.root, env=environ)
    assert "shim-python" in stage.canary.fired()
    end_processes(stage.user.store)


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
NOTHING_THERE = ("/api/operations/{name}", "/api/runs/{run}/machine/series", "/api/projects/{key}/picture")
# Method and path → what is asked for where it must be something that is there.
PATHS = {
    "GET /api/runs/{run}/outputs/file": "model.txt",
    "GET /api/runs/{run}/code/file": "train.py",
    "DELETE /api/projects/{key}/files": "moved.py",
}


def questions(stage: Stage) -> Iterator[tuple[str, str]]:
    """Method with path, and address: of all that the API can be asked, whatever will be added to it."""
    key = key_of(stage.root)
    known = {"key": [key], "project": [key], "run": [stage.runs[0]], "text": ["evil"], "path": ["mlworkbench.py"]}
    for path, methods in openapi()["paths"].items():
        targets = ["goes"] if path.endswith("/detach") else ["local", "image", "far"]
        known["name"] = targets if "/targets/" in path else ["loss"]
        for method, told in methods.items():
            name = f"{method.upper()} {path}"
            needed = [one["name"] for one in told.get("parameters", ()) if one.get("required")]
            for chosen in itertools.product(*(known[one] for one in needed)):
                values = dict(zip(needed, chosen, strict=True))
                asked = {one: PATHS.get(name, value) for one, value in values.items() if f"{{{one}}}" not in path}
                yield name, Route(path, ()).filled(**values) + "?" + urlencode(asked)


def body_of(stage: Stage, name: str) -> bytes:
    text = json.dumps(REQUESTS[name])
    for word, value in (("KEY", key_of(stage.root)), ("RUN", stage.runs[1]), ("ROOT", str(stage.root))):
        text = text.replace(f'"{word}"', json.dumps(value))
    return text.encode()


def test_no_request_springs_a_trap(stage, tmp_path):
    # Those that take away what others need come last, and of all the one that takes away the project.
    asked = sorted(questions(stage), key=lambda one: (one[0].startswith("DELETE"), "/projects/{key}" in one[0][-15:]))
    changing = {name for name, _ in asked if not name.startswith("GET")}
    assert changing == {*REQUESTS}, "say what to send, or that it is documented to run the project's code"
    sprung = {}
    with workbench(stage.user, stage.root, tmp_path) as bench:
        mine = program(bench, stage.user.store)
        for name, address in asked:
            if name in REQUESTS and REQUESTS[name] is None:
                continue
            method, _, path = name.partition(" ")
            body = body_of(stage, name) if name in REQUESTS else None
            answer = mine.ask(method, address, body, Content_Type="application/json")
            assert answer.status not in (404, 405, 500) or path in NOTHING_THERE, (method, address, answer)
            assert b"for the request format" not in answer.body, (method, address, answer)
            if stage.canary.fired():
                sprung[address] = stage.canary.fired()
                stage.canary.reset()
        bench.stop()
    sprung["afterwards"] = stage.canary.fired()
    assert sprung == {"afterwards": []}
    assert stage.ear.contacts == 0 and stage.ear.secrets_heard() == []
