"""Pack the project's modules into one file for executors on other machines.

Runs with Python 3.5 or newer.
"""

import os
import zipfile

_EXCLUDED = ("outputs", "aml_config")  # only at the top level of the project folder
_MAX_DATA_SIZE = 16 * 1024 * 1024  # maximum bytes of a data file in a package
_TIMESTAMP = (1980, 1, 1, 0, 0, 0)  # the oldest zip timestamp; a fixed time makes archives reproducible


def pack_modules(target, project, library):
    """Pack the modules of the project, data files in its packages, and the in-run library."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for folder in (project, library):
            for path, name in _list_files(folder):
                entry = zipfile.ZipInfo(name, _TIMESTAMP)
                entry.compress_type = zipfile.ZIP_DEFLATED
                entry.external_attr = 0o644 << 16
                with open(path, "rb") as file:
                    archive.writestr(entry, file.read())


def _list_files(root):
    """Yield the path and archive name of each file."""
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(child for child in folders if child != "__pycache__" and not child.startswith("."))
        if folder == root:
            folders[:] = [child for child in folders if child not in _EXCLUDED]
        is_package = folder != root and "__init__.py" in names
        for name in sorted(names):
            path = os.path.join(folder, name)
            if not os.path.isfile(path) or os.path.islink(path) or not _is_valid_name(path):
                continue
            if name.endswith(".py") or (is_package and os.path.getsize(path) <= _MAX_DATA_SIZE):
                yield path, os.path.relpath(path, root).replace(os.sep, "/")


def _is_valid_name(path):
    """Return whether the name is valid Unicode. Modules with other names cannot be imported."""
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
