"""Trains a classifier for handwritten digits with PyTorch.

    mlw submit -c local train.py --epochs 8 --lr 0.002

Each epoch logs its loss and accuracy to the run. The model and a confusion matrix are saved to outputs/, which mlw
keeps with the run.
"""

import argparse
import os

import torch
from torch import nn
from torch.nn import functional

import confusion
import mlworkbench as mlw
import mnist


def build():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 5 * 5, 64),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Linear(64, 10),
    )


def pick_device():
    if torch.cuda.is_available():
        return torch.device("cuda"), torch.cuda.get_device_name()
    if torch.backends.mps.is_available():
        return torch.device("mps"), "an Apple GPU"
    return torch.device("cpu"), "the CPU"


def tensors(pair, device):
    """Moves all images to the device at once: the dataset is small."""
    images, labels = (torch.tensor(one, device=device) for one in pair)
    return images.unsqueeze(1).float() / 255, labels.long()


def train_epoch(model, optimizer, images, labels, batch_size):
    """Returns the mean loss and the accuracy during the epoch."""
    model.train()
    loss_sum, right = 0.0, 0
    for batch in torch.randperm(len(images), device=images.device).split(batch_size):
        answers = model(images[batch])
        loss = functional.cross_entropy(answers, labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss_sum += loss.item() * len(batch)
        right += (answers.argmax(1) == labels[batch]).sum().item()
    return loss_sum / len(images), right / len(images)


@torch.no_grad()
def test(model, images, labels):
    model.eval()
    answers = torch.cat([model(batch) for batch in images.split(1000)])
    chosen = answers.argmax(1)
    return functional.cross_entropy(answers, labels).item(), (chosen == labels).float().mean().item(), chosen.cpu()


def main():
    parser = argparse.ArgumentParser(description="Train a classifier for handwritten digits with PyTorch.")
    parser.add_argument("--epochs", type=int, default=8, help="number of epochs")
    parser.add_argument("--lr", type=float, default=0.002, help="learning rate")
    parser.add_argument("--batch-size", type=int, default=64, help="images per batch")
    parser.add_argument("--data", choices=["subset", "full"], default="subset", help="full: download all of MNIST")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if options.epochs < 1:
        parser.error("--epochs must be at least 1")

    learn, judge = mnist.load(options.data)
    device, name = pick_device()
    print("PyTorch {} on {} ({})".format(torch.__version__, name, device))
    print("{} training images, {} test images".format(len(learn[0]), len(judge[0])))

    torch.manual_seed(options.seed)
    images, labels = tensors(learn, device)
    test_images, test_labels = tensors(judge, device)
    model = build().to(device)
    optimizer = torch.optim.Adam(model.parameters(), options.lr)
    for epoch in range(1, options.epochs + 1):
        loss, accuracy = train_epoch(model, optimizer, images, labels, options.batch_size)
        test_loss, test_accuracy, answers = test(model, test_images, test_labels)
        mlw.log("loss", loss, step=epoch)
        mlw.log("accuracy", accuracy, step=epoch)
        mlw.log("test_loss", test_loss, step=epoch)
        mlw.log("test_accuracy", test_accuracy, step=epoch)
        print("epoch {}   loss {:.4f}   test accuracy {:.3f}".format(epoch, loss, test_accuracy))

    os.makedirs("outputs", exist_ok=True)
    torch.save(model.cpu().state_dict(), "outputs/model.pt")
    confusion.draw(judge[1], answers.numpy(), "outputs/confusion.png")
    print("wrote outputs/model.pt and outputs/confusion.png")


if __name__ == "__main__":
    main()
