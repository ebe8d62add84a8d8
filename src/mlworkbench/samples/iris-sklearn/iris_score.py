"""Scores all models that earlier runs saved to the shared folder on this machine.

    mlw submit -c local iris_score.py

Models are pickle files, and loading a pickle file can run any code: load only models that you trust.
"""

import glob
import json
import os
import sys

import joblib
import matplotlib

import flowers

try:
    from mlworkbench import log
except ImportError:  # started without mlw: python iris_score.py

    def log(name, value, step=None):
        """Outside a run, nothing is recorded."""


matplotlib.use("Agg")  # write plots to files: there is no display
import matplotlib.pyplot as plt  # noqa: E402 - after selecting the backend


def read_models(folder):
    """Returns [{"run", "rate", "model"}, …], sorted by rate."""
    paths = glob.glob(os.path.join(folder, "*.joblib"))
    found = [{"run": os.path.basename(path)[: -len(".joblib")], **joblib.load(path)} for path in paths]
    return sorted(found, key=lambda one: (one["rate"], one["run"]))


def draw(rows):
    plt.semilogx([one["rate"] for one in rows], [one["accuracy"] for one in rows], "o-")
    plt.xlabel("regularization rate")
    plt.ylabel("accuracy")
    plt.savefig("outputs/rates.png", dpi=100)
    plt.close("all")


def main():
    models = read_models(flowers.shared_folder())
    if not models:
        print("no models found in the shared folder on this machine", file=sys.stderr)
        print("hint: run `mlw submit iris_sklearn.py 0.01` with the same -c", file=sys.stderr)
        return 1
    _, judge, _ = flowers.load()
    rows = []
    for number, one in enumerate(models, 1):
        rows.append({"run": one["run"], "rate": one["rate"], "accuracy": one["model"].score(*judge)})
        log("accuracy_of_models", rows[-1]["accuracy"], step=number)
        print(f"rate {one['rate']:8g}   accuracy {rows[-1]['accuracy']:.3f}   {one['run']}")
    best = max(rows, key=lambda one: one["accuracy"])
    log("models", len(rows))
    log("accuracy", best["accuracy"])
    print(f"best: rate {best['rate']:g}, run {best['run']}")

    os.makedirs("outputs", exist_ok=True)
    with open("outputs/scores.json", "w", encoding="utf-8") as file:
        json.dump(rows, file, indent=2)
    draw(rows)
    print("wrote outputs/scores.json and outputs/rates.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
