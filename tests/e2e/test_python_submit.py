"""Python programs that submit runs: end to end, in an event loop, in threads, and with errors."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.conftest import MLW

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "submit-from-python.md"
TRAIN = """
import argparse, os, time
import mlworkbench

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--sleep", type=float, default=0)
asked = parser.parse_args()
print("lr", asked.lr, os.environ.get("TOKEN", ""), flush=True)
for step in range(3):
    mlworkbench.log("loss", asked.lr * (3 - step), step=step)
time.sleep(asked.sleep)
open("outputs/model.txt", "w").write("weights")
"""


@pytest.fixture
def project(user):
    return user.project("demo", train=TRAIN)


def python(user, project, code, **env):
    """Run a program without a terminal, and return the JSON that it prints."""
    done = subprocess.run(
        [MLW.parent / "python", "-c", code],
        cwd=project,
        env={**user.env, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == "", "nothing but what the program prints itself"
    return json.loads(done.stdout)


def test_submit_follow_metrics_download(user, project):
    result = python(
        user,
        project,
        """
import json, mlworkbench
from mlworkbench import Request
lines = []
request = Request("train.py", ["--lr", 0.5], configuration="local", name="first", tags=["a"], key="k",
                  environment={"X": "1"}, secrets={"TOKEN": "sesame-open"})
assert "sesame" not in repr(request)
run = mlworkbench.submit(".", request, progress=lines.append)
log = list(run.logs(follow=True))
record = run.wait()
again = mlworkbench.submit(".", request)
points = run.metrics("loss")["loss"]
print(json.dumps({
    "id": run.id, "same": again.id, "lines": lines, "log": log, "status": run.status(), "final": run.status().final,
    "record": [record.id, record.status, record.name, record.tags], "steps": list(points.steps),
    "values": list(points.values), "outputs": [[one.path, one.size] for one in run.outputs()],
    "to": str(run.download("results")), "again": str(run.download("results")), "log_again": list(again.logs()),
    "by_part": mlworkbench.get_run(run.id[:-1]).id, "repr": repr(run), "given": dict(record.spec.given)}))
""",
    )
    run = result["id"]
    assert result["same"] == result["by_part"] == run and result["lines"][0] == f"RunId: {run}"
    assert result["log"] == result["log_again"] == ["lr 0.5 ***"]
    assert (result["status"], result["final"]) == ("Completed", True)
    assert result["record"] == [run, "Completed", "first", ["a"]] and result["given"] == {"X": "1"}
    assert (result["steps"], result["values"]) == ([0, 1, 2], [1.5, 1.0, 0.5])
    assert result["outputs"] == [["model.txt", 7]] and result["to"] == result["again"] == "results"
    assert (project / "results" / "model.txt").read_text() == "weights"
    assert result["repr"] == f"<RunHandle {run}>"
    assert [row["run_id"] for row in user.runs()] == [run]


def test_submit_in_running_event_loop(user, project):
    """As in a notebook, submit in the thread of the event loop and wait in another thread."""
    result = python(
        user,
        project,
        """
import asyncio, json, signal, mlworkbench
from mlworkbench import Request
before = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)]
async def main():
    run = mlworkbench.submit(".", Request("train.py", configuration="local"))
    ticks = 0
    other = asyncio.create_task(asyncio.to_thread(run.wait, 60))
    while not other.done():
        ticks += 1
        await asyncio.sleep(0.01)
    return ticks, (await other).status, list(run.logs())
ticks, status, log = asyncio.run(main())
after = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)]
print(json.dumps({"ticks": ticks, "status": status, "log": log, "same": before == after}))
""",
    )
    assert result["ticks"] > 1 and result["status"] == "Completed" and result["log"] == ["lr 0.1 "] and result["same"]


def test_parallel_submits_from_threads(user, project):
    result = python(
        user,
        project,
        """
import json, mlworkbench
from concurrent.futures import ThreadPoolExecutor
from mlworkbench import Request
def one(number):
    request = Request("train.py", ["--lr", number], configuration="local", key=f"k{number % 3}" if number > 3 else None)
    run = mlworkbench.submit(".", request if number <= 3 else Request("train.py", configuration="local", key="same"))
    return run.id, run.wait(60).status, list(run.logs())
with ThreadPoolExecutor(6) as pool:
    found = list(pool.map(one, range(1, 7)))
handle = mlworkbench.get_run(found[0][0])
with ThreadPoolExecutor(4) as pool:
    shared = list(pool.map(lambda _: handle.status(), range(8)))
print(json.dumps([found, shared]))
""",
    )
    ids, shared = result
    assert {status for _, status, _ in ids} == {"Completed"} and set(shared) == {"Completed"}
    assert [log for _, _, log in ids[:3]] == [[f"lr {number}.0 "] for number in (1, 2, 3)]
    assert len({run for run, _, _ in ids[:3]}) == 3
    assert len({run for run, _, _ in ids[3:]}) == 1, "one key is one run, whichever thread is first"
    assert len(user.runs()) == 4


def test_wait_timeout_and_cancel(user, project):
    result = python(
        user,
        project,
        """
import json, time, mlworkbench
from mlworkbench import Request
run = mlworkbench.submit(".", Request("train.py", ["--sleep", 600], configuration="local"))
begin = time.monotonic()
try:
    run.wait(timeout=0.5)
except TimeoutError as error:
    took, told = time.monotonic() - begin, [type(error).__name__, error.message, error.hint]
ended = run.cancel(grace=5)
print(json.dumps({"id": run.id, "took": took, "told": told, "status": ended.status, "again": run.cancel().status}))
""",
    )
    assert result["told"][0] == "WaitTimeout" and result["told"][1].startswith(
        f"run {result['id']} has not ended after 0.5 s"
    )
    assert "cancel()" in result["told"][2] and 0.5 <= result["took"] < 30
    assert result["status"] == result["again"] == "Canceled"


def test_sweep_and_its_children(user, project):
    result = python(
        user,
        project,
        """
import json, mlworkbench
from mlworkbench import History, Request, SweepOptions
sweep = SweepOptions(["lr=0.1,0.2"], parallel=2, metric="loss")
run = mlworkbench.submit(".", Request("train.py", configuration="local", sweep=sweep))
run.wait(60)
children = History().list(parent=run.id)
print(json.dumps([[one.status, one.spec.varied] for one in children]))
""",
    )
    assert sorted(child[1]["lr"] for child in result) == ["0.1", "0.2"] and {child[0] for child in result} == {
        "Completed"
    }


def test_errors_have_hints_and_suggestions(user, project):
    run = user.mlw("submit", "-c", "local", "train.py", cwd=project).run
    wrong = run[:-1] + ("x" if run[-1] != "x" else "y")
    result = python(
        user,
        project,
        """
import json, sys, mlworkbench
from mlworkbench import Request, errors
found = []
def failing(call):
    try:
        call()
    except errors.MlwError as error:
        found.append([type(error).__name__, error.message, error.hint])
failing(lambda: mlworkbench.get_run(WRONG))
failing(lambda: mlworkbench.submit(".", Request("trian.py", configuration="local")))
failing(lambda: mlworkbench.submit(".", Request("train.py", gpus="a:b:c", configuration="local")))
failing(lambda: mlworkbench.submit(".", Request("train.py", secrets=["NOT_SET_ANYWHERE"], configuration="local")))
failing(lambda: Request("train.py", arguments="--lr 1"))
failing(lambda: mlworkbench.submit(".", Request("train.py", module="x")))
failing(lambda: mlworkbench.submit("/", Request("train.py")))
print(json.dumps(found))
""".replace("WRONG", repr(wrong)),
    )
    stderr = user.mlw("logs", wrong, cwd=project).err
    kinds = ["UnknownName", "UnknownName", "UsageError", "UsageError", "UsageError", "UsageError", "ConfigError"]
    assert [error[0] for error in result] == kinds
    assert f"error: {result[0][1]}\nhint: {result[0][2]}\n" == stderr and run in result[0][2], (
        "as the command line says it"
    )
    assert "train.py" in result[1][2] and all(error[2] for error in result)
    assert "NOT_SET_ANYWHERE" in result[3][1] and len(user.runs()) == 1, "nothing was recorded"


REMOTE = """
import json, os, subprocess, time, mlworkbench
from concurrent.futures import ThreadPoolExecutor
from mlworkbench import Request, errors

def failing(call):
    try:
        call()
    except errors.MlwError as error:
        return [type(error).__name__, error.message]

run = mlworkbench.submit(".", Request("work.py", ["first", "--ticks"], target="box"))
lines = run.logs(follow=True)
first = next(lines)
begin = time.monotonic()
late = failing(lambda: run.wait(timeout=0.5))
took = time.monotonic() - begin
early = failing(lambda: run.outputs())
open(GO, "w").close()
log = [first, *lines]
record = run.wait(timeout=60)
os.unlink(GO)
with ThreadPoolExecutor(3) as pool:
    runs = list(pool.map(lambda key: mlworkbench.submit(".", Request("work.py", [key], target="box")), "abc"))
    ends = list(pool.map(lambda one: one.wait(90).status, runs))
    outputs = [[one.path, one.size] for one in run.outputs()]
to = run.download("results")
long = mlworkbench.submit(".", Request(command="sleep", arguments=["600"], target="box"))
canceled = long.cancel(grace=1).status
print(json.dumps([late, took, early, log[-1], record.status, ends, outputs, str(to), canceled]))
"""


def test_submit_to_remote_machine(shared_target):
    remote = shared_target()
    code = REMOTE.replace("GO", repr(str(remote.host.home / "go")))
    late, took, early, last, status, ends, outputs, to, canceled = python(remote.laptop, remote.project, code)
    assert late[0] == "WaitTimeout" and took < 4, "a question that the machine holds back does not outlast the timeout"
    assert early[0] == "UsageError" and "has not finished; its outputs are on box" in early[1]
    assert last == "first 19" and status == "Completed" and set(ends) == {"Completed"}
    assert outputs == [["result.txt", 5000]] and to == "results"
    assert (remote.project / "results" / "result.txt").read_text() == "first" * 1000
    assert canceled == "Canceled"


def test_failed_submit_is_resumed_by_key_in_same_process(user, project):
    """The submitting process stays alive, so the run does not count as interrupted."""
    result = python(
        user,
        project,
        """
import json, mlworkbench
from mlworkbench import Request, errors
from mlworkbench.targets.target import Target
request = Request("train.py", configuration="local", key="k")
launch = Target.launch
def fail(*words, **more):
    raise errors.HostError("the cable is cut")
Target.launch = fail
try:
    mlworkbench.submit(".", request)
except errors.HostError as error:
    hint = error.hint
Target.launch = launch
run = mlworkbench.submit(".", request)
print(json.dumps([run.id, hint, run.wait(60).status]))
""",
    )
    run, hint, status = result
    assert f"mlw experiment resume {run}" in hint and status == "Completed"
    assert [row["run_id"] for row in user.runs()] == [run]


@pytest.mark.parametrize(
    "first",
    ["import mlworkbench.submission", "import mlworkbench; mlworkbench.submit", "import mlworkbench.runs.handle"],
)
def test_submit_is_importable_in_any_import_order(user, project, first):
    code = f"{first}\nimport json, mlworkbench, mlworkbench.submission\nfrom mlworkbench import submit, Request\n"
    code += "assert submit is mlworkbench.submit and callable(submit)\n"
    code += "run = mlworkbench.submit('.', Request('train.py', configuration='local'))\n"
    code += "print(json.dumps(run.wait(60).status))"
    assert python(user, project, code) == "Completed"


def test_run_library_has_no_submit(user, project):
    """Inside a run, ``mlworkbench`` is the run library. Other modules of an installed package can still be imported."""
    code = "import json, mlworkbench\nassert callable(mlworkbench.log)\nimport mlworkbench.submission\n"
    code += "print(json.dumps([hasattr(mlworkbench, name) for name in ('submit', 'Request', 'submission')]))"
    inrun = Path(__file__).parents[2] / "src" / "mlworkbench" / "remote" / "inrun"
    assert python(user, project, code, PYTHONPATH=str(inrun), MLW_TRACKING="off") == [False, False, True]


def test_import_loads_few_modules(user, project):
    code = (
        "import json, sys, mlworkbench, mlworkbench as m\nhasattr(m, 'nothing')\nprint(json.dumps(sorted(sys.modules)))"
    )
    ours = [name for name in python(user, project, code) if name.startswith("mlworkbench")]
    assert ours == ["mlworkbench", "mlworkbench.version"]


def examples():
    return re.findall(r"^```python\n(.*?)```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def test_every_example_on_page_runs(user, project):
    """All examples run in the order of the page, in one program, as in a notebook."""
    assert len(examples()) >= 6
    code = "import contextlib, io\nwith contextlib.redirect_stdout(io.StringIO()) as printed:\n"
    code += "".join(f"    {line}\n" for text in examples() for line in text.splitlines())
    result = python(user, project, code + "import json\nprint(json.dumps(printed.getvalue()))", HF_TOKEN="hf_secret")
    assert "Completed" in result and "Canceled" in result and "lr" in result and "hf_secret" not in result
    assert (project / "results" / "model.txt").read_text() == "weights"
