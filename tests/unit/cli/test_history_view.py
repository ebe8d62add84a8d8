"""Saved views of the run list, on the command line and on disk."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlworkbench.cli.completer import find_views
from mlworkbench.cli.main import _run
from mlworkbench.errors import UnknownName, UsageError
from mlworkbench.history.history_api import History
from mlworkbench.saved_views import SavedViews, View
from tests.unit.history.test_store import fill, paths, spec


@pytest.fixture
def mlw(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MLW_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        code = _run(list(arguments))
        return code, *capsys.readouterr()

    return run


def test_a_view_is_saved_opened_and_deleted(mlw, tmp_path):
    store = History(paths(tmp_path / "home"))
    fill(store, range(1, 6))
    store.close()
    settings = ("--where", "accuracy > 0.01", "--sort=-accuracy", "-L", "3", "--columns", "run_id,accuracy")
    assert mlw("history", "view", "save", "best", *settings)[0] == 0
    listed = json.loads(mlw("history", "list", "--view", "best", "-o", "json")[1])
    assert [run["run_id"] for run in listed] == ["demo-00005", "demo-00004", "demo-00003"]
    listed = json.loads(mlw("history", "list", "--view", "best", "--sort=accuracy", "-L", "1", "-o", "json")[1])
    assert [run["run_id"] for run in listed] == ["demo-00002"], "options override the view"
    grouped = json.loads(mlw("history", "list", "--view", "best", "--group", "status", "-o", "json")[1])
    assert sum(group["runs"] for group in grouped) == 4, "--group replaces the columns of the view"
    shown = json.loads(mlw("history", "view", "show", "best", "-o", "json")[1])
    assert (shown["where"], shown["limit"]) == (["accuracy > 0.01"], 3)
    assert shown["command"].startswith("mlw history list '--where=accuracy > 0.01'")
    assert find_views(None) == [("best", "")]
    assert mlw("history", "view", "rename", "best", "top")[0] == 0
    assert [row["name"] for row in json.loads(mlw("history", "view", "list", "-o", "json")[1])] == ["top"]
    assert mlw("history", "view", "delete", "top")[0] == 0
    assert "no saved views" in mlw("history", "view", "list")[2]


def test_errors_name_the_next_command(mlw):
    assert mlw("history", "view", "save", "mine", "--status", "failed")[0] == 0
    code, _, error = mlw("history", "view", "save", "mine")
    assert code == 2
    assert "already exists" in error
    assert "--force" in error
    assert mlw("history", "view", "save", "mine", "--force", "--archived")[0] == 0
    code, _, error = mlw("history", "list", "--view", "mime")
    assert code == 66
    assert "unknown view 'mime'; available: mine" in error
    assert mlw("history", "view", "save", "x", "--where", "loss <")[0] == 2
    assert mlw("history", "view", "save", "a\x1b[31m")[0] == 2
    assert mlw("history", "view", "save", "x", "--group", "lr", "--columns", "lr")[0] == 2


def test_settings_of_the_browser_are_kept(mlw, tmp_path):
    store = History(paths(tmp_path / "home"))
    for number in (1, 2):
        store.add(spec(number, parent="demo-00009"))
    store.close()
    views = SavedViews(paths(tmp_path / "home"), None)
    views.save("x", lambda _: View(text=("demo",), chart="none", top_level=True))
    assert json.loads(mlw("history", "list", "--view", "x", "-o", "json")[1]) == []
    assert len(json.loads(mlw("history", "list", "--view", "x", "--children", "-o", "json")[1])) == 2
    assert "top_level" not in json.loads(mlw("history", "view", "show", "x", "-o", "json")[1])["command"]
    assert mlw("history", "view", "save", "x", "--force", "--archived")[0] == 0
    assert views.get("x") == View(archived=True, chart="none")


def test_views_belong_to_a_project(tmp_path):
    mine, other, everywhere = (SavedViews(paths(tmp_path), project) for project in ("a", "../../b", None))
    mine.save("best", lambda _: View(sort="loss"))
    other.save("best", lambda _: View(sort="-loss"))
    assert [saved.all() for saved in (mine, other, everywhere)] == [
        {"best": View(sort="loss")}, {"best": View(sort="-loss")}, {}
    ]  # fmt: skip
    mine.save("second", lambda view: view)
    with pytest.raises(UsageError):
        mine.rename("second", "best")
    with pytest.raises(UnknownName):
        mine.rename("third", "fourth")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["runs", "views"]


KEYS = st.sampled_from(("views", "best", "where", "sort", "limit", "children"))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner),
)


@given(JSON)
def test_any_file_is_read(tmp_path_factory, data):
    place = tmp_path_factory.mktemp("views")
    saved = SavedViews(paths(place), None)
    saved.save("x", lambda view: view)
    (place / "views" / "all.json").write_text(json.dumps({"views": data}))
    for view in saved.all().values():
        assert View.from_json(view.to_json()) == view
