"""A measured process: sends commands to the process, and measures the processor time and the I/O of the process and
its server."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peers import environment, postgres, trace


@dataclass(frozen=True)
class Use:
    """The processor time and the I/O of processes since their start."""

    cpu_us: float = 0.0
    read: float = 0.0
    written: float = 0.0


class Measured:
    """A process that executes the workload on command, and the database server that it uses.

    With a trace, the syncs of both are written to files from the start of the processes.
    """

    def __init__(
        self,
        command: Sequence[str],
        server: postgres.Server | None,
        traced_to: Path | None,
    ) -> None:
        self.server = server
        self.traces = [traced_to] if traced_to else []
        if server and server.traced_to:
            self.traces.append(server.traced_to)
        self.process = subprocess.Popen(
            [*(trace.command(traced_to) if traced_to else []), *command],
            cwd=environment.HERE.parent,
            env=environment.variables(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        first = self._answer()
        self.pid: int = first["pid"]
        self.versions: dict[str, str] = first["versions"]

    def tell(self, command: str) -> dict[str, Any]:
        """Sends a command, and returns the answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{command}\n")
        self.process.stdin.flush()
        return self._answer()

    def run(self) -> tuple[float, Use, trace.Window]:
        """Executes a run, and returns its microseconds, its use of the machine, and its time window."""
        roots = [self.pid, *([self.server.pid] if self.server else [])]
        processes = with_descendants(roots)
        begin, before = time.time(), {pid: used(pid) for pid in processes}
        us = self.tell("run")["us"]
        # The processes that existed before the run are read first, so that their work after the run is not counted.
        after, end = {pid: used(pid) for pid in processes}, time.time()
        after |= {pid: used(pid) for pid in with_descendants(roots) if pid not in after}
        return us, _difference(before, after), trace.Window(begin, end)

    def end(self) -> None:
        """Ends the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        if self.process.wait() != 0:
            raise subprocess.CalledProcessError(self.process.returncode, self.process.args)

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.process.kill()
            raise subprocess.CalledProcessError(self.process.wait(), self.process.args)
        answer: dict[str, Any] = json.loads(line)
        return answer


def used(pid: int) -> Use:
    """Returns the use of all threads of one process, or zeros if the process has ended."""
    try:
        # The id of the CPU clock of another process on Linux (clock_getcpuclockid).
        cpu = time.clock_gettime((~pid << 3) | 2)
        lines = Path(f"/proc/{pid}/io").read_text(encoding="ascii").splitlines()
    except (OSError, ProcessLookupError):
        return Use()
    fields = dict(line.split(": ") for line in lines)
    return Use(cpu * 1e6, float(fields["rchar"]), float(fields["wchar"]))


def with_descendants(roots: Iterable[int]) -> list[int]:
    """Returns processes with all their descendants."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name of the program, which may contain spaces, is in brackets.
            parent = int(stat.read_text(encoding="utf-8").rpartition(")")[2].split()[1])
        except (OSError, ProcessLookupError):
            continue
        children.setdefault(parent, []).append(int(stat.parent.name))
    found = list(roots)
    for pid in found:
        found.extend(children.get(pid, []))
    return found


def _difference(before: dict[int, Use], after: dict[int, Use]) -> Use:
    """Returns the use between two readings. A process that has ended counts as zero."""
    cpu, read, written = 0.0, 0.0, 0.0
    for pid, end in after.items():
        begin = before.get(pid, Use())
        cpu += max(0.0, end.cpu_us - begin.cpu_us)
        read += max(0.0, end.read - begin.read)
        written += max(0.0, end.written - begin.written)
    return Use(cpu, read, written)
