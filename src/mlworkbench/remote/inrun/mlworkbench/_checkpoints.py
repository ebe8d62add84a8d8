"""The folder in which a script stores checkpoints."""

import os


def checkpoint_dir():
    """Return the folder for checkpoints, and create it.

    All attempts of a run share it, and ``mlw submit --resume RUN`` starts another run with a copy of it.
    Outside a run, it is ``checkpoints`` in the current folder.
    """
    folder = os.environ.get("MLW_CHECKPOINTS") or os.path.abspath("checkpoints")
    os.makedirs(folder, exist_ok=True)
    return folder
