"""``python -m mlworkbench`` is ``mlw``."""

from .cli.main import main

main()
