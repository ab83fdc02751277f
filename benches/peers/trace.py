"""Syncs, counted by strace. It stops a process at its syncs alone: all other calls run at full speed."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_SYNC = re.compile(r"^\d+ +(?P<at>\d+\.\d+) f(?:data)?sync\(")


@dataclass(frozen=True)
class Window:
    """The time of a run, in seconds since the epoch."""

    begin: float
    end: float


def is_possible() -> bool:
    """Whether there is a strace."""
    return shutil.which("strace") is not None


def command(out: Path) -> list[str]:
    """What a command is started with, for its syncs to be written to a file."""
    traced = ["strace", "-f", "-qq", "-ttt", "--seccomp-bpf", "-e", "trace=fsync,fdatasync"]
    return [*traced, "-e", "signal=none", "-o", str(out)]


def syncs(lines: Iterable[str], windows: Iterable[Window]) -> list[int]:
    """How many syncs were begun in each of these times."""
    times = [float(found["at"]) for line in lines if (found := _SYNC.match(line))]
    return [sum(window.begin <= at <= window.end for at in times) for window in windows]
