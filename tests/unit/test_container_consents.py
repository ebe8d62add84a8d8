"""Consents: which mounts and networks they cover, and which consents exclude each other."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest

from mlworkbench.attachments import Attachments
from mlworkbench.container_consents import (
    MOUNT,
    Consent,
    asked_consents,
    conflict,
    merge,
    mount_consent,
    mount_refusal,
    network_consent,
    resolved_prefixes,
)
from mlworkbench.errors import ConfigError, HostError, UsageError
from mlworkbench.model import Compute
from mlworkbench.paths import UserPaths
from mlworkbench.remote.bind_mounts import MountRefused, make_folder, resolve, resolve_mounts, translate
from mlworkbench.targets.consent_check import ask_places, refuse_unallowed, with_consents
from mlworkbench.targets.container_plan import mounts
from mlworkbench.targets.target_facts import TargetFacts

OWN = ("/home/ada/.mlw", "/home/ada/.mlw/share", "/big/share", "/home/ada/.azureml/share")


def allowed(*texts: str) -> list[Consent]:
    """Create consents from ``/a``, ``/a:ro``, or ``/a=/resolved/path``."""
    made = []
    for text in texts:
        path, _, real = text.partition("=")
        one = mount_consent(path)
        made.append(replace(one, real=real or one.value))
    return made


@pytest.mark.parametrize(
    ("source", "mode", "consents", "says"),
    [
        ("/data", "rw", ["/data"], None),
        ("/data", "ro", ["/data"], None),
        ("/data", "ro", ["/data:ro"], None),
        ("/data/x", "ro", ["/data:ro"], None),
        ("/data/x", "rw", ["/data:ro"], "not allowed"),
        ("/data", "rw", ["/data:ro"], "not allowed"),
        ("/data", "ro", [], "not allowed"),
        ("/database", "ro", ["/data:ro"], "not allowed"),
        ("/data/x", "ro", ["/data"], "only that folder itself"),
        ("/data/x", "rw", ["/data", "/data/x"], "only that folder itself"),
        ("/data/x/y", "ro", ["/data:ro", "/data/x"], "only that folder itself"),
        ("/data/x", "rw", ["/data:ro", "/data/x"], None),
        ("/mnt/data/x", "ro", ["/data=/mnt/data"], "only that folder itself"),
        ("/mnt/data", "rw", ["/data=/mnt/data"], None),
        ("/", "ro", ["/data:ro"], "never"),
        ("/run", "ro", ["/run:ro"], "never"),
        ("/proc/1/root", "ro", ["/proc:ro"], "never"),
        ("/srv/podman.sock", "ro", ["/srv:ro"], "never"),
        ("/home/ada/.mlw/share/demo/x", "ro", ["/home/ada:ro"], "where containers can write"),
        ("/big/share/demo", "rw", ["/big/share/demo"], "where containers can write"),
        ("/home/ada", "rw", ["/home/ada"], "which containers may not write"),
        ("/home/ada", "ro", ["/home/ada:ro"], None),
    ],
)
def test_which_mounts_are_covered(source, mode, consents, says):
    found = mount_refusal(source, mode, allowed(*consents), OWN)
    assert (found is None) == (says is None)
    assert says is None or says in found.message


def test_a_mount_whose_place_nobody_has_resolved_is_not_covered():
    assert "cannot resolve" in mount_refusal("/data", "rw", [mount_consent("/data")], OWN).message


@pytest.mark.parametrize(
    ("consents", "says"),
    [
        (["/data", "/scratch:ro"], None),
        (["/data:ro", "/data/scratch"], None),
        (["/data", "/data/x:ro"], "under /data"),
        (["/data=/mnt/data", "/mnt/data/x:ro"], "under /data"),
        (["/var/run"], "never"),
        (["/home"], "contains ML Workbench folders"),
        (["/home:ro"], None),
        (["/x=/home/ada/.mlw/homes:ro"], "a folder of ML Workbench"),
    ],
)
def test_which_consents_exclude_each_other(consents, says):
    found = conflict(allowed(*consents), OWN)
    assert (found is None) == (says is None)
    assert says is None or says in found.message


@pytest.mark.parametrize("text", ["data", "/", "//", "", "/a:b", "/a:/b:ro", "/a\nb", ":ro"])
def test_what_is_no_folder(text):
    with pytest.raises(UsageError, match="not an absolute path"):
        mount_consent(text)


@pytest.mark.parametrize("text", ["", " ", "--privileged", "a\nb"])
def test_what_is_no_network(text):
    with pytest.raises(UsageError, match="not a valid network name"):
        network_consent(text)


def test_two_slashes_are_no_way_around():
    assert mount_consent("//home/ada/.mlw/homes:ro").value == "/home/ada/.mlw/homes"
    assert mounts(Compute("c", "docker", mounts=("//proc/1/root", "/data/../etc"))) == (
        ("/proc/1/root", "/proc/1/root", "rw"),
        ("/etc", "/etc", "rw"),
    )


def test_a_later_consent_replaces_the_same_earlier_one():
    assert [one.text for one in merge(allowed("/a", "/b"), allowed("/a:ro"))] == ["/a:ro", "/b"]


def test_prefixes_that_lead_elsewhere():
    found = resolved_prefixes(allowed("/data=/mnt/d", "/x"), {"/home/ada/.mlw": "/disk/mlw", "/home/ada": "/home/ada"})
    assert found == (("/data", "/mnt/d"), ("/home/ada/.mlw", "/disk/mlw"))
    assert [translate(path, found) for path in ("/data", "/data/x", "/database")] == ["/mnt/d", "/mnt/d/x", "/database"]


def test_an_attachment_of_an_older_version(tmp_path):
    paths = UserPaths(tmp_path)
    saved = Attachments(paths).save(Attachments(paths).draft("ada@h:22", address="h", username="ada", port=22))
    record = saved.folder / "attachment.json"
    old = {key: value for key, value in json.loads(record.read_text()).items() if key not in ("allowed", "places")}
    record.write_text(json.dumps({**old, "allowed_mounts": ["/data"]}))
    (found,) = Attachments(paths).list()
    assert found.allowed == (Consent(MOUNT, "/data", "rw"),) and found.places == {}
    Attachments(paths).save(replace(found, allowed=(*found.allowed, network_consent("host"))))
    (again,) = Attachments(paths).list()
    assert [(one.kind, one.text) for one in again.allowed] == [("mount", "/data"), ("network", "host")]


# -- requests of a project ---------------------------------------------------------------------------------------


class DirectHost:
    """A host that calls the agent's function for mounts directly."""

    identity, is_remote = "local", False

    def __init__(self, root):
        self.root = root

    def ask(self, request, body=b"", timeout=60.0):
        return resolve_mounts(self.root.path, str(self.home), request["paths"])


@pytest.fixture
def direct_host(tmp_path):
    host = DirectHost(UserPaths(tmp_path / "data").root)
    host.home = tmp_path / "home"
    host.home.mkdir()
    return host


def check_consents(host, *asked: Consent, share: str | None = None, **keys):
    compute = Compute("box", "docker", native_shared_directory=share, **keys)
    base = share or os.path.join(host.root.path, "share")
    places = resolve_mounts(host.root.path, str(host.home), [])["places"]
    facts = with_consents(host, TargetFacts(str(host.home), base, places=places), asked)
    refuse_unallowed(compute, facts, os.path.join(base, "demo-1", ""), host)


@pytest.mark.parametrize(
    "network", ["host", "container:x", "ns:/proc/1/ns/net", "mine", "name=host", "Bridge", "slirp4netns"]
)
def test_networks_need_consent(direct_host, network):
    with pytest.raises(ConfigError, match="network") as refused:
        check_consents(direct_host, network=network)
    assert "--allow-network" in refused.value.hint
    check_consents(direct_host, network_consent(network), network=network)
    with pytest.raises(ConfigError, match="network"):
        check_consents(direct_host, network_consent("other"), network=network)


@pytest.mark.parametrize("network", [None, "bridge", "none", "default"])
def test_networks_of_the_containers_own_need_none(direct_host, network):
    check_consents(direct_host, network=network)


@pytest.mark.parametrize("path", ["relative", "/a\x1b[2J", 7, None])
def test_a_machine_cannot_name_what_is_no_path(direct_host, path):
    direct_host.ask = lambda request: {"ok": True, "places": {"/home/ada/.mlw": path}, "paths": {}}
    with pytest.raises(HostError, match="unsupported name") as refused:
        ask_places(direct_host)
    assert refused.value.message.isprintable()


@pytest.mark.parametrize("answer", [{}, {"ok": True}, {"ok": True, "places": [], "paths": {}}, {"ok": False}])
def test_an_answer_that_is_none(direct_host, answer):
    direct_host.ask = lambda request: answer
    with pytest.raises(HostError, match="cannot resolve folder paths|malformed reply"):
        ask_places(direct_host)


def test_only_the_exact_standard_folders_go_without_consent(direct_host):
    standard = str(direct_host.home / ".azureml" / "share")
    check_consents(direct_host, share=standard)
    check_consents(direct_host, share=os.path.join(direct_host.root.path, "share"))
    for base in (str(direct_host.home / ".azureml"), str(direct_host.home / ".mlw" / "share"), "/data/share"):
        with pytest.raises(ConfigError, match="not allowed") as refused:
            check_consents(direct_host, share=base)
        assert f"--allow-mount {base}/demo-1" in refused.value.hint
    for base in (f"{standard}/demo-1/x", os.path.join(direct_host.root.path, "homes"), direct_host.root.path):
        with pytest.raises(ConfigError, match="where containers can write"):
            check_consents(direct_host, share=base)
    check_consents(direct_host, *asked_consents(["/data/share/demo-1"], []), share="/data/share")
    with pytest.raises(ConfigError, match="only that folder itself"):
        check_consents(direct_host, *asked_consents(["/data/share"], []), share="/data/share")


def test_links_are_looked_at_before_anything_starts(direct_host, tmp_path):
    data = tmp_path / "set"
    data.mkdir()
    (data / "exit").symlink_to(direct_host.home)
    consents = asked_consents([f"{data}:ro"], [])
    check_consents(direct_host, *consents, mounts=(f"{data}:/d:ro",))
    with pytest.raises(ConfigError, match="is a link"):
        check_consents(direct_host, *consents, mounts=(f"{data}/exit:/d:ro",))
    with pytest.raises(UsageError, match="is a link to"):
        check_consents(direct_host, *asked_consents([f"{data}/exit"], []), mounts=(f"{data}/exit:/d",))


# -- path resolution ---------------------------------------------------------------------------------------------


def test_a_standard_folder_may_be_behind_the_users_links(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "root").symlink_to(tmp_path / "disk")
    (tmp_path / "disk" / "share").symlink_to("/elsewhere/share")
    root = str(tmp_path / "root")
    places = resolve_mounts(root, str(tmp_path), [])["places"]
    assert places[root] == str(tmp_path / "disk")
    assert places[f"{root}/share"] == "/elsewhere/share"
    assert places[f"{root}/homes"] == str(tmp_path / "disk" / "homes")


@pytest.mark.skipif(os.getuid() != 0, reason="to be another user needs root")
def test_links_of_the_administrator_are_followed_and_no_others(tmp_path, monkeypatch):
    (tmp_path / "real" / "x").mkdir(parents=True)
    link = tmp_path / "link"
    link.symlink_to("real/../real")
    with pytest.raises(MountRefused, match="is a link to real/../real"):
        resolve(str(link / "x"))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert resolve(str(link / "x")) == str(tmp_path / "real" / "x")
    assert resolve(str(link / "no" / "such")) == str(tmp_path / "real" / "no" / "such")
    os.chown(link, 1000, 1000, follow_symlinks=False)
    with pytest.raises(MountRefused, match="is a link"):
        resolve(str(link / "x"))
    loop = tmp_path / "loop"
    loop.symlink_to("loop")
    with pytest.raises(MountRefused, match="is a link"):
        resolve(str(loop))


def test_folders_are_made_through_no_link(tmp_path):
    make_folder(str(tmp_path / "a" / "b"))
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
    (tmp_path / "out").symlink_to(tmp_path / "a")
    with pytest.raises(MountRefused, match="is a link"):
        make_folder(str(tmp_path / "out" / "c"))
    assert not (tmp_path / "a" / "c").exists()
