"""Clusters that come with the package: every number has its source, and each can be run."""

from pathlib import Path

import pytest

import offbeat
from offbeat.engines.cluster import Cluster
from offbeat.lab.clusters import find_cluster, ready_clusters
from offbeat.lab.ready_page import dotted, markdown

NAMES = list(ready_clusters())


def test_there_is_one_for_each_size_of_purse():
    assert {"laptop", "desktops8", "cloud16", "spot16", "infiniband64", "supercomputer3200", "volunteers100"} == set(
        NAMES
    )


@pytest.mark.parametrize("name", NAMES)
def test_every_number_has_a_source_or_is_called_assumed(name):
    ready = ready_clusters()[name]
    keys, sources = dict(dotted(ready.cluster)), dict(dotted(ready.sources))
    assert set(keys) == set(sources)
    known = ("assumed", "the case described", "measured here", "as cloud16", "http", "wongpanich2020")
    for key, said in sources.items():
        assert any(word in said for word in known), f"{key}: {said}"


@pytest.mark.parametrize("name", NAMES)
def test_the_clock_runs_on_each(name):
    found = offbeat.time("asgd,sync", name, budget="40updates", size="100MB")
    workers = Cluster.parse(**find_cluster(name)).workers
    for row in found.summaries:
        assert row["workers"] == workers
        assert row["samples_per_virtual_second"] > 0


def test_a_name_is_taken_wherever_a_file_is(shell):
    code, out, err = shell("run", "quadratic", "--cluster", "laptop", "--budget", "8updates", "--json")
    assert code == 0, err
    assert '"workers": 4' in out
    code, out, _ = shell("list", "clusters")
    assert code == 0
    assert all(name in out for name in NAMES)
    code, _, err = shell("run", "quadratic", "--cluster", "spot61")
    assert code == 2
    assert err.startswith("offbeat: unknown cluster 'spot61' (did you mean 'spot16'?); known: ")


def test_a_file_of_a_newer_offbeat_is_refused(shell, tmp_path):
    (tmp_path / "new.toml").write_text("format = 2\n[cluster]\nworkers = 2\n")
    code, _, err = shell("time", "--cluster", tmp_path / "new.toml")
    assert code == 2
    assert err.count("\n") == 1
    assert "was written by a newer offbeat (format 2, this one reads 1)" in err


def test_the_page_is_what_the_files_say():
    page = Path(__file__).parent.parent / "docs" / "ready-clusters.md"
    assert page.read_text(encoding="utf-8") == markdown(), "offbeat list clusters --markdown > docs/ready-clusters.md"
