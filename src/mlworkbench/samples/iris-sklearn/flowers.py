"""Provides the iris dataset with added noise, and the shared folder for models."""

import os

import numpy as np
from sklearn.datasets import load_iris
from sklearn.model_selection import train_test_split

NOISE = 20  # columns of random numbers, added to the four measurements


def load(seed=1):
    """Returns (train, test, classes); train and test are (measurements, species). All runs use the same split."""
    iris = load_iris()  # part of scikit-learn: nothing is downloaded
    nonsense = np.random.default_rng(seed).normal(size=(len(iris.data), NOISE))
    columns = np.hstack([iris.data, nonsense])
    parts = train_test_split(columns, iris.target, test_size=0.4, random_state=seed, stratify=iris.target)
    return (parts[0], parts[2]), (parts[1], parts[3]), [str(name) for name in iris.target_names]


def shared_folder():
    """Returns a folder that persists across runs on a machine; outside a run, a folder next to the script."""
    folder = os.path.join(os.environ.get("AZUREML_NATIVE_SHARE_DIRECTORY", "."), "models")
    os.makedirs(folder, exist_ok=True)
    return folder
