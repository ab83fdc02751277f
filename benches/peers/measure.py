"""Measures one peer: run inside the virtual environment, one JSON object a line on stdout.

The time of a whole run, with its load at the beginning, divided by its service calls. Warm is a
handle that has read the conversation just before, cold is one that has not; both have done a whole
run on another conversation, so imports, schemas and connections are paid for, and a log that SQLite
keeps is being reused. Every repetition has a copy of its own of the files. What is stored afterwards
is counted through the peer's own interface.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.metadata
import inspect
import json
import os
import shutil
import sqlite3
import statistics
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from peers import workload

STATES = ("warm", "cold")
OTHER_CONVERSATION = "another"
CONVERSATION = "measured"
# More than SQLite leaves in a log before it begins it again: a log that is reused costs less per
# commit than one that grows.
BYTES_OF_LOG = 8_000_000


class Peer(ABC):
    """A framework with its store, opened on a folder. Methods may be coroutines."""

    name: str
    packages: ClassVar[tuple[str, ...]]

    @abstractmethod
    def open(self, folder: Path) -> Awaitable[None] | None:
        """Makes new handles of everything on files that may exist."""

    @abstractmethod
    def store(self, conversation: str, messages: list[workload.Message]) -> Awaitable[None] | None:
        """Makes a stored conversation, through the peer's own interface, in bulk."""

    @abstractmethod
    def prepare(self, conversation: str, answers: list[workload.Call | workload.Answer]) -> None:
        """Takes what the model will say in the next run."""

    @abstractmethod
    def run(self, conversation: str) -> Awaitable[str] | str:
        """One run; the final answer."""

    @abstractmethod
    def read(self, conversation: str) -> Awaitable[int] | int:
        """The number of stored messages, through the peer's own interface."""

    @abstractmethod
    def calls(self) -> int:
        """How often the model was asked since `prepare`."""

    def synchronous(self) -> int | None:
        """SQLite's `PRAGMA synchronous` on the connections of the store, if it has any."""
        return None

    def close(self) -> Awaitable[None] | None:
        """Gives the files up."""
        return None


def main(peer: Peer) -> None:
    """Measures as the command line says."""
    parser = argparse.ArgumentParser(description=f"measures {peer.name}")
    parser.add_argument("--folder", type=Path, required=True, help="on a real disk")
    parser.add_argument("--history", type=int, required=True, help="messages stored before")
    parser.add_argument("--state", choices=STATES, required=True)
    parser.add_argument("--runs", type=int, required=True, help="at most so many repetitions")
    parser.add_argument("--seconds", type=float, required=True, help="none is begun after these")
    arguments = parser.parse_args()
    runs: list[Run] = []
    start = time.monotonic()
    with asyncio.Runner() as runner, _folder(arguments.folder) as prepared:
        _prepare(runner, peer, prepared, arguments.history)
        while len(runs) < arguments.runs:
            with _folder(arguments.folder) as folder:
                shutil.copytree(prepared, folder, dirs_exist_ok=True)
                runs.append(_one(runner, peer, folder, arguments.history, arguments.state))
            if time.monotonic() - start > arguments.seconds:
                break
    line = {
        "peer": peer.name,
        "versions": {package: importlib.metadata.version(package) for package in peer.packages},
        "state": arguments.state,
        "history": arguments.history,
        "runs": len(runs),
        "us_per_call": statistics.median(run.us for run in runs),
        "cpu_us_per_call": statistics.median(run.cpu_us for run in runs),
        "synchronous": runs[0].synchronous,
    }
    print(json.dumps(line), flush=True)


@dataclass(frozen=True)
class Run:
    """A measured run: times for each service call."""

    us: float
    cpu_us: float
    synchronous: int | None


def _folder(parent: Path) -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="peer-", dir=parent)


def _wait(runner: asyncio.Runner, outcome: Any) -> Any:
    return runner.run(_awaited(outcome)) if inspect.isawaitable(outcome) else outcome


def _prepare(runner: asyncio.Runner, peer: Peer, folder: str, history: int) -> None:
    """Stores what was said before."""
    _wait(runner, peer.open(Path(folder)))
    if history:
        _wait(runner, peer.store(CONVERSATION, workload.stored_messages(history)))
    _wait(runner, peer.close())


def _one(runner: asyncio.Runner, peer: Peer, folder: str, history: int, state: str) -> Run:
    """Measures and checks one run."""

    def wait(outcome: Any) -> Any:
        return _wait(runner, outcome)

    wait(peer.open(Path(folder)))
    peer.prepare(OTHER_CONVERSATION, workload.answers_of_run(0))
    wait(peer.run(OTHER_CONVERSATION))
    _fill_logs(Path(folder))
    if state == "warm":
        _expect(wait(peer.read(CONVERSATION)), history, "messages before the run")
    peer.prepare(CONVERSATION, workload.answers_of_run(history))
    _mark("begins", state)
    start, cpu_start = time.perf_counter(), time.process_time()
    answer = wait(peer.run(CONVERSATION))
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
    _mark("ends", state)
    _expect(answer, workload.FINAL_TEXT, "the final answer")
    _expect(peer.calls(), workload.CALLS, "service calls")
    synchronous = peer.synchronous()
    wait(peer.close())
    wait(peer.open(Path(folder)))
    _expect(wait(peer.read(CONVERSATION)), history + workload.MESSAGES_OF_RUN, "stored messages")
    wait(peer.close())
    return Run(seconds * 1e6 / workload.CALLS, cpu_seconds * 1e6 / workload.CALLS, synchronous)


def _fill_logs(folder: Path) -> None:
    """Makes the write-ahead logs as long as they get, and what is in them part of the files, so
    that the next write begins them again; without effect where the peer keeps none open."""
    for file in folder.rglob("*.db"):
        with closing(sqlite3.connect(file, isolation_level=None)) as connection:
            if connection.execute("PRAGMA journal_mode").fetchone() == ("wal",):
                connection.execute("CREATE TABLE filling (bytes BLOB)")
                connection.execute("INSERT INTO filling VALUES (zeroblob(?))", (BYTES_OF_LOG,))
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)")


def _mark(what: str, name: str) -> None:
    """Asks for a file that is not there, so that whoever traces system calls finds the run."""
    os.access(f"/measured-run-{what}/{name}", os.F_OK)


async def _awaited(outcome: Awaitable[Any]) -> Any:
    return await outcome


def _expect(found: object, expected: object, what: str) -> None:
    if found != expected:
        sys.exit(f"error: {what}: {found!r} instead of {expected!r}")
