"""mlw exits without cleanup if py-rattler was used, whose threads could crash the interpreter at exit."""

from __future__ import annotations

import subprocess
import sys

import pytest

ENDS = """
import atexit, sys, types
if sys.argv[1] == "solved":
    sys.modules["rattler"] = types.ModuleType("rattler")
atexit.register(print, "wound up")
from mlworkbench.cli.main import _exit
print("said", end="")
_exit(78)
"""


@pytest.mark.parametrize(("kind", "said"), [("solved", b"said"), ("plain", b"saidwound up\n")])
def test_the_end(kind, said):
    done = subprocess.run([sys.executable, "-c", ENDS, kind], capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (78, said, b"")
