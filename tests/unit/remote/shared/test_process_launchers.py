"""Commands of process launchers, for each launcher."""

from __future__ import annotations

import pytest

from mlworkbench.remote.shared.process_launchers import launch_command, launch_variables, parse_process_count

PARENT = "/py -E -s -S /lib/mlworkbench/_launch/rank_parent.py /py train.py --lr 0.1"
MPIEXEC = "/py -E -s -S /lib/mlworkbench/_launch/mpiexec.py"
ACCELERATE = "/py -m accelerate.commands.launch --num_processes {} --num_machines 1 --mixed_precision no"
ACCELERATE += " --dynamo_backend no --main_process_port 0"
COMMANDS = {
    ("torchrun", 4, False): f"/py -m torch.distributed.run --standalone --nproc_per_node 4 --no_python {PARENT}",
    ("mpiexec", 4, False): f"{MPIEXEC} --python 4 {PARENT}",
    ("mpiexec", 4, True): f"{MPIEXEC} --container --python 4 {PARENT}",
    ("accelerate", 4, False): f"{ACCELERATE.format(4)} --multi_gpu --no_python {PARENT}",
    ("accelerate", 1, False): f"{ACCELERATE.format(1)} --no_python {PARENT}",
}


@pytest.mark.parametrize(("launcher", "count", "contained"), COMMANDS)
def test_command(launcher, count, contained):
    processes = {"launcher": launcher, "count": "gpu", "python": "/py", "library": "/lib"}
    command = launch_command(processes, count, contained, ["/py", "train.py", "--lr", "0.1"])
    assert " ".join(command) == COMMANDS[launcher, count, contained]


def test_other_programs_than_python():
    processes = {"launcher": "mpiexec", "count": "2", "python": "/py", "library": "/lib"}
    command = launch_command(processes, 2, False, ["./train", "--lr"])
    assert " ".join(command) == f"{MPIEXEC} 2 {PARENT.partition(' /py train')[0]} ./train --lr"


def test_variables():
    """Ranks connect to the loopback address, not to the host name."""
    assert launch_variables("torchrun", False) == launch_variables("torchrun", True) == {"PET_LOCAL_ADDR": "127.0.0.1"}
    assert launch_variables("accelerate", False) == {"ACCELERATE_USE_CPU": "true"}
    assert launch_variables("accelerate", True) == launch_variables("mpiexec", False) == {}


def test_process_counts():
    assert [parse_process_count(text) for text in ("4", " GPU ", "1024")] == ["4", "gpu", "1024"]
    for text in ("0", "1025", "-1", "4.0", "gpus", "", "٤", "9" * 5000):
        with pytest.raises(ValueError, match="neither gpu nor a number from 1 to 1024"):
            parse_process_count(text)
