"""Trains a classifier for handwritten digits with PyTorch DistributedDataParallel (DDP) in one or more processes.

    mlw submit -c local --launcher torchrun --processes 4 --retries 3 train.py --epochs 8

After each epoch, rank 0 saves a checkpoint and logs values that are averaged over all processes. If a process fails,
mlw starts all of them again (--retries), and they continue after the last checkpoint. The model and a confusion matrix
are saved to outputs/, which mlw keeps with the run.
"""

import argparse
import hashlib
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data.distributed import DistributedSampler

import confusion
import mlworkbench as mlw
import mnist


def join_group():
    """Joins the process group of the launcher, or forms a group of one. Returns the device of this process."""
    on_gpus = int(os.environ.get("LOCAL_WORLD_SIZE", "1")) <= torch.cuda.device_count()  # one GPU per process
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if on_gpus else torch.device("cpu")
    if on_gpus:
        torch.cuda.set_device(device)
    backend = "nccl" if on_gpus and dist.is_nccl_available() else "gloo"
    if "RANK" in os.environ:
        dist.init_process_group(backend)
    else:
        dist.init_process_group(backend, rank=0, world_size=1, store=dist.HashStore())
    return device


def print_once(text):
    """Prints a line once, not once per process."""
    if dist.get_rank() == 0:
        print(text, flush=True)


def count_text(processes):
    return "1 process" if processes == 1 else "{} processes".format(processes)


def load(data, device):
    """Returns the images and labels for training and for testing. Rank 0 downloads them; the others read its copy."""
    if dist.get_rank() == 0:
        pairs = mnist.load(data)
    dist.barrier()
    if dist.get_rank() != 0:
        pairs = mnist.load(data)
    return [tensors(pair, device) for pair in pairs]


def tensors(pair, device):
    """Moves all images to the device at once: the dataset is small."""
    images, labels = (torch.tensor(array, device=device) for array in pair)
    return images.unsqueeze(1).float() / 255, labels.long()


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


def checkpoint_path():
    return os.path.join(mlw.checkpoint_dir(), "checkpoint.pt")


def save_checkpoint(model, optimizer, epoch):
    """Rank 0 writes a new file and then renames it: a crash while writing does not damage the last checkpoint."""
    if dist.get_rank() == 0:
        state = {"epoch": epoch, "model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(state, checkpoint_path() + ".new")
        os.replace(checkpoint_path() + ".new", checkpoint_path())
    dist.barrier()  # no process starts the next epoch before the checkpoint of this one exists


def restore_checkpoint(model, optimizer, device):
    """Restores the state in all processes. Returns the number of finished epochs: 0 without a checkpoint."""
    if not os.path.exists(checkpoint_path()):
        return 0
    state = torch.load(checkpoint_path(), map_location=device, weights_only=True)
    model.module.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    dist.barrier()  # no process writes a new checkpoint before all have read this one
    return state["epoch"]


def train_epoch(model, optimizer, sampler, images, labels, batch_size):
    """Trains on this process's share of the images. Returns sums over it: loss, correct answers, images."""
    model.train()
    loss_sum, right, count = 0.0, 0, 0
    for batch in torch.tensor(list(sampler), device=images.device).split(batch_size):
        answers = model(images[batch])
        loss = functional.cross_entropy(answers, labels[batch])
        optimizer.zero_grad()
        loss.backward()  # DDP averages the gradients of all processes
        optimizer.step()
        loss_sum += loss.item() * len(batch)
        right += (answers.argmax(1) == labels[batch]).sum().item()
        count += len(batch)
    return loss_sum, right, count


@torch.no_grad()
def predict(model, images):
    model.eval()
    return torch.cat([model.module(batch) for batch in images.split(1000)])


def test(model, images, labels):
    """Tests every Nth image in each of N processes. Returns sums over them: loss, correct answers, images."""
    share = slice(dist.get_rank(), None, dist.get_world_size())
    answers = predict(model, images[share])
    loss = functional.cross_entropy(answers, labels[share], reduction="sum")
    return loss.item(), (answers.argmax(1) == labels[share]).sum().item(), len(answers)


def averages(sums, device):
    """Returns the mean loss and the accuracy over all processes."""
    total = torch.tensor(sums, dtype=torch.float64, device=device)
    dist.all_reduce(total)
    loss, right, count = total.tolist()
    return loss / count, right / count


def check_weights(model):
    """Compares the weights of all processes. DDP keeps them equal; a mistake in a training loop does not."""
    weights = nn.utils.parameters_to_vector(model.parameters()).detach().cpu().numpy()
    digests = [""] * dist.get_world_size()
    dist.all_gather_object(digests, hashlib.sha256(weights.tobytes()).hexdigest()[:16])
    if len(set(digests)) > 1:
        raise SystemExit("the processes have different weights: " + ", ".join(digests))
    print_once("equal weights in all processes ({}): {}".format(len(digests), digests[0]))


def train(options, device):
    processes = dist.get_world_size()
    (images, labels), (test_images, test_labels) = load(options.data, device)
    print_once("PyTorch {}: {} on {}".format(torch.__version__, count_text(processes), device.type))
    print_once("{} training images, {} test images".format(len(images), len(test_images)))

    torch.manual_seed(options.seed)
    model = DistributedDataParallel(build().to(device), device_ids=[device.index] if device.type == "cuda" else None)
    optimizer = torch.optim.Adam(model.parameters(), options.lr)
    sampler = DistributedSampler(images, seed=options.seed)
    first = restore_checkpoint(model, optimizer, device) + 1
    if first > options.epochs:
        print_once("nothing to train: the checkpoint is from epoch {}; use a higher --epochs".format(first - 1))
    else:
        attempt = os.environ.get("MLW_ATTEMPT", "1")
        print_once("attempt {} starts at epoch {} of {}".format(attempt, first, options.epochs))
    for epoch in range(first, options.epochs + 1):
        sampler.set_epoch(epoch)  # a different order in each epoch
        torch.manual_seed(options.seed + epoch * processes + dist.get_rank())  # different dropout in each process
        sums = train_epoch(model, optimizer, sampler, images, labels, options.batch_size // processes)
        loss, accuracy = averages(sums, device)
        test_loss, test_accuracy = averages(test(model, test_images, test_labels), device)
        if dist.get_rank() == 0:
            mlw.log("loss", loss, step=epoch)
            mlw.log("accuracy", accuracy, step=epoch)
            mlw.log("test_loss", test_loss, step=epoch)
            mlw.log("test_accuracy", test_accuracy, step=epoch)
        print_once("epoch {}   loss {:.4f}   test accuracy {:.3f}".format(epoch, loss, test_accuracy))
        save_checkpoint(model, optimizer, epoch)

    check_weights(model)
    if dist.get_rank() == 0:
        os.makedirs("outputs", exist_ok=True)
        chosen = predict(model, test_images).argmax(1)
        torch.save({name: tensor.cpu() for name, tensor in model.module.state_dict().items()}, "outputs/model.pt")
        confusion.draw(test_labels.cpu().numpy(), chosen.cpu().numpy(), "outputs/confusion.png")
        print("wrote outputs/model.pt and outputs/confusion.png")


def main():
    parser = argparse.ArgumentParser(description="Train a classifier for handwritten digits in several processes.")
    parser.add_argument("--epochs", type=int, default=8, help="number of epochs")
    parser.add_argument("--lr", type=float, default=0.002, help="learning rate")
    parser.add_argument("--batch-size", type=int, default=64, help="images per batch, over all processes")
    parser.add_argument("--data", choices=["subset", "full"], default="subset", help="full: download all of MNIST")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if options.epochs < 1:
        parser.error("--epochs must be at least 1")
    if options.batch_size < int(os.environ.get("WORLD_SIZE", "1")):
        parser.error("--batch-size must be at least the number of processes")

    device = join_group()
    train(options, device)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
