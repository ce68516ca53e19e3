"""Measures available memory from Linux's /proc and /sys files.

The page cache counts as available, because the kernel drops it on demand. Pages that this process has mapped do not:
they are the weights, which every step reads.
"""

import ctypes
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

UNKNOWN_BYTES: Final = 2**34  # if the system reports no number


def available_bytes(root: Path = Path("/")) -> int:
    """Memory available on the machine, or less if a control group limits this process."""
    machine = _read_table(root / "proc/meminfo").get("MemAvailable:")
    amounts = [_pages("SC_AVPHYS_PAGES") if machine is None else machine * 1024]
    amounts += [most - used for most, used in _limits_of_groups(root)]
    numbers = _read(root / "proc/self/statm").split()
    mapped = int(numbers[2]) * os.sysconf("SC_PAGE_SIZE") if len(numbers) > 2 else 0
    return max(0, min(amounts) - mapped)


def return_freed() -> None:
    """Returns freed memory to the system (glibc only; takes 2 ms)."""
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def total_bytes(root: Path = Path("/")) -> int:
    """Total memory of the machine, or less if a control group limits this process."""
    machine = _read_table(root / "proc/meminfo").get("MemTotal:")
    amounts = [_pages("SC_PHYS_PAGES") if machine is None else machine * 1024]
    return min(amounts + [most for most, _ in _limits_of_groups(root)])


def _pages(name: str) -> int:
    """Size in bytes of a number of pages from sysconf."""
    return os.sysconf(name) * os.sysconf("SC_PAGE_SIZE") if name in os.sysconf_names else UNKNOWN_BYTES


def _limits_of_groups(root: Path) -> Iterator[tuple[int, int]]:
    """Limit and usage of every control group (v1 and v2) that limits this process."""
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            top, prefix, limit, current = root / "sys/fs/cgroup", "", "memory.max", "memory.current"
        elif "memory" in controllers.split(","):
            top, prefix = root / "sys/fs/cgroup/memory", "total_"
            limit, current = "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        inner = top / path.strip("/")
        for folder in (inner, *inner.parents):
            if not folder.is_relative_to(top):
                break
            most, used = _read(folder / limit).strip(), _read(folder / current).strip()
            if most.isdigit() and used.isdigit():
                kept = _read_table(folder / "memory.stat")
                cached = kept.get(f"{prefix}inactive_file", 0) + kept.get(f"{prefix}active_file", 0)
                yield int(most), int(used) - cached


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


def _read_table(file: Path) -> dict[str, int]:
    """Parses a file whose lines are a name and a number."""
    rows = (line.split() for line in _read(file).splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit()}
