"""Process launchers: programs such as torchrun that start several processes of one script, called ranks.

A launcher is a pure function from a layout and the command of one rank to the command that starts all ranks. The
client uses it for ``--dry-run``, and the target when the number of allocated GPUs is known.

Each rank is started through ``_launch/rank_parent.py`` of the in-run library, which records how the rank ends.
"""

from __future__ import annotations

import posixpath

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Dict, List, Sequence

NONE = "none"
PER_GPU = "gpu"  # one process per allocated GPU
MAX_PROCESSES = 1024
MAX_RANK = 99999
_MAX_RANGES = 8  # maximum ranges in a list of ranks
_PROGRAMS = ("mlworkbench", "_launch")  # folder below that of the in-run library


class Layout:
    """The processes of a run on one machine, and what is needed to start them."""

    def __init__(self, count: int, processes: Dict[str, Any], contained: bool, runs_python: bool) -> None:
        self.count = count
        self.python: str = processes["python"]  # interpreter of the run
        self.library: str = processes["library"]  # folder of the in-run library
        self.contained = contained
        self.runs_python = runs_python  # whether a rank is a script or module of that interpreter

    def program(self, name: str) -> List[str]:
        """Return the start of a command that runs a program of the in-run library, without site packages."""
        return [self.python, "-E", "-s", "-S", posixpath.join(self.library, *_PROGRAMS, name)]


def _torchrun(layout: Layout, rank: List[str]) -> List[str]:
    # Underscores, because versions before 2.0 do not know the spelling with dashes.
    options = ["--standalone", "--nproc_per_node", str(layout.count), "--no_python"]
    return [layout.python, "-m", "torch.distributed.run", *options, *rank]


def _accelerate(layout: Layout, rank: List[str]) -> List[str]:
    # All options without which accelerate reads a configuration file or prints a warning about its defaults.
    options = ["--num_processes", str(layout.count), "--num_machines", "1", "--mixed_precision", "no"]
    options += ["--dynamo_backend", "no", "--main_process_port", "0"]
    options += ["--multi_gpu"] if layout.count > 1 else []
    return [layout.python, "-m", "accelerate.commands.launch", *options, "--no_python", *rank]


def _mpiexec(layout: Layout, rank: List[str]) -> List[str]:
    # The options depend on the MPI library, which is known only where the program runs.
    options = (["--container"] if layout.contained else []) + (["--python"] if layout.runs_python else [])
    return [*layout.program("mpiexec.py"), *options, str(layout.count), *rank]


# The option --local_addr of torchrun, as a variable, because versions that lack the option ignore it. Without it, ranks
# connect to the host name, which some machines and containers cannot resolve.
_VARIABLES = {"torchrun": {"PET_LOCAL_ADDR": "127.0.0.1"}}
# Otherwise, the processes of accelerate do not communicate.
_VARIABLES_WITHOUT_GPUS = {"accelerate": {"ACCELERATE_USE_CPU": "true"}}
LAUNCHERS = {"torchrun": _torchrun, "mpiexec": _mpiexec, "accelerate": _accelerate}


def parse_process_count(text: str) -> str:
    """Return a valid number of processes, or ``gpu``. Raise ValueError otherwise."""
    count = text.strip().lower()
    if count == PER_GPU or (count.isascii() and count.isdigit() and len(count) < 5 and 0 < int(count) <= MAX_PROCESSES):
        return count
    raise ValueError("%r is neither gpu nor a number from 1 to %d" % (text[:40], MAX_PROCESSES))


def launch_command(processes: Dict[str, Any], count: int, contained: bool, command: List[str]) -> List[str]:
    """Return the command that starts ``count`` processes of ``command``.

    ``processes``: the key of the same name in the spec of a run.
    """
    layout = Layout(count, processes, contained, runs_python=command[0] == processes["python"])
    return LAUNCHERS[processes["launcher"]](layout, [*layout.program("rank_parent.py"), *command])


def launch_variables(launcher: str, has_gpus: bool) -> Dict[str, str]:
    """Return default environment variables of the launcher."""
    more = {} if has_gpus else _VARIABLES_WITHOUT_GPUS.get(launcher, {})
    return dict(_VARIABLES.get(launcher, {}), **more)


def format_ranks(ranks: Sequence[int]) -> str:
    """Format sorted ranks, such as ``rank 2`` or ``ranks 0-3, 6``."""
    ranges: List[List[int]] = []
    for rank in ranks:
        if ranges and rank == ranges[-1][1] + 1:
            ranges[-1][1] = rank
        else:
            ranges.append([rank, rank])
    parts = ["%d" % first if first == last else "%d-%d" % (first, last) for first, last in ranges[:_MAX_RANGES]]
    more = ", …" if len(ranges) > _MAX_RANGES else ""
    return "rank%s %s%s" % ("s" if len(ranks) > 1 else "", ", ".join(parts), more)
