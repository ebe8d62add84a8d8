"""The door of what travels: ``python -I -S .../remote/__main__.py start|adopt|cancel ROOT RUN …``.

Each verb prints one line of JSON and exits.
"""

from __future__ import annotations

import json
import os
import sys

if not __package__:  # started as a file: make the folder that holds it importable as a package
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    __package__ = "remote"

from .shared.layout import Root
from .verbs import VERBS


def main(argv: "list[str]") -> int:
    verb, root, run_id = argv[1:4]
    home = Root(root)
    message = sys.stdin.buffer.read()
    if verb in ("start", "supervise") and not message:  # without it the secrets would be missing
        answer = {"ok": False, "problem": "the submission was interrupted"}
    else:
        answer = VERBS[verb](home, home.run(run_id), argv[4:], json.loads(message or b"{}"))
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
