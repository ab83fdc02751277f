"""Counts syncs with strace, which stops a process only at its syncs: all other system calls run at full speed."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_SYNC = re.compile(r"^\d+ +(?P<at>\d+\.\d+) f(?:data)?sync\(")


@dataclass(frozen=True)
class Window:
    """The begin and the end of a run, in seconds since the epoch."""

    begin: float
    end: float


def is_possible() -> bool:
    """Returns whether strace is installed."""
    return shutil.which("strace") is not None


def command(out: Path) -> list[str]:
    """Returns the beginning of a command line that writes the syncs of the command to a file."""
    traced = ["strace", "-f", "-qq", "-ttt", "--seccomp-bpf", "-e", "trace=fsync,fdatasync"]
    return [*traced, "-e", "signal=none", "-o", str(out)]


def syncs(lines: Iterable[str], windows: Iterable[Window]) -> list[int]:
    """Returns the number of syncs that began in each window."""
    times = [float(found["at"]) for line in lines if (found := _SYNC.match(line))]
    return [sum(window.begin <= at <= window.end for at in times) for window in windows]
