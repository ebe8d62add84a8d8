"""Send the versions of registered models that a run created, with descriptions, tags, and aliases."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...model import JsonDict
from ...remote.shared.layout import RunFolder
from ...runfiles.mlflow_sqlite import MlflowDatabase, open_database, text_of
from ..run_data import Item
from .remote_run import RemoteRun, get_object
from .rest_client import RequestRejected, Server
from .run_mapping import RUN_ID

VERSION = "mlw.version"  # tag with the original version
_MAX_ROWS = 10_000
_MODEL_SCHEME = "models:/"

Key = tuple[str, ...]
Tags = Mapping[str, str]


@dataclass(frozen=True)
class Version:
    """A version of a registered model as the script created it."""

    name: str
    number: str
    source: str
    location: str  # of the files, if the source is a logged model
    run: str  # MLflow run of the script
    description: str = ""
    tags: Tags = field(default_factory=dict)
    aliases: tuple[str, ...] = ()
    model_description: str = ""
    model_tags: Tags = field(default_factory=dict)


def read_versions(folder: RunFolder) -> list[Version]:
    with open_database(folder) as database:
        if database is None:
            return []
        columns = ("name", "version", "source", "storage_location", "run_id", "description")
        rows = database.select("model_versions", columns, "ORDER BY name, version LIMIT ?", (_MAX_ROWS,))
        if not rows:
            return []
        tags = _read_tags(database, "model_version_tags", "name", "version")
        model_tags = _read_tags(database, "registered_model_tags", "name")
        aliases: dict[Key, list[str]] = defaultdict(list)
        for row in database.select("registered_model_aliases", ("name", "version", "alias"), "LIMIT ?", (_MAX_ROWS,)):
            aliases[text_of(row["name"]), text_of(row["version"])].append(text_of(row["alias"]))
        models = database.select("registered_models", ("name", "description"), "LIMIT ?", (_MAX_ROWS,))
        descriptions = {text_of(row["name"]): text_of(row["description"]) for row in models}
    versions = []
    for row in rows:
        name, number, source, location, run, description = (text_of(row[column]) for column in columns)
        own, key = (tags[name, number], tuple(sorted(aliases[name, number]))), (name,)
        model = descriptions.get(name, ""), model_tags[key]
        versions.append(Version(name, number, source, location, run, description, *own, *model))
    return versions


def _read_tags(database: MlflowDatabase, table: str, *key: str) -> dict[Key, dict[str, str]]:
    tags: dict[Key, dict[str, str]] = defaultdict(dict)
    for row in database.select(table, (*key, "key", "value"), "LIMIT ?", (_MAX_ROWS,)):
        tags[tuple(text_of(row[column]) for column in key)][text_of(row["key"])] = text_of(row["value"])
    return tags


class VersionUploader:
    """An uploader for versions of registered models. ``model_ids`` are the logged models: original → new ID."""

    def __init__(self, server: Server, item: Item, remote: RemoteRun, model_ids: Mapping[str, str]) -> None:
        self._server = server
        self._item = item
        self._remote = remote
        self._model_ids = model_ids

    def send(self, versions: list[Version]) -> Iterator[str]:
        """Create the versions that an earlier export has not created. Yield a reason for each one that failed.

        The server numbers versions itself.
        """
        existing = self._find() if versions else {}
        for version in versions:
            try:
                number = existing.get((version.name, version.number)) or self._create(version)
                for alias in version.aliases:
                    body = {"name": version.name, "alias": alias, "version": number}
                    self._server.post("registered-models/alias", body)
            except RequestRejected as error:
                yield f"version {version.number} of the registered model {version.name}: {error.message}"

    def _find(self) -> dict[tuple[str, str], str]:
        """Return the versions that earlier exports of this run created: name and original number → number."""
        found, token = {}, ""
        condition = f"tags.`{RUN_ID}` = '{self._item.run.id}'"
        while True:
            page = self._server.get("model-versions/search", filter=condition, page_token=token)
            for version in page.get("model_versions") or []:
                tags = {tag.get("key"): tag.get("value") for tag in version.get("tags") or []}
                found[str(version.get("name")), str(tags.get(VERSION))] = str(version.get("version"))
            token = str(page.get("next_page_token") or "")
            if not token:
                return found

    def _create_model(self, version: Version) -> None:
        """Create the registered model, unless it exists. Its description and tags are then left as they are."""
        body = {"name": version.name, "description": version.model_description, "tags": _pairs(version.model_tags)}
        try:
            self._server.post("registered-models/create", body, retry=False)
        except RequestRejected as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise

    def _create(self, version: Version) -> str:
        self._create_model(version)
        model_id = self._model_ids.get(version.source.removeprefix(_MODEL_SCHEME), "")
        body: JsonDict = {
            "name": version.name,
            "source": f"{_MODEL_SCHEME}{model_id}" if model_id else self._source(version),
            "run_id": self._remote.id,
            "description": version.description,
            "tags": _pairs({**version.tags, RUN_ID: self._item.run.id, VERSION: version.number}),
        }
        if model_id:
            body["model_id"] = model_id
        response = self._server.post("model-versions/create", body, retry=False)
        return str(get_object(response, "model_version").get("version"))

    def _source(self, version: Version) -> str:
        """Return where the server stores the files of a model that the script stored in outputs/."""
        # A server without logged models has their files among the artifacts of the run.
        source = version.location if version.source.startswith(_MODEL_SCHEME) else version.source
        path = source.partition("/work/outputs/")[2]
        return f"{self._remote.artifacts}/{path.removeprefix(self._item.output_prefix)}" if path else version.source


def _pairs(tags: Mapping[str, Any]) -> list[JsonDict]:
    return [{"key": name, "value": value} for name, value in tags.items()]
