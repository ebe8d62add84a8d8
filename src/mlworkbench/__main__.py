"""Run ``mlw`` with ``python -m mlworkbench``."""

from .cli.main import main

main()
