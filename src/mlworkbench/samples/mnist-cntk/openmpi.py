"""Gives CNTK the OpenMPI that it asks for.

    import openmpi

    openmpi.get_ready()  # before `import cntk`

CNTK 2.7 (2019) does not load without OpenMPI, even where it computes alone, and asks for it by the names of version
1.10. Versions 2 to 4 do all that it needs. They are found here, in the environment or on the machine, and linked under
the old names; then the script is started anew, because a process looks for such names only when it starts.
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
    """Returns if CNTK will load; else the script begins anew, or ends with a sentence that says what is missing."""
    if not sys.platform.startswith("linux"):
        return
    try:
        for name in OLD_NAMES:
            ctypes.CDLL(name, ctypes.RTLD_GLOBAL)
    except OSError as why:
        if RESTARTED in os.environ:
            raise SystemExit("CNTK needs OpenMPI, and what was found does not load: {}".format(why))
    else:
        tidy_up(os.environ.pop(RESTARTED, ""))  # they are loaded
        return
    found = find()
    if found is None:
        raise SystemExit(
            "CNTK needs OpenMPI 1.10 to 4 with its C++ interface (libmpi and libmpi_cxx), which is neither in the "
            "environment nor on this machine. Keep the line openmpi in conda_dependencies.yml, or install it on the "
            "machine (on Debian and Ubuntu: apt-get install libopenmpi3)."
        )
    start_anew(found)


def tidy_up(links):
    """Deletes the folder that start_anew made; a variable may hold anything, so it must look like one of those."""
    place, name = os.path.split(links)
    if place == tempfile.gettempdir() and name.startswith(PREFIX):
        shutil.rmtree(links, ignore_errors=True)


def find():
    """A folder and an ending such that libmpi and libmpi_cxx are there; None if there are none."""
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
