"""The digit images that the samples contain or download: complete and correct, or a one-sentence error."""

from __future__ import annotations

import ast
import base64
import functools
import gzip
import hashlib
import http.server
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from mlworkbench.config.gallery import GALLERY
from tests.interpreters import interpreters

LAYER = GALLERY / "shared" / "mnist"
COUNT = {"train": 30, "t10k": 10}
SECRET = "ada:canary%20w@rd@"


@pytest.fixture
def mnist(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ModuleType]:
    """The module as a script imports it, with an empty shared folder and no reachable mirror."""
    monkeypatch.syspath_prepend(str(LAYER))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setenv("AZUREML_NATIVE_SHARE_DIRECTORY", str(tmp_path / "share") + "/")
    monkeypatch.delenv("MNIST_MIRROR", raising=False)
    import mnist  # type: ignore[import-not-found]

    monkeypatch.setattr(mnist, "MIRRORS", ("file:///nowhere/at/all/",))
    yield mnist
    sys.modules.pop("mnist")


@pytest.fixture
def mirror(mnist: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder with four small files. The module accepts them as the complete MNIST data set."""
    folder = tmp_path / "mirror of it"
    folder.mkdir()
    known = {}
    for part, count in COUNT.items():
        images = np.arange(count * 784, dtype=np.uint32).astype(np.uint8).reshape(count, 28, 28)
        for kind, array in (("images-idx3", images), ("labels-idx1", np.arange(count, dtype=np.uint8) % 10)):
            content = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">i4").tobytes() + array.tobytes()
            name = f"{part}-{kind}-ubyte.gz"
            (folder / name).write_bytes(gzip.compress(content))
            known[name] = (len(content), hashlib.sha256(content).hexdigest())
    monkeypatch.setattr(mnist, "FILES", {name: known[name] for name in mnist.FILES})
    return folder


@pytest.fixture
def server(mirror: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """The mirror over HTTP: its URL, the requested paths, and the received Authorization headers."""
    asked: list[str] = []
    shown: list[str] = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_request(self, code: object = "-", size: object = "-") -> None:
            asked.append(self.path)
            shown.extend(self.headers.get_all("Authorization", []))

        def log_error(self, *words: object) -> None:
            pass

    made = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(mirror)))
    thread = threading.Thread(target=made.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{made.server_port}", asked, shown
    made.shutdown()
    thread.join()
    made.server_close()


def kept(mnist: ModuleType) -> list[str]:
    folder: Path = mnist.folder()
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def must_be_all(loaded: tuple) -> None:
    (images, labels), (test_images, test_labels) = loaded
    assert (images.shape, labels.shape) == ((30, 28, 28), (30,))
    assert (test_images.shape, test_labels.tolist()) == ((10, 28, 28), list(range(10)))
    assert images[0, 0, :3].tolist() == [0, 1, 2] and images.dtype == np.uint8


# -- included images -----------------------------------------------------------------------------------


def test_the_pictures_that_come_along(mnist: ModuleType) -> None:
    (images, labels), (test_images, test_labels) = mnist.load()
    assert (images.shape, test_images.shape) == ((2000, 28, 28), (500, 28, 28))
    assert np.bincount(labels).tolist() == [200] * 10 and np.bincount(test_labels).tolist() == [50] * 10
    assert len({one.tobytes() for one in (*images, *test_images)}) == 2500, "none is there twice"
    middles = np.stack([images[labels == digit].mean(axis=0).ravel() for digit in range(10)])
    distances = ((test_images.reshape(500, 1, 784) - middles) ** 2).sum(axis=2)
    assert (distances.argmin(axis=1) == test_labels).mean() > 0.7, "pictures and labels belong together"
    assert kept(mnist) == []


def test_they_are_small_and_their_origin_is_told() -> None:
    files = [path for path in LAYER.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert sum(path.stat().st_size for path in files) < 500_000
    text = (LAYER / "digits" / "readme.md").read_text()
    assert all(word in text for word in ("LeCun", "Cortes", "Burges", "Share Alike 3.0", "2,000", "500"))


def test_no_other_data(mnist: ModuleType) -> None:
    with pytest.raises(ValueError, match="'subset' or 'full'"):
        mnist.load("some")


@pytest.mark.parametrize("version", [(3, 6), max(interpreters())], ids=str)
def test_old_and_new_pythons_understand_it(version: tuple[int, int]) -> None:
    for path in LAYER.glob("*.py"):
        ast.parse(path.read_text(), feature_version=version)
    if version in interpreters():
        program = "import ast, sys\nfor path in sys.argv[1:]: compile(open(path).read(), path, 'exec')"
        words = [interpreters()[version], "-c", program, *map(str, LAYER.glob("*.py"))]
        subprocess.run(words, check=True)


# -- complete data set ---------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["folder", "file", "http"])
def test_a_mirror_of_ones_own(mnist, mirror, server, form, monkeypatch, capsys) -> None:
    address, asked, shown = server
    monkeypatch.setenv("MNIST_MIRROR", {"folder": str(mirror), "file": mirror.as_uri(), "http": address + "/"}[form])
    must_be_all(mnist.load("full"))
    assert kept(mnist) == sorted(mnist.FILES)
    assert asked == ([f"/{name}" for name in mnist.FILES] if form == "http" else []) and not shown
    told = capsys.readouterr().out
    assert told.count("mnist: downloading ") == 4 and "again" not in told, "not in silence"
    monkeypatch.setenv("MNIST_MIRROR", "http://127.0.0.1:1")
    must_be_all(mnist.load("full"))
    assert capsys.readouterr().out == "", "the second time it is there"


def test_a_mirror_that_asks_for_a_password(mnist, mirror, server, monkeypatch, capsys) -> None:
    """The mirror receives the password, and the output does not contain it."""
    address, _, shown = server
    monkeypatch.setenv("MNIST_MIRROR", address.replace("://", f"://{SECRET}"))
    must_be_all(mnist.load("full"))
    assert [base64.b64decode(one.partition(" ")[2]) for one in shown] == [b"ada:canary w@rd"] * 4
    told = capsys.readouterr().out
    assert f"mnist: downloading {address}/train-images-idx3-ubyte.gz\n" in told and "canary" not in told


@pytest.mark.parametrize("host", ["127.0.0.1:1", "127.0.0.1:port", "[::1", "", "127.0.0.1:1/with@sign", "a b"])
@pytest.mark.parametrize("scheme", ["http", "gopher"])
def test_nor_is_it_told_in_an_error(mnist, mirror, monkeypatch, capsys, scheme, host) -> None:
    monkeypatch.setenv("MNIST_MIRROR", f"{scheme}://{SECRET}{host}")
    with pytest.raises(SystemExit, match="cannot download") as ended:
        mnist.load("full")
    told = str(ended.value) + capsys.readouterr().out
    assert "canary" not in told and "ada" not in told and f"{scheme}://{host}" in told


def test_the_next_public_mirror_when_one_is_away(mnist, server, monkeypatch) -> None:
    monkeypatch.setattr(mnist, "MIRRORS", ("http://127.0.0.1:1/", server[0] + "/"))
    must_be_all(mnist.load("full"))


def test_nobody_answers(mnist, mirror, monkeypatch) -> None:
    monkeypatch.setattr(mnist, "MIRRORS", ("http://127.0.0.1:1/one/", "http://127.0.0.1:1/two/"))
    with pytest.raises(SystemExit) as ended:
        mnist.load("full")
    said = str(ended.value)
    assert said == (
        "mnist: cannot download train-images-idx3-ubyte.gz (http://127.0.0.1:1/one/: Connection refused; "
        "http://127.0.0.1:1/two/: Connection refused). Use --data subset, which needs no network, or set MNIST_MIRROR "
        "to a URL or a folder with the four .gz files of MNIST."
    )
    assert kept(mnist) == []


@pytest.mark.parametrize("value", ["/not/there", "gopher://old", "http://"])
def test_a_mirror_that_is_none_and_no_other_is_tried(mnist, mirror, server, value, monkeypatch) -> None:
    monkeypatch.setattr(mnist, "MIRRORS", (server[0],))
    monkeypatch.setenv("MNIST_MIRROR", value)
    with pytest.raises(SystemExit, match="cannot download"):
        mnist.load("full")
    assert server[1] == [] and kept(mnist) == []


def test_a_mirror_without_one_of_them(mnist, mirror, server, monkeypatch) -> None:
    (mirror / "t10k-labels-idx1-ubyte.gz").unlink()
    monkeypatch.setenv("MNIST_MIRROR", server[0])
    with pytest.raises(SystemExit, match=r"cannot download t10k-labels-idx1-ubyte.gz \(.*: HTTP status 404 "):
        mnist.load("full")


def _half(data: bytes) -> bytes:
    return data[: len(data) // 2]


def _other(data: bytes) -> bytes:
    content = bytearray(gzip.decompress(data))
    content[-1] ^= 1
    return gzip.compress(bytes(content))


def _page(data: bytes) -> bytes:
    return b"<html>Please log in"


def _longer(data: bytes) -> bytes:
    return gzip.compress(gzip.decompress(data) + b"x")


WRONG = {
    _half: "is incomplete",
    _other: "SHA-256 does not match",
    _page: "not a .gz file",
    _longer: "SHA-256 does not match",
}


@pytest.mark.parametrize("wrong", WRONG, ids=lambda one: one.__name__[1:])
def test_a_file_that_is_not_right(mnist, mirror, server, wrong, monkeypatch) -> None:
    """The sample reports the error and does not keep the file."""
    path = mirror / "train-labels-idx1-ubyte.gz"
    path.write_bytes(wrong(path.read_bytes()))
    monkeypatch.setenv("MNIST_MIRROR", server[0])
    with pytest.raises(SystemExit, match=WRONG[wrong]):
        mnist.load("full")
    assert kept(mnist) == ["train-images-idx3-ubyte.gz"]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda one: one.__name__[1:])
def test_a_kept_file_that_was_spoilt_is_fetched_again(mnist, mirror, server, wrong, monkeypatch, capsys) -> None:
    monkeypatch.setenv("MNIST_MIRROR", server[0])
    mnist.load("full")
    path = mnist.folder() / "t10k-images-idx3-ubyte.gz"
    path.write_bytes(wrong(path.read_bytes()))
    server[1].clear()
    must_be_all(mnist.load("full"))
    assert server[1] == ["/t10k-images-idx3-ubyte.gz"]
    assert "downloading it again" in capsys.readouterr().out
    must_be_all(mnist.load("full"))
    assert len(server[1]) == 1


def test_a_shared_folder_that_cannot_be_written(mnist, mirror, monkeypatch, tmp_path, capsys) -> None:
    (tmp_path / "share").write_text("a file")
    monkeypatch.setenv("MNIST_MIRROR", str(mirror))
    must_be_all(mnist.load("full"))
    assert "for later runs" in capsys.readouterr().out


def test_a_full_disk_leaves_nothing(mnist, mirror, monkeypatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setenv("MNIST_MIRROR", str(mirror))
    monkeypatch.setattr(os, "replace", fail)
    must_be_all(mnist.load("full"))
    assert kept(mnist) == []


def test_two_runs_at_once(mnist, mirror, server, monkeypatch, capsys) -> None:
    """Both runs have downloaded a file before either renames it. Both get all data, and one set of files remains."""
    monkeypatch.setenv("MNIST_MIRROR", server[0])
    both, met = threading.Barrier(2), []
    replace, loaded = os.replace, []

    def together(*words: str) -> None:
        met.append(both.wait(30))
        replace(*words)

    monkeypatch.setattr(os, "replace", together)
    threads = [threading.Thread(target=lambda: loaded.append(mnist.load("full"))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(loaded) == 2 and len(met) == 8
    for one in loaded:
        must_be_all(one)
    assert kept(mnist) == sorted(mnist.FILES) and "cannot store" not in capsys.readouterr().out
    monkeypatch.setenv("MNIST_MIRROR", "/not/there")
    must_be_all(mnist.load("full"))
