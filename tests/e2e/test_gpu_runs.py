"""GPUs as a user sees them, on a laptop whose GPUs are not there: what is asked, shown, judged and found again."""

from __future__ import annotations

import json
import os
import re

import pytest

from tests.e2e.elsewhere import Away
from tests.e2e.package_index import wheel
from tests.e2e.test_environment import manage
from tests.machines.channel import depend
from tests.machines.network import wait_until
from tests.machines.nvml import USE_GPU, FakeGpus

GIB = 1 << 30
BUSY = USE_GPU + "use_gpu(memory=3 << 30, utilisation=90)\nimport time; time.sleep(1.5)\n"
UNTIL_TOLD = "import os, time\nwhile not os.path.exists(os.environ['DOOR']): time.sleep(0.02)\n"


@pytest.fixture
def gpus(user, tmp_path):
    made = FakeGpus(tmp_path)
    made.uuid = made.add(f"GPU-{os.urandom(6).hex()}", memory=(16 * GIB, 0), name="NVIDIA H200", utilisation=0)
    path = f"{made.bin}:{user.env['PATH']}"
    user.env.update(made.env_nvml_only, PATH=path, DOOR=str(tmp_path / "door"))
    return made


def variables(user):
    return [word for name in ("MLW_FAKE_GPUS", "DOOR") for word in ("--env", f"{name}={user.env[name]}")]


def test_a_run_with_a_gpu_from_the_first_line_to_the_list(user, gpus):
    root = user.project(train=BUSY, cpu="print('hello')\nimport time; time.sleep(1.5)\n")
    done = user.mlw("submit", "--gpus", "1", *variables(user), "train.py", cwd=root)
    assert done.code == 0, done
    assert "GPU 0: NVIDIA H200, compute capability 9.0, memory clock 3.2 GHz, PCI bus id " in done.err
    assert "total memory 16.00 GiB, free memory 16.00 GiB" in done.err
    assert "GPU used:  yes – NVIDIA H200, " in done.err
    found = user.info(done.run)
    assert (found["gpus"], found["gpu"]["used"]) == ("1", "yes")
    assert found["gpu"]["got"]["gpus"][0]["uuid"] == gpus.uuid
    assert found["gpu"]["gpus"][0]["peak_memory"] == 3 * GIB

    idle = user.mlw("submit", "--gpus", "h200", *variables(user), "cpu.py", cwd=root)
    assert "GPU used:  no – no process of the run opened a GPU" in idle.err, idle
    assert "GPU cause: " in idle.err
    assert "Remedy:" in idle.err
    shown = user.mlw("history", "info", idle.run, cwd=root)
    assert "no – no process of the run opened a GPU" in shown.out

    listed = user.mlw("history", "list", cwd=root)
    assert "gpu" in listed.out.lower().splitlines()[0]
    assert re.search(r" yes \d+ %", listed.out), listed
    asked = user.mlw("history", "list", "--where", 'gpu = "no"', "-o", "json", cwd=root)
    assert [one["run_id"] for one in json.loads(asked.out)] == [idle.run]


def test_a_queue_of_two_without_a_client(user, gpus):
    root = user.project(wait=UNTIL_TOLD, train="print('my turn')\n")
    first = user.mlw("submit", "--detach", "--gpus", "all", *variables(user), "wait.py", cwd=root)
    second = user.mlw("submit", "--detach", "--gpus", "1", "train.py", cwd=root)
    held = f"GPU 0 held by run {first.run}"
    wait_until(lambda: user.info(second.run)["detail"] == held, "the second run waits for the first")
    assert user.info(second.run)["status"] == "Queued"
    listed = user.mlw("ps", cwd=root)
    assert f"Queued (GPU 0 held by run {first.run})" in " ".join(listed.out.split()), listed
    third = user.mlw("submit", "--detach", "--gpus", "1", "train.py", cwd=root)
    done = user.mlw("cancel", third.run, cwd=root)
    assert "Canceled" in done.err, done
    open(user.env["DOOR"], "w").close()
    events = user.folder(second.run) / "events.jsonl"
    wait_until(lambda: '"finished"' in events.read_text(), "the second run starts by itself, and nobody asks")
    assert user.info(second.run)["status"] == "Completed"


def test_whoever_follows_is_told_what_a_run_waits_for(user, gpus):
    root = user.project(wait=UNTIL_TOLD, train="print('my turn')\n")
    first = user.mlw("submit", "--detach", "--gpus", "all", *variables(user), "wait.py", cwd=root)
    wait_until(lambda: user.info(first.run)["status"] == "Running", "the first runs")
    process = user.start("submit", "--gpus", "1", "train.py", cwd=root)
    line = next(line for line in iter(process.stderr.readline, b"") if line.startswith(b"queued"))
    assert line.decode() == f"queued: GPU 0 held by run {first.run}\n"
    open(user.env["DOOR"], "w").close()
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, b"my turn\n"), err


def test_the_key_of_a_run_configuration(user, gpus):
    root = user.project(train="import os; print(os.environ['CUDA_VISIBLE_DEVICES'])\n")
    place = root / "aml_config" / "local.runconfig"
    place.write_text(place.read_text().replace("#Gpus: 1", "Gpus: 1"))
    done = user.mlw("submit", "-c", "local", "train.py", cwd=root)
    assert done.out == gpus.uuid + "\n", done
    done = user.mlw("submit", "-c", "local", "--gpus", "none", "train.py", cwd=root)
    assert done.out == "\n", done
    place.write_text(place.read_text().replace("Gpus: 1", "Gpus: 0"))
    done = user.mlw("submit", "-c", "local", "train.py", cwd=root)
    assert done.code != 0
    assert "use none for no GPU" in done.err, done


@pytest.mark.parametrize(
    ("typed", "words"), [("0", "0, (with a comma)"), ("1:2", "twice"), ("$(id)", "not a valid GPU request")]
)
def test_mistakes_are_told_before_anything_happens(user, typed, words):
    root = user.project(train="")
    done = user.mlw("submit", "--gpus", typed, "train.py", cwd=root)
    assert done.code == 2, done
    assert words in done.err
    assert "hint: for example: 2, all, none" in done.err
    assert user.runs() == []


def test_more_gpus_than_there_are(user, gpus):
    root = user.project(train="")
    done = user.mlw("submit", "--gpus", "4", "train.py", cwd=root)
    assert done.code != 0
    assert "the target cannot provide 4 GPUs; it has 1 GPU: 0 NVIDIA H200 (16.0 GiB)" in done.err


def test_a_queue_elsewhere_goes_on_without_contact(laptop, machine):
    """The laptop is cut off while the run waits; the run starts by itself, and its verdict and samples come home."""
    host = machine()
    made = FakeGpus(host.home)
    made.add(f"GPU-{os.urandom(6).hex()}", memory=(16 * GIB, 0), name="NVIDIA H200", utilisation=0)
    for path in [made.folder, *made.folder.rglob("*")]:
        os.chown(path, host.uid, host.uid)
    start_file = host.home / ".bashrc"
    exports = "".join(f"export {name}={value}\n" for name, value in made.env_nvml_only.items())
    start_file.write_text(exports + (start_file.read_text() if start_file.exists() else ""))
    away = Away(laptop, host)
    gpus = ("--env", f"MLW_FAKE_GPUS={made.state}")
    away.write("first.py", "import os, time\nwhile not os.path.exists(os.path.expanduser('~/go')): time.sleep(0.02)\n")
    away.write("second.py", BUSY + "print('my turn')\n")
    first = away.detach("--gpus", "all", "first.py")
    second = away.detach("--gpus", "1", *gpus, "second.py")
    wait_until(lambda: away.laptop.info(second)["status"] == "Queued", "the second run waits")
    assert away.laptop.info(second)["detail"] == f"GPU 0 held by run {first}"
    host.cut()
    away.let_go()
    away.await_end(second)
    assert away.laptop.info(second)["status"] == "Queued", "nobody could tell otherwise"
    host.heal()
    done = away.mlw("logs", "-f", second)
    assert (done.code, done.out) == (0, "my turn\n"), done
    assert "GPU 0: NVIDIA H200, compute capability 9.0" in done.err
    assert "GPU used:  yes – NVIDIA H200" in done.err
    assert (away.laptop.folder(second) / "gpu.jsonl").read_bytes() == (away.there(second) / "gpu.jsonl").read_bytes()


def test_a_build_without_gpu_support_in_an_environment_of_ours_is_the_cause(user, gpus, channel):
    """The packages that were installed for the run are looked at, not those of the machine."""
    root = user.project(train="import torch, time\ntime.sleep(1.5)\n")
    wheel(root, "torch", "2.9.0+cpu", "here")
    depend(root, channel, "./torch-2.9.0+cpu-py3-none-any.whl")
    manage(root, "local")
    done = user.mlw("submit", "--gpus", "1", *variables(user), "train.py", cwd=root)
    assert done.code == 0, done
    assert "GPU used:  no" in done.err and "torch 2.9.0+cpu" in done.err and "Remedy:" in done.err, done
