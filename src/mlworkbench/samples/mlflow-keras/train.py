"""Trains a classifier for handwritten digits with Keras and MLflow.

    mlw submit -c local train.py

The script does not depend on ML Workbench. In a run, everything that MLflow logs is recorded in the run: metrics,
parameters, the model, and plots. Outside a run, it logs to MLflow as usual.
"""

import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # hides info messages and warnings; must precede the import
import keras
import mlflow
import tensorflow as tf

import confusion
import mnist


def build(units):
    return keras.Sequential(
        [
            keras.Input((28, 28)),
            keras.layers.Rescaling(1 / 255),
            keras.layers.Flatten(),
            keras.layers.Dense(units, activation="relu"),
            keras.layers.Dropout(0.2),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )


def main():
    parser = argparse.ArgumentParser(description="Train a classifier for handwritten digits with Keras and MLflow.")
    parser.add_argument("--epochs", type=int, default=10, help="number of epochs")
    parser.add_argument("--lr", type=float, default=0.002, help="learning rate")
    parser.add_argument("--units", type=int, default=128, help="size of the hidden layer")
    parser.add_argument("--batch-size", type=int, default=64, help="images per batch")
    parser.add_argument("--data", choices=["subset", "full"], default="subset", help="full: download all of MNIST")
    options = parser.parse_args()
    if options.epochs < 1:
        parser.error("--epochs must be at least 1")

    (images, labels), (test_images, test_labels) = mnist.load(options.data)
    gpus = tf.config.list_physical_devices("GPU")
    print("Keras {} on {}".format(keras.__version__, ", ".join(gpu.name for gpu in gpus) or "the CPU"))

    mlflow.keras.autolog()
    keras.utils.set_random_seed(1)
    with mlflow.start_run():
        mlflow.log_params(vars(options))
        model = build(options.units)
        model.compile(keras.optimizers.Adam(options.lr), "sparse_categorical_crossentropy", metrics=["accuracy"])
        model.fit(images, labels, batch_size=options.batch_size, epochs=options.epochs, verbose=2)
        loss, accuracy = model.evaluate(test_images, test_labels, verbose=0)
        mlflow.log_metrics({"test_loss": loss, "test_accuracy": accuracy})
        confusion.draw(test_labels, model.predict(test_images, verbose=0).argmax(axis=1), "confusion.png")
        mlflow.log_artifact("confusion.png")
    print("test accuracy {:.3f}".format(accuracy))


if __name__ == "__main__":
    main()
