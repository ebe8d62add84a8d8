"""Thirty ways in which a run can end, and the recorded ending of each (promise P8)."""

from __future__ import annotations

import re
import signal

import pytest

from tests.empty_python import empty_python

SIGNALS = ["SIGKILL", "SIGSEGV", "SIGABRT", "SIGTERM", "SIGINT", "SIGHUP", "SIGPIPE", "SIGFPE", "SIGUSR1"]

WAYS = {
    "falls off the end": ("print('done')", "succeeded", 0, None, None),
    "sys.exit()": ("import sys; sys.exit()", "succeeded", 0, None, None),
    "os._exit(0)": ("import os; os._exit(0)", "succeeded", 0, None, None),
    "exit 1": ("import sys; print('bad'); sys.exit(1)", "failed", 1, None, "exit code 1; last line: bad"),
    "exit 2, silent": ("import os; os._exit(2)", "failed", 2, None, "exit code 2; the log is empty"),
    "exit 125 by itself": ("import sys; sys.exit(125)", "failed", 125, None, None),
    "exit 126 by itself": ("import sys; sys.exit(126)", "failed", 126, None, None),
    "exit 127 by itself": ("import sys; sys.exit(127)", "failed", 127, None, None),
    "exit 137 by itself": ("import sys; sys.exit(137)", "failed", 137, None, None),
    "exit 143 by itself": ("import sys; sys.exit(143)", "failed", 143, None, None),
    "exit 255": ("import sys; sys.exit(-1)", "failed", 255, None, None),
    "exit with a text": ("import sys; sys.exit('no data')", "failed", 1, None, "exit code 1; last line: no data"),
    "exception": (
        "def f():\n  raise ValueError('bad shape')\nf()",
        "failed",
        1,
        None,
        "ValueError: bad shape (main.py:2)",
    ),
    "exception without a text": ("raise KeyError", "failed", 1, None, "KeyError (main.py:1)"),
    "exception in a library": (
        "import json\njson.loads('{')",
        "failed",
        1,
        None,
        "json.decoder.JSONDecodeError: Expecting property name enclosed in double quotes: "
        "line 1 column 2 (char 1) (main.py:2)",
    ),
    "chained exceptions": (
        "try:\n  1 / 0\nexcept ZeroDivisionError as e:\n  raise RuntimeError('outer') from e",
        "failed",
        1,
        None,
        "RuntimeError: outer (main.py:4)",
    ),
    "syntax error": ("x = = 1", "failed", 1, None, "SyntaxError: invalid syntax (main.py:1)"),
    "sys not imported": (
        "print(sys.argv)",
        "failed",
        1,
        None,
        "NameError: name 'sys' is not defined (main.py:1); the script uses sys without importing it: add 'import sys'",
    ),
    "os not imported": (
        "os.makedirs('x')",
        "failed",
        1,
        None,
        "NameError: name 'os' is not defined (main.py:1); the script uses os without importing it: add 'import os'",
    ),
    "package missing": (
        "import tensorflowx",
        "failed",
        1,
        None,
        "ModuleNotFoundError: No module named 'tensorflowx' (main.py:1); it is not installed in PYTHON, "
        "which ran the script",
    ),
    **{
        f"killed by {name}": (
            f"import os, signal\nsignal.signal(signal.{name}, signal.SIG_DFL) if '{name}' != 'SIGKILL' else 0\n"
            f"os.kill(os.getpid(), signal.{name})\nimport time; time.sleep(60)",
            "failed",
            None,
            getattr(signal, name),
            f"killed by signal {int(getattr(signal, name))} ({name})",
        )
        for name in SIGNALS
    },
}


@pytest.mark.parametrize("way", WAYS, ids=list(WAYS))
def test_ending_is_recorded(place, way):
    script, ending, code, number, cause = WAYS[way]
    folder = place.run("r", script)
    assert place.start("r")["claimed"]
    result = place.ended(folder)
    assert (result["ending"], result["exit"], result["signal"]) == (ending, code, number)
    if cause is not None:
        # Newer Python versions append a suggestion to the message.
        shown = result["cause"].replace(str(empty_python()), "PYTHON")
        assert re.sub(r"\. Did you forget to import '\w+'\?", "", shown) == cause


def test_there_are_thirty_ways_in_all():
    others = 11  # endings covered by the tests below, test_stop.py, and test_death.py
    assert len(WAYS) + others >= 30


def test_interpreter_is_missing(place):
    folder = place.run("r", "", python="/no/such/python")
    place.start("r")
    ending = place.ended(folder)
    assert ending["ending"] == "could not start"
    assert ending["cause"] == "cannot start /no/such/python: No such file or directory"


def test_interpreter_is_not_a_program(place, tmp_path):
    (tmp_path / "python").write_text("not a program")
    folder = place.run("r", "", python=str(tmp_path / "python"))
    place.start("r")
    ending = place.ended(folder)
    assert ending["ending"] == "could not start"
    assert ending["cause"].endswith("Permission denied")


def test_code_is_gone_from_the_store(place):
    folder = place.run("r", "print(1)")
    for blob in (place.root / "blobs").rglob("*"):
        if blob.is_file():
            blob.unlink()
    place.start("r")
    ending = place.ended(folder)
    assert ending["ending"] == "could not start"
    assert "cannot prepare the run" in ending["cause"]
    assert not (folder / "started.json").exists()


def test_main_ends_while_a_grandchild_keeps_stdout_open(place):
    folder = place.run("r", "import subprocess; p = subprocess.Popen(['sleep', '1000']); print(p.pid)")
    place.start("r")
    ending = place.ended(folder)
    assert ending["ending"] == "succeeded"
    assert ending["leftovers"] == [int((folder / "log").read_text())]
