"""Trains a classifier for handwritten digits with TensorFlow.

    mlw submit -c local train.py --epochs 8 --lr 0.002

Each epoch logs its loss and accuracy to the run. The model and a confusion matrix are saved to outputs/, which mlw
keeps with the run.
"""

import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # hides info messages and warnings; must precede the import
import tensorflow as tf

import confusion
import mlworkbench as mlw
import mnist


def build(lr):
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [
            layers.Input((28, 28, 1)),
            layers.Rescaling(1 / 255),
            layers.Conv2D(16, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dropout(0.2),
            layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(tf.keras.optimizers.Adam(lr), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


class Log(tf.keras.callbacks.Callback):
    """Logs the metrics of each epoch to the run."""

    def on_epoch_end(self, epoch, logs=None):
        for name, value in logs.items():
            mlw.log(name.replace("val_", "test_"), float(value), step=epoch + 1)
        print("epoch {}   loss {loss:.4f}   test accuracy {val_accuracy:.3f}".format(epoch + 1, **logs))


def main():
    parser = argparse.ArgumentParser(description="Train a classifier for handwritten digits with TensorFlow.")
    parser.add_argument("--epochs", type=int, default=8, help="number of epochs")
    parser.add_argument("--lr", type=float, default=0.002, help="learning rate")
    parser.add_argument("--batch-size", type=int, default=64, help="images per batch")
    parser.add_argument("--data", choices=["subset", "full"], default="subset", help="full: download all of MNIST")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if options.epochs < 1:
        parser.error("--epochs must be at least 1")

    (images, labels), (test_images, test_labels) = mnist.load(options.data)
    gpus = tf.config.list_physical_devices("GPU")
    print("TensorFlow {} on {}".format(tf.__version__, ", ".join(gpu.name for gpu in gpus) or "the CPU"))
    print("{} training images, {} test images".format(len(images), len(test_images)))

    tf.keras.utils.set_random_seed(options.seed)
    model = build(options.lr)
    model.fit(
        images[..., None],
        labels,
        batch_size=options.batch_size,
        epochs=options.epochs,
        validation_data=(test_images[..., None], test_labels),
        callbacks=[Log()],
        verbose=0,
    )

    os.makedirs("outputs", exist_ok=True)
    model.save("outputs/model.keras")
    answers = model.predict(test_images[..., None], verbose=0).argmax(axis=1)
    confusion.draw(test_labels, answers, "outputs/confusion.png")
    print("wrote outputs/model.keras and outputs/confusion.png")


if __name__ == "__main__":
    main()
