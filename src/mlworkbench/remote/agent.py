"""The far end of a connection: ``python -I -S .../remote/agent.py NONCE [ROOT]``, started through ssh.

Only the way in: what is started as a file is compiled every time, all else comes compiled from its cache.
"""

from __future__ import annotations

import os
import sys

if not __package__:  # started as a file: make the folder that holds it importable as a package
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    __package__ = "remote"

from .answers import main

if __name__ == "__main__":
    sys.exit(main(sys.argv))
