"""Loads MNIST, images of handwritten digits, for the scripts of this project.

    import mnist

    (train_images, train_labels), (test_images, test_labels) = mnist.load("subset")

`subset` is in the folder digits/: 2,000 training images and 500 test images; it needs no network. `full` is all of
MNIST, 60,000 training images and 10,000 test images: downloaded once (11 MB) and stored in the project's shared folder
for later runs.

The environment variable MNIST_MIRROR sets a different source: a URL (https:, http:, file:) or a folder with the four
.gz files. For a mirror that requires a login, use https://USER:PASSWORD@HOST. The script verifies the SHA-256 digests
of the files.
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

# File: its uncompressed size, and the SHA-256 of the uncompressed content.
FILES = {
    "train-images-idx3-ubyte.gz": (47040016, "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"),
    "train-labels-idx1-ubyte.gz": (60008, "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
    "t10k-images-idx3-ubyte.gz": (7840016, "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"),
    "t10k-labels-idx1-ubyte.gz": (10008, "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
}
MIRRORS = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/")
SUBSET = pathlib.Path(__file__).resolve().parent / "digits"
PATIENCE = 60  # timeout in seconds


class NotAvailable(SystemExit):
    """Ends the script with an error message, unless it is caught."""


def load(data="subset"):
    """Returns (images, labels) for training and for testing: bytes of the shape (n, 28, 28) and (n,)."""
    if data not in ("subset", "full"):
        raise ValueError("data must be 'subset' or 'full', not {!r}".format(data))
    content = _full if data == "full" else _subset
    arrays = [_array(content(name)) for name in FILES]
    return (arrays[0], arrays[1]), (arrays[2], arrays[3])


def folder():
    """Returns the folder for the full dataset, which persists across runs."""
    share = os.environ.get("AZUREML_NATIVE_SHARE_DIRECTORY") or os.path.join("~", ".cache")
    return pathlib.Path(share).expanduser() / "mnist"


def _subset(name):
    return gzip.decompress((SUBSET / name).read_bytes())


def _full(name):
    """Returns the content of a file from the folder; downloads it if necessary."""
    kept = folder() / name
    try:
        return _checked(name, kept.read_bytes())
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as why:
        print("mnist: {}: {}; downloading it again".format(kept, why))
    packed, content = _fetched(name)
    try:
        _keep(kept, packed)
    except OSError as why:
        print("mnist: cannot store {} for later runs: {}".format(kept, why))
    return content


def _fetched(name):
    """Downloads a file from the first mirror that has it. Returns its compressed and its uncompressed content."""
    own = os.environ.get("MNIST_MIRROR")
    tried = []
    for mirror, password in [_apart(_address(own))] if own else [(mirror, "") for mirror in MIRRORS]:
        address = mirror.rstrip("/") + "/" + name
        print("mnist: downloading " + address)
        try:
            request = urllib.request.Request(address)
            if password:  # must not be sent to another host after a redirect
                request.add_unredirected_header("Authorization", "Basic " + password)
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                packed = answer.read(FILES[name][0] + 1024)  # compressed data is not longer than uncompressed data
            return packed, _checked(name, packed)
        except urllib.error.HTTPError as why:
            tried.append("{}: HTTP status {} {}".format(mirror, why.code, why.reason))
        except urllib.error.URLError as why:
            tried.append("{}: {}".format(mirror, getattr(why.reason, "strerror", None) or why.reason))
        except (OSError, ValueError, http.client.HTTPException) as why:
            tried.append("{}: {}".format(mirror, why))
    raise NotAvailable(
        "mnist: cannot download {} ({}). Use --data subset, which needs no network, or set MNIST_MIRROR to a URL or "
        "a folder with the four .gz files of MNIST.".format(name, "; ".join(tried))
    )


def _address(mirror):
    return mirror if "://" in mirror or mirror.startswith("file:") else pathlib.Path(mirror).absolute().as_uri()


def _apart(address):
    """Splits https://USER:PASSWORD@HOST into the URL without credentials and the credentials for HTTP basic auth."""
    found = re.match(r"(?i)(https?://)([^/?#]*)@", address)
    if not found:
        return re.sub(r"://[^/?#]*@", "://", address, count=1), ""
    words = urllib.parse.unquote_to_bytes(found.group(2))
    return found.group(1) + address[found.end() :], base64.b64encode(words).decode()


def _checked(name, packed):
    """Returns the uncompressed content; raises ValueError if the file is incomplete or not the expected one."""
    size, wanted = FILES[name]
    try:
        content = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(packed, size + 1)
    except zlib.error:
        raise ValueError("not a .gz file") from None
    if len(content) < size:
        raise ValueError("the file is incomplete")
    if hashlib.sha256(content).hexdigest() != wanted:
        raise ValueError("the SHA-256 does not match")
    return content


def _keep(kept, packed):
    """Writes the file atomically: other runs may do the same, and this run may be stopped at any time."""
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
    """Parses the IDX format: four bytes, the last of which is the number of dimensions; their lengths; the values."""
    dimensions = content[3]
    shape = np.frombuffer(content, ">i4", dimensions, offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape)
