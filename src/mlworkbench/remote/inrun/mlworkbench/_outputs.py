"""Files that a script hands over by name: written below the run's outputs, whole or not at all."""

import errno
import os
import re

from ._run import run, tell_once

_FAULTS = {
    getattr(errno, name)
    for name in ("ENOSPC", "EDQUOT", "EIO", "EROFS", "ESTALE", "ENODEV", "ETIMEDOUT", "EHOSTDOWN")
    if hasattr(errno, name)
}
_LONGEST_NAME = 100
_DEEPEST = 8


def write_text(path, text):
    """Store the text as ``outputs/<path>``; ``outputs/`` at its beginning is understood and not doubled."""
    return write_bytes(path, as_bytes(text))


def as_bytes(text):
    if isinstance(text, str):
        return text.encode("utf-8", "surrogateescape")
    if not isinstance(text, bytes):
        raise TypeError("an artifact's text must be a str, not %s" % type(text).__name__)
    return text


def write_bytes(path, data):
    """Store as ``outputs/<path>``; gives the path below outputs, None where nothing is recorded."""
    return _store(path, lambda part: _write(part, data), keep=False)


def write_next(path, data):
    """As write_bytes, and a file that is there stays: ``name.png``, ``name-2.png``, ``name-3.png``."""
    return _store(path, lambda part: _write(part, data), keep=True)


def copy_in(source, path):
    """Store a copy of the file; one that lies below outputs already stays where it is."""
    source = os.path.abspath(os.fspath(source) if hasattr(os, "fspath") else str(source))
    with open(source, "rb"):
        pass  # what cannot be read is the caller's mistake, and said before anything is made
    if run.outputs is None:
        return None
    inside = os.path.relpath(os.path.realpath(source), os.path.realpath(run.outputs))
    if path is None and not inside.startswith(os.pardir) and not os.path.isabs(inside):
        return inside.replace(os.sep, "/")
    import shutil  # noqa: PLC0415 - slow, and not needed by most scripts

    return _store(os.path.basename(source) if path is None else path, lambda part: shutil.copyfile(source, part), False)


def file_name(name, suffix):
    """The name of a metric or an image as that of a file: nothing in it leads elsewhere, long ones are cut."""
    safe = re.sub(r"[^\w.+=@ -]", "_", name).strip(" .")[:_LONGEST_NAME] or "_"
    while len((safe + suffix).encode("utf-8", "replace")) > 200:
        safe = safe[:-1]
    return safe + suffix


def file_path(name, suffix):
    """As file_name, and a name with slashes keeps its folders, where they lead down."""
    parts = name.split("/")
    if len(parts) > _DEEPEST or any(not part.strip(" .") for part in parts):
        return file_name(name, suffix)
    return "/".join([file_name(part, "") for part in parts[:-1]] + [file_name(parts[-1], suffix)])


def _store(path, write, keep):
    parts = _safe_parts(path)
    if run.outputs is None:
        return None
    folder = os.path.join(run.outputs, *parts[:-1])
    # Looked at before anything is made: a link on the way may lead out.
    _refuse_outside(path, folder)
    try:
        os.makedirs(folder, exist_ok=True)
        name = _whole_or_not(folder, parts[-1], write, keep)
    except OSError as error:
        if error.errno not in _FAULTS:
            raise
        # A full disk is no reason to end a training.
        tell_once("file", "%s was not stored: %s" % ("/".join(parts), error.strerror))
        return None
    return "/".join(parts[:-1] + [name])


def _safe_parts(path):
    if not isinstance(path, str):
        raise TypeError("an artifact's path must be a str, not %s" % type(path).__name__)
    parts = re.split(r"[/\\]" if os.name == "nt" else "/", path)
    if parts[0] == "outputs" and len(parts) > 1:
        del parts[0]
    if any(part in ("", ".", "..") or "\0" in part or (os.name == "nt" and ":" in part) for part in parts):
        raise ValueError("an artifact's path must be relative and inside outputs: %r" % path)
    return parts


def _refuse_outside(path, folder):
    outputs = os.path.realpath(run.outputs)
    if os.path.realpath(folder) != outputs and not os.path.realpath(folder).startswith(outputs + os.sep):
        raise ValueError("an artifact's path must be inside outputs, but a link points outside: %r" % path)


def _write(part, data):
    with open(part, "xb") as file:
        file.write(data)


def _whole_or_not(folder, name, write, keep):
    part = os.path.join(folder, ".mlw-%s.part" % os.urandom(8).hex())
    try:
        write(part)
        if keep:
            return _take_next(part, folder, name)
        os.replace(part, os.path.join(folder, name))
        return name
    finally:
        if os.path.lexists(part):
            os.remove(part)


def _take_next(part, folder, name):
    """Other processes of the run may store under the same name at the same moment."""
    stem, suffix = os.path.splitext(name)
    number = 1
    while True:
        path = os.path.join(folder, name)
        try:
            os.link(part, path)
            return name
        except FileExistsError:
            pass
        except (OSError, AttributeError, NotImplementedError):  # a file system without links
            if not os.path.lexists(path):
                os.replace(part, path)
                return name
        number += 1
        name = "%s-%d%s" % (stem, number, suffix)
