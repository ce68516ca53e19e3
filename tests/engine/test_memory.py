"""What the machine can still give, read from files as Linux writes them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from midfill_engine.loading.memory import available_bytes

MIB = 2**20
MACHINE = {
    "proc/meminfo": "MemTotal: 16777216 kB\nMemFree: 1048576 kB\nMemAvailable: 10485760 kB\nHugePages_Total: 0\n"
}
STAT = "anon 1\ninactive_file 104857600\nactive_file 209715200\ninactive_anon 5\n"
OLD_STAT = STAT + "total_inactive_file 104857600\ntotal_active_file 314572800\n"


@pytest.mark.parametrize(
    ("files", "available_mib"),
    [
        ({}, 10240),
        ({"proc/self/cgroup": "0::/a/b\n"}, 10240),
        ({"proc/self/statm": f"900000 300000 {240 * MIB // os.sysconf('SC_PAGE_SIZE')} 1 0 5 0\n"}, 10000),
        ({"proc/self/cgroup": "0::/\n", "max": "max\n", "current": "1\n"}, 10240),
        ({"proc/self/cgroup": "0::/\n", "max": f"{4096 * MIB}\n", "current": f"{3096 * MIB}\n", "stat": STAT}, 1300),
        ({"proc/self/cgroup": "0::/a/b\n", "a/b/max": f"{512 * MIB}\n", "a/b/current": f"{512 * MIB}\n"}, 0),
        ({"proc/self/cgroup": "0::/a/b\n", "a/max": f"{512 * MIB}\n", "a/current": f"{12 * MIB}\n"}, 500),
        ({"proc/self/cgroup": "0::/gone/here\n", "max": f"{512 * MIB}\n", "current": f"{12 * MIB}\n"}, 500),
        ({"proc/self/cgroup": "0::/\n", "max": f"{2**44}\n", "current": "0\n"}, 10240),
        ({"proc/self/cgroup": "0::/\n", "max": "99\n", "current": "9999999\n"}, 0),
    ],
    ids=["no groups", "no files", "weights", "no limit", "cache", "full", "outer", "foreign path", "roomy", "beyond"],
)
def test_the_page_cache_is_available_and_what_is_mapped_or_limited_is_not(
    tmp_path: Path, files: dict[str, str], available_mib: int
) -> None:
    for name, text in (MACHINE | files).items():
        folder, _, last = name.rpartition("/")
        file = tmp_path / (name if name.startswith("proc") else f"sys/fs/cgroup/{folder}/memory.{last}")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert available_bytes(tmp_path) == available_mib * MIB


def test_control_groups_of_the_first_version(tmp_path: Path) -> None:
    folder = tmp_path / "sys/fs/cgroup/memory/docker/x"
    for file, text in {
        tmp_path / "proc/meminfo": MACHINE["proc/meminfo"],
        tmp_path / "proc/self/cgroup": "11:cpu,cpuacct:/y\n9:memory:/docker/x\n1:name=systemd:/z\n",
        tmp_path / "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        tmp_path / "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{6000 * MIB}\n",
        folder / "memory.limit_in_bytes": f"{1000 * MIB}\n",
        folder / "memory.usage_in_bytes": f"{900 * MIB}\n",
        folder / "memory.stat": OLD_STAT,
    }.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert available_bytes(tmp_path) == 500 * MIB


def test_a_machine_that_does_not_say_has_some(tmp_path: Path) -> None:
    assert available_bytes(tmp_path) > 0


KEPT = """
import torch
from midfill_engine.loading.memory import return_freed

def held():
    return int(next(line for line in open("/proc/self/smaps_rollup") if line.startswith("Rss:")).split()[1])

made = [torch.zeros(12_000) for _ in range(2_000)]  # 48 kB each: below what the C library maps alone
made = made[-1:]
before = held()
return_freed()
print(before - held())
"""


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="it measures by Linux's /proc")
def test_what_is_free_below_something_in_use_goes_back_to_the_system() -> None:
    words = [sys.executable, "-c", KEPT]
    run = subprocess.run(words, env={**os.environ, "MALLOC_ARENA_MAX": "1"}, capture_output=True, text=True, check=True)
    assert int(run.stdout) > 50_000, "of 96 MB"
