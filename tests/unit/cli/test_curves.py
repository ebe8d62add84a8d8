"""Curves as text: what people see of a series in a terminal."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlworkbench.cli.curves import chart, has_blocks, sparkline
from mlworkbench.history.series.drawing import Column, columns


def flat(*values: float) -> list[Column]:
    return [Column(float(x), value, value, value) for x, value in enumerate(values)]


def bare(lines: list[str]) -> list[str]:
    return [re.sub(r"\x1b\[\d+m", "", line) for line in lines]


# -- a line of blocks ----------------------------------------------------------------------------------


def test_a_sparkline_rises_with_the_values():
    assert sparkline(flat(0, 1, 2, 3, 4, 5, 6, 7), 8) == "▁▂▃▄▅▆▇█"
    assert sparkline(flat(0, 1, 2, 3, 4, 5, 6, 7), 8, ascii=True) == "_.:-=+*#"
    assert sparkline(flat(3, 1, 2), 8) == "█▁▅"


def test_a_sparkline_of_nothing_of_one_and_of_the_same():
    assert sparkline([], 8) == ""
    assert sparkline(flat(5), 8) == "▄"
    assert sparkline(flat(5, 5, 5), 8) == "▄▄▄"


def test_a_sparkline_has_no_more_characters_than_asked_for():
    assert sparkline(flat(*range(100)), 4) == "████"
    assert sparkline(flat(1, 2), 0) == ""


def test_a_logarithmic_sparkline_shows_orders_of_magnitude():
    assert sparkline(flat(1, 10, 100, 1000), 8, log=True) == "▁▃▆█"
    assert sparkline(flat(-1, 0, 1, 1000), 8, log=True) == "▁█"
    assert sparkline(flat(-2, -1), 8, log=True) == "▁█", "nothing above 0: shown as it is"


@pytest.mark.parametrize(("encoding", "found"), [("utf-8", True), ("latin-1", False), ("ascii", False), ("odd", False)])
def test_whether_a_terminal_has_the_signs(encoding, found):
    assert has_blocks(encoding) is found


# -- curves with axes ----------------------------------------------------------------------------------


def test_a_curve_in_dots_with_its_axes():
    assert chart({"loss": flat(*range(0, 101, 5))}, 30, 5, x="step") == [
        "100 │                    ⢀⣀⠤⠒⠊",
        "    │               ⢀⣀⠤⠒⠊⠁",
        "    │         ⢀⣀⠔⠒⠒⠊⠁",
        "    │    ⢀⣀⠤⠒⠊⠁",
        "  0 │⣀⠤⠒⠊⠁",
        "    └─────────────────────────",
        "     0         step         20",
        "── loss",
    ]


def test_curves_without_colours_have_their_own_marks():
    assert chart({"up": flat(0, 1, 2, 3), "down": flat(3, 2, 1, 0)}, 26, 4, ascii=True) == [
        "3 |++++               ****",
        "  |    +++++++********",
        "  |    ******* +++++++",
        "0 |****               ++++",
        "  +-----------------------",
        "   0                     3",
        "* up   + down",
    ]


def test_curves_with_colours_are_told_apart_by_them():
    lines = chart({"up": flat(0, 1, 2, 3), "down": flat(3, 2, 1, 0)}, 26, 4, colour=True)
    assert lines[-1] == "\x1b[36m──\x1b[0m up   \x1b[33m──\x1b[0m down"
    assert lines[0].startswith("3 │\x1b[33m") and lines[3].startswith("0 │\x1b[36m")
    assert all(line.count("\x1b[0m") * 2 == line.count("\x1b[") for line in lines)


def test_the_range_within_a_column_is_drawn():
    lines = chart({"noisy": [Column(0.0, -1.0, 1.0, 0.0)]}, 24, 5, ascii=True)
    assert [line.split("|")[1].strip() for line in lines[:5]] == ["*"] * 5


def test_labels_have_as_many_digits_as_tell_them_apart():
    lines = chart({"accuracy": flat(0.99991, 0.99993, 0.99995)}, 40, 5)
    assert lines[0].startswith("0.99995 ") and lines[4].startswith("0.99991 ")
    assert chart({"n": flat(0, 1234567)}, 40, 5)[0].startswith("1.23e6 ")


def test_a_logarithmic_axis():
    lines = chart({"loss": flat(1000, 100, 10, 1)}, 40, 9, log=True, ascii=True)
    assert [line.split("|")[0].strip() for line in lines[:9]] == ["1000", "", "", "", "31.6", "", "", "", "1"]
    below = chart({"loss": flat(-1, 0)}, 40, 5, log=True, ascii=True)
    assert "*" in below[0] and below[-2] == "(no values > 0: linear scale)", "shown as it is"
    some = chart({"loss": flat(-1, 0, 3)}, 40, 5, log=True, ascii=True)
    assert some[-2] == "(values <= 0 are not shown)"
    assert not any("above" in line for line in [*lines, *chart({"loss": flat(-1, 3)}, 40, 5)])


def test_nothing_and_one_point_and_what_never_changes():
    assert chart({}, 40, 5) == chart({"loss": []}, 40, 5) == ["no points to draw"]
    one = chart({"loss": flat(7)}, 40, 5, ascii=True)
    assert "7 |" in one[2] and one[2].endswith("*") and one[6].strip() == "0"
    same = chart({"loss": flat(7, 7, 7)}, 40, 5, ascii=True)
    assert same[2] == "7 |" + "*" * 37
    for height in range(3, 15):
        for values in ((7,), (7, 7)):
            (line,) = [line for line in chart({"loss": flat(*values)}, 40, height) if line.startswith("7 │")]
            assert set(line[3:].strip()), "the label stands on its line"


def test_a_name_cannot_write_on_the_terminal():
    lines = chart({"loss\x1b[2J\n": flat(1, 2)}, 40, 5)
    assert "\x1b" not in "".join(lines) and "\n" not in "".join(lines)


def test_a_legend_that_is_too_long_goes_on_in_the_next_line():
    lines = chart({f"run-{n}": flat(n, 0) for n in range(12)}, 40, 5)
    assert lines[7] == "* run-0   + run-1   x run-2   o run-3"
    assert max(map(len, lines)) <= 40 and sum(line.count("run-") for line in lines) == 12


finite = st.floats(allow_nan=False, allow_infinity=False)


@given(
    curves=st.dictionaries(st.text(max_size=60), st.lists(finite, max_size=30), max_size=5),
    width=st.integers(0, 100), height=st.integers(0, 20), log=st.booleans(), ascii=st.booleans(), colour=st.booleans(),
)  # fmt: skip
def test_whatever_is_drawn_fits(curves, width, height, log, ascii, colour):
    made = {name: columns(range(len(values)), values, 200) for name, values in curves.items()}
    lines = bare(chart(made, width, height, log=log, ascii=ascii, colour=colour))
    assert max(map(len, lines)) <= max(width, 20) + (0 if any(made.values()) else 20)
    for drawn in made.values():
        assert len(sparkline(drawn, width, ascii, log)) <= min(len(drawn), width)


def test_numbers_at_the_ends_of_their_range_are_drawn():
    top = 1.7976931348623157e308
    lines = chart({"huge": [Column(-top, -top, top, top), Column(top, 0.0, 1.0, 5e-324)]}, 60, 9)
    assert lines[0].startswith(" 1.79769e308 │⡏") and not any("nan" in line or "inf" in line for line in lines)
    assert sparkline(flat(-top, 0, top), 3) == "▁▅█"
