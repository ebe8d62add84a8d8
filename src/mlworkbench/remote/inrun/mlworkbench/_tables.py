"""Encode tables as JSON ``{"columns": [...], "data": [[...], ...]}``.

This is the format of MLflow, and of ``orient="split"`` in pandas.
"""

import json

from ._values import plain_value, type_name


def encode_table(table, columns=None):
    """Return the file content. Cells that are not plain values are converted to strings; NaN becomes null."""
    names, rows = _rows(table, columns)
    cells = [[_cell(cell) for cell in row] for row in rows]
    return json.dumps({"columns": [str(name) for name in names], "data": cells}, allow_nan=False).encode("ascii")


def _rows(table, columns):
    if hasattr(table, "to_dict") and hasattr(table, "columns"):  # pandas, polars
        names = list(table.columns)
        values = table.values.tolist() if hasattr(table, "values") else [list(row) for row in table.rows()]
        return names, values
    if isinstance(table, dict):
        return _rows_from_columns(table)
    if isinstance(table, (str, bytes)) or not (hasattr(table, "tolist") or hasattr(table, "__iter__")):
        raise TypeError("a table must be a dict of columns, a list of rows, or a data frame, not %s" % type_name(table))
    rows = table.tolist() if hasattr(table, "tolist") else list(table)
    if any(isinstance(row, dict) for row in rows):
        if not all(isinstance(row, dict) for row in rows):
            raise TypeError("either all rows of a table must be dicts, or none")
        names = list(columns or [])
        for row in rows:
            names += [name for name in row if name not in names]
        return names, [[row.get(name) for name in names] for row in rows]
    rows = [list(row) if isinstance(row, (list, tuple)) else [row] for row in rows]
    width = max([len(row) for row in rows] or [len(columns or [])])
    names = list(columns) if columns is not None else ["column %d" % (index + 1) for index in range(width)]
    if any(len(row) != len(names) for row in rows):
        raise ValueError("every row of a table must have one value for each of its %d columns" % len(names))
    return names, rows


def _rows_from_columns(table):
    values = [column.tolist() if hasattr(column, "tolist") else column for column in table.values()]
    values = [list(column) if isinstance(column, (list, tuple)) else [column] for column in values]
    if len({len(column) for column in values}) > 1:
        raise ValueError("the columns of a table must have the same length, not %s" % sorted(map(len, values)))
    return list(table), list(zip(*values))


def _cell(value):
    try:
        return _without_markers(plain_value([value])[0])
    except Exception:
        return str(value)


def _without_markers(value):
    if isinstance(value, list):
        return [_without_markers(element) for element in value]
    if isinstance(value, dict):
        return None if value["f"] == "NaN" else value["f"]
    return value
