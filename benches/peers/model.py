"""The time of a service call on a disk with another latency than that of this machine.

Nothing in the workload waits for anything but the processor and syncs: the model answers at once, the
files are in the page cache, and reads and writes of it are processor time.
"""

from __future__ import annotations

# The latencies for which the table has a time: of a disk with a battery or capacitors behind its
# cache, and of one that is reached over a network, or has no such cache.
LATENCIES_US = (30.0, 3_000.0)


def processor_us(cpu_us: float, syncs: float, sync_cpu_us: float) -> float:
    """The processor time of a call without that inside its syncs, which is part of their latency."""
    return max(0.0, cpu_us - syncs * sync_cpu_us)


def wall_us(processor_us: float, syncs: float, latency_us: float) -> float:
    """The time of a call: that of the processor, and each sync after the other."""
    return processor_us + syncs * latency_us
