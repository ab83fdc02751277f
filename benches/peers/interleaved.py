"""Runs tower-chat ("ours") and another framework (the peer) alternately, so that other work of the machine affects
the figures of both.

For each pair, history and state, the first run of both sides is traced. This run counts the syncs and warms up the
processes. The timed runs follow: ours, the peer, ours, the peer. The latency of the disk is measured before each run.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peers import trace, workload
from peers.process import Measured

STATES = ("warm", "cold")
SIDES = ("ours", "peer")
# The maximum number of timed repetitions, by history. No repetition begins after this number of seconds.
REPETITIONS = {0: 9, 1_000: 7, 10_000: 5}
SECONDS = 8.0
# A run that takes longer is not repeated: its traced run is also its timed run. This is accurate enough, because the
# tracer stops a process only at its syncs, for some microseconds at each sync.
SLOW_SECONDS = 4.0
_APPENDED = 4_096
_PROBES = 7

Line = dict[str, Any]


@dataclass(frozen=True)
class Turn:
    """One run of one side."""

    side: str
    is_traced: bool


def turns(
    repetitions: int, is_over: Callable[[], bool], is_slow: Callable[[str], bool]
) -> Iterator[Turn]:
    """Returns the order of the runs: a traced run of each side, then timed runs of both sides in turns. If one side is
    slow, it has no timed run, and the other side has only one."""
    for side in SIDES:
        yield Turn(side, is_traced=True)
    for repetition in range(repetitions):
        timed = [side for side in SIDES if not is_slow(side)]
        if repetition and (is_over() or len(timed) < len(SIDES)):
            return
        for side in timed:
            yield Turn(side, is_traced=False)


class Pair:
    """Both sides, each as a process that is timed and as a process that is traced."""

    def __init__(
        self, timed: dict[str, Measured], traced: dict[str, Measured], folder: Path
    ) -> None:
        self.timed = timed
        self.traced = traced
        self.folder = folder
        self.windows: list[tuple[Line, Measured, trace.Window]] = []

    def prepare(self, history: int) -> None:
        """Sets the number of stored messages of the following conversations."""
        for processes in (self.timed, self.traced):
            for measured in processes.values():
                measured.tell(f"prepare {history}")

    def lines(self, history: int, state: str, repetitions: int) -> Iterator[Line]:
        """Executes the runs of one history and state, and returns a line for each."""
        start = time.monotonic()
        seconds = dict.fromkeys(SIDES, 0.0)

        def is_over() -> bool:
            return time.monotonic() - start > SECONDS

        def is_slow(side: str) -> bool:
            return seconds[side] > SLOW_SECONDS

        for turn in turns(repetitions, is_over, is_slow):
            measured = (self.traced if turn.is_traced else self.timed)[turn.side]
            line: Line = {"side": turn.side, "history": history, "state": state}
            line["sync_us"], line["sync_cpu_us"] = sync_us(self.folder)
            measured.tell(f"open {state}")
            us, use, window = measured.run()
            measured.tell("close")
            seconds[turn.side] = us / 1e6
            line["read"] = use.read / workload.CALLS
            line["written"] = use.written / workload.CALLS
            if turn.is_traced:
                self.windows.append((line, measured, window))
            if not turn.is_traced or is_slow(turn.side):
                line["us"] = us / workload.CALLS
                line["cpu_us"] = use.cpu_us / workload.CALLS
            yield line

    def end(self) -> None:
        """Ends the processes, which completes their traces, and adds the syncs to the lines."""
        processes = [*self.timed.values(), *self.traced.values()]
        for measured in processes:
            measured.end()
        for server in {measured.server for measured in processes if measured.server}:
            server.end()
        for measured in self.traced.values():
            traced = [(line, window) for line, by, window in self.windows if by is measured]
            for file in measured.traces:
                with file.open(encoding="utf-8", errors="replace") as lines:
                    counts = trace.syncs(lines, [window for _, window in traced])
                for (line, _), count in zip(traced, counts, strict=True):
                    line["syncs"] = line.get("syncs", 0.0) + count / workload.CALLS


def described(line: Line) -> str:
    """Returns a line of progress: a run, with the latency of the disk at that time."""
    time = f"{line['us'] / 1e3:.3f} ms a call" if "us" in line else "syncs are counted"
    return f"  {line['state']}, {line['side']}: {time}; a sync takes {line['sync_us'] / 1e3:.3f} ms"


def sync_us(folder: Path) -> tuple[float, float]:
    """Returns the time of a sync after an append to a file, and the processor time of the sync: the medians of several
    measurements."""
    times, cpu_times = [], []
    file = os.open(folder / "appended", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        for _ in range(_PROBES):
            os.write(file, b"x" * _APPENDED)
            start, cpu_start = time.perf_counter(), time.thread_time()
            os.fdatasync(file)
            cpu_times.append((time.thread_time() - cpu_start) * 1e6)
            times.append((time.perf_counter() - start) * 1e6)
    finally:
        os.close(file)
    return statistics.median(times), statistics.median(cpu_times)
