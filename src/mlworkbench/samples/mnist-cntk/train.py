"""Trains a classifier for handwritten digits with CNTK 2.7 on Python 3.6.

    mlw submit -c local train.py --epochs 8 --lr 0.002

Each epoch logs its loss and accuracy to the run. The model and a confusion matrix are saved to outputs/, which mlw
keeps with the run.
"""

import argparse
import os
import warnings

import openmpi

openmpi.get_ready()
warnings.filterwarnings("ignore", module="cntk")  # hide a long warning about missing GPUs at import

import cntk
import numpy as np
from cntk.layers import Convolution2D, Dense, MaxPooling, Sequential

import confusion
import mlworkbench as mlw
import mnist


def build(pictures):
    network = Sequential(
        [
            Convolution2D((3, 3), 16, activation=cntk.relu),
            MaxPooling((2, 2), strides=2),
            Convolution2D((3, 3), 32, activation=cntk.relu),
            MaxPooling((2, 2), strides=2),
            Dense(64, activation=cntk.relu),
            Dense(10),
        ]
    )
    return network(pictures / 255)


def arrays(pair):
    """Converts the data for CNTK: float images with a channel axis, and one-hot labels."""
    images, labels = pair
    return images[:, None].astype(np.float32), np.eye(10, dtype=np.float32)[labels]


def batches(count, size, dice):
    order = dice.permutation(count)
    return [order[start : start + size] for start in range(0, count, size)]


def train_epoch(trainer, inputs, images, labels, size, dice):
    """Returns the mean loss and the accuracy during the epoch."""
    loss, wrong = 0.0, 0.0
    for batch in batches(len(images), size, dice):
        trainer.train_minibatch(dict(zip(inputs, (images[batch], labels[batch]))))
        loss += trainer.previous_minibatch_loss_average * len(batch)
        wrong += trainer.previous_minibatch_evaluation_average * len(batch)
    return loss / len(images), 1 - wrong / len(images)


def answer(model, images):
    return np.concatenate([model.eval(images[start : start + 500]).argmax(1) for start in range(0, len(images), 500)])


def main():
    parser = argparse.ArgumentParser(description="Train a classifier for handwritten digits with CNTK.")
    parser.add_argument("--epochs", type=int, default=8, help="number of epochs")
    parser.add_argument("--lr", type=float, default=0.002, help="learning rate")
    parser.add_argument("--batch-size", type=int, default=64, help="images per batch")
    parser.add_argument("--data", choices=["subset", "full"], default="subset", help="full: download all of MNIST")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if options.epochs < 1:
        parser.error("--epochs must be at least 1")

    learn, judge = mnist.load(options.data)
    device = cntk.device.use_default_device()
    print("CNTK {} on {}".format(cntk.__version__, "the CPU" if device == cntk.device.cpu() else device))
    print("{} training images, {} test images".format(len(learn[0]), len(judge[0])))

    cntk.cntk_py.set_fixed_random_seed(options.seed)
    dice = np.random.RandomState(options.seed)
    inputs = cntk.input_variable((1, 28, 28)), cntk.input_variable(10)
    model = build(inputs[0])
    loss = cntk.cross_entropy_with_softmax(model, inputs[1])
    wrong = cntk.classification_error(model, inputs[1])
    learner = cntk.adam(model.parameters, options.lr, momentum=0.9, variance_momentum=0.999, use_mean_gradient=True)
    trainer = cntk.Trainer(model, (loss, wrong), [learner])
    images, labels = arrays(learn)
    test_images, _ = arrays(judge)
    for epoch in range(1, options.epochs + 1):
        mean_loss, accuracy = train_epoch(trainer, inputs, images, labels, options.batch_size, dice)
        answers = answer(model, test_images)
        test_accuracy = float((answers == judge[1]).mean())
        mlw.log("loss", mean_loss, step=epoch)
        mlw.log("accuracy", accuracy, step=epoch)
        mlw.log("test_accuracy", test_accuracy, step=epoch)
        print("epoch {}   loss {:.4f}   test accuracy {:.3f}".format(epoch, mean_loss, test_accuracy))

    os.makedirs("outputs", exist_ok=True)
    model.save("outputs/model.dnn")
    confusion.draw(judge[1], answers, "outputs/confusion.png")
    print("wrote outputs/model.dnn and outputs/confusion.png")


if __name__ == "__main__":
    main()
