"""Entry point on a target: ``python -I -S .../remote/__main__.py start|adopt|cancel ROOT RUN …``.

Each command prints one line of JSON and exits.
"""

from __future__ import annotations

import json
import os
import sys

if not __package__:  # run as a script: make this folder importable as a package
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    __package__ = "remote"

from .run_control import COMMANDS
from .shared.layout import Root


def main(argv: "list[str]") -> int:
    command, root, run_id = argv[1:4]
    target_root = Root(root)
    message = sys.stdin.buffer.read()
    if command in ("start", "supervise") and not message:  # without a message, the secrets would be missing
        response = {"ok": False, "problem": "the submission was interrupted"}
    else:
        response = COMMANDS[command](target_root, target_root.run(run_id), argv[4:], json.loads(message or b"{}"))
    sys.stdout.write(json.dumps(response) + "\n")
    sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
