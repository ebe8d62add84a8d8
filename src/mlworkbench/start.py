"""The start file of mlw's own processes: repairs the module path, then runs ``mlw``.

Started by its absolute path, so that nothing in the current folder is imported, which may be somebody else's project:
``python -m`` would import from there, ``-P`` needs Python 3.11, and ``-I`` hides what the user has installed.
"""

import os
import sys

# Python has put the folder of this file first. In its place comes the one above, so that mlworkbench is this one.
_HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [os.path.dirname(_HERE), *(entry for entry in sys.path if os.path.abspath(entry) != _HERE)]

from mlworkbench.isolation import OWN, module_path  # noqa: E402

_found = module_path()[1:]
sys.path[:] = _found if OWN in _found else [*_found, OWN]

if __name__ == "__main__":
    from mlworkbench.cli.main import main

    main()
