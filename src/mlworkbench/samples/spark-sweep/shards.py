"""Functions that run on the executors: they create a shard of the data and reduce it to sums.

Spark sends this module to the executors. Each function processes one shard and returns a small result, regardless of
the number of rows. Therefore, the data does not need to fit into memory.
"""

import numpy as np

COLUMNS = 32
BYTES_PER_ROW = (COLUMNS + 1) * 8  # the inputs and the target value, as 64-bit floats
HIDDEN = 1.7  # the frequency that the sweep should find
NOISE = 0.5
HELD_OUT = 0.2  # fraction of each shard used for testing


def make_shard(number, rows, seed):
    """Returns rows of inputs with the target value in the last column. Equal numbers and seeds produce equal shards."""
    dice = np.random.default_rng([seed, number])
    inputs = dice.standard_normal((rows, COLUMNS))
    strength = 1 / np.arange(1, COLUMNS + 1)
    values = np.sin(HIDDEN * inputs) @ strength + dice.normal(0, NOISE, rows)
    return np.column_stack([inputs, values])


def describe(shard):
    """Returns the number of rows, the sum of the values, and the sum of their squares."""
    values = shard[:, -1]
    return np.array([len(values), values.sum(), values @ values])


def sums(shard, frequency):
    """Returns the sums of products that a regression needs: for the training rows, and for the test rows."""
    table = np.column_stack([np.ones(len(shard)), _waves(shard[:, :-1], frequency), shard[:, -1]])
    judged = int(len(table) * HELD_OUT)
    return np.stack([_products(table[judged:]), _products(table[:judged])])


def _waves(inputs, frequency):
    return np.hstack([np.sin(frequency * inputs), np.cos(frequency * inputs)])


def _products(table):
    """Returns the products of all pairs of columns, which can be added over shards."""
    return table.T @ table
