"""Calculates the time of a service call on a disk with another latency than the disk of this machine.

The workload waits only for the processor and for syncs: the model answers immediately, the files are in the page
cache, and reads and writes of the page cache are processor time.
"""

from __future__ import annotations

# The latencies of a sync in the tables, in microseconds: the first is that of a disk whose cache survives a power loss,
# and the second that of a network disk or of a disk without such a cache.
LATENCIES_US = (30.0, 3_000.0)


def processor_us(cpu_us: float, syncs: float, sync_cpu_us: float) -> float:
    """Returns the processor time of a call without the processor time of its syncs, which is part of their latency."""
    return max(0.0, cpu_us - syncs * sync_cpu_us)


def wall_us(processor_us: float, syncs: float, latency_us: float) -> float:
    """Returns the time of a call: the processor time plus the latency of each sync."""
    return processor_us + syncs * latency_us
