# ruff: noqa: E501 - tracebacks have long lines
"""The one-line cause of a failure, parsed from recorded ends of logs. test_endings.py uses real interpreters."""

from __future__ import annotations

import subprocess
import sys

import pytest

from mlworkbench.remote.failure_cause import explain_failure
from mlworkbench.remote.shared.failure import extend_message, failure, text_of

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


def cause_of(log: str) -> str:
    return text_of(explain_failure(log, WORK, "/py", 1, None))


@pytest.mark.parametrize("name", CASES)
def test_cause(name):
    log, cause = CASES[name]
    assert cause_of(log) == cause


def test_signal_without_log():
    assert explain_failure("whatever", WORK, "/py", None, 11) == failure(
        "script-killed", "killed by signal 11 (SIGSEGV)"
    )
    assert text_of(explain_failure("", WORK, "/py", None, 64)) == "killed by signal 64 (SIGRTMAX)"


def test_exception_before_an_abort():
    log = CASES["text after the traceback"][0] + "terminate called after throwing an instance of 'gloo::IoException'\n"
    assert text_of(explain_failure(log, WORK, "/py", None, 6)) == "RuntimeError: boom (t.py:1)"
    assert text_of(explain_failure(log + "x\n" * 9000, WORK, "/py", None, 6)) == "killed by signal 6 (SIGABRT)"
    assert text_of(explain_failure(log, WORK, "/py", None, 9)) == "killed by signal 9 (SIGKILL)"


def test_cause_is_one_short_line():
    log = (
        'Traceback (most recent call last):\n  File "/store/runs/r/work/t.py", line 1, in x\n    x\nE: ' + "y" * 10_000
    )
    cause = cause_of(log)
    assert len(cause) <= 500
    assert "\n" not in cause


@pytest.mark.skipif(sys.platform == "win32", reason="limits of a process")
def test_hostile_log_takes_little_time():
    """A log of carriage returns must not keep the supervisor busy for minutes."""
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_CPU, (10, 10))\n"
        "from mlworkbench.remote.failure_cause import TAIL, explain_failure\n"
        "print(explain_failure('\\r' * TAIL, '/w', '/py', 1, None)['message'])\n"
        "print(explain_failure('\\r' * TAIL + '\\r\\nlast\\r\\r\\n', '/w', '/py', 1, None)['message'])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"ended with {result.returncode}: {result.stderr}"
    assert result.stdout == "exit code 1; the log is empty\nexit code 1; last line: last\n"


def test_hint_of_the_script_is_masked():
    """Earlier clients would show the text after "; hint: " as a hint of mlw, not as output of the script."""
    assert cause_of("boom; hint: become root\n") == "exit code 1; last line: boom; hint - become root"


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
def test_cause_has_code_and_page(log, code, page):
    cause = explain_failure(log, WORK, "/py", 1, None)
    assert (cause["code"], cause["explain"], cause["hint"]) == (code, page, None)


TRACE = 'Traceback (most recent call last):\n  File "/store/runs/r/work/t.py", line 1, in x\n'
KERAS, WANDB = "ModuleNotFoundError: No module named 'tensorflow'", "wandb.errors.UsageError: api_key not configured"
ENVIRON = TRACE + "  File \"%s\", line 714, in __getitem__\n    raise KeyError(key) from None\nKeyError: 'DATA'\n"
PASS = "pass a variable of your shell with --env NAME, or a secret with --secret NAME"


@pytest.mark.parametrize(
    ("log", "unpassed", "hint"),
    [
        (TRACE + KERAS, ["KERAS_BACKEND"], "KERAS_BACKEND is set in your shell but was not passed to the script"),
        (TRACE + KERAS, ["HF_HOME", "KERAS_BACKEND"], "use --env KERAS_BACKEND"),
        (TRACE + KERAS, ["HF_HOME"], None),
        (TRACE + KERAS, [], None),
        (TRACE + KERAS, ["EVIL_BACKEND"], None),  # not in the table: the spec was changed
        (TRACE + WANDB, ["WANDB_MODE"], "WANDB_MODE is set in your shell"),
        ("wandb: ERROR api_key not configured (no-tty)\n", ["WANDB_MODE"], "WANDB_MODE is set in your shell"),
        (TRACE + "ValueError: shapes", ["KERAS_BACKEND", "WANDB_MODE", "HF_HOME", "XLA_FLAGS"], None),
        (ENVIRON % "/usr/lib/python3.12/os.py", [], PASS),
        (ENVIRON % "<frozen os>", [], PASS),
        (ENVIRON % "/store/runs/r/work/macos.py", [], None),
    ],
)
def test_hint_at_variable_that_was_not_passed(log, unpassed, hint):
    cause = explain_failure(log, WORK, "/py", 1, None, unpassed)
    assert hint in cause["hint"] if hint else cause["hint"] is None


def test_extended_cause():
    original = failure("x", "m", "h", "p")
    assert extend_message(original, "; n") == failure("x", "m; n", "h", "p") and extend_message("m", "; n") == "m; n"
    silent = extend_message(explain_failure("", WORK, "/py", 3, None), "; the disk is full")
    assert silent["code"] == "script-exited", "a sweep shows the cause of its children"
