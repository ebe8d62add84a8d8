"""Fits 30 regressions to data that may not fit into memory. The executors send sums instead of rows.

    mlw submit -c local sweep.py --rows 400000

The executors create the data in shards and keep them on disk. One pass over the data for each frequency computes sums
of products. From these sums, the driver solves the regression for every penalty without reading the data again. The
script logs the error of each candidate on held-out rows, and writes the best candidate and a plot of all candidates
to outputs/.
"""

import argparse
import json
import os
import time
from operator import add

import numpy as np
from pyspark import StorageLevel
from pyspark.sql import SparkSession

import shards
from curve import draw

try:
    from mlworkbench import log
except ImportError:  # started without mlw: spark-submit sweep.py

    def log(name, value, step=None):
        """Outside a run, nothing is recorded."""


FREQUENCIES = (0.5, 1.1, 1.7, 2.3, 2.9, 3.5)
PENALTIES = (0.0001, 0.01, 0.1, 1.0, 10.0)


def make_data(context, rows, rows_per_shard, seed):
    """Creates one shard per partition. Shards are stored on disk because they may not fit into memory."""
    count = -(-rows // rows_per_shard)
    numbers = context.parallelize(range(count), count)
    sized = numbers.map(lambda number: (number, min(rows_per_shard, rows - number * rows_per_shard)))
    return sized.map(lambda one: shards.make_shard(*one, seed)).persist(StorageLevel.DISK_ONLY)


def fit(products, penalty):
    """Returns the weights of a ridge regression, computed from the sums. The penalty is scaled by the number of rows;
    the intercept is not penalized."""
    inner, outer = products[:-1, :-1], products[:-1, -1]
    rows = products[0, 0]  # the sum of the column of ones
    burden = np.full(len(outer), penalty * rows)
    burden[0] = 0.0
    return np.linalg.solve(inner + np.diag(burden), outer)


def error(products, weights):
    """Returns the mean squared error of the weights, computed from the sums."""
    whole = np.append(weights, -1.0)
    return float(whole @ products @ whole / products[0, 0])


def sweep(data):
    """Makes one pass over the data per frequency, and fits one candidate per penalty in each pass."""
    found = []
    for number, frequency in enumerate(FREQUENCIES, 1):
        began = time.monotonic()
        learn, judge = data.map(lambda shard, frequency=frequency: shards.sums(shard, frequency)).treeReduce(add)
        for penalty in PENALTIES:
            weights = fit(learn, penalty)
            mse = error(judge, weights)
            found.append({"frequency": frequency, "penalty": penalty, "mse": mse, "weights": weights.tolist()})
            log(f"mse_penalty_{penalty:g}", mse, step=number)
        best = min(found, key=lambda one: one["mse"])
        log("best_mse", best["mse"], step=number)
        words = f"pass {number} of {len(FREQUENCIES)}   frequency {frequency}   best error so far {best['mse']:.4f}"
        print(f"{words}   {time.monotonic() - began:.1f} s", flush=True)
    return found


def main():
    parser = argparse.ArgumentParser(description="Fit regressions to data that does not fit into memory.")
    parser.add_argument("--rows", type=int, default=400_000, help="number of rows, 264 bytes each (%(default)s)")
    parser.add_argument("--rows-per-shard", type=int, default=50_000, help="rows processed at a time (%(default)s)")
    parser.add_argument("--seed", type=int, default=7, help="random seed of the data (%(default)s)")
    options = parser.parse_args()
    if options.rows < 1_000 or options.rows_per_shard < 1_000:
        parser.error("--rows and --rows-per-shard must be at least 1000")

    spark = SparkSession.builder.getOrCreate()
    data = make_data(spark.sparkContext, options.rows, options.rows_per_shard, options.seed)
    rows, total, squares = data.map(shards.describe).treeReduce(add)
    size = rows * shards.BYTES_PER_ROW / 1e6
    memory = spark.conf.get("spark.executor.memory", "1g")
    print(f"{rows:,.0f} rows in {data.getNumPartitions()} shards: {size:,.0f} MB; executor memory {memory}", flush=True)
    log("rows", rows)
    log("megabytes", size)

    found = sweep(data)
    best = min(found, key=lambda one: one["mse"])
    spread = squares / rows - (total / rows) ** 2
    log("explained", 1 - best["mse"] / spread)
    print(f"best of {len(found)}: frequency {best['frequency']}, penalty {best['penalty']:g}, error {best['mse']:.4f}")

    os.makedirs("outputs", exist_ok=True)
    with open("outputs/best.json", "w") as file:
        json.dump({**best, "rows": int(rows), "seed": options.seed}, file, indent=2)
    draw(found, "outputs/curve.svg")
    print("wrote outputs/best.json and outputs/curve.svg")
    spark.stop()


if __name__ == "__main__":
    main()
