"""Where simulations run: clusters are opened, used and closed; what is no cluster is named."""

from __future__ import annotations

import os
import socket

import pytest
from distributed import Client

from sbical.errors import ClusterError
from sbical.simulation import cluster as clusters
from sbical.simulation.cluster import check_workers, cluster


def test_a_given_client_is_used_and_left_open(client: Client) -> None:
    with cluster(client, workers=5) as used:
        assert used is client
    assert client.status == "running"


def test_an_address_is_connected_to_and_its_scheduler_left_running(client: Client) -> None:
    with cluster(str(client.scheduler_info()["address"])) as used:
        assert used is not client
        assert check_workers(used) == 2
    assert check_workers(client) == 2


def test_addresses_and_numbers_that_cannot_be() -> None:
    message = r"^no Dask scheduler answers at carrier-pigeon://home \(.*\); start one with 'dask scheduler' and pass "
    with pytest.raises(ClusterError, match=message), cluster("carrier-pigeon://home"):
        pass
    with pytest.raises(ClusterError, match=r"^workers = 0; give at least 1$"), cluster(None, workers=0):
        pass


def test_worker_without_this_version_is_named(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sbical.__version__", "99.0")
    with pytest.raises(ClusterError, match=r"^worker tcp://.* has sbical .*, this client 99\.0; install the same version on both$"):
        check_workers(client)


def test_more_workers_than_the_machine_can_run() -> None:
    cores = os.cpu_count() or 1
    with pytest.raises(ClusterError) as caught, cluster(None, workers=1000 * cores):
        pass
    assert str(caught.value) == (
        f"workers = {1000 * cores}; this machine has {cores} cores: give about as many, or --scheduler for a cluster"
    )


def test_something_else_that_listens_does_not_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "SCHEDULER_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ClusterError) as caught, cluster(address):
            pass
    assert str(caught.value).startswith(f"no Dask scheduler answers at {address} (")
