"""The project's modules in one file, for executors on other machines. Understood by every Python since 3.5."""

import os
import zipfile

_NOT_CODE = ("outputs", "aml_config")  # of the project's own folder; further down they are like any other
_LARGEST = 16 * 1024 * 1024  # bytes of a file that lies in a package and is none of its modules
_OLDEST = (1980, 1, 1, 0, 0, 0)  # that a zip file can tell; and the same code makes the same file


def pack(target, project, library):
    """All modules of the project, what else lies in its packages, and our own library: so that imports work there."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for folder in (project, library):
            for path, name in _files(folder):
                entry = zipfile.ZipInfo(name, _OLDEST)
                entry.compress_type = zipfile.ZIP_DEFLATED
                entry.external_attr = 0o644 << 16
                with open(path, "rb") as file:
                    archive.writestr(entry, file.read())


def _files(root):
    """Path and name in the archive."""
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(one for one in folders if one != "__pycache__" and not one.startswith("."))
        if folder == root:
            folders[:] = [one for one in folders if one not in _NOT_CODE]
        package = folder != root and "__init__.py" in names
        for name in sorted(names):
            path = os.path.join(folder, name)
            if not os.path.isfile(path) or os.path.islink(path) or not _has_text(path):
                continue
            if name.endswith(".py") or (package and os.path.getsize(path) <= _LARGEST):
                yield path, os.path.relpath(path, root).replace(os.sep, "/")


def _has_text(path):
    """Whether it can be written down: names may be any bytes, and no import can name such a one."""
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
