"""Trains a logistic regression on the iris dataset and saves the model for other runs.

    mlw submit -c local iris_sklearn.py 0.01

The argument is the regularization rate. If it is too low, the model also fits the noise in the data; if it is too high,
the model learns too little. The script logs the rate and the accuracy, and writes the model, the confusion matrix, and
the ROC curves to outputs/. It also saves the model to the shared folder for iris_score.py.
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
except ImportError:  # started without mlw: python iris_sklearn.py

    def log(name, value, step=None):
        """Outside a run, nothing is recorded."""


matplotlib.use("Agg")  # write plots to files: there is no display
import matplotlib.pyplot as plt  # noqa: E402 - after selecting the backend

SIZES = range(15, 91, 15)  # training samples


def fit(measurements, species, rate):
    """Trains a model. C is the inverse of the regularization rate."""
    return LogisticRegression(C=1 / rate, max_iter=5000).fit(measurements, species)


def learning_curve(learn, judge, rate):
    """Logs the accuracy for different numbers of training samples, so that mlw can plot it."""
    order = np.random.default_rng(7).permutation(len(learn[0]))
    for size in SIZES:
        chosen = order[:size]
        score = fit(learn[0][chosen], learn[1][chosen], rate).score(*judge)
        log("accuracy_of_fewer", score, step=size)
        print(f"trained on {size:2d} samples   accuracy {score:.3f}", flush=True)


def draw(model, judge, classes):
    """Plots the confusion matrix, and a ROC curve for each species."""
    ConfusionMatrixDisplay.from_estimator(model, *judge, display_labels=classes, colorbar=False)
    plt.tight_layout()
    plt.savefig("outputs/confusion.png", dpi=100)
    plt.close("all")
    _, axes = plt.subplots()
    chances = model.predict_proba(judge[0])
    for number, name in enumerate(classes):
        RocCurveDisplay.from_predictions(judge[1] == number, chances[:, number], name=name, ax=axes)
    axes.set_title("One species versus the rest")
    plt.savefig("outputs/roc.png", dpi=100)
    plt.close("all")


def keep(model, rate, folder):
    """Saves the model under the run ID, atomically: other runs may read the folder at the same time."""
    name = os.environ.get("MLW_RUN_ID", "by-hand") + ".joblib"
    part = os.path.join(folder, f".{name}.part")
    joblib.dump({"model": model, "rate": rate}, part)
    os.replace(part, os.path.join(folder, name))
    return name


def main():
    parser = argparse.ArgumentParser(description="Train a logistic regression on the iris dataset.")
    parser.add_argument("rate", nargs="?", type=float, default=0.01, help="regularization rate (%(default)s)")
    parser.add_argument("--reg", type=float, help="regularization rate as an option, for --sweep")
    options = parser.parse_args()
    rate = options.rate if options.reg is None else options.reg
    if not rate > 0:
        parser.error("the regularization rate must be greater than 0")

    learn, judge, classes = flowers.load()
    print(f"{len(learn[0])} training samples, {len(judge[0])} test samples, regularization rate {rate:g}")
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
    print("wrote outputs/model.joblib, outputs/confusion.png, and outputs/roc.png")
    print(f"saved {keep(model, rate, flowers.shared_folder())} to the shared folder for iris_score.py")


if __name__ == "__main__":
    main()
