"""Text charts: sparklines and curves with axes."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlworkbench.cli.curves import draw_chart, sparkline, supports_blocks
from mlworkbench.history.series.downsampling import Column, columns


def points(*values: float) -> list[Column]:
    return [Column(float(x), value, value, value) for x, value in enumerate(values)]


def strip_colors(lines: list[str]) -> list[str]:
    return [re.sub(r"\x1b\[\d+m", "", line) for line in lines]


# -- sparklines ----------------------------------------------------------------------------------------


def test_a_sparkline_rises_with_the_values():
    assert sparkline(points(0, 1, 2, 3, 4, 5, 6, 7), 8) == "▁▂▃▄▅▆▇█"
    assert sparkline(points(0, 1, 2, 3, 4, 5, 6, 7), 8, ascii=True) == "_.:-=+*#"
    assert sparkline(points(3, 1, 2), 8) == "█▁▅"


def test_a_sparkline_of_no_one_and_equal_values():
    assert sparkline([], 8) == ""
    assert sparkline(points(5), 8) == "▄"
    assert sparkline(points(5, 5, 5), 8) == "▄▄▄"


def test_a_sparkline_is_at_most_as_wide_as_requested():
    assert sparkline(points(*range(100)), 4) == "████"
    assert sparkline(points(1, 2), 0) == ""


def test_a_logarithmic_sparkline_shows_orders_of_magnitude():
    assert sparkline(points(1, 10, 100, 1000), 8, log=True) == "▁▃▆█"
    assert sparkline(points(-1, 0, 1, 1000), 8, log=True) == "▁█"
    assert sparkline(points(-2, -1), 8, log=True) == "▁█", "nothing above 0: shown as it is"


@pytest.mark.parametrize(
    ("encoding", "supported"), [("utf-8", True), ("latin-1", False), ("ascii", False), ("odd", False)]
)
def test_encodings_that_support_blocks(encoding, supported):
    assert supports_blocks(encoding) is supported


# -- curves with axes ----------------------------------------------------------------------------------


def test_a_braille_curve_with_axes():
    assert draw_chart({"loss": points(*range(0, 101, 5))}, 30, 5, x="step") == [
        "100 │                    ⢀⣀⠤⠒⠊",
        "    │               ⢀⣀⠤⠒⠊⠁",
        "    │         ⢀⣀⠔⠒⠒⠊⠁",
        "    │    ⢀⣀⠤⠒⠊⠁",
        "  0 │⣀⠤⠒⠊⠁",
        "    └─────────────────────────",
        "     0         step         20",
        "── loss",
    ]


def test_curves_without_colors_have_different_marks():
    assert draw_chart({"up": points(0, 1, 2, 3), "down": points(3, 2, 1, 0)}, 26, 4, ascii=True) == [
        "3 |++++               ****",
        "  |    +++++++********",
        "  |    ******* +++++++",
        "0 |****               ++++",
        "  +-----------------------",
        "   0                     3",
        "* up   + down",
    ]


def test_curves_have_different_colors():
    lines = draw_chart({"up": points(0, 1, 2, 3), "down": points(3, 2, 1, 0)}, 26, 4, color=True)
    assert lines[-1] == "\x1b[36m──\x1b[0m up   \x1b[33m──\x1b[0m down"
    assert lines[0].startswith("3 │\x1b[33m") and lines[3].startswith("0 │\x1b[36m")
    assert all(line.count("\x1b[0m") * 2 == line.count("\x1b[") for line in lines)


def test_the_range_within_a_column_is_drawn():
    lines = draw_chart({"noisy": [Column(0.0, -1.0, 1.0, 0.0)]}, 24, 5, ascii=True)
    assert [line.split("|")[1].strip() for line in lines[:5]] == ["*"] * 5


def test_labels_have_enough_digits_to_differ():
    lines = draw_chart({"accuracy": points(0.99991, 0.99993, 0.99995)}, 40, 5)
    assert lines[0].startswith("0.99995 ") and lines[4].startswith("0.99991 ")
    assert draw_chart({"n": points(0, 1234567)}, 40, 5)[0].startswith("1.23e6 ")


def test_a_logarithmic_axis():
    lines = draw_chart({"loss": points(1000, 100, 10, 1)}, 40, 9, log=True, ascii=True)
    assert [line.split("|")[0].strip() for line in lines[:9]] == ["1000", "", "", "", "31.6", "", "", "", "1"]
    below = draw_chart({"loss": points(-1, 0)}, 40, 5, log=True, ascii=True)
    assert "*" in below[0] and below[-2] == "(no values > 0: linear scale)", "shown as it is"
    some = draw_chart({"loss": points(-1, 0, 3)}, 40, 5, log=True, ascii=True)
    assert some[-2] == "(values <= 0 are not shown)"
    assert not any("above" in line for line in [*lines, *draw_chart({"loss": points(-1, 3)}, 40, 5)])


def test_no_points_one_point_and_constant_values():
    assert draw_chart({}, 40, 5) == draw_chart({"loss": []}, 40, 5) == ["no points to draw"]
    single = draw_chart({"loss": points(7)}, 40, 5, ascii=True)
    assert "7 |" in single[2] and single[2].endswith("*") and single[6].strip() == "0"
    same = draw_chart({"loss": points(7, 7, 7)}, 40, 5, ascii=True)
    assert same[2] == "7 |" + "*" * 37
    for height in range(3, 15):
        for values in ((7,), (7, 7)):
            (line,) = [line for line in draw_chart({"loss": points(*values)}, 40, height) if line.startswith("7 │")]
            assert set(line[3:].strip()), "the label stands on its line"


def test_control_characters_in_names_are_escaped():
    lines = draw_chart({"loss\x1b[2J\n": points(1, 2)}, 40, 5)
    assert "\x1b" not in "".join(lines) and "\n" not in "".join(lines)


def test_a_long_legend_is_wrapped():
    lines = draw_chart({f"run-{n}": points(n, 0) for n in range(12)}, 40, 5)
    assert lines[7] == "* run-0   + run-1   x run-2   o run-3"
    assert max(map(len, lines)) <= 40 and sum(line.count("run-") for line in lines) == 12


finite = st.floats(allow_nan=False, allow_infinity=False)


@given(
    curves=st.dictionaries(st.text(max_size=60), st.lists(finite, max_size=30), max_size=5),
    width=st.integers(0, 100), height=st.integers(0, 20), log=st.booleans(), ascii=st.booleans(), color=st.booleans(),
)  # fmt: skip
def test_charts_fit_the_width(curves, width, height, log, ascii, color):
    series = {name: columns(range(len(values)), values, 200) for name, values in curves.items()}
    lines = strip_colors(draw_chart(series, width, height, log=log, ascii=ascii, color=color))
    assert max(map(len, lines)) <= max(width, 20) + (0 if any(series.values()) else 20)
    for points_of_curve in series.values():
        assert len(sparkline(points_of_curve, width, ascii, log)) <= min(len(points_of_curve), width)


def test_extreme_numbers_are_drawn():
    top = 1.7976931348623157e308
    lines = draw_chart({"huge": [Column(-top, -top, top, top), Column(top, 0.0, 1.0, 5e-324)]}, 60, 9)
    assert lines[0].startswith(" 1.79769e308 │⡏") and not any("nan" in line or "inf" in line for line in lines)
    assert sparkline(points(-top, 0, top), 3) == "▁▅█"
