"""Trains a classifier for two half-moons, using only the standard library.

    mlw submit -c local train.py --lr 0.5 --epochs 60

Logistic regression with gradient descent. Each epoch logs its loss and accuracy to the run. The model and a plot of
the loss are saved to outputs/, which mlw keeps with the run.
"""

import argparse
import json
import math
import os
import random

try:
    from mlworkbench import log
except ImportError:  # started without mlw: python train.py

    def log(name, value, step=None):
        """Outside a run, nothing is recorded."""


def make_moons(count, noise, seed):
    """Returns points of two interleaving half circles, and the label (0 or 1) of each point."""
    dice = random.Random(seed)
    points, labels = [], []
    for index in range(count):
        angle = math.pi * dice.random()
        label = index % 2
        x, y = (1 - math.cos(angle), 0.5 - math.sin(angle)) if label else (math.cos(angle), math.sin(angle))
        points.append((x + dice.gauss(0, noise), y + dice.gauss(0, noise)))
        labels.append(label)
    return points, labels


def features(x, y):
    """Returns polynomial features: a straight line cannot separate the moons, but a cubic curve can."""
    return (1.0, x, y, x * x, x * y, y * y, x * x * x, x * x * y, x * y * y, y * y * y)


def predict(weights, row):
    """Returns the probability that a row has label 1."""
    score = sum(weight * value for weight, value in zip(weights, row))
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, score))))


def train_epoch(weights, rows, labels, lr):
    """Runs one step of gradient descent. Returns the new weights, the loss, and the accuracy."""
    gradient = [0.0] * len(weights)
    loss, correct = 0.0, 0
    for row, label in zip(rows, labels):
        probability = predict(weights, row)
        loss -= math.log(probability if label else 1 - probability)
        correct += (probability > 0.5) == bool(label)
        for index, value in enumerate(row):
            gradient[index] += (probability - label) * value
    weights = [weight - lr * slope / len(rows) for weight, slope in zip(weights, gradient)]
    return weights, loss / len(rows), correct / len(rows)


def plot(losses, path):
    """Plots the loss over the epochs as an SVG image."""
    width, height, margin = 480, 240, 30
    top = max(losses)
    across = (width - 2 * margin) / max(1, len(losses) - 1)
    line = " ".join(
        "{:.1f},{:.1f}".format(margin + index * across, height - margin - (height - 2 * margin) * loss / top)
        for index, loss in enumerate(losses)
    )
    with open(path, "w") as file:
        file.write(
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">\n'
            f'<rect width="{width}" height="{height}" fill="white"/>\n'
            f'<path d="M{margin} {margin}V{height - margin}H{width - margin}" fill="none" stroke="gray"/>\n'
            f'<polyline points="{line}" fill="none" stroke="steelblue" stroke-width="2"/>\n'
            f'<text x="{margin}" y="20" font-size="12">loss: {losses[0]:.3f} to {losses[-1]:.3f}</text>\n'
            f'<text x="{width - margin}" y="{height - 10}" font-size="12" text-anchor="end">'
            f"epoch {len(losses)}</text>\n"
            "</svg>\n"
        )


def main():
    parser = argparse.ArgumentParser(description="Train a classifier for two half-moons.")
    parser.add_argument("--lr", type=float, default=0.5, help="learning rate")
    parser.add_argument("--epochs", type=int, default=60, help="number of epochs")
    options = parser.parse_args()
    if options.epochs < 1:
        parser.error("--epochs must be at least 1")

    points, labels = make_moons(count=400, noise=0.15, seed=7)
    rows = [features(x, y) for x, y in points]
    weights = [0.0] * len(rows[0])
    losses = []
    print(f"training on {len(rows)} points, lr {options.lr}, {options.epochs} epoch{'s' * (options.epochs > 1)}")
    for epoch in range(1, options.epochs + 1):
        weights, loss, accuracy = train_epoch(weights, rows, labels, options.lr)
        losses.append(loss)
        log("loss", loss, step=epoch)
        log("accuracy", accuracy, step=epoch)
        if epoch == 1 or epoch % 10 == 0 or epoch == options.epochs:
            print(f"epoch {epoch:3d}   loss {loss:.4f}   accuracy {accuracy:.3f}")

    os.makedirs("outputs", exist_ok=True)
    with open("outputs/model.json", "w") as file:
        json.dump({"weights": weights, "lr": options.lr, "epochs": options.epochs}, file, indent=2)
    plot(losses, "outputs/loss.svg")
    print("wrote outputs/model.json and outputs/loss.svg")


if __name__ == "__main__":
    main()
