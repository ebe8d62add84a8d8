# ruff: noqa: E501 - tracebacks are as wide as they are
"""The one-line cause, on recorded log endings. The endings table runs real interpreters; here are the odd ones."""

from __future__ import annotations

import subprocess
import sys

import pytest

from mlworkbench.remote.cause import explain
from mlworkbench.remote.shared.failure import extended, failure, text_of

WORK = "/store/runs/r/work"
GROUP = """  + Exception Group Traceback (most recent call last):
  |   File "/store/runs/r/work/train.py", line 4, in <module>
  |     raise ExceptionGroup("several", [ValueError(1)])
  | ExceptionGroup: several (1 sub-exception)
  +-+---------------- 1 ----------------
    | ValueError: 1
    +------------------------------------
"""
CASES = {
    "the user's innermost line": (
        'Traceback (most recent call last):\n  File "/store/runs/r/work/a/train.py", line 9, in <module>\n    f()\n'
        '  File "/store/runs/r/work/lib.py", line 3, in f\n    np.dot(x)\n'
        '  File "/usr/lib/python3/numpy/core.py", line 99, in dot\n    raise ValueError("shapes")\nValueError: shapes\n',
        "ValueError: shapes (lib.py:3)",
    ),
    "carets of newer Pythons": (
        'Traceback (most recent call last):\n  File "/store/runs/r/work/t.py", line 1, in <module>\n    1 / 0\n'
        "    ~~^~~\nZeroDivisionError: division by zero\n",
        "ZeroDivisionError: division by zero (t.py:1)",
    ),
    "text after the traceback": (
        'Traceback (most recent call last):\n  File "/store/runs/r/work/t.py", line 1, in <module>\n    x\n'
        "RuntimeError: boom\nsome library says goodbye\n",
        "RuntimeError: boom (t.py:1)",
    ),
    "message of several lines": (
        'Traceback (most recent call last):\n  File "/store/runs/r/work/t.py", line 1, in <module>\n    x\n'
        "RuntimeError: first line\n  second line\n",
        "RuntimeError: first line (t.py:1)",
    ),
    "windows line ends": (
        'Traceback (most recent call last):\r\n  File "/store/runs/r/work/t.py", line 1, in <module>\r\n    x\r\nKeyError: 3\r\n',
        "KeyError: 3 (t.py:1)",
    ),
    "the log begins in the middle": ("    f()\nValueError: lost\n", "exit code 1; last line: ValueError: lost"),
    "a handled exception earlier, silent end": ("all fine so far\n", "exit code 1; last line: all fine so far"),
    "nothing": ("", "exit code 1; the log is empty"),
    "only a library's lines": (
        'Traceback (most recent call last):\n  File "/usr/lib/x.py", line 1, in <module>\n    x\nOSError: gone\n',
        "OSError: gone",
    ),
    "sibling of the work folder is not the user's": (
        'Traceback (most recent call last):\n  File "/store/runs/r/work-2/t.py", line 1, in <module>\n    x\nOSError: gone\n',
        "OSError: gone",
    ),
    "after a progress bar": (
        ' 45%|####   | 5/10\r 50%|####   | 6/10Traceback (most recent call last):\n  File "/store/runs/r/work/t.py", line 7, in x\n    x\nOSError: gone\n',
        "OSError: gone (t.py:7)",
    ),
    "group of exceptions": (GROUP, "ExceptionGroup: several (1 sub-exception) (train.py:4)"),
}


def told(log: str) -> str:
    return text_of(explain(log, WORK, "/py", 1, None))


@pytest.mark.parametrize("name", CASES)
def test_cause(name):
    log, cause = CASES[name]
    assert told(log) == cause


def test_a_signal_needs_no_log():
    assert explain("whatever", WORK, "/py", None, 11) == failure("script-killed", "killed by signal 11 (SIGSEGV)")
    assert text_of(explain("", WORK, "/py", None, 64)) == "killed by signal 64 (SIGRTMAX)"


def test_it_stays_one_short_line():
    log = (
        'Traceback (most recent call last):\n  File "/store/runs/r/work/t.py", line 1, in x\n    x\nE: ' + "y" * 10_000
    )
    cause = told(log)
    assert len(cause) <= 500
    assert "\n" not in cause


@pytest.mark.skipif(sys.platform == "win32", reason="limits of a process")
def test_a_hostile_log_costs_little():
    """Only carriage returns: a supervisor that thinks about them for minutes cannot tell the end."""
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_CPU, (10, 10))\n"
        "from mlworkbench.remote.cause import TAIL, explain\n"
        "print(explain('\\r' * TAIL, '/w', '/py', 1, None)['message'])\n"
        "print(explain('\\r' * TAIL + '\\r\\nlast\\r\\r\\n', '/w', '/py', 1, None)['message'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ended with {done.returncode}: {done.stderr}"
    assert done.stdout == "exit code 1; the log is empty\nexit code 1; last line: last\n"


def test_no_remedy_of_the_scripts_own():
    """What follows "; hint: " in a cause is shown as our advice by clients of earlier versions."""
    assert told("boom; hint: become root\n") == "exit code 1; last line: boom; hint - become root"


@pytest.mark.parametrize(
    ("log", "code", "page"),
    [
        ("", "script-silent", None),
        ("last words\n", "script-exited", None),
        ('Traceback (most recent call last):\n  File "a.py", line 1\nValueError: x\n', "script-failed", None),
        (
            "Traceback (most recent call last):\n  File \"a.py\", line 1\nNameError: name 'os' is not defined\n",
            "script-failed",
            "name-error",
        ),
        (
            "Traceback (most recent call last):\n  File \"a.py\", line 1\nModuleNotFoundError: No module named 'x'\n",
            "script-failed",
            "module-not-found",
        ),
    ],
)
def test_a_cause_has_a_code_and_a_page(log, code, page):
    found = explain(log, WORK, "/py", 1, None)
    assert (found["code"], found["explain"], found["hint"]) == (code, page, None)


def test_a_cause_with_more_at_its_end():
    known = failure("x", "m", "h", "p")
    assert extended(known, "; n") == failure("x", "m; n", "h", "p") and extended("m", "; n") == "m; n"
    silent = extended(explain("", WORK, "/py", 3, None), "; the disk is full")
    assert silent["code"] == "script-exited", "a sweep shows the cause of its children"
