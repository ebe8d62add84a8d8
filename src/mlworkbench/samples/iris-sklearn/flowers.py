"""The data: 150 iris flowers, made harder; and the folder in which runs leave models for each other."""

import os

import numpy as np
from sklearn.datasets import load_iris
from sklearn.model_selection import train_test_split

NOISE = 20  # columns of nonsense beside the four that mean something


def load(seed=1):
    """(learn, judge, classes); each of the first two is (measurements, species). The same for every run."""
    iris = load_iris()  # comes with scikit-learn: nothing is downloaded
    nonsense = np.random.default_rng(seed).normal(size=(len(iris.data), NOISE))
    columns = np.hstack([iris.data, nonsense])
    parts = train_test_split(columns, iris.target, test_size=0.4, random_state=seed, stratify=iris.target)
    return (parts[0], parts[2]), (parts[1], parts[3]), [str(name) for name in iris.target_names]


def shared_folder():
    """It outlives runs; each machine has its own. By hand, outside a run, it is beside the script."""
    folder = os.path.join(os.environ.get("AZUREML_NATIVE_SHARE_DIRECTORY", "."), "models")
    os.makedirs(folder, exist_ok=True)
    return folder
