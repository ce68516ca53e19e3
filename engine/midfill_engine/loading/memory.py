"""Measures total and available memory, on Linux from /proc and /sys.

The page cache counts as available, because the kernel drops it on demand. Pages of files that this process has mapped
do not count: they are the weights, which every step reads.
"""

import ctypes
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

UNKNOWN_BYTES: Final = 2**34  # if the system reports no number


def available_bytes(root: Path = Path("/")) -> int:
    """Memory available on the machine, or less if a control group limits this process; without its mapped pages."""
    machine = _read_table(root / "proc/meminfo").get("MemAvailable:")
    amounts = [_pages("SC_AVPHYS_PAGES") if machine is None else machine * 1024]
    amounts += [limit - used for limit, used in _limits_of_groups(root)]
    page_counts = _read(root / "proc/self/statm").split()
    mapped = int(page_counts[2]) * os.sysconf("SC_PAGE_SIZE") if len(page_counts) > 2 else 0
    return max(0, min(amounts) - mapped)


def return_freed() -> None:
    """Returns freed memory to the system (glibc only; takes 2 ms)."""
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def total_bytes(root: Path = Path("/")) -> int:
    """Total memory of the machine, or less if a control group limits this process."""
    machine = _read_table(root / "proc/meminfo").get("MemTotal:")
    amounts = [_pages("SC_PHYS_PAGES") if machine is None else machine * 1024]
    return min(amounts + [limit for limit, _ in _limits_of_groups(root)])


def _pages(name: str) -> int:
    """The bytes of as many pages as sysconf reports under `name`; UNKNOWN_BYTES if it has no such name."""
    return os.sysconf(name) * os.sysconf("SC_PAGE_SIZE") if name in os.sysconf_names else UNKNOWN_BYTES


def _limits_of_groups(root: Path) -> Iterator[tuple[int, int]]:
    """The limit and the used bytes, without page cache, of every control group (v1 and v2) that limits this process."""
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            top, prefix = root / "sys/fs/cgroup", ""
            limit_file, used_file = "memory.max", "memory.current"
        elif "memory" in controllers.split(","):
            top, prefix = root / "sys/fs/cgroup/memory", "total_"
            limit_file, used_file = "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        inner = top / path.strip("/")
        for folder in (inner, *inner.parents):
            if not folder.is_relative_to(top):
                break
            limit, used = _read(folder / limit_file).strip(), _read(folder / used_file).strip()
            if limit.isdigit() and used.isdigit():
                counts = _read_table(folder / "memory.stat")
                cached = counts.get(f"{prefix}inactive_file", 0) + counts.get(f"{prefix}active_file", 0)
                yield int(limit), int(used) - cached


def _read(file: Path) -> str:
    """The file's text, empty if it cannot be read."""
    try:
        return file.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


def _read_table(file: Path) -> dict[str, int]:
    """The numbers by name of a file whose lines have a name and a number."""
    rows = (line.split() for line in _read(file).splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit()}
