"""Pictures of handwritten digits (MNIST), for the scripts beside it.

    import mnist

    (train_images, train_labels), (test_images, test_labels) = mnist.load("subset")

`subset` is in the folder digits/: 2,000 pictures to learn from and 500 to test with, no network needed. `full` is all
of MNIST, 60,000 and 10,000: fetched once (11 MB) and kept in the project's shared folder, where later runs find it.

The environment variable MNIST_MIRROR names another place to fetch it from: an address (https:, http:, file:) or a
folder that has the four .gz files; https://USER:PASSWORD@HOST is for a mirror that asks who you are. Wherever they come
from, they must be the right ones to the last byte (SHA-256).
"""

import base64
import gzip
import hashlib
import http.client
import os
import pathlib
import re
import tempfile
import urllib.error
import urllib.parse
import urllib.request
import zlib

import numpy as np

# File: its size without compression, and the checksum of that.
FILES = {
    "train-images-idx3-ubyte.gz": (47040016, "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"),
    "train-labels-idx1-ubyte.gz": (60008, "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
    "t10k-images-idx3-ubyte.gz": (7840016, "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"),
    "t10k-labels-idx1-ubyte.gz": (10008, "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
}
MIRRORS = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/")
SUBSET = pathlib.Path(__file__).resolve().parent / "digits"
PATIENCE = 60  # seconds without a byte


class NotAvailable(SystemExit):
    """Ends the script with one sentence, unless somebody catches it."""


def load(data="subset"):
    """(images, labels) to learn from, and the same to test with: bytes of the shape (n, 28, 28) and (n,)."""
    if data not in ("subset", "full"):
        raise ValueError("data is 'subset' or 'full', not {!r}".format(data))
    content = _full if data == "full" else _subset
    arrays = [_array(content(name)) for name in FILES]
    return (arrays[0], arrays[1]), (arrays[2], arrays[3])


def folder():
    """Where all of MNIST is kept: it outlives runs."""
    share = os.environ.get("AZUREML_NATIVE_SHARE_DIRECTORY") or os.path.join("~", ".cache")
    return pathlib.Path(share).expanduser() / "mnist"


def _subset(name):
    return gzip.decompress((SUBSET / name).read_bytes())


def _full(name):
    """From the folder, or from a mirror into the folder."""
    kept = folder() / name
    try:
        return _checked(name, kept.read_bytes())
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as why:
        print("mnist: {}: {}; it is fetched again".format(kept, why))
    packed, content = _fetched(name)
    try:
        _keep(kept, packed)
    except OSError as why:
        print("mnist: {} cannot be kept for later runs: {}".format(kept, why))
    return content


def _fetched(name):
    """The first mirror that has the right file: as it is there, and what is in it."""
    own = os.environ.get("MNIST_MIRROR")
    tried = []
    for mirror, password in [_apart(_address(own))] if own else [(mirror, "") for mirror in MIRRORS]:
        address = mirror.rstrip("/") + "/" + name
        print("mnist: fetching " + address)
        try:
            request = urllib.request.Request(address)
            if password:  # not for the place that a mirror may send us on to
                request.add_unredirected_header("Authorization", "Basic " + password)
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                packed = answer.read(FILES[name][0] + 1024)  # with compression it is not longer than without
            return packed, _checked(name, packed)
        except urllib.error.HTTPError as why:
            tried.append("{}: it answers {} {}".format(mirror, why.code, why.reason))
        except urllib.error.URLError as why:
            tried.append("{}: {}".format(mirror, getattr(why.reason, "strerror", None) or why.reason))
        except (OSError, ValueError, http.client.HTTPException) as why:
            tried.append("{}: {}".format(mirror, why))
    raise NotAvailable(
        "mnist: {} cannot be had ({}). Use --data subset, which needs no network, or set MNIST_MIRROR to an address or "
        "a folder that has the four .gz files of MNIST.".format(name, "; ".join(tried))
    )


def _address(mirror):
    return mirror if "://" in mirror or mirror.startswith("file:") else pathlib.Path(mirror).absolute().as_uri()


def _apart(address):
    """https://USER:PASSWORD@HOST: the address without the two, which nobody is told, and the two as HTTP sends them."""
    found = re.match(r"(?i)(https?://)([^/?#]*)@", address)
    if not found:
        return re.sub(r"://[^/?#]*@", "://", address, count=1), ""
    words = urllib.parse.unquote_to_bytes(found.group(2))
    return found.group(1) + address[found.end() :], base64.b64encode(words).decode()


def _checked(name, packed):
    """What is in the file; ValueError if it is not all of it, or something else."""
    size, wanted = FILES[name]
    try:
        content = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(packed, size + 1)
    except zlib.error:
        raise ValueError("the file is no .gz file") from None
    if len(content) < size:
        raise ValueError("the file is incomplete")
    if hashlib.sha256(content).hexdigest() != wanted:
        raise ValueError("the file has not the checksum of MNIST")
    return content


def _keep(kept, packed):
    """All of it or nothing: another run may be at the same, and this one may be ended at any time."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(prefix=kept.name, suffix=".part", dir=str(kept.parent))
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(packed)
        os.chmod(part, 0o644)
        os.replace(part, str(kept))
    except BaseException:
        os.unlink(part)
        raise


def _array(content):
    """The format is four bytes, the last of which counts the dimensions; their lengths; and then the numbers."""
    dimensions = content[3]
    shape = np.frombuffer(content, ">i4", dimensions, offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape)
