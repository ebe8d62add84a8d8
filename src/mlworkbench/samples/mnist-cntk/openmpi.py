"""Provides the OpenMPI libraries that CNTK requires.

    import openmpi

    openmpi.get_ready()  # before `import cntk`

CNTK 2.7 (2019) does not load without OpenMPI, even on a single machine, and requires the library names of version 1.10.
Versions 2 to 4 also work. This module finds them in the environment or on the machine, links them under the old names,
and restarts the script, because a process reads the library path only at its start.
"""

import ctypes
import os
import pathlib
import shutil
import sys
import tempfile

OLD_NAMES = ("libmpi.so.12", "libmpi_cxx.so.1")
NEWER = (".so.40", ".so.20")  # versions 3 and 4; version 2
PLACES = ("/usr/lib/x86_64-linux-gnu", "/usr/lib64/openmpi/lib", "/usr/lib64", "/usr/local/mpi/lib", "/usr/local/lib")
RESTARTED = "MNIST_CNTK_OPENMPI"
PREFIX = "mnist-cntk-openmpi-"


def get_ready():
    """Returns if CNTK can load; otherwise restarts the script, or ends it with an error message."""
    if not sys.platform.startswith("linux"):
        return
    try:
        for name in OLD_NAMES:
            ctypes.CDLL(name, ctypes.RTLD_GLOBAL)
    except OSError as why:
        if RESTARTED in os.environ:
            raise SystemExit("CNTK needs OpenMPI, but the installed version does not load: {}".format(why))
    else:
        tidy_up(os.environ.pop(RESTARTED, ""))  # the libraries are loaded
        return
    found = find()
    if found is None:
        raise SystemExit(
            "CNTK needs OpenMPI 1.10 to 4 with its C++ interface (libmpi and libmpi_cxx), which is not installed in "
            "the environment or on this machine. Add openmpi=3.1 to conda_dependencies.yml, or install OpenMPI on "
            "the machine (on Debian and Ubuntu: apt-get install libopenmpi3)."
        )
    start_anew(found)


def tidy_up(links):
    """Deletes the folder that start_anew created; checks the name, because the variable can have any value."""
    place, name = os.path.split(links)
    if place == tempfile.gettempdir() and name.startswith(PREFIX):
        shutil.rmtree(links, ignore_errors=True)


def find():
    """Returns the folder and the file name suffix of libmpi and libmpi_cxx, or None."""
    prefix = pathlib.Path(sys.prefix) / "lib"
    for place in [prefix, *map(pathlib.Path, PLACES)]:
        for ending in NEWER:
            if (place / ("libmpi" + ending)).exists() and (place / ("libmpi_cxx" + ending)).exists():
                return place, ending
    return None


def start_anew(found):
    place, ending = found
    links = pathlib.Path(tempfile.mkdtemp(prefix=PREFIX))
    for name in OLD_NAMES:
        (links / name).symlink_to(place / (name.partition(".")[0] + ending))
    folders = [str(links), str(place), os.path.join(sys.base_prefix, "lib"), os.environ.get("LD_LIBRARY_PATH", "")]
    os.environ["LD_LIBRARY_PATH"] = os.pathsep.join(folder for folder in folders if folder)
    os.environ[RESTARTED] = str(links)
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable] + sys.argv)
