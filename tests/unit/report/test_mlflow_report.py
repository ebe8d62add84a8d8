"""Texts about what a script recorded with MLflow."""

from __future__ import annotations

import pytest

from mlworkbench.report.mlflow_report import content_text, metrics_text, source_text, span_duration, version_text
from mlworkbench.runfiles.mlflow_models import Dataset, LoggedModel, ModelVersion


@pytest.mark.parametrize(
    ("kind", "source", "expected"),
    [
        ("http", {"url": "https://example.org/iris.csv"}, "https://example.org/iris.csv"),
        ("code", {"tags": {"mlflow.user": "ada"}}, "code"),
        ("local", "data.csv", "data.csv"),
        ("local", None, "local"),
        ("hf", {"path": "squad\x1b[31m"}, "squad^[[31m"),
        ("x", {"other": 1}, '{"other": 1}'),
    ],
)
def test_source_of_a_dataset(kind, source, expected):
    assert source_text(Dataset("iris", "d1", "", kind, source, None, None)) == expected


@pytest.mark.parametrize(
    ("schema", "profile", "expected"),
    [
        ({"mlflow_colspec": [{}, {}]}, {"num_rows": 150}, "2 columns, 150 rows"),
        ({"mlflow_tensorspec": {}}, {"features_shape": [150, 4]}, "shape [150, 4]"),
        (None, {"num_rows": 1}, "1 row"),
        ("text", 7, ""),
    ],
)
def test_content_of_a_dataset(schema, profile, expected):
    assert content_text(Dataset("iris", "d1", "", "", None, schema, profile)) == expected


def test_metrics_and_versions_of_a_model():
    metrics = {f"m{number}": number / 4 for number in range(7)}
    assert metrics_text(LoggedModel("net", "net", metrics=metrics)).endswith("m4 1, and 2 more")
    version = ModelVersion("net", "3", ("a\n", "b"), "READY", "", "", "", "")
    assert version_text(version) == "net 3 (a\\n, b)"


@pytest.mark.parametrize(("seconds", "text"), [(None, ""), (0.00027, "0.27 ms"), (0.5, "500 ms"), (75, "1 min 15 s")])
def test_duration_of_a_span(seconds, text):
    assert span_duration(seconds) == text
