"""Agent process for an SSH connection: ``python -I -S .../remote/agent.py NONCE [ROOT]``.

This file is only an entry point. Python recompiles a script every time it runs, whereas imported
modules come from the bytecode cache.
"""

from __future__ import annotations

import os
import sys

if not __package__:  # run as a script: make this folder importable as a package
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    __package__ = "remote"

from .handlers import main

if __name__ == "__main__":
    sys.exit(main(sys.argv))
