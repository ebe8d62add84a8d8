"""Run the code cells of a notebook as a script.

    python notebook.py explore.ipynb [ARGUMENT…]

A cell whose last line is an expression prints its value. The first exception ends the run. Magics and shell commands
need IPython in the script's Python. Magics that submit runs or display plots do nothing.

Requires only Python 3.5, because it runs with the script's Python.
"""

import ast
import atexit
import io
import json
import linecache
import os
import re
import shutil
import sys
import tempfile
import traceback
import types

_WITHOUT_EFFECT = re.compile(
    r"^([ \t]*)%(mlw\b|load_ext[ \t]+mlworkbench\b|matplotlib\b|config[ \t]+InlineBackend\b).*", re.MULTILINE
)
_USES_IPYTHON = re.compile(r"^\s*[%!?]|\?\s*$|=\s*[%!]", re.MULTILINE)


class InvalidNotebook(Exception):
    """A file that cannot be run as a notebook. The argument is the reason."""


def read_cells(path):
    """Return the source of each code cell."""
    try:
        with io.open(path, encoding="utf-8") as file:
            data = json.load(file)
    except ValueError:
        raise InvalidNotebook("it is not a notebook")
    try:
        metadata = data.get("metadata", {})
        described = metadata.get("language_info", {}).get("name") or metadata.get("kernelspec", {}).get("language")
        cells = data["cells"] if "cells" in data else [cell for sheet in data["worksheets"] for cell in sheet["cells"]]
        sources = [cell.get("source", cell.get("input", "")) for cell in cells if cell["cell_type"] == "code"]
        texts = ["".join(source) for source in sources]
    except (AttributeError, KeyError, TypeError):
        raise InvalidNotebook("it is not a notebook")
    if described and str(described).lower() not in ("python", "ipython"):
        raise InvalidNotebook("its language is %s, and only Python notebooks can be run" % described)
    return [_WITHOUT_EFFECT.sub(r"\1pass", text) for text in texts]


class Notebook(object):
    """A running notebook. Its variables are those of the module ``__main__``."""

    def __init__(self, path):
        self._path = path
        self._module = types.ModuleType("__main__")
        self._module.display = _display
        self._shell = None

    def run(self, cells):
        sys.modules["__main__"] = self._module
        for number, source in enumerate(cells, 1):
            name = "%s, cell %d" % (self._path, number)
            self._execute(self._plain(source, number), name)

    def _plain(self, source, number):
        """Return Python code. IPython replaces magics and shell commands with calls."""
        try:
            ast.parse(source)
            if "get_ipython" not in source:
                return source
        except SyntaxError:
            if not _USES_IPYTHON.search(source):
                return source  # the error is raised again, with the name of the cell
        if self._shell is None:
            try:
                self._shell = _start_shell(self._module)
            except ImportError:
                raise InvalidNotebook(
                    "cell %d uses IPython, which is not installed: add ipython to the packages" % number
                )
        return self._shell.input_transformer_manager.transform_cell(source)

    def _execute(self, source, name):
        # Tracebacks get the lines of the source from here.
        linecache.cache[name] = (len(source), None, source.splitlines(True), name)
        tree = ast.parse(source, name)
        last = None
        if tree.body and isinstance(tree.body[-1], ast.Expr) and not source.rstrip().endswith(";"):
            last = ast.Expression(tree.body.pop().value)
        exec(compile(tree, name, "exec"), vars(self._module))
        if last is not None:
            sys.displayhook(eval(compile(last, name, "eval"), vars(self._module)))


def _display(*objects, **options):
    """Print objects, as ``display`` in a notebook shows them."""
    try:
        from IPython.display import display  # noqa: PLC0415 - not installed everywhere, and slow
    except ImportError:
        for value in objects:
            sys.stdout.write("%r\n" % (value,))
    else:
        display(*objects, **options)


def _start_shell(module):
    from IPython.core.interactiveshell import InteractiveShell  # noqa: PLC0415 - as above
    from traitlets.config import Config  # noqa: PLC0415

    class Shell(InteractiveShell):
        system = InteractiveShell.system_raw  # without a terminal of its own

        def showtraceback(self, *args, **options):
            raise  # magics such as %%time would print the error and continue

    config = Config()
    config.HistoryManager.enabled = False
    folder = tempfile.mkdtemp(prefix="mlw-ipython-")  # it would be .ipython in the home folder
    atexit.register(shutil.rmtree, folder, True)
    return Shell.instance(config=config, user_module=module, ipython_dir=folder)


def _user_frames(trace):
    """Return the traceback without the frames of this program and of the parser."""
    while trace is not None and trace.tb_frame.f_code.co_filename in (__file__, ast.__file__):
        trace = trace.tb_next
    return trace


def main(arguments):
    path = arguments[0]
    os.environ.setdefault("MPLBACKEND", "agg")  # a window would wait for a user
    sys.argv[:] = arguments
    sys.path[0] = os.path.dirname(os.path.abspath(path))
    try:
        Notebook(path).run(read_cells(path))
    except InvalidNotebook as error:
        sys.exit("%s cannot be run: %s" % (path, error))
    except Exception:
        kind, error, trace = sys.exc_info()
        traceback.print_exception(kind, error, _user_frames(trace))
        sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
