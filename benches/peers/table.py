"""The tables of the figures."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from peers import model
from peers.interleaved import STATES
from peers.systems import OWN, PEERS

# A smaller number of syncs per call counts as no sync, because one of many runs may contain a checkpoint.
NO_SYNCS = 0.05


@dataclass(frozen=True)
class Figures:
    """The figures of a service call of a system, for one history and state. A figure that was not measured is None."""

    us: float | None = None
    processor_us: float | None = None
    syncs: float | None = None
    read: float | None = None
    written: float | None = None
    sync_us: float | None = None

    @classmethod
    def of(cls, lines: Iterable[dict[str, Any]]) -> Figures:
        """Returns the median of each figure. For the processor time, returns the minimum instead, because other work of
        the machine can only increase it. The latency of the disk is the median over the timed runs."""
        runs = list(lines)
        timed = [run for run in runs if "us" in run]
        syncs = _median(runs, "syncs")
        processor_us = None
        if timed and syncs is not None:
            cpu_us = min(run["cpu_us"] for run in timed)
            sync_cpu_us = min(run["sync_cpu_us"] for run in timed)
            processor_us = model.processor_us(cpu_us, syncs, sync_cpu_us)
        return cls(
            _median(timed, "us"),
            processor_us,
            syncs,
            _median(runs, "read"),
            _median(runs, "written"),
            _median(timed, "sync_us"),
        )

    def wall_us(self, latency_us: float) -> float | None:
        """Returns the calculated time of a call on a disk with this latency."""
        if self.processor_us is None or self.syncs is None:
            return None
        return model.wall_us(self.processor_us, self.syncs, latency_us)

    def measured_by_model(self) -> float | None:
        """Returns the measured time, divided by the calculated time for the latency of the disk of this machine."""
        modelled = None if self.sync_us is None else self.wall_us(self.sync_us)
        return self.us / modelled if self.us and modelled else None


def _median(runs: list[dict[str, Any]], name: str) -> float | None:
    values = [run[name] for run in runs if name in run]
    return statistics.median(values) if values else None


@dataclass(frozen=True)
class Row:
    """A row of the tables: a stack of tower-chat, or a peer, with the figures of tower-chat from the same turns."""

    name: str
    own: dict[tuple[int, str], Figures]
    ours: dict[tuple[int, str], Figures] | None = None

    def modelled(self, history: int, state: str, latency_us: float) -> str:
        """Returns a calculated time and, for a peer, its factor over the time of tower-chat."""
        time = self.own[history, state].wall_us(latency_us)
        ours = self.ours[history, state].wall_us(latency_us) if self.ours else None
        factor = f" ({_rounded(time / ours)}x)" if time and ours else ""
        return _time(time) + factor


class Measurement:
    """All results of a measurement."""

    def __init__(self, lines: Iterable[dict[str, Any]]) -> None:
        self.lines = list(lines)
        self.date = max(line["date"] for line in self.lines)
        self.histories = sorted({line["history"] for line in self.lines})
        self.versions = {
            package: version
            for line in self.lines
            for package, version in line.get("versions", {}).items()
        }

    def rows(self) -> list[Row]:
        """Returns each stack of tower-chat, followed by the peers that are compared with it."""
        rows = []
        for key, own in OWN.items():
            pairs = [pair for pair in self._pairs() if PEERS[pair].compared_with == key]
            if pairs:
                rows.append(Row(own.name, self._figures(pairs, "ours")))
            for pair in pairs:
                ours = self._figures([pair], "ours")
                rows.append(Row(PEERS[pair].name, self._figures([pair], "peer"), ours))
        return rows

    def durability_errors(self) -> list[str]:
        """Returns an error for each peer whose durability differs from that of the stack with which it is compared."""
        errors = []
        for pair in self._pairs():
            ours, peer = (
                any((figures.syncs or 0) >= NO_SYNCS for figures in by_history.values())
                for by_history in (self._figures([pair], side) for side in ("ours", "peer"))
            )
            if ours and not peer:
                errors.append(f"{pair} does not sync, and is compared with a store that does")
            if peer and not ours:
                errors.append(f"{pair} syncs, and is compared with a store that does not")
        return errors

    def short(self) -> str:
        """Returns the table of the README: the shortest and the longest history."""
        first, last = self.histories[0], self.histories[-1]
        heads = ["stack and store", "syncs", "written", f"processor, after {first:,}"]
        heads += [f"after {last:,}", f"after {last:,}, cold"]
        for history in (first, last):
            latencies = [_ms(latency) for latency in model.LATENCIES_US]
            heads += [f"call after {history:,}, sync {latencies[0]}", *latencies[1:]]
        rows = [heads, ["---"] * 3 + ["---:"] * (len(heads) - 3)]
        for row in self.rows():
            at_first, at_last = row.own[first, "warm"], row.own[last, "warm"]
            cells = [
                row.name,
                _range(at_first.syncs, at_last.syncs, _count),
                _range(at_first.written, at_last.written, _size),
                _time(at_first.processor_us),
                _time(at_last.processor_us),
                _time(row.own[last, "cold"].processor_us),
            ]
            cells += [
                row.modelled(history, "warm", latency)
                for history in (first, last)
                for latency in model.LATENCIES_US
            ]
            rows.append(cells)
        return f"{_markdown(rows)}\n\n{self._provenance()}"

    def full(self) -> str:
        """Returns a table for every history and state."""
        parts = []
        heads = ["stack and store", "syncs", "read", "written", "processor"]
        heads += [f"call, sync {_ms(latency)}" for latency in model.LATENCIES_US]
        heads += ["measured", "sync here", "measured / model"]
        for history in self.histories:
            for state in STATES:
                rows = [heads, ["---"] + ["---:"] * (len(heads) - 1)]
                rows += [_full_row(row, history, state) for row in self.rows()]
                parts.append(f"### After {history:,} messages, {state}\n\n{_markdown(rows)}")
        parts.append(f"{self._provenance()} {self.check()}")
        return "\n\n".join(parts)

    def check(self) -> str:
        """Returns a sentence that compares the measured times with the calculated ones."""
        found = [
            ratio
            for row in self.rows()
            for figures in row.own.values()
            if (ratio := figures.measured_by_model())
        ]
        if not found:
            return "The calculated times were not compared with measured ones."
        low, middle, high = min(found), statistics.median(found), max(found)
        return (
            f"The measured time of a call was {low:.2f} to {high:.2f} times the calculated time for the "
            f"latency of this disk, with a median of {middle:.2f}."
        )

    def _provenance(self) -> str:
        named = ", ".join(f"{name} {version}" for name, version in sorted(self.versions.items()))
        return f"Measured on {self.date} with {named}."

    def _pairs(self) -> list[str]:
        measured = {line["pair"] for line in self.lines}
        return [pair for pair in PEERS if pair in measured]

    def _figures(self, pairs: list[str], side: str) -> dict[tuple[int, str], Figures]:
        chosen = [line for line in self.lines if line["pair"] in pairs and line["side"] == side]
        return {
            (history, state): Figures.of(
                line for line in chosen if (line["history"], line["state"]) == (history, state)
            )
            for history in self.histories
            for state in STATES
        }


def _full_row(row: Row, history: int, state: str) -> list[str]:
    figures = row.own[history, state]
    ratio = figures.measured_by_model()
    return [
        row.name,
        _count(figures.syncs),
        _size(figures.read),
        _size(figures.written),
        _time(figures.processor_us),
        *(row.modelled(history, state, latency) for latency in model.LATENCIES_US),
        _time(figures.us),
        _time(figures.sync_us),
        "" if ratio is None else f"{ratio:.2f}",
    ]


def _markdown(rows: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _range(first: float | None, last: float | None, text: Any) -> str:
    texts = [text(first), text(last)]
    return texts[0] if texts[0] == texts[1] else " to ".join(texts)


def _ms(us: float) -> str:
    return f"{us / 1e3:g} ms"


def _time(us: float | None) -> str:
    if us is None:
        return ""
    return f"{_rounded(us)} us" if us < 1_000 else f"{_rounded(us / 1_000)} ms"


def _count(count: float | None) -> str:
    if count is None:
        return ""
    return "0" if count < NO_SYNCS else _rounded(count)


def _size(size: float | None) -> str:
    if size is None:
        return ""
    if size < 50:
        return "0"
    return f"{_rounded(size / 1e6)} MB" if size >= 1e6 else f"{_rounded(size / 1e3)} KB"


def _rounded(value: float) -> str:
    """Formats a number with two significant digits."""
    if value >= 100:
        digits = len(str(int(value))) - 2
        return f"{round(value / 10**digits) * 10**digits:,}"
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"
