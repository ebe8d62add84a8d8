"""Whether a launcher starts a run, with how many processes, and what is missing for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mlworkbench.errors import MlwError, UnknownName, UsageError
from mlworkbench.model import Entry
from mlworkbench.preflight.launcher_rules import find_missing_launcher
from mlworkbench.process_plan import plan_processes
from mlworkbench.submit_request import Request
from tests.unit.test_plan import PARTS

SETTING = PARTS.setting
# --launcher, --processes, GPUs, keys of the run configuration → launcher and number of processes, or the error.
PLANS = [
    ((None, None, None, {}), None),
    ((None, None, "2", {}), None),
    (("torchrun", None, "2", {}), ("torchrun", "gpu")),
    (("torchrun", None, None, {}), ("torchrun", "1")),
    (("torchrun", 4, None, {}), ("torchrun", "4")),
    ((None, None, "none", {"launcher": "mpiexec", "processes_per_node": "3"}), ("mpiexec", "3")),
    ((None, "2", "free", {"launcher": "mpiexec", "processes_per_node": "gpu"}), ("mpiexec", "2")),
    (("none", None, None, {"launcher": "mpiexec"}), None),
    ((None, 4, None, {}), "--processes requires a launcher"),
    (("torchrun", "gpu", None, {}), "one process per GPU requires GPUs"),
    (("torchrun", "gpu", "none", {}), "one process per GPU requires GPUs"),
    (("torchrun", 4, None, {"framework": "PySpark"}), "torchrun cannot start PySpark scripts"),
]


@pytest.mark.parametrize(("given", "expected"), PLANS)
def test_plan(given, expected):
    launcher, processes, gpus, keys = given
    setting = replace(SETTING, runconfig=replace(SETTING.runconfig, **keys))
    request = Request(launcher=launcher, processes=processes)
    if isinstance(expected, str):
        with pytest.raises(UsageError) as raised:
            plan_processes(request, setting, gpus)
        assert raised.value.message == expected
        assert raised.value.hint
    else:
        plan = plan_processes(request, setting, gpus)
        assert (plan and (plan["launcher"], plan["count"])) == expected


def test_a_command_is_not_a_pyspark_script():
    runconfig = replace(SETTING.runconfig, framework="PySpark")
    setting = replace(SETTING, runconfig=runconfig, entry=Entry("command", "./train"))
    assert plan_processes(Request(launcher="mpiexec"), setting, None)["launcher"] == "mpiexec"


@pytest.mark.parametrize("given", [{"launcher": "slurm"}, {"processes": 0}, {"processes": "many"}])
def test_invalid_requests(given):
    with pytest.raises(MlwError) as raised:
        Request(**given).check()
    assert isinstance(raised.value, UnknownName if "launcher" in given else UsageError)


# -- preflight -----------------------------------------------------------------------------------------

MANAGED = {"kind": "managed", "conda": [], "pip": [{"name": "torch", "version": "2.13.0"}]}
# Launcher, lock, compute type, response of the target → part of the message.
MISSING = [
    ("torchrun", MANAGED, "local", None, None),
    ("accelerate", MANAGED, "docker", None, "the environment does not contain accelerate"),
    ("mpiexec", MANAGED, "docker", None, "has no mpiexec"),
    ("mpiexec", MANAGED, "remote", {"ok": True, "found": False}, "c has no mpiexec"),
    ("mpiexec", MANAGED, "remote", {"ok": True, "found": True}, None),
    ("torchrun", {"kind": "existing"}, "remote", {"ok": True, "found": False}, "/usr/bin/python3 on c has no PyTorch"),
    ("torchrun", {"kind": "existing"}, "remote", {"ok": False, "problem": "this version does not support it"}, None),
]


@pytest.mark.parametrize(("launcher", "lock", "type_", "reply", "expected"), MISSING)
def test_missing_launcher(launcher, lock, type_, reply, expected):
    setting = replace(SETTING, lock=lock, compute=replace(SETTING.compute, name="c", type=type_))

    def ask(request):
        assert reply is not None, request
        return reply

    missing = find_missing_launcher(launcher, setting, (), ask)
    if expected is None:
        assert missing is None
    else:
        assert missing.message.startswith(f"{launcher} cannot start the script: ")
        assert expected in missing.message
        assert missing.hint
