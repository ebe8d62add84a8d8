"""Tells three kinds of iris apart by logistic regression, and leaves its model for other runs.

    mlw experiment submit -c local iris_sklearn.py 0.01

The number says how strongly large weights are punished. Without that, the model also learns the nonsense that was mixed
into the data; with too much of it, nothing is learned. Rate and accuracy are logged; outputs/ gets the model, the
confusion matrix and the ROC curves; the shared folder gets the model for iris_score.py.
"""

import argparse
import os

import joblib
import matplotlib
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import ConfusionMatrixDisplay, RocCurveDisplay, accuracy_score, roc_auc_score

import flowers

try:
    from mlworkbench import log
except ImportError:  # started by hand, outside a run: python iris_sklearn.py

    def log(name, value, step=None):
        """There is nobody to keep it."""


matplotlib.use("Agg")  # pictures go to files: there is no screen
import matplotlib.pyplot as plt  # noqa: E402 - after the choice

SIZES = range(15, 91, 15)  # flowers to learn from


def fit(measurements, species, rate):
    """Large C means little punishment for scikit-learn: it is the other way round."""
    return LogisticRegression(C=1 / rate, max_iter=5000).fit(measurements, species)


def learning_curve(learn, judge, rate):
    """How good the model is if it has seen fewer flowers: logged step by step, so that the history can draw it."""
    order = np.random.default_rng(7).permutation(len(learn[0]))
    for size in SIZES:
        chosen = order[:size]
        score = fit(learn[0][chosen], learn[1][chosen], rate).score(*judge)
        log("accuracy_of_fewer", score, step=size)
        print(f"learned from {size:2d} flowers   accuracy {score:.3f}", flush=True)


def draw(model, judge, classes):
    """Which species is taken for which; and how well each can be told from the others."""
    ConfusionMatrixDisplay.from_estimator(model, *judge, display_labels=classes, colorbar=False)
    plt.tight_layout()
    plt.savefig("outputs/confusion.png", dpi=100)
    plt.close("all")
    _, axes = plt.subplots()
    chances = model.predict_proba(judge[0])
    for number, name in enumerate(classes):
        RocCurveDisplay.from_predictions(judge[1] == number, chances[:, number], name=name, ax=axes)
    axes.set_title("each species against the others")
    plt.savefig("outputs/roc.png", dpi=100)
    plt.close("all")


def keep(model, rate, folder):
    """Under the name of the run, and whole: somebody may be reading the folder right now."""
    name = os.environ.get("MLW_RUN_ID", "by-hand") + ".joblib"
    part = os.path.join(folder, f".{name}.part")
    joblib.dump({"model": model, "rate": rate}, part)
    os.replace(part, os.path.join(folder, name))
    return name


def main():
    parser = argparse.ArgumentParser(description="Tells three kinds of iris apart.")
    parser.add_argument("rate", nargs="?", type=float, default=0.01, help="regularization rate (%(default)s)")
    parser.add_argument("--reg", type=float, help="the same as an option, for --sweep")
    options = parser.parse_args()
    rate = options.rate if options.reg is None else options.reg
    if not rate > 0:
        parser.error("the regularization rate must be more than 0")

    learn, judge, classes = flowers.load()
    print(f"{len(learn[0])} flowers to learn from, {len(judge[0])} to judge by, regularization rate {rate:g}")
    log("regularization_rate", rate)
    learning_curve(learn, judge, rate)
    model = fit(*learn, rate)
    accuracy = accuracy_score(judge[1], model.predict(judge[0]))
    log("accuracy", accuracy)
    log("auc", roc_auc_score(judge[1], model.predict_proba(judge[0]), multi_class="ovr"))
    print(f"accuracy {accuracy:.3f}")

    os.makedirs("outputs", exist_ok=True)
    joblib.dump(model, "outputs/model.joblib")
    draw(model, judge, classes)
    print("wrote outputs/model.joblib, outputs/confusion.png and outputs/roc.png")
    print(f"left {keep(model, rate, flowers.shared_folder())} in the shared folder: see iris_score.py")


if __name__ == "__main__":
    main()
