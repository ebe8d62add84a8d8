"""Entry point of mlw's own processes: corrects the module path, then runs ``mlw``.

It is started by its absolute path, so that nothing is imported from the current folder, which may
be an untrusted project: ``python -m`` would import from there, ``-P`` needs Python 3.11, and ``-I``
hides the user's packages.
"""

import os
import sys

# Python puts the folder of this file first. Replace it with its parent, so that this mlworkbench is imported.
_HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [os.path.dirname(_HERE), *(entry for entry in sys.path if os.path.abspath(entry) != _HERE)]

from mlworkbench.import_isolation import OWN, module_path  # noqa: E402

_found = module_path()[1:]
sys.path[:] = _found if OWN in _found else [*_found, OWN]

if __name__ == "__main__":
    from mlworkbench.cli.main import main

    main()
