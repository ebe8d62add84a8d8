"""Log parameters, tags, images, figures, tables, text, and files.

Files are stored in ``outputs/`` and collected with it; a record describes each of them. Invalid
arguments raise errors. A failing disk only causes a warning.
"""

import os

from ._log import record
from ._outputs import copy_in, encode_text, file_path, write_bytes, write_unique
from ._run import run
from ._values import plain_key, plain_name, plain_step, plain_value, type_name

_MAX_DEPTH = 20


def log_params(params=None, **more):
    """Log parameters: ``log_params({"lr": 0.1, "optimizer": {"name": "adam"}})``.

    Accepts a dict, keyword arguments, or an argparse namespace. Nested names are joined with dots. Values other than
    numbers, strings, and lists are converted to strings. Logging the same name again replaces the value.
    """
    if params is None:
        params = {}
    elif not isinstance(params, dict):
        if not hasattr(params, "items") and (isinstance(params, type) or not hasattr(params, "__dict__")):
            raise TypeError(
                "parameters must be a dict, keyword arguments, or an argparse namespace, not %s" % type_name(params)
            )
        params = dict(params.items()) if hasattr(params, "items") else vars(params)
    pairs = []
    for source in (params, more):
        _flatten("", source, pairs, 0)
    for name, value in pairs:
        record("param", {"name": name, "value": value})


def log_param(name, value):
    """Log one parameter and return its value."""
    log_params({name: value})
    return value


def set_tag(name, value=""):
    """Set a tag of the run. Setting a tag again replaces its value; None removes the tag."""
    record("tag", {"name": plain_name(name, "a tag's name"), "value": value if value is None else _text(value)})


def set_tags(tags):
    """Set several tags from a dict."""
    for name, value in tags.items():
        set_tag(name, value)


def log_image(name, image, step=None):
    """Store an image in outputs/images.

    The image can be a file path, bytes, a PIL image, a figure, an array, or a tensor.
    """
    from ._image_encoding import encode_image  # noqa: PLC0415 - not needed by most scripts

    name, step = plain_name(name, "an image's name"), plain_step(step)
    if run.off:
        return None
    data, suffix = encode_image(image)
    return _store_file("image", "images", name, step, data, suffix)


def log_figure(name, figure, step=None):
    """Store a matplotlib, seaborn, plotly, or altair figure in outputs/figures, as .png or .html.

    The pyplot module is also accepted. A name that ends with .svg, .pdf, or .jpg selects that format.
    """
    from ._image_encoding import encode_figure  # noqa: PLC0415 - not needed by most scripts

    name, step = plain_name(name, "a figure's name"), plain_step(step)
    if run.off:
        return None
    data, suffix = encode_figure(figure, os.path.splitext(name)[1].lower())
    return _store_file("figure", "figures", name, step, data, suffix)


def log_table(name, table, step=None, columns=None):
    """Store a table in outputs/tables.

    The table can be columns ``{"x": [1, 2], "y": [3, 4]}``, rows ``[{"x": 1, "y": 3}]`` or ``[[1, 3]]``, or a data
    frame. The file is JSON: ``{"columns": [...], "data": [[...], ...]}``. Another call with the same name and step
    appends rows: it writes another file, and mlw shows both files as one table.
    """
    from ._tables import encode_table  # noqa: PLC0415 - not needed by most scripts

    name, step = plain_name(name, "a table's name"), plain_step(step)
    return _store_file("table", "tables", name, step, encode_table(table, columns), ".json")


def log_text(name, text, step=None):
    """Store text as outputs/<name>; ``.txt`` is added if the name has no extension.

    Logging the same name again replaces the file.
    """
    path = plain_name(name, "a text's name")
    step = plain_step(step)
    if not os.path.splitext(path)[1]:
        path += ".txt"
    return _record_file("text", write_bytes(path, encode_text(text)), name, step)


def log_file(path, name=None):
    """Store a copy of a file or folder as outputs/<name> (default: the file or folder name)."""
    source = os.path.abspath(str(path))
    if not os.path.isdir(source):
        return _record_file("file", copy_in(source, name), name, None)
    name = os.path.basename(source) if name is None else name
    outputs = os.path.realpath(run.outputs) if run.outputs else None
    for folder, folders, files in os.walk(source):
        # A folder that contains outputs/ is stored without it; otherwise, all outputs would be duplicated.
        folders[:] = sorted(child for child in folders if os.path.realpath(os.path.join(folder, child)) != outputs)
        for file in sorted(files):
            child_path = os.path.join(folder, file)
            target = name + "/" + os.path.relpath(child_path, source).replace(os.sep, "/")
            _record_file("file", copy_in(child_path, target), None, None)
    return name


def _store_file(kind, folder, name, step, data, suffix):
    stem = name[: -len(suffix)] if suffix and name.lower().endswith(suffix) else name
    if step is not None:
        stem = "%s-%d" % (stem, step)
    return _record_file(kind, write_unique(folder + "/" + file_path(stem, suffix), data), name, step)


def _record_file(kind, path, name, step):
    """Record a file and return its path in outputs."""
    if path is not None:
        data = {"path": path, "as": kind}
        if name is not None:
            data["name"] = name
        if step is not None:
            data["step"] = step
        record("file", data)
    return path


def _flatten(prefix, params, pairs, depth):
    for name, value in params.items():
        name = plain_key(prefix + (name if isinstance(name, str) else str(name)), "a parameter's name")
        if isinstance(value, dict) and value and depth < _MAX_DEPTH:
            _flatten(name + ".", value, pairs, depth + 1)
        else:
            pairs.append((name, _plain_or_text(value)))


def _plain_or_text(value):
    try:
        plain = plain_value(value)
    except Exception:
        return _text(value)
    # An integer that exceeds the range of floats is stored as text, to keep its digits.
    return _text(value) if isinstance(value, int) and isinstance(plain, float) else plain


def _text(value):
    try:
        return str(value)
    except Exception:
        return object.__repr__(value)
