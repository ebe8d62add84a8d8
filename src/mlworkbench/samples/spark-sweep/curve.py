"""Draws a plot without a plotting library."""

import math

WIDTH, HEIGHT, MARGIN, LEGEND = 560, 280, 40, 130
COLORS = ("#4c78a8", "#f58518", "#54a24b", "#e45756", "#72b7b2", "#b279a2")


def draw(found, path):
    """Plots the error over the frequency, one line per penalty, as an SVG image."""
    frequencies = sorted({one["frequency"] for one in found})
    penalties = sorted({one["penalty"] for one in found})
    low, high = (change(math.log10(one["mse"]) for one in found) for change in (min, max))
    right, bottom = WIDTH - LEGEND, HEIGHT - MARGIN

    def across(frequency):
        part = (frequency - frequencies[0]) / ((frequencies[-1] - frequencies[0]) or 1)
        return MARGIN + part * (right - MARGIN)

    def down(mse):
        return MARGIN + (high - math.log10(mse)) / ((high - low) or 1) * (bottom - MARGIN)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">',
        '<g font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<path d="M{MARGIN} {MARGIN}V{bottom}H{right}" fill="none" stroke="gray"/>',
        f'<text x="{MARGIN}" y="20">error on held-out rows (logarithmic): {10**low:.3f} to {10**high:.3f}</text>',
    ]
    for frequency in frequencies:
        parts.append(f'<text x="{across(frequency):.0f}" y="{bottom + 16}" text-anchor="middle">{frequency:g}</text>')
    parts.append(f'<text x="{(MARGIN + right) / 2:.0f}" y="{HEIGHT - 6}" text-anchor="middle">frequency</text>')
    for number, penalty in enumerate(penalties):
        color = COLORS[number % len(COLORS)]
        line = " ".join(
            f"{across(one['frequency']):.1f},{down(one['mse']):.1f}"
            for one in sorted(found, key=lambda one: one["frequency"])
            if one["penalty"] == penalty
        )
        parts.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="2"/>')
        parts.append(f'<text x="{right + 10}" y="{MARGIN + 18 * number}" fill="{color}">penalty {penalty:g}</text>')
    with open(path, "w") as file:
        file.write("\n".join([*parts, "</g>", "</svg>", ""]))
