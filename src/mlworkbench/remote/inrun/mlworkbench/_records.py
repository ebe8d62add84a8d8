"""What is recorded beside metrics: parameters, tags, images, figures, tables, texts and files.

Files go below ``outputs/`` and come home with it; one record tells what each of them is. All of these raise where the
caller is wrong, and a disk that refuses is only told.
"""

import os

from ._log import record
from ._outputs import as_bytes, copy_in, file_path, write_bytes, write_next
from ._run import run
from ._values import plain_key, plain_name, plain_step, plain_value, type_name

_MOST_DEPTH = 20


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
    found = []
    for source in (params, more):
        _flatten("", source, found, 0)
    for name, value in found:
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
    from ._pictures import picture  # noqa: PLC0415 - not needed by most scripts

    name, step = plain_name(name, "an image's name"), plain_step(step)
    if run.off:
        return None
    data, suffix = picture(image)
    return _keep("image", "images", name, step, data, suffix)


def log_figure(name, figure, step=None):
    """Store a matplotlib, seaborn, plotly, or altair figure in outputs/figures, as .png or .html.

    The pyplot module is also accepted. A name that ends with .svg, .pdf, or .jpg selects that format.
    """
    from ._pictures import figure as drawn  # noqa: PLC0415 - not needed by most scripts

    name, step = plain_name(name, "a figure's name"), plain_step(step)
    if run.off:
        return None
    data, suffix = drawn(figure, os.path.splitext(name)[1].lower())
    return _keep("figure", "figures", name, step, data, suffix)


def log_table(name, table, step=None, columns=None):
    """Store a table in outputs/tables.

    The table can be columns ``{"x": [1, 2], "y": [3, 4]}``, rows ``[{"x": 1, "y": 3}]`` or ``[[1, 3]]``, or a data
    frame. The file is JSON: ``{"columns": [...], "data": [[...], ...]}``.
    """
    from ._tables import table_of  # noqa: PLC0415 - not needed by most scripts

    name, step = plain_name(name, "a table's name"), plain_step(step)
    return _keep("table", "tables", name, step, table_of(table, columns), ".json")


def log_text(name, text, step=None):
    """Store text as outputs/<name>; ``.txt`` is added if the name has no extension.

    Logging the same name again replaces the file.
    """
    path = plain_name(name, "a text's name")
    step = plain_step(step)
    if not os.path.splitext(path)[1]:
        path += ".txt"
    return _tell("text", write_bytes(path, as_bytes(text)), name, step)


def log_file(path, name=None):
    """Store a copy of a file or folder as outputs/<name> (default: the file or folder name)."""
    source = os.path.abspath(str(path))
    if not os.path.isdir(source):
        return _tell("file", copy_in(source, name), name, None)
    name = os.path.basename(source) if name is None else name
    outputs = os.path.realpath(run.outputs) if run.outputs else None
    for folder, folders, files in os.walk(source):
        # A folder that holds outputs/ is stored without it: else all outputs would be there twice.
        folders[:] = sorted(one for one in folders if os.path.realpath(os.path.join(folder, one)) != outputs)
        for one in sorted(files):
            there = os.path.join(folder, one)
            where = name + "/" + os.path.relpath(there, source).replace(os.sep, "/")
            _tell("file", copy_in(there, where), None, None)
    return name


def _keep(kind, folder, name, step, data, suffix):
    stem = name[: -len(suffix)] if suffix and name.lower().endswith(suffix) else name
    if step is not None:
        stem = "%s-%d" % (stem, step)
    return _tell(kind, write_next(folder + "/" + file_path(stem, suffix), data), name, step)


def _tell(kind, path, name, step):
    """The record of a file; gives its path below outputs."""
    if path is not None:
        data = {"path": path, "as": kind}
        if name is not None:
            data["name"] = name
        if step is not None:
            data["step"] = step
        record("file", data)
    return path


def _flatten(before, params, found, depth):
    for name, value in params.items():
        name = plain_key(before + (name if isinstance(name, str) else str(name)), "a parameter's name")
        if isinstance(value, dict) and value and depth < _MOST_DEPTH:
            _flatten(name + ".", value, found, depth + 1)
        else:
            found.append((name, _plain_or_text(value)))


def _plain_or_text(value):
    try:
        plain = plain_value(value)
    except Exception:
        return _text(value)
    # A whole number that no float holds: a parameter keeps its digits.
    return _text(value) if isinstance(value, int) and isinstance(plain, float) else plain


def _text(value):
    try:
        return str(value)
    except Exception:
        return object.__repr__(value)
