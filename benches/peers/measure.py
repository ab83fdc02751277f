"""A process that runs the workload in another framework (a peer), once for each command `run`.

The process reads the commands of `benches/src/peers.rs` from standard input: `prepare HISTORY`, `open warm` or
`open cold`, `run`, `close`. After `open warm`, the framework has already read the conversation. After `open cold`, it
has not. In both cases, the framework has completed runs of other conversations, so that the measured run does not
import modules, create schemas, open connections or extend a write-ahead log. After the run,
the stored messages are counted through the interface of the framework.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import importlib.metadata
import inspect
import json
import os
import shutil
import sqlite3
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

from peers import workload

# More than the size at which SQLite checkpoints its write-ahead log. A commit to a reused log costs less than a commit
# to a log that grows.
BYTES_OF_LOG = 8_000_000


class Peer(ABC):
    """A framework with its store, opened on a folder. Methods may be coroutines."""

    packages: ClassVar[tuple[str, ...]]
    # Whether the store consists of files, which are copied for each run. If the store is a server, each run uses its
    # own conversation instead.
    is_in_files = True

    @abstractmethod
    def open(self, folder: Path) -> Awaitable[None] | None:
        """Opens new handles in a folder, which may contain the files of earlier handles."""

    @abstractmethod
    def store(self, conversation: str, messages: list[workload.Message]) -> Awaitable[None] | None:
        """Stores a conversation in bulk, through the interface of the framework."""

    @abstractmethod
    def prepare(self, conversation: str, answers: list[workload.Call | workload.Answer]) -> None:
        """Sets the answers of the model in the next run."""

    @abstractmethod
    def run(self, conversation: str) -> Awaitable[str] | str:
        """Executes one run, and returns the final answer."""

    @abstractmethod
    def read(self, conversation: str) -> Awaitable[int] | int:
        """Returns the number of stored messages, through the interface of the framework."""

    @abstractmethod
    def calls(self) -> int:
        """Returns the number of calls of the model since `prepare`."""

    def close(self) -> Awaitable[None] | None:
        """Closes the files."""
        return None


def main(peer: Peer, folder: Path | None = None) -> None:
    """Executes commands until standard input ends."""
    if folder is None:
        parser = argparse.ArgumentParser()
        parser.add_argument("folder", type=Path, help="on a real disk")
        folder = parser.parse_args().folder
    versions = {package: importlib.metadata.version(package) for package in peer.packages}
    with asyncio.Runner() as runner:
        responder = Responder(runner, peer, folder)
        _print({"pid": os.getpid(), "versions": versions})
        for line in sys.stdin:
            command, *arguments = line.split()
            _print(getattr(responder, command)(*arguments))
        responder.end()


class Responder:
    """Executes the commands, one method for each."""

    def __init__(self, runner: asyncio.Runner, peer: Peer, folder: Path) -> None:
        self.runner = runner
        self.peer = peer
        self.parent = folder
        self.template = self._folder()
        self.opened = self.template
        self.history = 0
        self.repetitions = 0
        self.conversation = ""

    def prepare(self, history: str) -> dict[str, Any]:
        """Sets the number of stored messages of the following conversations."""
        self.history = int(history)
        if self.peer.is_in_files:
            self.template.cleanup()
            self.template = self._folder()
            self._wait(self.peer.open(Path(self.template.name)))
            self._store("measured")
            self._wait(self.peer.close())
        return {}

    def open(self, state: str) -> dict[str, Any]:
        """Opens new handles for a run, and completes two runs of other conversations."""
        self.repetitions += 1
        self.conversation, others = "measured", ["one", "another"]
        self.opened = self._folder()
        if self.peer.is_in_files:
            shutil.copytree(self.template.name, self.opened.name, dirs_exist_ok=True)
        else:
            self.conversation += f"-{self.repetitions}"
            others = [f"{other}-{self.repetitions}" for other in others]
            self._store(self.conversation)
        self._wait(self.peer.open(Path(self.opened.name)))
        for other in others:
            self.peer.prepare(other, workload.answers_of_run(0))
            self._wait(self.peer.run(other))
            if other == others[0]:
                # The run of the second conversation then restarts the full logs, so that the measured run does not.
                _fill_logs(Path(self.opened.name))
        if state == "warm":
            self._expect_stored(self.history)
        self.peer.prepare(self.conversation, workload.answers_of_run(self.history))
        gc.collect()
        return {}

    def run(self) -> dict[str, Any]:
        """Measures one run, including the load at its beginning."""
        start = time.perf_counter()
        answer = self._wait(self.peer.run(self.conversation))
        us = (time.perf_counter() - start) * 1e6
        _expect(answer, workload.FINAL_TEXT, "the final answer")
        _expect(self.peer.calls(), workload.CALLS, "service calls")
        return {"us": us}

    def close(self) -> dict[str, Any]:
        """Closes the handle, and counts the stored messages with a new handle."""
        self._wait(self.peer.close())
        self._wait(self.peer.open(Path(self.opened.name)))
        self._expect_stored(self.history + workload.MESSAGES_OF_RUN)
        self._wait(self.peer.close())
        self.opened.cleanup()
        return {}

    def end(self) -> None:
        """Deletes the folders."""
        self.opened.cleanup()
        self.template.cleanup()

    def _store(self, conversation: str) -> None:
        if self.history:
            stored = workload.stored_messages(self.history)
            self._wait(self.peer.store(conversation, stored))

    def _expect_stored(self, messages: int) -> None:
        _expect(self._wait(self.peer.read(self.conversation)), messages, "stored messages")

    def _wait(self, outcome: Any) -> Any:
        return self.runner.run(_awaited(outcome)) if inspect.isawaitable(outcome) else outcome

    def _folder(self) -> tempfile.TemporaryDirectory[str]:
        return tempfile.TemporaryDirectory(prefix="peer-", dir=self.parent)


def _print(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


def _fill_logs(folder: Path) -> None:
    """Extends the write-ahead logs to their full length and checkpoints them, so that the next write restarts them.
    Has no effect if the framework does not keep a database open."""
    for file in folder.rglob("*.db"):
        with closing(sqlite3.connect(file, isolation_level=None)) as connection:
            if connection.execute("PRAGMA journal_mode").fetchone() == ("wal",):
                connection.execute("CREATE TABLE filling (bytes BLOB)")
                connection.execute("INSERT INTO filling VALUES (zeroblob(?))", (BYTES_OF_LOG,))
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)")


async def _awaited(outcome: Awaitable[Any]) -> Any:
    return await outcome


def _expect(found: object, expected: object, what: str) -> None:
    if found != expected:
        sys.exit(f"error: {what}: {found!r} instead of {expected!r}")
