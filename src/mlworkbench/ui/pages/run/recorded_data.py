"""Cards of the overview: description, datasets, and models that the script recorded with MLflow."""

from __future__ import annotations

from nicegui import ui

from ....report.mlflow_report import MlflowData, content_text, description_of, metrics_text, source_text, version_text
from ....runfiles.mlflow_models import Dataset, LoggedModel
from ....sanitize import plain
from ...components.property_list import Cell, heading, table
from ...components.readme_view import ReadmeView, parse_description
from .page_context import RunPageContext

_MAX_ROWS = 50  # maximum entries of a card


def description(context: RunPageContext) -> None:
    text = description_of(context.run)
    if text is not None:
        with ui.element("section").classes("mlw-card"):
            heading("Description")
            ReadmeView(parse_description(text))


def datasets(data: MlflowData) -> None:
    if data.datasets:
        with ui.element("section").classes("mlw-card"):
            heading("Datasets")
            titles = ["Name", "Context", "Source", "Content", "Digest"]
            table(titles, map(_dataset_row, data.datasets[:_MAX_ROWS]), "Datasets")
            _more(len(data.datasets))


def _dataset_row(dataset: Dataset) -> list[str]:
    return [
        plain(dataset.name, 100),
        plain(dataset.context, 60),
        source_text(dataset, 200),
        content_text(dataset),
        plain(dataset.digest, 40),
    ]


def models(context: RunPageContext, data: MlflowData) -> None:
    if not data.models and not data.other_versions:
        return
    with ui.element("section").classes("mlw-card"):
        heading("Models")
        rows = [_model_row(context, data, model) for model in data.models[:_MAX_ROWS]]
        rows += [["", "", version_text(version)] for version in data.other_versions[:_MAX_ROWS]]
        table(["Name", "Metrics", "Registered as"], rows, "Models")
        _more(len(data.models))


def _model_row(context: RunPageContext, data: MlflowData, model: LoggedModel) -> list[Cell]:
    name = plain(model.name, 100)
    path = model.path
    link: Cell = (lambda: ui.link(name, context.address(tab="outputs", path=path))) if path else name
    return [link, metrics_text(model), ", ".join(map(version_text, data.versions_of(model)))]


def _more(count: int) -> None:
    if count > _MAX_ROWS:
        ui.label(f"and {count - _MAX_ROWS} more").classes("mlw-faint")
