"""How mlw ends: at once where py-rattler was at work, whose threads could crash an interpreter that winds up."""

from __future__ import annotations

import subprocess
import sys

import pytest

ENDS = """
import atexit, sys, types
if sys.argv[1] == "solved":
    sys.modules["rattler"] = types.ModuleType("rattler")
atexit.register(print, "wound up")
from mlworkbench.cli.main import _leave
print("said", end="")
_leave(78)
"""


@pytest.mark.parametrize(("kind", "said"), [("solved", b"said"), ("plain", b"saidwound up\n")])
def test_the_end(kind, said):
    done = subprocess.run([sys.executable, "-c", ENDS, kind], capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (78, said, b"")
