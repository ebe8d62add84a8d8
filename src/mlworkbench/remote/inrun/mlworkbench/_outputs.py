"""Write files atomically to the outputs of the run."""

import errno
import os
import re

from ._run import run, warn_once

_DISK_ERRORS = {
    getattr(errno, name)
    for name in ("ENOSPC", "EDQUOT", "EIO", "EROFS", "ESTALE", "ENODEV", "ETIMEDOUT", "EHOSTDOWN")
    if hasattr(errno, name)
}
_MAX_NAME = 100
_MAX_DEPTH = 8


def write_text(path, text):
    """Store text as ``outputs/<path>``. A leading ``outputs/`` in the path is ignored."""
    return write_bytes(path, encode_text(text))


def encode_text(text):
    if isinstance(text, str):
        return text.encode("utf-8", "surrogateescape")
    if not isinstance(text, bytes):
        raise TypeError("an artifact's text must be a str, not %s" % type(text).__name__)
    return text


def write_bytes(path, data):
    """Store content as ``outputs/<path>``. Return the path in outputs; None if it was not stored."""
    return _store(path, lambda part: _write(part, data), keep=False)


def write_unique(path, data):
    """Store content without replacing an existing file: ``name.png``, ``name-2.png``, ``name-3.png``."""
    return _store(path, lambda part: _write(part, data), keep=True)


def copy_in(source, path):
    """Store a copy of a file. If ``path`` is None, a file that is already in outputs is not copied."""
    source = os.path.abspath(os.fspath(source) if hasattr(os, "fspath") else str(source))
    with open(source, "rb"):
        pass  # raise before anything is created if the file cannot be read
    if run.outputs is None:
        return None
    inside = os.path.relpath(os.path.realpath(source), os.path.realpath(run.outputs))
    if path is None and not inside.startswith(os.pardir) and not os.path.isabs(inside):
        return inside.replace(os.sep, "/")
    import shutil  # noqa: PLC0415 - slow, and not needed by most scripts

    return _store(os.path.basename(source) if path is None else path, lambda part: shutil.copyfile(source, part), False)


def file_name(name, suffix):
    """Convert the name of a metric or an image to a safe file name; long names are truncated."""
    safe = re.sub(r"[^\w.+=@ -]", "_", name).strip(" .")[:_MAX_NAME] or "_"
    while len((safe + suffix).encode("utf-8", "replace")) > 200:
        safe = safe[:-1]
    return safe + suffix


def file_path(name, suffix):
    """Convert a name with slashes to a safe relative path."""
    parts = name.split("/")
    if len(parts) > _MAX_DEPTH or any(not part.strip(" .") for part in parts):
        return file_name(name, suffix)
    return "/".join([file_name(part, "") for part in parts[:-1]] + [file_name(parts[-1], suffix)])


def _store(path, write, keep):
    parts = _safe_parts(path)
    if run.outputs is None:
        return None
    folder = os.path.join(run.outputs, *parts[:-1])
    # Check before creating anything, because a link in the path may point outside.
    _check_inside(path, folder)
    try:
        os.makedirs(folder, exist_ok=True)
        name = _write_atomically(folder, parts[-1], write, keep)
    except OSError as error:
        if error.errno not in _DISK_ERRORS:
            raise
        # A full disk must not stop training.
        warn_once("file", "%s was not stored: %s" % ("/".join(parts), error.strerror))
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


def _check_inside(path, folder):
    outputs = os.path.realpath(run.outputs)
    if os.path.realpath(folder) != outputs and not os.path.realpath(folder).startswith(outputs + os.sep):
        raise ValueError("an artifact's path must be inside outputs, but a link points outside: %r" % path)


def _write(part, data):
    with open(part, "xb") as file:
        file.write(data)


def _write_atomically(folder, name, write, keep):
    part = os.path.join(folder, ".mlw-%s.part" % os.urandom(8).hex())
    try:
        write(part)
        if keep:
            return _link_unique(part, folder, name)
        os.replace(part, os.path.join(folder, name))
        return name
    finally:
        if os.path.lexists(part):
            os.remove(part)


def _link_unique(part, folder, name):
    """Link under an unused name.

    Other processes of the run may store the same name at the same time.
    """
    stem, suffix = os.path.splitext(name)
    number = 1
    while True:
        path = os.path.join(folder, name)
        try:
            os.link(part, path)
            return name
        except FileExistsError:
            pass
        except (OSError, AttributeError, NotImplementedError):  # a file system without hard links
            if not os.path.lexists(path):
                os.replace(part, path)
                return name
        number += 1
        name = "%s-%d%s" % (stem, number, suffix)
