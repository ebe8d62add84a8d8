"""IPython magic ``%mlw``: run any mlw command from a notebook, with the kernel's Python on target ``local``.

IPython is not a dependency: it calls ``load_ipython_extension`` for ``%load_ext mlworkbench``.
"""

from __future__ import annotations

import codecs
import json
import locale
import os
import shlex
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from .environments.notebook_python import IS_UNSAVED, KERNEL_NOTEBOOK, KERNEL_PYTHON
from .import_isolation import own_command

_INTERRUPTED = (-signal.SIGINT, 128 + signal.SIGINT)
_ran: deque[tuple[float, str]] = deque(maxlen=1000)  # the last cells and when they started
_NO_TERMINAL = {"TERM": "dumb", "COLUMNS": "160"}  # notebooks scroll wide lines


def load_ipython_extension(shell: Any) -> None:
    """Register the magic. Called by IPython for ``%load_ext mlworkbench``."""
    shell.register_magic_function(mlw, "line")
    shell.events.register("pre_run_cell", _remember)


def _remember(info: Any) -> None:
    """Note when a cell ran. IPython calls this before each cell."""
    _ran.append((time.time(), str(info.raw_cell)))


def mlw(line: str) -> None:
    """Run an mlw command: ``%mlw submit -c local train.py --lr 0.1``.

    Prints the output as it arrives. ``%mlw submit`` without a script submits the notebook itself. On target ``local``,
    scripts run with the Python of the kernel. Interrupting the kernel has the effect of Ctrl-C. A command that fails
    stops the cell.
    """
    from IPython.core.error import UsageError  # noqa: PLC0415 - only IPython calls this

    try:
        arguments = shlex.split(line)
    except ValueError as error:
        raise UsageError(f"%mlw: {error}") from None
    command = " ".join(["mlw", *arguments[:1]])
    code = _run(arguments)
    if code in _INTERRUPTED:
        raise UsageError(f"{command} was interrupted")
    if code:
        raise UsageError(f"{command} failed with exit status {code}")


def _run(arguments: Sequence[str]) -> int:
    """Run mlw, write its output to the cell, and return the exit status."""
    process = subprocess.Popen(
        own_command(arguments),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, **_NO_TERMINAL, KERNEL_PYTHON: sys.executable, **_notebook_variables(arguments)},
        start_new_session=True,  # an interrupt of the kernel reaches mlw once, through this process
    )
    with process:
        while True:
            try:
                _copy_output(process)
                return process.wait()
            except KeyboardInterrupt:
                process.send_signal(signal.SIGINT if os.name == "posix" else signal.SIGTERM)


def _notebook_variables(arguments: Sequence[str]) -> dict[str, str]:
    """Return the path of the current notebook, and whether a cell that ran since it was saved is not in the file.

    Only ``submit`` uses them. ``ui`` would pass them to each submission from the browser.
    """
    if "submit" not in arguments[:2]:  # also ``experiment submit``
        return {}
    from IPython import get_ipython  # noqa: PLC0415 - only IPython calls this

    shell: Any = get_ipython()
    # VS Code sets a variable of the kernel, and Jupyter one of its environment.
    path = shell.user_ns.get("__vsc_ipynb_file__") or os.environ.get("JPY_SESSION_NAME", "")
    if not (isinstance(path, str) and path.endswith(".ipynb") and os.path.isfile(path)):
        return {}
    try:
        saved = os.path.getmtime(path)
        cells = set(_read_cells(path))
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return {KERNEL_NOTEBOOK: path}  # mlw explains why it is not a notebook
    ran = [shell.history_manager.input_hist_raw[-1], *(cell for started, cell in _ran if started > saved)]
    return {KERNEL_NOTEBOOK: path, IS_UNSAVED: "1" if any(cell.strip() not in cells for cell in ran) else ""}


def _read_cells(path: str) -> Iterator[str]:
    with open(path, encoding="utf-8") as file:
        for cell in json.load(file)["cells"]:
            yield "".join(cell["source"]).strip()


def _copy_output(process: subprocess.Popen[bytes]) -> None:
    if process.stdout is None:
        return
    decoder = codecs.getincrementaldecoder(locale.getpreferredencoding(False))("replace")
    while chunk := os.read(process.stdout.fileno(), 65536):
        sys.stdout.write(decoder.decode(chunk))
        sys.stdout.flush()
