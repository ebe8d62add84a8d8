"""Files that a script hands over by name: written below the run's outputs, whole or not at all."""

import os
import re

from ._run import run, tell_outside


def write_text(path, text):
    """Store the text as ``outputs/<path>``; ``outputs/`` at its beginning is understood and not doubled."""
    if isinstance(text, str):
        text = text.encode("utf-8", "surrogateescape")
    elif not isinstance(text, bytes):
        raise TypeError("an artifact's text is a str, not %s" % type(text).__name__)
    parts = _safe_parts(path)
    if run.outputs is None:
        tell_outside()
        return
    folder = os.path.join(run.outputs, *parts[:-1])
    # Looked at before anything is made: a link on the way may lead out.
    _refuse_outside(path, folder)
    os.makedirs(folder, exist_ok=True)
    _replace(os.path.join(folder, parts[-1]), text)


def _safe_parts(path):
    if not isinstance(path, str):
        raise TypeError("an artifact's path is a str, not %s" % type(path).__name__)
    parts = re.split(r"[/\\]" if os.name == "nt" else "/", path)
    if parts[0] == "outputs" and len(parts) > 1:
        del parts[0]
    if any(part in ("", ".", "..") or "\0" in part or (os.name == "nt" and ":" in part) for part in parts):
        raise ValueError("an artifact's path must be relative and stay below outputs: %r" % path)
    return parts


def _refuse_outside(path, folder):
    outputs = os.path.realpath(run.outputs)
    if os.path.realpath(folder) != outputs and not os.path.realpath(folder).startswith(outputs + os.sep):
        raise ValueError("an artifact's path must stay below outputs, a link leads out of it: %r" % path)


def _replace(path, data):
    part = os.path.join(os.path.dirname(path), ".mlw-%s.part" % os.urandom(8).hex())
    try:
        with open(part, "xb") as file:
            file.write(data)
        os.replace(part, path)
    except BaseException:
        if os.path.lexists(part):
            os.remove(part)
        raise
