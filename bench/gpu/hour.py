"""`python -m bench.gpu.hour`: tests the kernels and trains the adapter on a GPU machine lent for a quarter of an hour.

Each call brings this tree and one cargo of at most 64 MiB together, and takes results back in files of at most 15 MiB.
What outlasts a call lies in a folder of its own; a call that was lost is made again. Knows commands and files.
"""

import hashlib
import json
import lzma
import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Annotated, Final

import typer

PLAN: Final = """\
second  call, from the tree's root; cargo/N travels with it, OUT comes back (times of H200s, 2026-11-26 and 27)
  0     a machine is asked for (30 to 100 s); each call exports PYTHONPATH=/tmp/midfill-hour/site, which the first fills
 30     pip install --no-index --no-deps --target $PYTHONPATH cargo/0/wheels/*.whl
 35-170 python -m bench.gpu.hour start cargo/0 OUT
        kernels' tests (25 s) beside the trainer's first steps (40 s), then benches (90 s), causal models first
175-210 python -m bench.gpu.hour feed cargo/N OUT --end-at-s END      # every cargo but the last, 12 s each
210-700 python -m bench.gpu.hour feed cargo/LAST OUT --end-at-s END --stay-s 480
        python -m bench.gpu.hour finish OUT --end-at-s END
        the base is whole: training, and in the same call the adapter comes home
700-870 python -m bench gpu.causal, python -m bench quality SUITE --model /tmp/midfill-hour/adapter --device cuda
Call again within seconds of each answer. A call that was lost is made again. More cargos can be fed while it trains.
Do all on one machine: once it is given back, another may not be lent (2026-11-27)."""
PIECE_BYTES: Final = 15 << 20  # of a result
CARGO_BYTES: Final = 27 << 20  # of a cargo: the tree takes the rest, 20 MiB of it the adapter that ships
ROOT: Final = Path(__file__).parents[2]
WAYS: Final = ("--compile", "--no-compile")  # the first whose steps end with numbers
TRAINER: Final = (
    "--device cuda --num-workers 13 --num-threads 2 --pack-length 32768 --step-tokens 65536 --row-tokens 1280 --rank 64"
    " --warmup-steps 30 --snapshot-s 150 --num-validation-rows 256"
)
RATE: Final = 4e-4
BENCHES: Final = {  # by the name of the record
    "causal": "gpu.causal --seconds 35",
    "serving-7B": "gpu.serving --shape 7B --repeats 5",
    "serving-7B-blocks": "gpu.serving --shape 7B --family sdar --repeats 5",
    "serving-16B-A1B": "gpu.serving --shape 16B-A1B --family llada2 --repeats 3",
    "operators": "gpu.operators --no-rivals --repeats 50",
    "serving-0.5B": "gpu.serving --shape 0.5B --repeats 5",
}

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, help=__doc__)
Kept = Annotated[Path, typer.Option(help="The folder that outlasts calls.")]
Trainer = Annotated[str, typer.Option(help="Options of every run.")]
EndAt = Annotated[float, typer.Option(help="When training ends, in seconds since 1970.")]
KEPT: Final = Path("/tmp/midfill-hour")


@app.command()
def plan() -> None:
    """Print the calls, by the minute."""
    print(PLAN)


@app.command()
def prepare(
    pack: Annotated[Path, typer.Argument(help="A pack of many small sets.")],
    cargo: Annotated[Path, typer.Argument(help="The folder to write.")],
    wheels: Annotated[Path | None, typer.Option(help="A folder of wheels that the machine lacks.")] = None,
    model: Annotated[str, typer.Option(help="The base, or its file.")] = "smollm2",
) -> None:
    """Write the cargos: what fits of the base, and the wheels; then its rest, and sets as far as they fit, in order."""
    from midfill_engine.loading.packaged import PACKAGED
    from training.data.cutter import find_base
    from training.data.pack import sets_of, squeeze

    base = find_base(model)
    data = base.read_bytes()
    (cargo / "0").mkdir(parents=True)
    if wheels is not None:
        shutil.copytree(wheels, cargo / "0/wheels")
    squeezed = lzma.compress(data)
    pieces = -(-(len(squeezed) + size_of(cargo)) // CARGO_BYTES)
    about = {"model": model if model in PACKAGED else "", "file": base.name, "pieces": pieces}
    (cargo / "0/base.json").write_text(json.dumps({**about, "sha256": hashlib.sha256(data).hexdigest()}))
    size = -(-len(squeezed) // pieces)
    for number in range(pieces):
        (cargo / str(number)).mkdir(exist_ok=True)
        (cargo / str(number) / f"base.{number}").write_bytes(squeezed[number * size : (number + 1) * size])
    number = 0
    for folder in sets_of(pack, "train"):
        made = cargo / "made"
        squeeze(folder, made)
        while (cargo / str(number)).exists() and size_of(made) + size_of(cargo / str(number)) > CARGO_BYTES:
            number += 1
        (cargo / str(number)).mkdir(exist_ok=True)
        made.rename(cargo / str(number) / folder.name)
    for folder in sorted(cargo.iterdir()):
        print(folder, size_of(folder), "bytes")


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


class Hour:
    """The state of the hour, in `kept`."""

    def __init__(self, kept: Path, out: Path, trainer: str) -> None:
        self.kept, self.out, self.trainer, self.tree = kept, out, trainer, kept / "tree"
        for folder in (kept, out):
            folder.mkdir(parents=True, exist_ok=True)
        paths = [kept / "site", *(self.tree / name for name in ("engine", "kernels", "infill", "."))]
        caches = {name: str(kept / name.lower()) for name in ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")}
        self.environment = os.environ | caches | {"PYTHONPATH": os.pathsep.join(map(str, paths))}
        self.environment |= {"XDG_DATA_HOME": str(kept / "data"), "RAYON_NUM_THREADS": "1"}
        self.environment |= {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
        self.run_folder, self.pack = kept / "run", kept / "pack"

    def say(self, *words: object) -> None:
        with (self.kept / "hour.log").open("a", encoding="utf-8") as log:
            print(time.strftime("%H:%M:%S"), *words, file=log)
        print(*words, flush=True)

    def call(self, name: str, *words: object, limit_s: float = 600.0) -> int:
        """Runs a Python module in the kept tree; what it prints is kept and comes back."""
        with (self.kept / f"{name}.log").open("ab") as log:
            command = [sys.executable, "-m", *map(str, words)]
            try:
                done = subprocess.run(
                    command, cwd=self.tree, env=self.environment, stdout=log, stderr=log, timeout=limit_s
                )
            except subprocess.TimeoutExpired:
                return 124
        return done.returncode

    def try_way(self, way: str) -> bool:
        """Three steps over a random base as wide as the real one, and random text."""
        toy = self.kept / "toy"
        shutil.rmtree(toy, ignore_errors=True)
        code = self.call("toy", "bench.gpu.toy", toy)
        words = [*self.trainer.split(), "--model", toy / "base", "--num-steps", 3, way]
        code = code or self.call("toy", "training", "train", toy / "pack", toy / "run", *words, limit_s=120.0)
        self.say("try", way, "works" if code == 0 else f"fails with {code}")
        return code == 0

    def find_way(self) -> None:
        if not (self.kept / "way").exists():
            (self.kept / "way").write_text(next((way for way in WAYS if self.try_way(way)), WAYS[-1]))
        self.say("way", (self.kept / "way").read_text())

    def take_tree(self) -> None:
        if not self.tree.exists():
            made = self.kept / "tree.part"
            shutil.rmtree(made, ignore_errors=True)
            left_out = shutil.ignore_patterns(".git", ".venv", ".*_cache", "cargo", "node_modules", "__pycache__")
            shutil.copytree(ROOT, made, ignore=left_out, symlinks=True)
            made.rename(self.tree)

    def take_cargo(self, cargo: Path) -> None:
        """Keeps pieces of the base and sets of the pack; what is here already stays."""
        for path in sorted(cargo.iterdir()):
            if path.name.startswith("base."):
                shutil.copyfile(path, self.kept / path.name)
            elif path.name.startswith("set-") and not (self.pack / path.name).exists():
                code = self.call("unpack", "training", "unpack", path.resolve(), self.pack)
                self.say("unpacked" if code == 0 else "cannot unpack", path.name)

    @property
    def model(self) -> str:
        """Joins the pieces of the base. Raises SystemExit if pieces are missing or belong to another base."""
        about = json.loads((self.kept / "base.json").read_text())
        folder = self.kept / "data/midfill/models" / about["model"]
        target = folder / about["file"]
        if not target.exists():
            pieces = [self.kept / f"base.{number}" for number in range(about["pieces"])]
            if not all(piece.exists() for piece in pieces):
                raise SystemExit("The base is not whole yet: feed the cargos in order.")
            try:
                data = lzma.decompress(b"".join(piece.read_bytes() for piece in pieces))
            except lzma.LZMAError:
                data = b""
            if hashlib.sha256(data).hexdigest() != about["sha256"]:
                raise SystemExit("The base is another one than was prepared: make the calls with its cargos again.")
            folder.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        return about["model"] or str(target)

    @property
    def is_training(self) -> bool:
        try:
            process = int((self.kept / "pid").read_text())
            with suppress(ChildProcessError):  # a call that started it and still runs has to ask for its end
                os.waitpid(process, os.WNOHANG)
            os.kill(process, 0)
        except OSError:
            return False
        return True

    def keep_training(self, end_at_s: float) -> None:
        """Starts the trainer, or resumes it from its last snapshot if it ended too early."""
        if self.is_training or time.time() > end_at_s - 30:
            return
        began = (self.run_folder / "log.jsonl").exists()
        if began:  # a run that ended too early may have been too fast
            rate, way = RATE * 0.4, WAYS[-1]
        else:
            rate, way = RATE, (self.kept / "way").read_text()
        options = ["--rate", rate, way, "--model", self.model]
        if (self.run_folder / "snapshot/state.json").exists():
            options.append("--resume")
        words = ["training", "train", self.pack, self.run_folder, *self.trainer.split(), "--end-at-s", end_at_s]
        command = [sys.executable, "-P", "-m", *map(str, [*words, *options])]
        with (self.kept / "run.log").open("ab") as log:
            outputs = [(os.POSIX_SPAWN_DUP2, log.fileno(), number) for number in (1, 2)]
            no_input = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
            process = os.posix_spawn(
                sys.executable, command, self.environment, file_actions=[no_input, *outputs], setsid=True
            )
        (self.kept / "pid").write_text(str(process))
        self.say("training", *options)

    def give(self) -> None:
        """Brings `hour.log`, and all logs and records in one file: eight files come back from a call at most."""
        shutil.copy(self.kept / "hour.log", self.out / "hour.log")
        with tarfile.open(self.out / "kept.tar", "w") as archive:
            for path in (*self.kept.glob("*.log"), *self.kept.glob("*.json"), *self.run_folder.glob("log.jsonl")):
                archive.add(path, path.name)
        for path in sorted(self.out.iterdir()):
            print(path.name, path.stat().st_size, flush=True)


@app.command()
def start(
    cargo: Path,
    out: Path,
    kept: Kept = KEPT,
    trainer: Trainer = TRAINER,
    tests: Annotated[bool, typer.Option(help="The kernels' tests, and benches of those that pass.")] = True,
    bench_s: Annotated[float, typer.Option(help="Seconds for benches.")] = 120.0,
) -> None:
    """Take the tree and a piece of the base in; test kernels beside the trainer's first steps; time kernels."""
    hour = Hour(kept, out, trainer)
    hour.take_tree()
    hour.take_cargo(cargo)
    finding = Thread(target=hour.find_way)
    finding.start()
    if tests:
        hour.say("kernels' tests", hour.call("kernels", "bench", "green", limit_s=200.0))
    finding.join()
    until_s = time.monotonic() + bench_s
    for name, words in BENCHES.items() if tests else ():
        left_s = until_s - time.monotonic()
        if left_s > 10:
            record = ("--json", kept.resolve() / f"{name}.json")
            hour.say(name, hour.call(f"bench-{name}", "bench", *words.split(), *record, limit_s=left_s))
    hour.give()


@app.command()
def feed(
    cargo: Path, out: Path, end_at_s: EndAt, stay_s: float = 0.0, kept: Kept = KEPT, trainer: Trainer = TRAINER
) -> None:
    """Take data in, begin or go on training, stay for `stay_s` seconds, and bring the log."""
    hour, until = Hour(kept, out, trainer), time.monotonic() + stay_s
    hour.take_cargo(cargo)
    hour.keep_training(end_at_s)
    while time.monotonic() < until and time.time() < end_at_s:
        time.sleep(1.0)
        hour.keep_training(end_at_s)
    hour.give()


@app.command()
def finish(out: Path, end_at_s: EndAt, kept: Kept = KEPT, trainer: Trainer = TRAINER, patience_s: float = 90.0) -> None:
    """Wait for the end of training; bring the adapter in pieces, which `cat` joins, and the log."""
    hour = Hour(kept, out, trainer)
    while hour.is_training and time.time() < end_at_s + patience_s:
        time.sleep(0.5)
    code = hour.call("export", "training", "export", hour.run_folder / "snapshot", kept / "adapter", "--narrow")
    hour.say("export", code)
    for name, piece in cut(kept / "adapter") if code == 0 else ():
        (out / name).write_bytes(piece)
    hour.give()


def cut(folder: Path) -> Iterator[tuple[str, bytes]]:
    """The files of a folder in pieces, named so that sorting joins them."""
    for path in sorted(folder.iterdir()):
        data = path.read_bytes()
        for number, first in enumerate(range(0, len(data), PIECE_BYTES)):
            yield f"{path.name}.{number:02d}", data[first : first + PIECE_BYTES]


if __name__ == "__main__":
    app()
