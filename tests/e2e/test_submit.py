"""Submitting runs: arguments, environment, endings, and errors."""

from __future__ import annotations

import json
import os
import re
import subprocess

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

REPORT_SCRIPT = """
import json, os, sys
json.dump({"argv": [os.fsencode(a).hex() for a in sys.argv], "cwd": os.getcwd(), "path0": sys.path[0],
           "env": dict(os.environ), "outputs": os.listdir("outputs"), "files": sorted(os.listdir("."))},
          open("outputs/told.json", "w"))
"""


def reported_facts(user, run):
    return json.loads((user.folder(run) / "work" / "outputs" / "told.json").read_text())


@pytest.fixture(scope="module")
def shared_project(tmp_path_factory):
    """A project that many tests submit."""
    from tests.conftest import User

    user = User(tmp_path_factory.mktemp("teller"))
    return user, user.project("demo", train=REPORT_SCRIPT)


# -- arguments -------------------------------------------------------------------------------------

argument_lists = st.lists(
    st.one_of(
        st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12),
        st.sampled_from(
            ["--", "-m", "-c", "--help", "-o", "$HOME", "`id`", "; touch PWNED", "*", "'", '"', "\\", "\n", ""]
        ),
        st.binary(min_size=1, max_size=6).filter(lambda b: b"\0" not in b).map(os.fsdecode),
    ),
    max_size=5,
)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(arguments=argument_lists)
def test_arguments_are_byte_exact(shared_project, arguments):
    user, project = shared_project
    done = user.mlw("submit", "-c", "local", "train.py", *arguments, cwd=project)
    assert done.code == 0, done
    assert reported_facts(user, done.run)["argv"][1:] == [os.fsencode(argument).hex() for argument in arguments]
    assert not (project / "PWNED").exists()


def test_module_command_and_argument_vector(user):
    project = user.project("demo", train=REPORT_SCRIPT, tool="import sys; print(sys.argv[1:])")
    assert user.mlw("submit", "-m", "tool", "--timeout", "1", "-c", "x", cwd=project).out == (
        "['--timeout', '1', '-c', 'x']\n"
    )
    assert user.mlw("submit", "--", "/bin/echo", "--", "-c", "a b", cwd=project).out == "-- -c a b\n"
    config = project / "aml_config" / "local.runconfig"
    config.write_text(
        re.sub(r"(?m)^ArgumentVector:(\n +-.*)+", 'ArgumentVector: ["tool.py", 0.10, "x y"]', config.read_text())
    )
    assert "ArgumentVector: [" in config.read_text()
    for typed in ([], ["local.runconfig"]):
        assert user.mlw("submit", *typed, cwd=project).out == "['0.10', 'x y']\n"
    config.write_text(config.read_text().replace('["tool.py", 0.10, "x y"]', '["$file"]'))
    none = user.mlw("submit", cwd=project)
    assert none.code == 2
    assert "no script specified" in none.err
    assert "hint: run 'mlw submit -c local SCRIPT'" in none.err


def test_script_in_subfolder_imports_siblings_and_root(user):
    project = user.project("demo")
    (project / "code").mkdir()
    (project / "code" / "helper.py").write_text("word = 'sibling'")
    (project / "data.txt").write_text("root")
    (project / "code" / "run me.py").write_text("import helper\nprint(helper.word, open('data.txt').read())")
    assert user.mlw("submit", "code/run me.py", cwd=project).out == "sibling root\n"
    # From inside the folder, and with an absolute path.
    assert user.mlw("submit", "run me.py", cwd=project / "code").out == "sibling root\n"
    assert user.mlw("submit", str(project / "code" / "run me.py"), cwd=project).out == "sibling root\n"


ODD = 'it\'s "odd" $HOME `id` ; touch PWNED &\n\u00e9e\u0301 \u202e\U0001f600 %s {x} #'


def test_unusual_names(user):
    """Quotes, newlines, and shell syntax in the project's path, the script, the run's name, and its tags."""
    user.project("demo")
    project = user.home / ODD
    (user.home / "demo").rename(project)
    folder = project / "a b"
    folder.mkdir()
    (folder / (ODD.replace("/", "") + ".py")).write_text("print('ran')")
    done = user.mlw("submit", "--name", ODD, "--tag", ODD, "--env", f"X={ODD}", f"a b/{ODD}.py", cwd=project)
    assert done.out == "ran\n", done
    record = user.info(done.run)
    assert (record["name"], record["tags"], record["script_name"]) == (ODD, [ODD], f"a b/{ODD}.py")
    assert not list(user.home.rglob("PWNED"))
    listed = user.mlw("history", "list", cwd=project)
    assert "\u202e" not in listed.out


def test_script_named_like_option(user):
    project = user.project("demo")
    (project / "-c.py").write_text("print('ran')")
    assert user.mlw("submit", "./-c.py", cwd=project).out == "ran\n"


# -- environment -----------------------------------------------------------------------------------


def test_environment_variables_match_documentation(user):
    project = user.project("demo", train=REPORT_SCRIPT)
    config = project / "aml_config" / "local.runconfig"
    text = re.sub(
        r"(?m)^EnvironmentVariables:.*(\n +.*)*",
        "EnvironmentVariables:\n  GREETING: hello\n  NUMBER: 010",
        config.read_text(),
    )
    config.write_text(text)
    canary = {
        "AWS_SECRET_ACCESS_KEY": "canary",
        "SSH_AUTH_SOCK": "/canary",
        "PYTHONPATH": "/canary",
        "LD_LIBRARY_PATH": "/lib",
    }
    done = user.mlw("submit", "--env", "EXTRA=a=b c", "train.py", cwd=project, env=canary)
    assert done.code == 0, done
    facts = reported_facts(user, done.run)
    env = facts["env"]
    assert "canary" not in json.dumps(env)
    expected = {
        "PATH",
        "HOME",
        "LANG",
        "LD_LIBRARY_PATH",
        "TMPDIR",
        "GREETING",
        "NUMBER",
        "EXTRA",
        "MLW_ATTEMPT",
        "MLW_CHECKPOINTS",
        "PYTHONUNBUFFERED",
        "PYTHONPATH",
    }
    expected |= {"AZUREML_NATIVE_SHARE_DIRECTORY", "MLFLOW_TRACKING_URI", "MLW_RUN_ID", "MLW_RUN_FOLDER"}
    assert set(env) - {"LC_CTYPE"} == expected  # Python itself sets LC_CTYPE
    assert (env["GREETING"], env["NUMBER"], env["EXTRA"]) == ("hello", "010", "a=b c")
    assert str(user.env["PATH"].split(":")[0]) not in env["PATH"].split(":"), "mlw's own environment stays out"
    assert env["AZUREML_NATIVE_SHARE_DIRECTORY"].endswith("/")
    assert os.path.isdir(env["AZUREML_NATIVE_SHARE_DIRECTORY"])
    assert facts["outputs"] == []
    assert facts["cwd"] == facts["path0"] == str(user.folder(done.run) / "work")


def test_shared_folder_persists_and_stdin_is_empty(user):
    project = user.project(
        "demo",
        train="import os\np = os.environ['AZUREML_NATIVE_SHARE_DIRECTORY'] + 'count'\n"
        "open(p, 'a').write('x')\nprint(open(p).read())\ntry: input()\nexcept EOFError: print('eof')",
    )
    assert user.mlw("submit", "train.py", cwd=project).out == "x\neof\n"
    assert user.mlw("submit", "train.py", cwd=project).out == "xx\neof\n"


def test_secret_reaches_only_the_script(user):
    project = user.project("demo", train="import os\nprint('token is', os.environ['TOKEN'], len(os.environ['TOKEN']))")
    done = user.mlw("submit", "--secret", "TOKEN", "train.py", cwd=project, env={"TOKEN": "hunter2-canary"})
    assert done.code == 0, done
    assert done.out == "token is *** 14\n"
    paths = [path for path in user.store.rglob("*") if path.is_file() and b"hunter2-canary" in path.read_bytes()]
    assert paths == [user.folder(done.run) / "log"], "only the script's own log, which is kept byte for byte"
    again = user.mlw("logs", done.run, env={"TOKEN": "hunter2-canary"})
    assert again.out == "token is *** 14\n"


def test_unknown_secret(user):
    project = user.project("demo", train="print(1)")
    done = user.mlw("submit", "--secret", "TOKEN", "train.py", cwd=project)
    assert done.code == 2
    assert "secret TOKEN not found" in done.err
    assert user.runs() == []


# -- endings ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "code", "status"),
    [
        ("import sys; sys.exit(7)", 7, "Failed (exit 7)"),
        ("import os; os.kill(os.getpid(), 9)", 137, "Failed (signal 9)"),
        ("def f(x):\n  return x + 1\nf('a')", 1, "Failed (exit 1)"),
    ],
)
def test_exit_code_of_script(user, script, code, status):
    project = user.project("demo", train=script)
    done = user.mlw("submit", "train.py", cwd=project)
    assert done.code == code
    assert status in done.err
    assert "Traceback" not in done.err
    if code == 1:
        assert re.search(r"Cause: +TypeError: .* \(train\.py:2\)", done.err), done.err


def test_time_limit(user):
    project = user.project("demo", train="import time; time.sleep(1000)")
    done = user.mlw("submit", "--timeout", "0.3s", "train.py", cwd=project)
    assert done.code == 124
    assert "timeout" in done.err


def test_dry_run_prints_spec_without_effects(user):
    project = user.project("demo", train=REPORT_SCRIPT)
    done = user.mlw("submit", "--dry-run", "--tag", "a", "--name", "first", "train.py", "x", cwd=project)
    spec = json.loads(done.out)
    assert spec["commands"][-1]["argv"][1:] == ["train.py", "x"]
    assert (spec["tags"], spec["name"]) == (["a"], "first")
    assert user.runs() == []


def test_same_key_returns_same_run(user, tmp_path):
    project = user.project("demo", train=f"open({str(tmp_path / 'starts')!r}, 'a').write('x'); print('once')")
    first = user.mlw("submit", "--key", "k1", "train.py", cwd=project)
    second = user.mlw("submit", "--key", "k1", "train.py", cwd=project)
    assert first.run == second.run
    assert first.out == second.out == "once\n"
    assert (tmp_path / "starts").read_text() == "x"
    assert user.mlw("submit", "--key", "k2", "train.py", cwd=project).run != first.run


def test_detach_status_and_cancel(user):
    project = user.project("demo", train="import time; print('up'); time.sleep(1000)")
    done = user.mlw("submit", "--detach", "train.py", cwd=project)
    assert done.code == 0
    run = done.run
    assert run in done.out
    user.mlw("experiment", "status", run, cwd=project)
    listed = json.loads(user.mlw("ps", "-o", "json", cwd=project).out)
    assert [row["run_id"] for row in listed] == [run]
    cancelled = user.mlw("cancel", run[: len("demo-") + 3], cwd=project)
    assert cancelled.code == 0, cancelled
    assert "has ended: Canceled after" in cancelled.err
    assert json.loads(user.mlw("ps", "-o", "json", cwd=project).out) == []
    again = user.mlw("cancel", run, cwd=project)
    assert (again.code, "has already ended" in again.err) == (0, True)


def test_json_output_of_submit(user):
    project = user.project("demo", train="print('log line')")
    done = user.mlw("submit", "-o", "json", "train.py", cwd=project)
    assert json.loads(done.out)["status"] == "Completed"
    assert "log line" in done.err
    assert user.mlw("submit", "-o", "tsv", "--query", "status", "train.py", cwd=project).out == "Completed\n"


def test_runs_are_isolated_and_project_is_unchanged(user):
    project = user.project(
        "demo", train="open('made.txt', 'w'); open('train.py', 'a').write('#'); print(open('train.py').read()[-1])"
    )
    before = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}
    for _ in range(3):
        assert user.mlw("submit", "train.py", cwd=project).out == "#\n"
    assert {path: path.read_bytes() for path in project.rglob("*") if path.is_file()} == before


def test_read_only_project(user):
    project = user.project("demo", train="print('fine')")
    for path in [project, *project.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    assert user.mlw("submit", "train.py", cwd=project).out == "fine\n"


def test_run_submitted_by_a_run(user):
    """A script that submits other runs: canceling it does not cancel them."""
    from tests.conftest import MLW

    inner = "import time; print('inner'); time.sleep(1000)"
    project = user.project("demo", inner=inner)
    (project / "outer.py").write_text(
        "import os, subprocess, sys, time\n"
        f"env = dict(os.environ, MLW_HOME={str(user.store)!r})\n"
        f"subprocess.run([{str(MLW)!r}, 'submit', '--detach', '--key', 'inner', 'inner.py'], env=env, check=True)\n"
        "print('submitted'); time.sleep(1000)\n"
    )
    outer = user.mlw("submit", "--detach", "outer.py", cwd=project)
    from tests.supervisor.conftest import until

    until(lambda: any(row["script_name"] == "inner.py" and row["status"] == "Running" for row in user.runs()))
    user.mlw("cancel", "--grace", "5", outer.run, cwd=project)
    states = {row["script_name"]: row["status"] for row in user.runs()}
    assert states == {"outer.py": "Canceled", "inner.py": "Running"}


# -- bad input -------------------------------------------------------------------------------------

MISTAKES = [
    (["submit", "trian.py"], 66, "unknown script 'trian.py'; available: train.py", "did you mean 'train.py'?"),
    (["submit", "-c", "locla", "train.py"], 66, "'locla'", "did you mean 'local'?"),
    (["submit", "-t", "gpu", "train.py"], 66, "'gpu'", "mlw computetarget attach remotedocker --name gpu"),
    (["submit", "--timeout", "soon", "train.py"], 2, "--timeout: invalid duration 'soon'", "15m"),
    (["submit", "--env", "A", "train.py"], 2, "--env A: the variable is not set", "--env A=VALUE"),
    (["submit", "--env", "A B=1", "train.py"], 2, "'A B' is not a valid variable name", ""),
    (["submit", "-m"], 2, "no module given after -m", ""),
    (["submit", "/etc/passwd"], 2, "/etc/passwd is outside the project", ""),
    (["logs", "nosuch"], 66, "unknown run 'nosuch'", "mlw history list"),
    (["sumbit", "train.py"], 2, "unknown command 'sumbit'", "did you mean 'mlw submit'?"),
    (["submit", "--detatch", "train.py"], 2, "--detatch", "did you mean --detach?"),
    (["history", "list", "--query", "[?"], 2, "", ""),
    (["history", "list", "-o", "xml"], 2, "xml", ""),
    (["cancel"], 2, "no run given", "mlw ps"),
    (["ls", "--json"], 2, "--json", "did you mean -o json?"),
    (["submit", "--cofig", "local", "train.py"], 2, "--cofig", "did you mean -c, --run-configuration?"),
]


@pytest.mark.parametrize(
    ("typed", "code", "message", "hint"), MISTAKES, ids=lambda one: " ".join(one) if isinstance(one, list) else None
)
def test_usage_error(shared_project, typed, code, message, hint):
    user, project = shared_project
    before = len(user.runs())
    done = user.mlw(*typed, cwd=project)
    assert done.code == code, done
    first, *rest = done.err.splitlines()
    assert first.startswith("error: ") and message in first, done.err
    assert hint in "\n".join(rest), done.err
    assert "Traceback" not in done.err
    assert len(user.runs()) == before


def test_submit_outside_project(user):
    done = user.mlw("submit", "train.py")
    assert done.code == 78
    assert "hint: " in done.err


def test_missing_spark(user):
    project = user.project("demo", train="print(1)")
    config = project / "aml_config" / "local.runconfig"
    text = config.read_text()
    for changed in (text.replace("Framework: Python", "Framework: PySpark"), text.replace("Framework: Python", "")):
        assert changed != text
        config.write_text(changed)
        done = user.mlw("submit", "train.py", cwd=project)
        assert done.code == 78
        assert "set Framework: Python in aml_config/local.runconfig" in done.err
    assert user.runs() == []


def test_unattached_cluster_of_project_is_refused(user):
    project = user.project("demo", train="print(1)")
    (project / "aml_config" / "spark.compute").write_text("type: cluster\naddress: 10.0.0.7\n")
    done = user.mlw("submit", "-c", "local", "-t", "spark", "train.py", cwd=project)
    assert done.code == 69
    assert "spark is 10.0.0.7, which you have not attached" in done.err
    assert "mlw computetarget attach cluster --name spark" in done.err


def test_missing_interpreter(user, tmp_path):
    project = user.project("demo", train="print(1)")
    done = user.mlw("submit", "train.py", cwd=project, env={"PATH": str(tmp_path)})
    assert done.code == 78
    assert "pythonLocation" in done.err
    config = project / "aml_config" / "local.compute"
    config.write_text("type: local\npythonLocation: /no/such/python\n")
    done = user.mlw("submit", "train.py", cwd=project)
    assert done.code == 78
    assert "/no/such/python" in done.err


def test_full_store(user, tmp_path):
    if os.getuid() != 0:
        pytest.skip("mounting a small disk needs root")
    project = user.project("demo", train="print(1)")
    (project / "big.bin").write_bytes(os.urandom(8_000_000))
    user.store.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m,mode=700", "tmpfs", str(user.store)], check=True)
    try:
        done = user.mlw("submit", "train.py", cwd=project)
        assert done.code != 0
        assert done.err.startswith("error: ") and "Traceback" not in done.err, done
        (project / "big.bin").unlink()
        assert user.mlw("submit", "train.py", cwd=project).out == "1\n"
    finally:
        subprocess.run(["umount", "-l", str(user.store)], check=True)


# -- problems of new users -------------------------------------------------------------------------


def test_8_tb_file_is_refused_immediately(user):
    """A sparse file, whose zeros submit would otherwise read for hours."""
    root = user.project("holes")
    (root / "train.py").write_text("print(1)\n")
    with open(root / "huge.bin", "wb") as file:
        file.truncate(8 << 40)
    done = user.mlw("submit", "-c", "local", "train.py", cwd=root)
    assert done.code == 74
    assert "huge.bin has 8.8 TB" in done.err
    assert ".mlwignore" in done.err
    (root / ".mlwignore").write_text("huge.bin\n")
    assert user.mlw("submit", "-c", "local", "train.py", cwd=root).code == 0


def test_key_is_bound_to_project_and_arguments(user):
    first_project, second_project = user.project("one", train="print('one')"), user.project("two", train="print('two')")
    first = user.mlw("submit", "--key", "k", "train.py", cwd=first_project)
    assert user.mlw("submit", "--key", "k", "train.py", cwd=second_project).out == "two\n"
    again = user.mlw("submit", "--key", "k", "train.py", cwd=first_project)
    assert "note: this key was submitted before" in again.err
    other = user.mlw("submit", "--key", "k", "train.py", "--lr", "1", cwd=first_project)
    assert other.code == 2
    assert f"key 'k' belongs to run {first.run}, which ran: train.py" in other.err


def test_cause_contains_no_secrets(user):
    project = user.project("demo")
    arguments = ["submit", "--secret", "TOKEN", "--", "sh", "-c", "echo bad $TOKEN; exit 3"]
    done = user.mlw(*arguments, cwd=project, env={"TOKEN": "hunter2-canary"})
    assert "Cause:     exit code 3; last line: bad ***" in done.err
    names = [path.name for path in user.store.rglob("*") if path.is_file() and b"hunter2-canary" in path.read_bytes()]
    assert names == ["log"]


def test_diverged_run_does_not_break_queries(user):
    project = user.project("demo", train="import sys\nfrom mlworkbench import log\nlog('loss', float(sys.argv[1]))")
    runs = [user.mlw("submit", "train.py", value, cwd=project).run for value in ("0.5", "nan", "0.3", "inf")]
    best = user.mlw("history", "list", "--query", "min_by([?loss], &loss).run_id", "-o", "tsv", cwd=project)
    assert best.out.strip() == runs[2]
    assert user.info(runs[1])["loss"] == "NaN"
    infinite = user.mlw("history", "info", runs[3], "--query", "metrics.loss", "-o", "json", cwd=project)
    assert json.loads(infinite.out) == "Infinity"
    listed = json.loads(user.mlw("history", "list", "-o", "json", cwd=project).out)
    assert {run["run_id"]: run["loss"] for run in listed} == dict(zip(runs, [0.5, "NaN", 0.3, "Infinity"], strict=True))
    series = json.loads(user.mlw("history", "metrics", runs[1], "loss", "-o", "json", cwd=project).out)["metrics"]
    assert [point["value"] for point in series["loss"]] == ["NaN"]
    wrong = user.mlw("history", "list", "--query", "max_by(@, &loss)", cwd=project)
    assert wrong.code == 2
    assert "[?loss]" in wrong.err


def test_metrics_named_like_record_fields(user):
    project = user.project(
        "demo", train="from mlworkbench import log\nlog('status', 3.5); log('duration', 1); log('f1', 0.5)"
    )
    done = user.mlw("submit", "train.py", cwd=project)
    record = user.info(done.run)
    assert record["status"] == "Completed"
    assert record["metrics"] == {"status": 3.5, "duration": 1, "f1": 0.5}
    header = user.mlw("history", "list", cwd=project).out.splitlines()[0].split()
    assert header.count("Status") == 1
    assert "f1" in header, "metrics keep their names"


def test_ignored_script_is_reported_before_run(user):
    project = user.project("demo", train="print(1)", secret_sauce="print(2)")
    (project / ".gitignore").write_text("secret*\n")
    done = user.mlw("submit", "secret_sauce.py", cwd=project)
    assert done.code == 2
    assert "secret_sauce.py is excluded by an ignore file" in done.err
    (project / ".mlwignore").write_text("!/secret_sauce.py\n")
    assert user.mlw("submit", "secret_sauce.py", cwd=project).out == "2\n"


def test_default_exclusions_print_note_not_warning(user):
    root = user.project(train="print(1)")
    (root / "venv").mkdir()
    (root / "venv" / "pyvenv.cfg").touch()
    for _ in range(2):  # the second command uses the snapshot cache
        done = user.mlw("submit", "--dry-run", "train.py", cwd=root)
        assert done.code == 0 and "warning:" not in done.err, done
        assert done.err.count("\nnote: 1 folder excluded by default") + done.err.startswith("note: 1 folder") == 1, done


def test_commands_that_cannot_start_are_explained(user):
    project = user.project("demo")
    (project / "ok.sh").write_text("#!/bin/sh\necho fine\n")
    (project / "crlf.sh").write_text("#!/bin/sh\r\necho fine\r\n")
    for name in ("ok.sh", "crlf.sh"):
        (project / name).chmod(0o755)
    assert user.mlw("submit", "--", "./ok.sh", cwd=project).out == "fine\n"
    assert "the project contains it: use ./ok.sh" in user.mlw("submit", "--", "ok.sh", cwd=project).err
    assert "ends with a carriage return" in user.mlw("submit", "--", "./crlf.sh", cwd=project).err
    shell = user.mlw("submit", "ok.sh", cwd=project)
    assert (shell.code, "mlw submit -- ./ok.sh" in shell.err) == (2, True)


def test_every_stopped_run_has_a_cause(user):
    project = user.project("demo", train="import time; time.sleep(1000)")
    done = user.mlw("submit", "--timeout", "0.2s", "train.py", cwd=project)
    assert "Cause:     stopped after the time limit of 0.2 s" in done.err
    run = user.mlw("submit", "--detach", "train.py", cwd=project).out.strip()
    user.mlw("cancel", run, cwd=project)
    assert user.info(run)["cause"].endswith("with mlw cancel")


def test_detach_prints_only_run_id(user):
    project = user.project("demo", train="print(1)")
    done = user.mlw("submit", "--detach", "train.py", cwd=project)
    assert done.out == f"{done.run}\n"
    assert f"follow: mlw logs -f {done.run}" in done.err


def test_unique_part_of_run_id(user):
    project = user.project("demo", train="print(1)")
    runs = [user.mlw("submit", "train.py", cwd=project).run for _ in range(3)]
    assert user.mlw("logs", runs[0][-4:], cwd=project).out == "1\n"
    several = user.mlw("logs", "demo", cwd=project)
    assert several.code == 66
    assert "error: 'demo' matches several runs: " in several.err
    assert all(run in several.err for run in runs)


def test_init_in_folder_with_code(user):
    folder = user.home / "my code"
    folder.mkdir()
    (folder / "main.py").write_text("print('mine')")
    assert "mlw project init" in user.mlw("submit", "main.py", cwd=folder).err
    assert user.mlw("project", "init", cwd=folder).code == 0
    assert user.mlw("submit", "main.py", cwd=folder).out == "mine\n"
    assert sorted(path.name for path in folder.iterdir()) == [".mlwignore", "aml_config", "main.py"]
    assert user.mlw("project", "init", cwd=folder).code == 2


def test_validate_reports_missing_interpreter(user):
    project = user.project("demo")
    (project / "aml_config" / "local.compute").write_text("type: local\npythonLocation: .venv/bin/python\n")
    done = user.mlw("project", "validate", cwd=project)
    assert done.code == 1
    assert ".venv/bin/python" in done.out


def test_mlw_without_arguments_and_common_command_names(user):
    bare = user.mlw()
    assert (bare.code, bare.out.startswith("Usage: mlw")) == (0, True)
    assert "did you mean 'mlw submit'?" in user.mlw("run", "train.py").err
    assert "did you mean 'mlw project init'?" in user.mlw("init").err
