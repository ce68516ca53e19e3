"""What this machine offers a model: device, number format, threads and memory."""

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

import torch

from midfill_engine.caches.stores import PREFIX_BYTES
from midfill_engine.errors import StartError
from midfill_engine.loading.memory import available_bytes
from midfill_engine.wire import ErrorCode

DEVICES: Final = ("auto", "cpu", "cuda", "mps")
DTYPES: Final = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
DTYPE_VARIABLE: Final = "MIDFILL_DTYPE"
MIN_PARAMETERS_FOR_THREADS: Final = 20_000_000  # a smaller model runs on one CPU thread
HOPPER: Final = (9, 0)  # compute capability
PREFIX_SHARE: Final = 16  # a GPU keeps earlier prompts in so great a part of its memory
BFLOAT16_CPU_FLAGS: Final = frozenset({"avx512_bf16", "amx_bf16"})


def find_devices() -> dict[str, bool]:
    """All kinds of devices, the fastest first, and whether this machine has one."""
    return {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}


def choose_device(name: str, present: Mapping[str, bool] | None = None) -> torch.device:
    """The device of a name; of `auto` the fastest that is `present`, by default on this machine. Raises StartError."""
    if name not in DEVICES:
        raise option_error(f"There is no device named {name!r}; known: {', '.join(DEVICES)}.")
    present = find_devices() if present is None else present
    if name == "auto":
        return torch.device(next(kind for kind, is_present in present.items() if is_present))
    if not present[name]:
        raise option_error(f"This machine has no usable {name} device.")
    return torch.device(name)


def choose_dtype(device: torch.device, name: str = "auto", flags: frozenset[str] | None = None) -> torch.dtype:
    """The number format of a name. `auto` is that of MIDFILL_DTYPE, otherwise bf16 on CUDA and on CPUs with bf16
    instructions, otherwise fp32. Raises StartError.

    Emulated bf16 was 8 times slower on an AVX2 CPU. fp16 overflows at 65,504, so that only Apple's GPUs use it, and
    only if it is named. `flags` are the CPU's instruction sets, by default this one's.
    """
    if name == "auto":
        name = os.environ.get(DTYPE_VARIABLE) or "auto"
    if name == "fp16" and device.type != "mps":
        raise option_error(f"fp16 is for Apple's GPUs; on the device {device.type!r} use fp32, bf16 or auto.")
    if name in DTYPES:
        return DTYPES[name]
    if name != "auto":
        raise option_error(f"There is no number format named {name!r}; known: auto, {', '.join(DTYPES)}.")
    if device.type == "cuda":
        return torch.bfloat16
    if device.type == "cpu" and (cpu_flags() if flags is None else flags) & BFLOAT16_CPU_FLAGS:
        return torch.bfloat16
    return torch.float32


def is_measured(device: torch.device) -> bool:
    """True for GPUs on which the kernels were tested and measured: NVIDIA's Hopper."""
    is_nvidia = device.type == "cuda" and torch.version.hip is None
    return is_nvidia and torch.cuda.get_device_capability(device) == HOPPER


def option_error(message: str) -> StartError:
    next_step = "leave out --device and --dtype, or give auto"
    if os.environ.get(DTYPE_VARIABLE):
        next_step += f", and unset {DTYPE_VARIABLE}"
    return StartError(ErrorCode.BAD_REQUEST, message, next_step)


def choose_num_threads(device: torch.device, num_parameters: int, available: int) -> int:
    """Torch's threads on the CPU: all that are `available` for a model on a CPU, but one for a small model and beside a
    GPU. With a small model two were 10 % faster on an idle machine and half as fast on a busy one; beside a GPU only
    small operations are left to the CPU.
    """
    if device.type == "cpu" and num_parameters >= MIN_PARAMETERS_FOR_THREADS:
        return available
    return 1


@cache
def cpu_flags() -> frozenset[str]:
    """The instruction sets that Linux reports; empty elsewhere."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines() if cpuinfo.exists() else []
    return frozenset(next((line for line in lines if line.startswith("flags")), "").split()[2:])


def free_bytes(device: torch.device) -> int:
    """Memory that may still be claimed: three quarters of what is free now."""
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else available_bytes()
    return free * 3 // 4


def prefix_bytes(device: torch.device) -> int:
    """How much memory the keys of earlier prompts may take: on a GPU a share of its memory, because a server keeps
    prompts of all its users.
    """
    if device.type != "cuda":
        return PREFIX_BYTES
    return max(PREFIX_BYTES, torch.cuda.mem_get_info(device)[1] // PREFIX_SHARE)
