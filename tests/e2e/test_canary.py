"""An untrusted project stays data: commands that only read it run none of its code and send no secrets.

The lists of commands, pages, and routes come from the program. Anything new is tested automatically or must be listed
here as running the project's code, and its documentation must state that.
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

from mlworkbench.cli.command_tree import mlw
from mlworkbench.ui.pages.run.page import _TABS
from mlworkbench.ui.queries.projects import key_of
from tests.conftest import User, end_processes
from tests.machines import canary as trapped
from tests.machines.browser import browser_session, ui_server
from tests.machines.canary import SECRET, SECRET_NAME, UNSAFE_PATH, Canary, Listener, listener
from tests.machines.ui_routes import Route, api_client, openapi, pages

pytestmark = pytest.mark.installed

TRAIN = """
import os
from mlworkbench import log
log("loss", 0.5)
os.makedirs("outputs", exist_ok=True)
open("outputs/model.txt", "w").write("x")
"""


class ClonedProject:
    """A cloned project full of traps, and its user, who has an unsafe PATH."""

    def __init__(self, user: User, root: Path, runs: list[str], canary: Canary, recorder: Listener) -> None:
        self.user, self.root, self.runs, self.canary, self.recorder = user, root, runs, canary, recorder
        self.place = user.home.parent

    def assert_no_traps_fired(self, what: object) -> None:
        assert self.canary.fired() == [], what
        assert self.recorder.leaked_secrets() == [], what


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClonedProject]:
    place = tmp_path_factory.mktemp("canary")
    user = User(place)
    root = user.project("cloned", train=TRAIN)
    runs = [user.mlw("submit", "-c", "local", "train.py", cwd=root).run for _ in range(3)]
    assert user.mlw("history", "promote", "-ap", "model.txt", "-n", "kept", cwd=root).code == 0
    with listener() as recorder:
        canary = trapped.create_traps(root, place / "fired", recorder.address)
        trapped.engine(place / "engine", place / "fired")
        user.env["PATH"] = os.pathsep.join((UNSAFE_PATH, str(place / "engine"), user.env["PATH"]))
        user.env |= {SECRET_NAME: SECRET, "SHELL": "/bin/bash"}
        (user.home / ".bashrc").write_text('git --version; hostname; eval "$(dircolors)"; tput cols; PS1="ready> "\n')
        yield ClonedProject(user, root, runs, canary, recorder)
    end_processes(user.store)


@pytest.fixture(autouse=True)
def _reset_traps(clone):
    clone.canary.reset()
    clone.recorder.requests, clone.recorder.contacts = [], 0


# -- traps ---------------------------------------------------------------------------------------------------


def test_traps_detect_execution(clone):
    """Check the traps themselves, because the following tests rely on them."""
    canary = clone.canary
    for path in canary.scripts.values():
        subprocess.run([str(path)], check=False, stdout=subprocess.DEVNULL)
    reader = "import runpy, sys\nfor path in sys.argv[1:]: runpy.run_path(path)"
    subprocess.run([sys.executable, "-I", "-c", reader, *map(str, canary.modules.values())], check=True)
    assert set(canary.fired()) == {*canary.scripts, *canary.modules}
    canary.reset()


def test_run_triggers_traps(clone):
    """`mlw submit`, which is documented to run the project's code, triggers a trap."""
    done = clone.user.mlw("submit", "-c", "local", "train.py", cwd=clone.root)
    assert "pythonLocation" in clone.canary.fired(), done
    end_processes(clone.user.store)
    clone.canary.reset()


# -- commands --------------------------------------------------------------------------------------------------

# Documented to run code of the project, or to act on a machine that the user names.
RUNS = {
    "submit": "runs a script of the project",
    "experiment submit": "runs a script of the project",
    "rerun": "runs a script of the project",
    "experiment resume": "starts the run that it finishes to submit",
    "experiment prepare": "builds the project's environment, and tries its Python",
    "doctor gpu": "tries the target's Python and its frameworks",
}
# Command → its arguments, in the project's folder. RUN, OTHER, and SPENT are runs of the project.
READ_COMMANDS: dict[str, tuple[str, ...]] = {
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
    "history tables": ("RUN",),
    "history tag": ("RUN --add good",),
    "history traces": ("RUN",),
    "history view delete": ("second",),
    "history view list": ("",),
    "history view rename": ("first second",),
    "history view save": ("first --force --sort -loss",),
    "history view show": ("first",),
    "logs": ("RUN",),
    "ls": ("", "--all"),
    "project create": ("--name inner --path {place}",),
    "project doctor": ("", "-c made", "-c docker", "--fix"),
    "project init": ("--path {place}/outputs",),
    "project link": ("",),
    "project new-id": ("--project {place}/inner",),  # later commands and pages need the old ID
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
    "ui": ("--help",),  # its pages are tested below
}
DRY_RUN_CONFIGURATIONS = tuple("local absolute named searched docker image shared far cluster spark plugin".split())


def all_commands(command: click.Command, above: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield every command."""
    if isinstance(command, click.Group):
        if above and command.invoke_without_command:
            yield " ".join(above)
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from all_commands(below, (*above, name))
    else:
        yield " ".join(above)


def test_every_command_is_tested_or_documented_to_run_code():
    assert {*all_commands(mlw)} == {*READ_COMMANDS, *RUNS}
    assert not {*READ_COMMANDS} & {*RUNS}


# Runs all commands in one process in the project's folder, because Python's startup would take most of the time.
COMMAND_RUNNER = """
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


def command_lines(clone: ClonedProject) -> list[list[str]]:
    filled = dict(zip(("RUN", "OTHER", "SPENT"), clone.runs, strict=True))
    lines = [
        f"{verb} {arguments.format(place=clone.place)}" for verb, given in READ_COMMANDS.items() for arguments in given
    ]
    lines += [
        f"{submit} --dry-run -c {name}" for submit in ("submit", "experiment submit") for name in DRY_RUN_CONFIGURATIONS
    ]
    return [[filled.get(argument, argument) for argument in line.split()] for line in lines]


def test_read_commands_run_no_project_code(clone):
    script = clone.place / "typist.py"
    script.write_text(COMMAND_RUNNER)
    done = subprocess.run(
        [sys.executable, str(script), str(clone.canary.place)],
        input=json.dumps(command_lines(clone)).encode(),
        cwd=clone.root,
        env=clone.user.env,
        capture_output=True,
        check=True,
    )
    results = json.loads(done.stdout.splitlines()[-1])
    assert len(results) == len(command_lines(clone))
    output = {" ".join(arguments): text for arguments, _, text, _ in results}
    assert [
        (arguments, text) for arguments, code, text, _ in results if code == 2 or "error: internal error" in text
    ] == []
    assert {" ".join(arguments): sprung for arguments, _, _, sprung in results if sprung} == {}
    assert clone.recorder.leaked_secrets() == []
    assert "not checked" in output["computetarget check local"]
    assert str(clone.root / "evil/env/bin/python") in output["project show"]
    assert "was not checked" in output["submit --dry-run -c local"]


@pytest.mark.parametrize(
    "command_line", ["project validate", "computetarget check local", "doctor", "submit --dry-run"]
)
def test_read_commands_in_new_process_run_no_project_code(clone, command_line):
    done = clone.user.mlw(*command_line.split(), cwd=clone.root)
    assert done.code not in (2, 70), done
    assert clone.canary.fired() == [], done


@pytest.mark.parametrize("name", ["image", "made", "built"])
def test_resolving_packages_runs_no_project_code(clone, name):
    """No packages are built on this machine, and no variables of the user reach the project's index."""
    done = clone.user.mlw("submit", "--dry-run", "-c", name, cwd=clone.root)
    assert done.code not in (0, 2, 70), done
    clone.assert_no_traps_fired(done)


def test_parent_workspace_is_not_read(clone):
    """The parent's uv lock file contains a package whose URL must not be requested."""
    done = clone.user.mlw("submit", "--dry-run", "-c", "nested", cwd=clone.root)
    assert [request for request in clone.recorder.requests if "/workspace/" in request] == [], done
    clone.assert_no_traps_fired(done)


@pytest.mark.parametrize("manager", ["asdf", "mise"])
def test_shims_of_version_managers_are_not_started(clone, tmp_path, manager):
    """A shim would start the program that the project's .tool-versions names. Only runs may do that."""
    shims = trapped.shims(tmp_path / manager, manager)
    environ = {"PATH": os.pathsep.join((str(shims), clone.user.env["PATH"]))}
    for command in ("computetarget check searched", "submit --dry-run -c searched", "submit --dry-run -c nested"):
        done = clone.user.mlw(*command.split(), cwd=clone.root, env=environ)
        assert f"{shims}/python" in done.out + done.err and "not checked" in done.out + done.err, done
        clone.assert_no_traps_fired(done)
    clone.user.mlw("submit", "-c", "searched", "train.py", cwd=clone.root, env=environ)
    assert "shim-python" in clone.canary.fired()
    end_processes(clone.user.store)


def test_completion_runs_no_project_code(clone):
    for line in ("submit -c", "submit", "computetarget show", "logs", "gpus -t"):
        done = clone.user.mlw(*line.split(), "", cwd=clone.root, env={"_MLW_COMPLETE": "bash"})
        assert done.out, line
        clone.assert_no_traps_fired((line, done))


# -- web UI ----------------------------------------------------------------------------------------------------

# Page → suffix of its address, and the text that appears when it is complete.
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


def test_pages_run_no_project_code(clone, tmp_path):
    sprung = {}
    with browser_session(clone.user, clone.root, tmp_path) as ui:
        for page, addresses in PAGES.items():
            for more, shown in addresses.items():
                path = Route(page + more, ()).filled(key=key_of(clone.root), name=clone.runs[0])
                ui.go(path).locator(shown).first.wait_for(timeout=60_000)
                if clone.canary.fired():
                    sprung[path] = clone.canary.fired()
                    clone.canary.reset()
        ui.server.stop()
    sprung["afterwards"] = clone.canary.fired()
    assert sprung == {"afterwards": []}
    assert clone.recorder.contacts == 0 and clone.recorder.leaked_secrets() == []


# Requests that change something, with their bodies. None: the request is documented to run the project's code.
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
# Method and path → value of query parameters, for requests that need the name of an existing file.
PATHS = {
    "GET /api/runs/{run}/outputs/file": "model.txt",
    "GET /api/runs/{run}/code/file": "train.py",
    "DELETE /api/projects/{key}/files": "moved.py",
}


def api_requests(clone: ClonedProject) -> Iterator[tuple[str, str]]:
    """Yield method with path, and address, of every API route."""
    key = key_of(clone.root)
    values_by_name = {
        "key": [key],
        "project": [key],
        "run": [clone.runs[0]],
        "text": ["evil"],
        "path": ["mlworkbench.py"],
    }
    for path, methods in openapi()["paths"].items():
        targets = ["goes"] if path.endswith("/detach") else ["local", "image", "far"]
        values_by_name["name"] = targets if "/targets/" in path else ["loss"]
        for method, operation in methods.items():
            name = f"{method.upper()} {path}"
            needed = [parameter["name"] for parameter in operation.get("parameters", ()) if parameter.get("required")]
            for chosen in itertools.product(*(values_by_name[parameter] for parameter in needed)):
                values = dict(zip(needed, chosen, strict=True))
                query = {
                    parameter: PATHS.get(name, value)
                    for parameter, value in values.items()
                    if f"{{{parameter}}}" not in path
                }
                yield name, Route(path, ()).filled(**values) + "?" + urlencode(query)


def body_of(clone: ClonedProject, name: str) -> bytes:
    text = json.dumps(REQUESTS[name])
    for placeholder, value in (("KEY", key_of(clone.root)), ("RUN", clone.runs[1]), ("ROOT", str(clone.root))):
        text = text.replace(f'"{placeholder}"', json.dumps(value))
    return text.encode()


def test_requests_run_no_project_code(clone, tmp_path):
    # Requests that delete what others need come last, and the one that deletes the project is the very last.
    requests = sorted(
        api_requests(clone),
        key=lambda request: (request[0].startswith("DELETE"), "/projects/{key}" in request[0][-15:]),
    )
    changing = {name for name, _ in requests if not name.startswith("GET")}
    assert changing == {*REQUESTS}, "say what to send, or that it is documented to run the project's code"
    sprung = {}
    with ui_server(clone.user, clone.root, tmp_path) as server:
        mine = api_client(server, clone.user.store)
        for name, address in requests:
            if name in REQUESTS and REQUESTS[name] is None:
                continue
            method, _, path = name.partition(" ")
            body = body_of(clone, name) if name in REQUESTS else None
            answer = mine.request(method, address, body, Content_Type="application/json")
            assert answer.status not in (404, 405, 500) or path in NOTHING_THERE, (method, address, answer)
            assert b"for the request format" not in answer.body, (method, address, answer)
            if clone.canary.fired():
                sprung[address] = clone.canary.fired()
                clone.canary.reset()
        server.stop()
    sprung["afterwards"] = clone.canary.fired()
    assert sprung == {"afterwards": []}
    assert clone.recorder.contacts == 0 and clone.recorder.leaked_secrets() == []
