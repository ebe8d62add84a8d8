"""What executors do with a part of the data: make it, and boil it down to sums.

Spark starts these functions on other machines, and the module is sent along. None of them sees more than one shard, and
what they return is small, whatever the number of rows: that is why the data may be larger than any memory.
"""

import numpy as np

COLUMNS = 32
BYTES_PER_ROW = (COLUMNS + 1) * 8  # the inputs and the value to predict, each a number of 64 bits
HIDDEN = 1.7  # the frequency that the sweep is to find
NOISE = 0.5
HELD_OUT = 0.2  # share of each shard that nothing is fitted to


def make_shard(number, rows, seed):
    """Rows of inputs, the value in the last column. A shard that is lost with its executor is made again, the same."""
    dice = np.random.default_rng([seed, number])
    inputs = dice.standard_normal((rows, COLUMNS))
    strength = 1 / np.arange(1, COLUMNS + 1)
    values = np.sin(HIDDEN * inputs) @ strength + dice.normal(0, NOISE, rows)
    return np.column_stack([inputs, values])


def describe(shard):
    """Rows, sum of the values, sum of their squares."""
    values = shard[:, -1]
    return np.array([len(values), values.sum(), values @ values])


def sums(shard, frequency):
    """All that a regression needs to know of a shard: once of the rows to learn from, once of those to judge by."""
    table = np.column_stack([np.ones(len(shard)), _waves(shard[:, :-1], frequency), shard[:, -1]])
    judged = int(len(table) * HELD_OUT)
    return np.stack([_products(table[judged:]), _products(table[:judged])])


def _waves(inputs, frequency):
    return np.hstack([np.sin(frequency * inputs), np.cos(frequency * inputs)])


def _products(table):
    """Every column times every other: small, and it adds up over shards."""
    return table.T @ table
