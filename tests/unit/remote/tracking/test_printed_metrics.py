"""Metrics from ``key: value`` lines in a script's log."""

import json

import pytest

from mlworkbench.remote.tracking.printed_metrics import PrintedMetricsReader, parse_line


@pytest.mark.parametrize(
    ("line", "pairs", "step"),
    [
        ("accuracy: 0.93", [("accuracy", 0.93)], None),
        ("  loss = -1.5e-3  ", [("loss", -0.0015)], None),
        ("validation loss: .5", [("validation loss", 0.5)], None),
        ("loss=0.5, lr=1e-3", [("loss", 0.5), ("lr", 0.001)], None),
        ("loss: 0.5 acc: 93%", [("loss", 0.5), ("acc", 93.0)], None),
        ("loss: 0.5 | acc: 0.9 | inf: inf", [("loss", 0.5), ("acc", 0.9), ("inf", float("inf"))], None),
        ("step: 7, loss: 0.5", [("loss", 0.5)], 7),
        ("epoch=3 loss=0.5", [("loss", 0.5)], 3),
        ("Epoch 3/10 - loss: 0.5 - acc: 0.9", [("loss", 0.5), ("acc", 0.9)], 3),
        ("Epoch [3/10], loss: 0.5", [("loss", 0.5)], 3),
        ("[step 12] loss: 0.5", [("loss", 0.5)], 12),
        ("epoch: 3", [("epoch", 3.0)], None),
        ("1/1 - 1s - 1s/step - loss: 1.0000 - val_loss: 0.9604", [("loss", 1.0), ("val_loss", 0.9604)], None),
        ("10/10 - 0s - loss: 0.5", [("loss", 0.5)], None),
        (
            "32/32 [==============================] - 0s 2ms/step - loss: 0.6931 - accuracy: 0.5",
            [("loss", 0.6931), ("accuracy", 0.5)],
            None,
        ),
        ("half done\r\x1b[32mloss: 0.25\x1b[0m", [("loss", 0.25)], None),
        ("error: 0.25", [("error", 0.25)], None),
        ("Validation Error: 0.25", [("Validation Error", 0.25)], None),
        ("epoch: 0.5, loss: 2", [("epoch", 0.5), ("loss", 2.0)], None),
        # Hugging Face
        ("{'loss': 0.5}", [("loss", 0.5)], None),
        (
            "{'loss': 0.6931, 'grad_norm': 1.5, 'learning_rate': 5e-05, 'epoch': 0.02}",
            [("loss", 0.6931), ("grad_norm", 1.5), ("learning_rate", 5e-05), ("epoch", 0.02)],
            None,
        ),
        ("{'eval_loss': '0.31', 'epoch': '1'}", [("eval_loss", 0.31)], 1),
        ('{"loss": 0.5, "step": 30, "epoch": 2}', [("loss", 0.5)], 30),
        ("{'a': np.float64(0.5), 'b': tensor(0.25, device='cuda:0'), 'c': None}", [("a", 0.5), ("b", 0.25)], None),
        (" 10%|█         | 5/50 [00:01<00:09,  4.90it/s]{'loss': 0.5}", [("loss", 0.5)], None),
        (" 10%|█ | 5/50 [00:01<00:09, 4.90it/s]\r            \r{'loss': 0.5}", [("loss", 0.5)], None),
        # tqdm
        (
            "  0%|   | 0/9 [00:00<?, ?it/s]\r 50%|█   | 5/9 [00:01<00:01,  4.90it/s, loss=0.9]\r"
            "100%|███| 9/9 [00:02<00:00,  4.90it/s, loss=0.31, acc=0.9, lr=1e-3, mode=fast]\r",
            [("loss", 0.31), ("acc", 0.9), ("lr", 0.001)],
            None,
        ),
        ("Epoch 3: 100%|██| 9/9 [00:02<00:00, 4.90it/s, v_num=0, train_loss=0.3]", [("train_loss", 0.3)], 3),
        ("7it [00:02,  1.20s/it, loss=0.3]", [("loss", 0.3)], None),
        # Keras 3
        (
            "\x1b[1m9/9\x1b[0m \x1b[32m━━━━━━━━\x1b[0m\x1b[37m\x1b[0m \x1b[1m0s\x1b[0m 2ms/step"
            " - accuracy: 0.9000 - loss: 0.3100 - val_loss: 0.4",
            [("accuracy", 0.9), ("loss", 0.31), ("val_loss", 0.4)],
            None,
        ),
        ("\b" * 80 + "\r9/9 ━━━━ 0s 2ms/step - loss: 0.3", [("loss", 0.3)], None),
    ],
)
def test_lines_with_metrics(line, pairs, step):
    assert parse_line(line) == (pairs, step)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "hello",
        "Traceback (most recent call last):",
        "the loss was 0.5 today: fine",
        "loss: 0.5 and more words",
        "2026-11-15 12:30:05 started",
        "http://host:8080/",
        "loss: 0.5.1",
        "loss: 0x10",
        "version: 1.2.3",
        "key: value",
        "INFO: 42",
        "info: 42",
        "Warning: 3",
        "ERROR: 5",
        "Error: 5",
        "DEBUG=1",
        "my.module INFO: 42",
        "step 3 WARNING: 7",
        "Nov 15 12:30",
        "started at 12:30",
        "{'loss': 0.5, 'model': 'resnet'}",
        "{'loss': 0.5, 'sizes': [1, 2]}",
        "{'loss': {'a': 1}}",
        "config {'loss': 0.5}",
        "{'loss': 0.5} and more",
        "{}",
        "100%|███| 9/9 [00:02<00:00,  4.90it/s]",
        "values [1, 2, a=3]",
        "5/9 ━━━━ 0s 2ms/step - loss: 0.3",
        "x" * 2000 + ": 1",
        ": 5",
    ],
)
def test_lines_without_metrics(line):
    assert parse_line(line) is None


def points(path):
    lines = [json.loads(line) for line in path.read_bytes().splitlines() if line]
    return [(line["n"], line["v"], line.get("s")) for line in lines if "n" in line]


def test_a_growing_log_is_continued_by_the_next_supervisor(tmp_path):
    log, target = tmp_path / "log", tmp_path / "metrics" / "spoken"
    reader = PrintedMetricsReader(str(log), str(target))
    assert reader.poll()
    text = b"begin\n10%\rloss: 1, acc: 0.5\nnot this: line\n\xff\nloss: 2\nloss: 3"
    for end in range(len(text) + 1):
        log.write_bytes(text[:end])
        assert reader.poll()
    assert points(target) == [("loss", 1.0, None), ("acc", 0.5, None), ("loss", 2.0, None)]
    log.write_bytes(text + b"\nepoch: 9 loss: nan\n")
    assert PrintedMetricsReader(str(log), str(target)).finish()
    assert points(target)[3:] == [("loss", 3.0, None), ("loss", "NaN", 9)]


def test_a_very_long_line_is_skipped(tmp_path):
    log, target = tmp_path / "log", tmp_path / "metrics" / "spoken"
    log.write_bytes(b"." * 600_000 + b"\nloss: 1\n")
    assert PrintedMetricsReader(str(log), str(target)).finish()
    assert points(target) == [("loss", 1.0, None)]


def test_only_the_last_progress_line_of_an_epoch_counts(tmp_path):
    """Without a terminal, Keras prints a new line for each update, and the last line of an epoch twice."""
    log, target = tmp_path / "log", tmp_path / "metrics" / "spoken"
    bar = "━━━━ 0s 2ms/step"
    text = "".join(
        f"Epoch {epoch}/2\n1/2 {bar} - loss: 0.9\n2/2 {bar} - loss: 0.5\n2/2 {bar} - loss: 0.{epoch} - val_loss: 7\n"
        for epoch in (1, 2)
    ).encode()
    reader = PrintedMetricsReader(str(log), str(target))
    for end in range(len(text) + 1):
        log.write_bytes(text[:end])
        assert reader.poll()
    assert points(target) == [("loss", 0.1, None), ("val_loss", 7.0, None)]
    assert PrintedMetricsReader(str(log), str(target)).finish()
    assert points(target)[2:] == [("loss", 0.2, None), ("val_loss", 7.0, None)]


def test_the_last_state_of_a_long_progress_bar_is_recorded(tmp_path):
    log, target = tmp_path / "log", tmp_path / "metrics" / "spoken"
    states = [f"{at // 100}%|█| {at}/10000 [00:01<00:01,  9.9it/s, loss=0.{at:05}]" for at in range(10001)]
    log.write_text("\r" + "\r".join(states) + "\nscore: 1\n")
    assert log.stat().st_size > 500_000
    assert PrintedMetricsReader(str(log), str(target)).finish()
    assert points(target) == [("loss", 0.1, None), ("score", 1.0, None)]
