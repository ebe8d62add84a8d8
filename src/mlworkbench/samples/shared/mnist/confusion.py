"""Draws a confusion matrix: one row per true digit, one column per predicted digit."""

import numpy as np
from matplotlib.figure import Figure


def draw(truth, answers, path):
    counts = np.zeros((10, 10), dtype=int)
    np.add.at(counts, (np.asarray(truth), np.asarray(answers)), 1)
    figure = Figure(figsize=(5, 5))
    axes = figure.subplots()
    axes.imshow(np.sqrt(counts), cmap="Blues")  # square roots make the few errors visible
    for row, column in zip(*np.nonzero(counts)):
        color = "white" if row == column else "black"
        axes.text(column, row, counts[row, column], ha="center", va="center", color=color, fontsize=8)
    axes.set_xticks(range(10))
    axes.set_yticks(range(10))
    axes.set_xlabel("predicted digit")
    axes.set_ylabel("true digit")
    axes.set_title("{} of {} correct".format(int(np.trace(counts)), int(counts.sum())))
    figure.savefig(path, dpi=100, bbox_inches="tight")
