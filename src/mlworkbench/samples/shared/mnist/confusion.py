"""A picture of which digits were taken for which: a row for each true digit, a column for each answer."""

import numpy as np
from matplotlib.figure import Figure


def draw(truth, answers, path):
    counts = np.zeros((10, 10), dtype=int)
    np.add.at(counts, (np.asarray(truth), np.asarray(answers)), 1)
    figure = Figure(figsize=(5, 5))
    axes = figure.subplots()
    axes.imshow(np.sqrt(counts), cmap="Blues")  # roots, so that the few mistakes can be seen
    for row, column in zip(*np.nonzero(counts)):
        colour = "white" if row == column else "black"
        axes.text(column, row, counts[row, column], ha="center", va="center", color=colour, fontsize=8)
    axes.set_xticks(range(10))
    axes.set_yticks(range(10))
    axes.set_xlabel("answer")
    axes.set_ylabel("digit")
    axes.set_title("{} of {} right".format(int(np.trace(counts)), int(counts.sum())))
    figure.savefig(path, dpi=100, bbox_inches="tight")
