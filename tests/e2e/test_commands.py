"""Prepare, check, completion, typing errors, commands of the original, and unusual terminals."""

from __future__ import annotations

import json
import os
import re
import subprocess

import pytest

from tests.conftest import MLW, need
from tests.machines.network import wait_until

pexpect = pytest.importorskip("pexpect")

LOGS = "from mlworkbench import log\nlog('Accuracy', %s)\nprint('done')\n"


@pytest.fixture
def project(user):
    return user.project("demo", train="print('hello')")


@pytest.fixture
def ran(user, project):
    """A project with one run."""
    return project, user.mlw("submit", "train.py", cwd=project).run


def without_python(user):
    """Return variables with a PATH that contains only mlw."""
    place = user.home / "bin"
    place.mkdir(exist_ok=True)
    (place / "mlw").unlink(missing_ok=True)
    (place / "mlw").symlink_to(MLW)
    return {"PATH": str(place)}


# -- prepare and check -----------------------------------------------------------------------------


def test_prepare_reports_python_without_build(user, project):
    done = user.mlw("experiment", "prepare", "-c", "local", "-o", "json", cwd=project)
    assert done.code == 0, done
    report = json.loads(done.out)
    assert (report["run_configuration"], report["target"], report["environment"]) == ("local", "local", "existing")
    assert report["python_because"]
    assert done.err == "nothing to build: target local uses the Python of the machine\n"
    run = user.mlw("submit", "-c", "local", "train.py", cwd=project).run
    assert user.info(run, project)["python"] == report["python"]
    table = user.mlw("experiment", "prepare", "-t", "local", cwd=project)
    assert f"Python version     {report['python_version']}" in table.out


@pytest.mark.parametrize("location", ["/nonexistent/python", "/bin/ls", "nosuchpython"])
def test_prepare_fails_as_submit_does(user, project, location):
    config = project / "aml_config" / "local.compute"
    config.write_text(f"type: local\npythonLocation: {location}\n")
    submitted = user.mlw("submit", "train.py", cwd=project)
    prepared = user.mlw("experiment", "prepare", cwd=project)
    assert prepared.code == submitted.code == 78
    assert prepared.err == submitted.err and "hint: " in prepared.err
    checked = user.mlw("computetarget", "check", "local", cwd=project)
    if location == "/bin/ls":  # the file exists; a check does not start it
        assert checked.code == 0 and "/bin/ls (pythonLocation; not checked)" in " ".join(checked.out.split()), checked
    else:
        assert checked.code == 75
        assert re.search(r"^python +error +pythonLocation", checked.out, re.MULTILINE), checked


def test_prepare_refuses_what_submit_refuses(user, project):
    for options in (("-c", "docker"), ("-t", "docker"), ("-c", "nosuch"), ("-t", "nosuch")):
        prepared = user.mlw("experiment", "prepare", *options, cwd=project)
        submitted = user.mlw("submit", *options, "train.py", cwd=project)
        assert (prepared.code, prepared.err) == (submitted.code, submitted.err)
        assert prepared.code != 0


def test_check_reports_local_target(user, project):
    done = user.mlw("computetarget", "check", "local", "-o", "json", cwd=project)
    assert done.code == 0, done
    rows = {row["what"]: row for row in json.loads(done.out)}
    assert {"system", "python", "store", "processors", "memory"} <= set(rows)
    assert str(user.store) in rows["store"]["found"]
    assert all(row["hint"] for row in rows.values() if row["state"] != "ok")
    checked = user.mlw(
        "computetarget", "check", "local", "-o", "tsv", "--query", "[?what=='python'].state", cwd=project
    )
    assert checked.out == "ok\n"


def test_check_exits_with_75_when_something_needed_is_missing(user, project):
    done = user.mlw("computetarget", "check", "local", cwd=project, env=without_python(user))
    assert done.code == 75, done
    assert re.search(r"^python +error +no Python on PATH", done.out, re.MULTILINE)
    assert "hint: python: install Python, or set pythonLocation" in done.err


def test_check_reports_unusable_unneeded_engine(user, project):
    fake = user.home / "engine"
    fake.mkdir()
    (fake / "docker").write_text("#!/bin/sh\necho permission denied while trying to connect >&2\nexit 1\n")
    (fake / "docker").chmod(0o755)
    env = {"PATH": f"{fake}:{user.env['PATH']}"}
    done = user.mlw("computetarget", "check", "local", cwd=project, env=env)
    assert done.code == 0 and "docker:" not in done.err, done
    message = f"not needed by a target of type local ({fake}/docker cannot be used: permission denied"
    assert message in " ".join(done.out.split())


# -- show, .amb ------------------------------------------------------------------------------------


def test_show_equals_history_show(user, ran):
    project, run = ran
    wait_until((user.folder(run) / "metrics" / "packages").exists, "the list of packages")
    keep = re.compile(r", .* ago|, just now", re.MULTILINE)
    whole = keep.sub("", user.mlw("history", "show", run, cwd=project).out)
    assert whole.startswith(f"{run}\nCompleted")
    assert keep.sub("", user.mlw("show", run, cwd=project).out) == whole
    assert keep.sub("", user.mlw("show", cwd=project).out) == whole, "the newest run if none is named"
    assert user.mlw("show", "-r", run, "-a", "driver_log", cwd=project).out == "hello\n"
    assert user.mlw("show", run[:9], "-o", "tsv", "--query", "run_id", cwd=project).out == f"{run}\n"


def test_submit_with_run_configuration_file_as_script(user, project):
    (project / "aml_config" / "old.amb").write_text("Target: local\nFramework: Python\nArgumentVector: [train.py]\n")
    done = user.mlw("submit", "old.amb", cwd=project)
    assert (done.code, done.out) == (0, "hello\n")
    assert done.err.startswith("hint: .amb is now .runconfig: mlw submit -c old\n")
    for arguments in (("old.amb", "--lr", "1"), ("-c", "local", "local.runconfig")):
        done = user.mlw("submit", *arguments, cwd=project)
        name = arguments[0] if arguments[0] == "old.amb" else arguments[-1]
        assert done.code == 2
        assert f"error: {name} is a run configuration, not a script\nhint: use: mlw submit -c" in done.err


# -- commands of the original ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command_line", "message"),
    [
        (
            "computetarget attach --type cluster -n x",
            "'computetarget attach --type' is now 'computetarget attach cluster'",
        ),
        ("computecontext attach --cluster -n x", "attach --cluster' is now 'computetarget attach cluster'"),
        ("workspace list", "mlw needs no workspace"),
        ("account experimentation create", "mlw needs no account"),
        ("account modelmanagement create", "mlw needs no account"),
        ("hostacct create", "mlw has no model management"),
        ("service create realtime", "mlw has no model management"),
        ("notebook start", "mlw does not start notebooks"),
        ("datasource create", "mlw has no data preparation"),
        ("project update --repo x", "mlw needs no repository"),
        ("project delete -n demo", "mlw does not delete projects"),
        ("project create -n x --template-url http://there", "mlw does not clone repositories"),
    ],
)
def test_removed_commands_explain_alternatives(user, project, command_line, message):
    done = user.mlw(*command_line.split(), cwd=project)
    assert done.code == 2
    assert message in done.err and "hint: " in done.err and "unknown command" not in done.err
    assert "secret" not in done.err


def test_tutorials_of_the_original_can_be_followed(user):
    line = "project create --name old --workspace w --account a --resource-group g --path".split()
    done = user.mlw(*line, str(user.home))
    assert done.code == 0, done
    assert "hint: --workspace is ignored" in done.err and "created project old" in done.err
    assert user.mlw("history", "list", "--path", "old").err.startswith(
        "hint: '--path' is now '--project'\nno runs yet\n"
    )


# -- typing errors ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command_line", "suggestion"),
    [
        ("histroy", "'mlw history'"),
        ("sumbit train.py", "'mlw submit'"),
        ("run train.py", "'mlw submit'"),
        ("prepare", "'mlw experiment prepare'"),
        ("history lst", "'mlw history list'"),
        ("experiment prepair", "'mlw experiment prepare'"),
        ("computetarget chekc", "'mlw computetarget check'"),
        ("runconfiguration creat", "'mlw runconfiguration create'"),
        ("project sampel list", "'mlw project sample'"),
        ("project sample lits", "'mlw project sample list'"),
        ("asset donwload", "'mlw asset download'"),
        ("experimnt submit", "'mlw experiment'"),
        ("experiment submti train.py", "'mlw experiment submit'"),
        ("computetarget atach", "'mlw computetarget attach'"),
        ("environment lsit", "'mlw environment list'"),
        ("doctor gpuu", "'mlw doctor gpu'"),
        ("dcotor", "'mlw doctor'"),
        ("start train.py", "'mlw submit'"),
        ("attach --name x", "'mlw computetarget attach'"),
        ("validate", "'mlw project validate'"),
        ("experiment list", "'mlw history list'"),
        ("history submit train.py", "'mlw submit'"),
        ("computetarget delete x", "'mlw computetarget detach'"),
        ("ml experimnt submit", "'mlw experiment'"),
        ("completion bsh", "bash"),
        ("history list -o jsn", "json"),
        ("doctor --qurey x", "--query"),
        ("submit --detatch train.py", "--detach"),
        ("--hlep", "--help"),
        ("--versoin", "--version"),
        ("history list --outptu json", "--output"),
        ("history list --qurey x", "--query"),
        ("submit --dettach train.py", "--detach"),
        ("project create --tempalte x", "--template"),
        ("experiment cancel --forgte x", "--forget"),
    ],
)
def test_typo_in_command_gets_suggestion(user, command_line, suggestion):
    done = user.mlw(*command_line.split())
    assert done.code == 2
    assert done.err.endswith(f"hint: did you mean {suggestion}?\n"), done
    assert done.out == ""


@pytest.mark.parametrize(
    ("command_line", "suggestion"),
    [
        ("submit -c locla train.py", "'local'"),
        ("submit -t dokcer train.py", "'docker'"),
        ("submit trian.py", "'train.py'"),
        ("computetarget check loca", "'local'"),
        ("project create --name x --template spark", "'spark-sweep'"),
        ("project create --name x --template defualt", "'default'"),
    ],
)
def test_typo_in_name_gets_suggestion(user, project, command_line, suggestion):
    done = user.mlw(*command_line.split(), cwd=project)
    assert done.code == 66, done
    assert done.err.endswith(f"hint: did you mean {suggestion}?\n"), done


@pytest.mark.parametrize("before", ["ml", "az ml"])
def test_original_commands_work_with_their_prefix(user, project, before):
    done = user.mlw(*before.split(), "experiment", "submit", "-c", "local", "train.py", cwd=project)
    assert (done.code, done.out) == (0, "hello\n"), done
    assert done.err.startswith(f"hint: omit '{before}': mlw experiment submit\n")
    older = user.mlw(*before.split(), "execute", "start", "-c", "local", "train.py", cwd=project)
    assert older.code == 0 and older.err.startswith("hint: 'execute start' is now 'experiment submit'\n")


def test_legacy_options_are_not_suggested(user):
    done = user.mlw("project", "create", "--workspac", "x")
    assert done.err == "error: No such option '--workspac'\nhint: see: mlw project create --help\n"


# -- completion ------------------------------------------------------------------------------------


def proposals(user, line, cwd, shell="fish"):
    done = user.mlw(*line.split(" ")[1:], cwd=cwd, env={"_MLW_COMPLETE": shell})
    assert (done.code, done.err) == (0, ""), done
    return [text.partition("\t")[0] for text in done.out.splitlines()]


def test_completion_candidates(user, ran):
    project, run = ran
    (project / "sub").mkdir()
    (project / "sub" / "other.py").touch()
    for line in ("history info ", "history remove ", "logs ", "show de", "project restore --run-id de", "cancel -r "):
        assert proposals(user, f"mlw {line}", project) == [run], line
    assert proposals(user, "mlw submit -c ", project) == ["docker", "local"]
    assert proposals(user, "mlw submit -t lo", project) == ["local"]
    assert proposals(user, "mlw computetarget check ", project) == ["docker", "local"]
    assert proposals(user, "mlw submit ", project) == ["train.py", "sub/other.py"]
    assert proposals(user, "mlw submit -o js", project) == ["json", "jsonc"]
    assert proposals(user, "mlw submit --output=ts", project) == ["--output=tsv"]
    assert proposals(user, "mlw submit --output = ts", project, "bash") == ["tsv"], "bash makes three words of it"
    assert "--dry-run" in proposals(user, "mlw submit --", project)
    assert "--query" in proposals(user, "mlw history list ", project), "where nothing else can follow"
    assert proposals(user, "mlw experiment prep", project) == ["prepare"]
    assert proposals(user, f"mlw submit --project {project} -c lo", user.home) == ["local"]
    assert proposals(user, "mlw nosuch ", project) == []
    completed = user.mlw("submit", "train.py", "", cwd=project, env={"_MLW_COMPLETE": "bash"})
    assert completed.out == "\tfile\n", "the shell knows files better"


def test_completion_is_empty_without_candidates(user, ran):
    project, run = ran
    assert proposals(user, "mlw submit -c ", user.home) == [], "outside of a project"
    other = user.project("other")
    assert proposals(user, "mlw logs ", other) == [], "that project has no runs"
    assert proposals(user, "mlw logs ", user.home) == [run], "outside of projects the runs of all"
    (other / "aml_config" / "project.json").unlink()
    os.mkfifo(other / "aml_config" / "project.json")
    assert proposals(user, "mlw logs ", other) == [run], "a pipe in a project holds nobody up"
    (user.store / "history.db").unlink()
    (user.store / "history.db").mkdir()
    assert proposals(user, "mlw logs ", project) == [], "the history cannot be read"


def test_completion_does_not_import_click_or_commands(user, ran):
    project, run = ran
    code = "import sys\nsys.argv = ['mlw', 'logs', '']\nimport os\nos._exit = lambda code: None\n"
    code += "import mlworkbench.cli.main as main\nmain._complete('fish')\nprint(sorted(sys.modules))"
    done = subprocess.run(
        [MLW.parent / "python", "-c", code], capture_output=True, text=True, cwd=project, env=user.env, timeout=60
    )
    assert done.returncode == 0, done.stderr
    first, _, modules = done.stdout.partition("\n")
    assert first.startswith(run)
    for slow in ("click", "yaml", "rich", "jmespath", "mlworkbench.submission", "mlworkbench.history.store"):
        assert f"'{slow}'" not in modules, slow


KEYS = [
    ("mlw hist\t", "mlw history "),
    ("mlw submit -c lo\t", "mlw submit -c local "),
    ("mlw submit 'my sc\t", "mlw submit 'my script.py' "),
    ("mlw submit my\t", "mlw submit my\\ script.py "),
    ("mlw logs demo\t", "mlw logs RUN "),
    ("mlw submit --output=ta\t", "mlw submit --output=table"),
    ("mlw submit train.py rea\t", "mlw submit train.py readme.md "),
]


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion_in_real_shell(user, ran, shell):
    project, run = ran
    (project / "my script.py").touch()
    (project / "$(touch pwned).py").touch()
    command = [need(shell), *(["--norc", "--noprofile"] if shell == "bash" else ["-f"]), "-i"]
    env = {**user.env, "TERM": "dumb", "MLW_SHELL": shell}
    child = pexpect.spawn(command[0], command[1:], env=env, cwd=str(project), encoding="utf-8", dimensions=(50, 200))
    try:
        child.sendline(
            'PS1="> "; bind "set enable-bracketed-paste off" 2>/dev/null; eval "$(mlw completion $MLW_SHELL)"'
        )
        for number, (typed, shown) in enumerate(KEYS):
            child.sendline(f"echo at''{number}")
            child.expect(f"at{number}\r\n", timeout=60)
            child.send(typed)
            child.expect_exact(shown.replace("RUN", run), timeout=60)
            child.sendcontrol("u")
            child.send("\n")
        child.send('mlw submit "$\t"\n')
        child.sendline("echo at''end")
        child.expect("atend\r\n", timeout=60)
    finally:
        child.close(force=True)
    assert not (project / "pwned").exists()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_omits_names_that_shell_would_expand(user, shell):
    project = user.project("names")
    bad = ["$(touch pwned)", "`id`", "$HOME", 'a"b', "a'b", "a\\b", "a;b", "a\nb", "a\tb", "a\x1bb", "!1", "*"]
    bad += ["~", "#a", "a|b", "{a,b}"]
    good = ["a b", "größe", "x-1_2+3@4,5=6%"]
    for name in (*bad, *good):
        (project / f"{name}.py").touch()
    (project / "train.py").unlink()
    for opened in ("", '"', "'"):
        if opened and shell == "fish":
            continue  # fish removes the quotes itself
        names = proposals(user, f"mlw submit {opened}", project, shell)
        expected = [f"{name}.py" for name in sorted(good)]
        if shell == "bash" and not opened:
            expected = [name.replace(" ", "\\ ") for name in expected]
        assert names == expected


def test_completion_in_fish(user, ran):
    project, run = ran
    (project / "my script.py").touch()
    (user.home / "mlw.fish").write_text(user.mlw("completion", "fish").out)
    shown = {
        "mlw hist": ["history\tList, compare, and manage runs"],
        "mlw submit -c lo": ["local"],
        "mlw submit my": ["my script.py"],
        "mlw logs demo": [f"{run}\tCompleted train.py"],
        "mlw submit --output=ts": ["--output=tsv"],
        "mlw submit train.py rea": ["readme.md"],
    }
    for line, candidates in shown.items():
        code = f"source {user.home}/mlw.fish; complete -C '{line}'"
        done = subprocess.run(
            [need("fish"), "--no-config", "-c", code], capture_output=True, text=True, cwd=project, env=user.env
        )
        assert done.stdout.splitlines() == candidates, done


# -- formats, pipes, terminals ---------------------------------------------------------------------

LISTS = [
    "history list",
    "ps",
    "runconfiguration list",
    "computetarget list",
    "computetarget check local",
    "project validate",
    "project sample list",
    "asset list",
    "experiment clean",
]


@pytest.mark.parametrize("command_line", LISTS)
def test_every_list_has_all_formats(user, ran, command_line):
    project, _ = ran
    for output in ("table", "json", "jsonc", "tsv"):
        done = user.mlw(*command_line.split(), "-o", output, cwd=project)
        assert done.code == 0, done
        if output.startswith("json"):
            assert isinstance(json.loads(done.out), list)
    assert int(user.mlw(*command_line.split(), "-o", "tsv", "--query", "length(@)", cwd=project).out) >= 0
    wrong = user.mlw(*command_line.split(), "--query", "[", cwd=project)
    assert wrong.code == 2 and "incomplete" in wrong.err and "hint: use a JMESPath" in wrong.err


def test_documented_queries(user, project):
    for value in (0.5, 0.9, 0.88):
        (project / "train.py").write_text(LOGS % value)
        assert user.mlw("submit", "train.py", cwd=project).code == 0
    (project / "train.py").write_text("raise SystemExit(3)")
    assert user.mlw("submit", "train.py", cwd=project).code == 3

    def query_list(query):
        return json.loads(user.mlw("history", "list", "-o", "json", "--query", query, cwd=project).out)

    assert query_list("[?status=='Completed'].Accuracy") == [0.88, 0.9, 0.5]
    assert query_list("max_by(@[?Accuracy != null], &Accuracy).Accuracy") == 0.9
    best = query_list("@[?Accuracy != null] | max_by(@, &Accuracy).Accuracy")
    near = query_list(f"@[?Accuracy != null] | [?Accuracy >= `{best - 0.05}`] | sort_by(@, &duration)[].Accuracy")
    assert sorted(near) == [0.88, 0.9]
    near = query_list(f"@[?Accuracy >= sum(`[{best}, -0.05]`)] | sort_by(@, &duration)")
    assert sorted(run["Accuracy"] for run in near) == [0.88, 0.9]
    assert [run["duration"] for run in near] == sorted(run["duration"] for run in near)
    assert len(query_list("[?Accuracy].run_id")) == 3
    assert query_list("sort_by([?Accuracy], &Accuracy)[0].Accuracy") == 0.5
    assert len(query_list("[].run_id")) == 4


@pytest.mark.parametrize(
    "command_line", ["history list", "--help", "history list --help", "computetarget check local", "show"]
)
def test_closed_pipe_is_no_error(user, ran, command_line):
    project, _ = ran
    reader, writer = os.pipe()
    os.close(reader)
    child = user.start(*command_line.split(), cwd=project, stdout=writer)
    os.close(writer)
    err = child.communicate(timeout=60)[1].decode()
    assert child.returncode == 141
    assert "Traceback" not in err and "error" not in err


def on_terminal(user, arguments, cwd, **env):
    out, code = pexpect.run(
        f"{MLW} {arguments}",
        env={**user.env, "TERM": "xterm", **env},
        cwd=str(cwd),
        encoding="utf-8",
        withexitstatus=True,
        timeout=60,
    )
    return out.replace("\r\n", "\n"), code


def test_colors_only_for_terminals_that_support_them(user, ran):
    project, _ = ran
    for line in ("history list", "nosuch", "history list -o jsonc"):
        assert "\x1b[" in on_terminal(user, line, project)[0]
        assert "\x1b[" not in on_terminal(user, line, project, NO_COLOR="1")[0]
        done = user.mlw(*line.split(), cwd=project)
        assert "\x1b[" not in done.out + done.err


def test_narrow_terminal_shows_complete_ids(user, ran):
    project, run = ran
    for line in ("history list", "show", "ps", "computetarget list", "computetarget check local", "--help"):
        out, code = on_terminal(user, line, project, COLUMNS="20", NO_COLOR="1")
        assert code == 0 and "Traceback" not in out
        if line in ("history list", "show"):
            assert f"{'' if line == 'show' else 'Run ID: '}{run}\n" in out


def test_create_takes_the_name_as_argument_or_option(user, tmp_path):
    for arguments in (
        ["one"],
        ["--name", "two"],
        ["-n", "three"],
        ["four", "--name", "four"],
        ["five", "--path", "new/er"],
    ):
        done = user.mlw("project", "create", *arguments, cwd=tmp_path)
        assert done.code == 0 and done.err.startswith("created project "), done
    projects = {
        path.parent.parent.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("aml_config/project.json")
    }
    assert projects == {"one", "two", "three", "four", "new/er/five"}
    without = user.mlw("project", "create", cwd=tmp_path)
    assert without.code == 2 and without.err == "error: missing project name\nhint: run 'mlw project create NAME'\n"
    both = user.mlw("project", "create", "six", "--name", "seven", cwd=tmp_path)
    assert both.code == 2 and "two project names" in both.err


def test_init_reports_detected_files(user, tmp_path):
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text("print('hello')\n")
    (code / "requirements.txt").write_text("numpy==1.26.4\n--extra-index-url https://index.example/simple\n")
    done = user.mlw("project", "init", cwd=code)
    assert (
        done.code == 0
        and "copied from requirements.txt to aml_config/conda_dependencies.yml: numpy==1.26.4" in done.err
    )
    assert "warning: not copied: requirements.txt:2: --extra-index-url https://index.example/simple: " in done.err, done
    path = code / "aml_config" / "conda_dependencies.yml"
    assert path.read_text().endswith("dependencies:\n  - python=3.11\n  - pip:\n    - numpy==1.26.4\n")
    assert user.mlw("project", "validate", cwd=code).code == 0
    before = path.read_text()
    again = user.mlw("project", "init", cwd=code)
    assert again.code != 0 and path.read_text() == before
