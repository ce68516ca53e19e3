"""Compiles kernels for a Hopper GPU on a machine without one, and reads the compiler's statistics.

`with compiled() as programs:` every kernel that a public function starts inside is compiled for compute capability
9.0 instead of run; its tensors may be CPU tensors of the real shapes, never touched. Knows how Triton launches; no
operator.
"""

import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction

CAPABILITY: Final = 90
REDUCTION: Final = re.compile(
    r'"tt\.reduce"\(.*?\) <\{axis = (\d) .*?\((.*?)\}\) : \(tensor<([\dx]+)x\w+, #(\w+|[^)]+)>\) ->', re.DOTALL
)


@dataclass(frozen=True)
class Program:
    """One compiled kernel. Registers are a thread's, `stack_bytes` its spills, `shared_bytes` are a block's.

    `sums`: the layouts of the reductions across threads, which fix the order of the additions.
    """

    name: str
    registers: int
    stack_bytes: int
    shared_bytes: int
    warps: int
    tensor_core: str
    ptx: str
    sums: tuple[str, ...]


class HopperDriver:
    """Answers Triton's questions about the GPU before it compiles."""

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", CAPABILITY, 32)

    def get_active_torch_device(self) -> str:
        return "cpu"


@contextmanager
def compiled(*, inspects: bool = True) -> Iterator[list[Program]]:
    """Collects the programs that would have run. Needs Triton imported without `TRITON_INTERPRET`.

    Without `inspects` the list stays empty, and all that remains is Triton's cache on disk.
    """
    assert not triton.knobs.runtime.interpret, "interpreted kernels are never compiled"
    programs: list[Program] = []
    run = JITFunction.run

    def compile_only(self: Any, *arguments: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        kernel = run(self, *arguments, grid=grid, warmup=True, **options)
        if inspects:
            programs.append(inspect(self.__name__, kernel))
        return kernel

    triton.runtime.driver.set_active(HopperDriver())
    JITFunction.run = compile_only
    try:
        yield programs
    finally:
        JITFunction.run = run
        triton.runtime.driver._active = None


def inspect(name: str, kernel: Any) -> Program:
    """Registers and stack from the machine code, shared memory and warps from the compiler's record."""
    usage = _dump(kernel.asm["cubin"], "--dump-resource-usage")
    code = _dump(kernel.asm["cubin"], "--dump-sass")
    units = sorted(set(re.findall(r"\b(HGMMA|QGMMA|IGMMA|HMMA|IMMA|QMMA)\b", code)))
    return Program(
        name,
        int(re.findall(r"REG:(\d+)", usage)[0]),
        int(re.findall(r"STACK:(\d+)", usage)[0]),
        int(kernel.metadata.shared),
        int(kernel.metadata.num_warps),
        " ".join(units) or "-",
        kernel.asm["ptx"],
        find_sums(kernel.asm["ttgir"]),
    )


def find_sums(ttgir: str) -> tuple[str, ...]:
    """Length and layout of every adding reduction, without its instruction width, which depends on the rows."""
    layouts = dict(re.findall(r"^#(\w+) = (.+)$", ttgir, re.MULTILINE))
    sums = set()
    for axis, body, shape, layout in REDUCTION.findall(ttgir):
        if "arith.addf" in body:
            spread = re.sub(r"instrShape = \[.*?\]", "", layouts.get(layout, layout))
            sums.add(f"{shape.split('x')[int(axis)]} over {spread}")
    return tuple(sorted(sums))


def _dump(cubin: bytes, flag: str) -> str:
    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        return subprocess.run([tool, flag, file.name], capture_output=True, text=True, check=True).stdout
