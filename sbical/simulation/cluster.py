"""Where simulations run: worker processes of this machine, a Dask ``Client``, or a scheduler's address."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from multiprocessing import resource_tracker
from pkgutil import resolve_name
from typing import Any, cast

from distributed import Client, LocalCluster, Security, rpc
from tornado.websocket import WebSocketError

import sbical
from sbical.errors import ClusterError

#: How long a scheduler, and its first worker, may take to show up [s].
SCHEDULER_SECONDS = 10.0
WORKER_SECONDS = 30.0
#: Worker processes per core beyond which starting them would only hurt the machine.
MOST_PER_CORE = 16


@contextmanager
def cluster(client: Client | str | None = None, *, workers: int = 2) -> Iterator[Client]:
    """A client to simulate with: the one given, one for an address, or a local cluster of worker processes.

    Only what was opened here is closed. Raises ClusterError for an address that does not answer.
    """
    if isinstance(client, Client):
        yield client
    elif isinstance(client, str):
        _check_scheduler(client)
        with Client(client, timeout=SCHEDULER_SECONDS) as opened:
            yield opened
    else:
        if workers < 1:
            raise ClusterError(f"workers = {workers}; give at least 1")
        if workers > MOST_PER_CORE * (cores := os.cpu_count() or 1):
            raise ClusterError(f"workers = {workers}; this machine has {cores} cores: give about as many, or --scheduler for a cluster")
        # Dask always serves HTTP: on a free local port, where two runs do not meet and nobody else looks; no dashboard
        options: dict[str, Any] = {
            "dashboard_address": "127.0.0.1:0", "scheduler_kwargs": {"dashboard": False}, "silence_logs": logging.CRITICAL
        }  # fmt: skip
        with ExitStack() as stack:
            with _undisturbed():
                local = stack.enter_context(LocalCluster(n_workers=workers, threads_per_worker=1, processes=True, **options))
            yield stack.enter_context(Client(local))


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Start processes that Ctrl-C does not reach, although a terminal sends it to all; here it, and SIGTERM, take effect afterwards.

    The client then ends its workers in order, instead of racing with workers that die by themselves.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # Python lets no other thread handle signals
        return
    resource_tracker.ensure_running()  # starting it later would unblock the signal again
    arrived: list[int] = []
    # a handler that C installed (None) could not be put back, and stays
    ours = [ending for ending in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(ending) is not None]
    handlers = {ending: signal.signal(ending, lambda number, _: arrived.append(number)) for ending in ours}
    # threads and processes inherit the mask, not the handlers; SIGTERM must reach workers, as that is how they are ended
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for ending, handler in handlers.items():
            signal.signal(ending, handler)
    if arrived:
        signal.raise_signal(arrived[0])


def _check_scheduler(address: str) -> None:
    """Ask who listens there: a Dask client would wait forever for the answer of something else."""

    async def ask() -> str:
        listener: Any = rpc(address, timeout=SCHEDULER_SECONDS, connection_args=Security().get_connection_args("client"))
        async with listener:
            return str((await listener.identity())["type"])

    async def bounded() -> str:
        return await asyncio.wait_for(ask(), SCHEDULER_SECONDS)

    try:
        with ThreadPoolExecutor(1) as thread:  # notebooks have a running event loop of their own
            kind = thread.submit(asyncio.run, bounded()).result()
    except (OSError, ValueError, TypeError, ImportError, WebSocketError) as problem:  # TypeError: tls without certificates
        kind = str(problem) or f"something else listens there, or nothing within {SCHEDULER_SECONDS:g} s"
    if kind != "Scheduler":
        raise ClusterError(
            f"no Dask scheduler answers at {address} ({kind}); start one with 'dask scheduler' and pass tcp://HOST:PORT, "
            "or leave --scheduler out to use this machine"
        )


def check_workers(client: Client) -> int:
    """Number of workers, each with this version of sbical. Raises ClusterError otherwise."""
    try:
        client.wait_for_workers(1, timeout=WORKER_SECONDS)
    except TimeoutError:
        raise ClusterError(
            f"the scheduler has no workers after {WORKER_SECONDS:g} s; start some with 'dask worker SCHEDULER_ADDRESS'"
        ) from None
    # a plain function of Python's: one of sbical's could not even be unpickled where sbical cannot be imported
    found: dict[str, Any] = cast(Any, client.run(resolve_name, "sbical.simulation.fanout:VERSION", on_error="return"))
    for address, answer in found.items():
        if isinstance(answer, Exception):
            raise ClusterError(f"worker {address} cannot import sbical ({answer}); install sbical {sbical.__version__} in its environment")
        if answer != sbical.__version__:
            raise ClusterError(f"worker {address} has sbical {answer}, this client {sbical.__version__}; install the same version on both")
    return len(found)
