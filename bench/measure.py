"""Times calls on a GPU or a CPU, and describes the machine. Knows clocks and caches, not the calls."""

import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from hashlib import sha256
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Final

import torch
import typer

ROOT: Final = Path(__file__).parent.parent
MIN_REPEATS: Final = 200
WARM_UPS: Final = 5
FLUSH_BYTES: Final = 256 * 2**20  # several times the second-level cache of an H100 (50 MB) or H200 (60 MB)

JsonFile = Annotated[Path | None, typer.Option("--json", help="write the figures here")]
Call = Callable[[], object]


@dataclass(frozen=True)
class Timing:
    """Statistics of `repeats` calls, in seconds."""

    median_s: float
    p95_s: float
    fastest_s: float
    repeats: int


@dataclass(frozen=True)
class Clock:
    """Times calls. `flushes` empties the caches between two calls; on a GPU a call is the replay of a graph."""

    device: torch.device
    repeats: int = MIN_REPEATS
    flushes: bool = True

    def time(self, calls: Sequence[Call]) -> Timing:
        """Times `calls` in turn, each on fresh data of its own, after a warm-up."""
        ready = [self._prepare(call) for call in calls]
        flush = torch.empty(FLUSH_BYTES // 4, device=self.device) if self.flushes else None
        samples = []
        for turn in range(self.repeats):
            if flush is not None:
                flush.sum()  # reads: after writes the call would also pay for writing cache lines back
            samples.append(self._time_one(ready[turn % len(ready)]))
        return summarize(samples)

    def _prepare(self, call: Call) -> Call:
        for _ in range(WARM_UPS if self.device.type == "cuda" else 1):
            call()
        if self.device.type != "cuda":
            return call
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            call()
        graph.replay()
        return graph.replay

    def _time_one(self, call: Call) -> float:
        if self.device.type != "cuda":
            started = time.perf_counter()
            call()
            return time.perf_counter() - started
        before = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        after = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        before.record()
        call()
        after.record()
        after.synchronize()
        return float(before.elapsed_time(after)) / 1000


def summarize(samples: Sequence[float]) -> Timing:
    return Timing(statistics.median(samples), quantile(samples, 0.95), min(samples), len(samples))


def quantile(samples: Sequence[float], share: float) -> float:
    return sorted(samples)[min(len(samples) - 1, int(share * len(samples)))]


def describe(device: torch.device) -> dict[str, Any]:
    """Device, clocks, versions, commit and date, for the record of every figure."""
    facts: dict[str, Any] = {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "commit": find_commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        **describe_triton(),
        "processor": processor_name(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load_average": os.getloadavg()[0],
    }
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        facts |= {
            "device": properties.name,
            "multiprocessors": properties.multi_processor_count,
            "memory_bytes": properties.total_memory,
            "cuda": torch.version.cuda,
            **query_clocks(),
        }
    else:
        facts["device"] = facts["processor"]
    return facts


def choose_device() -> torch.device:
    """The GPU, else the CPU for a run at toy size. Ends the process where kernels are not interpreted either."""
    if torch.cuda.is_available():
        return torch.device("cuda")
    if not describe_triton().get("interpreted"):
        sys.exit("There is no GPU here: set TRITON_INTERPRET=1 to see the bench run at toy size.")
    return torch.device("cpu")


def note_toy(is_toy: bool) -> str:
    return " (interpreted: times mean nothing)" if is_toy else ""


def describe_triton() -> dict[str, Any]:
    """Triton's version, and whether kernels are interpreted; empty where there is none, as on macOS."""
    if find_spec("triton") is None:
        return {}
    from midfill_kernels.launch import is_interpreted

    return {"triton": version("triton"), "interpreted": is_interpreted()}


def find_commit() -> str:
    """The commit, marked if files differ from it; without a repository the value of MIDFILL_COMMIT."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    told = os.environ.get("MIDFILL_COMMIT", "unknown")
    if shutil.which("git") is None:
        return told
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.strip() or told


def hash_sources(*folders: Path) -> str:
    """A hash of the code in `folders`, and of the weights of judges and proposers; records of benches do not count."""
    digest = sha256()
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.suffix not in (".py", ".json") or "results" in path.relative_to(folder).parts:
                continue
            digest.update(str(path.relative_to(folder.parent)).encode() + path.read_bytes())
    return digest.hexdigest()


def query_clocks() -> dict[str, str]:
    """Driver, clocks and power as nvidia-smi reports them; empty without nvidia-smi."""
    fields = ("driver_version", "clocks.sm", "clocks.mem", "clocks.max.sm", "power.draw", "temperature.gpu")
    command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader"]
    if shutil.which(command[0]) is None:
        return {}
    line = subprocess.run(command, capture_output=True, text=True).stdout.partition("\n")[0]
    return dict(zip(fields, (value.strip() for value in line.split(",")), strict=False))


def processor_name() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def write_record(path: Path, record: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1, default=_plain) + "\n", encoding="utf-8")


def _plain(value: object) -> object:
    if hasattr(value, "__dataclass_fields__"):
        return asdict(value)  # type: ignore[call-overload]
    return str(value)
