"""Does what is due of a plan, for as long as a call may last; the next call goes on. Knows processes and files.

A call may be lost, the machine with it: whatever has ended is marked, the trainer outlives the call that began it, and
each call's results are all of them so far. On a fresh machine a snapshot that came home and travels along is gone on
from.
"""

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gpu.machine import Limits, State, is_running
from gpu.parcels import join, missing_of, send
from gpu.plans import Bench, Options, Plan, Way
from training.data.pack import unpack

ROOT: Final = Path(__file__).parent.parent.parent
PACK, RUN, MODEL, ARRIVED = "pack", "run", "model", "arrived"
PARCELS: Final = ("plateau", "snapshot", "snapshot-average")
PREFLIGHT: Final[Options] = {"num_steps": 6, "ar_fraction": 0.3, "cooldown": 0.3, "warmup_steps": 2}
# The second attempt, should the first lose its numbers: half the rates.
MORE_SLOWLY: Final[Options] = {"muon_lr": 0.01, "adam_lr": 1.5e-3, "seed": 1}
ILL_NATS: Final = 20.0

Process = subprocess.Popen[bytes]


class CallEnds(Exception):
    """The call has no time left; the next one does again what this one was at."""


def options_of(options: Options) -> list[str]:
    """As a command line has them."""
    found = []
    for name, value in options.items():
        flag = name.replace("_", "-")
        found += [f"--{flag}" if value else f"--no-{flag}"] if isinstance(value, bool) else [f"--{flag}", str(value)]
    return found


def read_log(run: Path) -> list[dict[str, Any]]:
    """The trainer's log so far; a last line that is being written does not count."""
    rows = []
    for line in (run / "log.jsonl").read_text().splitlines() if (run / "log.jsonl").exists() else []:
        try:
            rows.append(json.loads(line))
        except ValueError:
            break
    return rows


def is_healthy(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether every loss and gradient norm of a log is a number, and a likely one."""
    values = [row[key] for row in rows for key in ("token_nats", "validation_nats") if key in row]
    norms = [row["gradient_norm"] for row in rows if "gradient_norm" in row]
    return all(math.isfinite(value) and value < ILL_NATS for value in values) and all(map(math.isfinite, norms))


def is_whole(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the log of a run that no longer lasts came to its end, its last snapshot written."""
    saved = [row["saved"] for row in rows if "saved" in row]
    return "plateau" in saved and saved[-1] == "snapshot"


@dataclass
class Stay:
    """One call's view of the machine: `folder` outlives it, `carried` came along with it, `out` goes home with it."""

    plan: Plan
    limits: Limits
    folder: Path
    carried: Path
    out: Path
    ends_at: float
    state: State

    @property
    def now_s(self) -> float:
        """Seconds since the machine was asked for."""
        return time.time() - self.state.asked_at

    @property
    def left_s(self) -> float:
        """Seconds that this call may still last."""
        return self.ends_at - time.time()

    @property
    def tree(self) -> Path:
        """This call's own copy: a mended tree is used from then on, and a trainer keeps what it began with."""
        return self.folder / f"tree-{self.state.calls}"

    @property
    def run(self) -> Path:
        return self.folder / RUN

    def say(self, text: str) -> None:
        line = f"[{self.now_s:.0f} s] {text}"
        print(line, flush=True)
        with (self.folder / "stay.log").open("a", encoding="utf-8") as log:
            log.write(line + "\n")

    def mark(self, step: str, outcome: str) -> None:
        self.state.done[step] = outcome
        self.state.write(self.folder)
        self.say(f"{step}: {outcome}")

    def is_done(self, step: str) -> bool:
        return step in self.state.done

    def work(self, bring: str = "") -> None:
        """Everything that is due and that the call has time for, the results last."""
        try:
            self.end_helpers()
            self.take_in()
            self.verify()
            for bench in self.plan.benches:
                self.measure(bench)
            self.train()
            self.watch()
            self.finish()
            self.bring(bring)
        except CallEnds:
            self.say("the call ends here, the stay goes on")
        finally:
            self.end_helpers()
            self.give()

    def end_helpers(self) -> None:
        """Of a call that was lost, or ends with work of its own under way."""
        for process in self.state.helpers:
            if is_running(process):
                end(process)
        self.state.helpers.clear()
        self.state.write(self.folder)

    # What came along

    def take_in(self) -> None:
        """The tree, wheels, sets and parcels."""
        skipped = shutil.ignore_patterns(".git", ".venv", "runs", "node_modules", "__pycache__", ".*cache")
        shutil.copytree(ROOT, self.tree, ignore=skipped)
        (self.folder / ARRIVED).mkdir(exist_ok=True)
        for path in sorted(self.carried.iterdir()) if self.carried.exists() else []:
            if path.is_dir() and not (self.folder / PACK / path.name).exists():
                self.say(f"{unpack(path, self.folder / PACK).name} is unpacked")
            elif path.is_file() and path.suffix != ".whl":
                shutil.copy(path, self.folder / ARRIVED / path.name)
        wheels = sorted(map(str, self.carried.glob("*.whl")))
        if wheels and not self.is_done("wheels"):
            options = "-q --no-index --no-deps --no-compile --no-cache-dir --upgrade --target".split()
            code = self.call("wheels", ["-m", "pip", "install", *options, str(self.folder / "site"), *wheels], 60)
            self.mark("wheels", "installed" if code == 0 else f"failed, {code}")

    @property
    def environment(self) -> dict[str, str]:
        commit = self.folder / ARRIVED / "commit"
        caches = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton", "TMPDIR": "tmp"}
        (self.folder / "tmp").mkdir(exist_ok=True)
        parts = (self.folder / "site", self.tree / "engine", self.tree / "kernels")
        return {
            **os.environ,
            **{name: str(self.folder / folder) for name, folder in caches.items()},
            "PYTHONPATH": os.pathsep.join([*map(str, parts), *filter(None, [os.environ.get("PYTHONPATH")])]),
            "PYTHONUNBUFFERED": "1",
            "RAYON_NUM_THREADS": "1",  # or every worker's tokenizer takes all cores
            "OMP_NUM_THREADS": "4",
            "TORCHINDUCTOR_MAX_AUTOTUNE_GEMM_BACKENDS": "ATEN",
            "MIDFILL_COMMIT": commit.read_text().strip() if commit.exists() else "unknown",
        }

    def start(self, name: str, arguments: Sequence[str], extra: Mapping[str, str] | None = None) -> Process:
        """A Python process of the tree that outlives this call; its output is NAME.log."""
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=self.tree,
                env={**self.environment, **(extra or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.state.helpers.append(process.pid)
        self.state.write(self.folder)
        return process

    def wait(self, process: Process, limit_s: float) -> int:
        """Its exit status; -9 where it had to be ended after `limit_s`. Raises CallEnds where the call ends first."""
        try:
            return process.wait(max(0.0, min(limit_s, self.left_s)))
        except subprocess.TimeoutExpired:
            end(process.pid)
            process.wait()
            if self.left_s <= 0:
                raise CallEnds from None
            return -signal.SIGKILL

    def call(self, name: str, arguments: Sequence[str], limit_s: float) -> int:
        return self.wait(self.start(name, arguments), limit_s)

    # Tests, preflight, benches

    def verify(self) -> None:
        """The kernels' tests and the preflight side by side: both compile on the processor most of their time."""
        tests = None
        if not self.is_done("tests"):
            tests = self.start("tests", ["-m", "bench.green", *self.plan.test_files])
        if not self.is_done("way") and (self.folder / PACK).exists():
            self.find_way()
        if tests is not None:
            code = self.wait(tests, self.plan.tests_s)
            self.mark("tests", {0: "green", 1: "some are red", -9: "stopped"}.get(code, f"failed, {code}"))

    def find_way(self) -> None:
        """The first of the plan's ways in which six steps through every stage end, with numbers for losses."""
        for number, way in enumerate(self.plan.ways):
            shutil.rmtree(self.folder / "preflight", ignore_errors=True)
            rows = {"rows": self.plan.preflight_rows, "causal_rows": self.plan.preflight_rows}
            arguments = self.trainer_arguments("preflight", {**self.plan.train, **PREFLIGHT, **rows}, way)
            code = self.wait(self.start(f"preflight-{number}", arguments, way.environment), self.plan.preflight_s)
            log = read_log(self.folder / "preflight")
            if code == 0 and log and is_healthy(log):
                return self.mark("way", str(number))
            self.say(f"the preflight fails {way.name or 'as planned'}: {code}")
        return self.mark("way", str(len(self.plan.ways) - 1))  # perhaps only slow: as plainly as can be

    def measure(self, bench: Bench) -> None:
        if self.is_done(bench.name) or self.now_s > bench.latest_s or self.left_s < bench.limit_s / 2:
            return
        record = self.folder / f"{bench.name}.json"
        code = self.call(bench.name, ["-m", bench.module, *bench.arguments, "--json", str(record)], bench.limit_s)
        self.mark(bench.name, {0: "measured", 1: "some rows are red", -9: "stopped"}.get(code, f"failed, {code}"))

    # The run

    def trainer_arguments(self, out: str, options: Options, way: Way) -> list[str]:
        paths = (self.folder / PACK, self.tree / "engine/training/tokenizer.json", self.folder / out)
        chosen = {"compile": True, **options} if way.compiles else options
        tokenizer = self.folder / ARRIVED / "tokenizer.json"
        pack, known, target = (str(path) for path in paths)
        known = str(tokenizer) if tokenizer.exists() else known
        return ["-m", "training", "train", pack, known, target, "--deadline-s", "100000", *options_of(chosen)]

    def train(self) -> None:
        if self.is_done("training") or is_running(self.state.trainer) or not (self.folder / PACK).exists():
            return
        if self.state.trainer and is_whole(read_log(self.run)):
            return None
        if self.state.trainer and self.state.attempts > 1:
            return self.mark("training", "ended early twice")
        options: dict[str, str | int | float | bool] = dict(self.plan.train)
        if not options.get("num_steps"):
            options["end_at_s"] = self.state.asked_at + self.plan.train_end_s
        if self.state.attempts:
            options |= MORE_SLOWLY
        resumed = self.find_snapshot()
        if resumed is not None:
            options["resume"] = str(resumed)
        way = self.plan.ways[int(self.state.done.get("way", len(self.plan.ways) - 1))]
        trainer = self.start("run", self.trainer_arguments(RUN, options, way), way.environment)
        trainer.returncode = 0  # it outlives the call: nobody waits for it here
        self.state.helpers.remove(trainer.pid)
        self.state.trainer = trainer.pid
        self.state.attempts += 1
        self.state.write(self.folder)
        self.say(f"training {way.name or 'as planned'}, from {resumed.name if resumed else 'the beginning'}")
        return None

    def find_snapshot(self) -> Path | None:
        """What to go on from: this machine's own snapshot, or one that travelled here whole."""
        if (self.run / "snapshot").exists():
            return self.run / "snapshot"
        for name in PARCELS:
            if not missing_of(self.folder / ARRIVED, name):
                if not (self.folder / name).exists():
                    join(self.folder / ARRIVED, name, self.folder / name)
                return self.folder / name
        return None

    def watch(self) -> None:
        """Stays until the call must end or the run has; a run that is ill, or died, begins once more, more slowly."""
        while self.state.trainer and not self.is_done("training"):
            is_over = not is_running(self.state.trainer)  # asked first: it may write its last lines meanwhile
            log = read_log(self.run)
            if is_over and is_whole(log):
                self.mark("training", f"ended, {summarize(log)}")
            elif is_over or not is_healthy(log[-3:]):
                end(self.state.trainer)
                self.say(f"the run is ill: {summarize(log)}")
                if (self.run / "log.jsonl").exists():
                    (self.run / "log.jsonl").rename(self.run / f"log.ill-{self.state.attempts}.jsonl")
                self.train()
            elif self.left_s < 15:
                self.say(f"the run goes on: {summarize(log)}")
                return
            else:
                time.sleep(min(5.0, self.plan.train_end_s / 1000))

    def finish(self) -> None:
        """The model goes home as soon as there is one; then its length head is fitted anew, and it goes again."""
        if not self.is_done("training") or not (self.run / "snapshot").exists():
            return
        model, refitted = self.folder / MODEL, self.folder / "refitted"
        if not self.is_done("export"):
            shutil.rmtree(model, ignore_errors=True)
            code = self.call("export", ["-m", "training", "export", str(self.run), str(model)], self.plan.finish_s)
            self.mark("export", "done" if code == 0 else f"failed, {code}: the snapshot goes home in its place")
        self.send_home(model if model.exists() else self.run / "snapshot", MODEL)  # in every call: one may be lost
        if not self.is_done("lengths") and model.exists():
            shutil.rmtree(refitted, ignore_errors=True)
            shutil.copytree(model, refitted)
            more = ["--num-rows", str(self.plan.refit_rows), "--device", self.plan.device]
            fit = ["-m", "training", "lengths", str(refitted), str(self.folder / PACK), *more]
            code = self.call("lengths", fit, self.plan.finish_s)
            if code == 0:
                shutil.rmtree(model)
                refitted.rename(model)
                self.send_home(model, MODEL)
            self.mark("lengths", "fitted" if code == 0 else f"failed, {code}")

    # What goes home

    def send_home(self, folder: Path, name: str) -> None:
        parts = send(folder, self.out, name, self.limits.out_file_bytes * 15 // 16)
        self.say(f"{name} goes home in {len(parts)} files")

    def bring(self, name: str) -> None:
        """A snapshot to go on from elsewhere, unless too many files already go home with this call."""
        if not name or not (self.run / name).exists():
            return
        parts = send(self.run / name, self.out, name, self.limits.out_file_bytes * 15 // 16)
        if len(list(self.out.iterdir())) < self.limits.out_files:
            self.say(f"{name} goes home in {len(parts)} files")
            return
        for part in parts:
            part.unlink()
        self.say(f"{name} does not fit beside what goes home already: ask for it again with the next call")

    def give(self) -> None:
        """All small results so far, in one file."""
        self.out.mkdir(parents=True, exist_ok=True)
        with tarfile.open(self.out / "results.tar.gz", "w:gz") as archive:
            for path in sorted([*self.folder.glob("*.log"), *self.folder.glob("*.json"), *self.run.glob("*.jsonl")]):
                archive.add(path, arcname=path.name)
        files = list(self.out.iterdir())
        largest = max(path.stat().st_size for path in files)
        if len(files) > self.limits.out_files or largest > self.limits.out_file_bytes:
            self.say(f"too much for one journey: {len(files)} files, the largest of {largest:,} bytes")
        is_over = self.is_done("lengths") or (self.is_done("training") and not (self.run / "snapshot").exists())
        self.say("nothing is left" if is_over else f"call again within {self.limits.idle_s:.0f} s")


def summarize(log: Sequence[Mapping[str, Any]]) -> str:
    """Where a run stands: its last step, loss and speed."""
    steps = [row for row in log if "token_nats" in row]
    if not steps:
        return "no step yet"
    last, before = steps[-1], steps[max(0, len(steps) - 6)]
    seconds = last["seconds"] - before["seconds"]
    speed = f", {(last['tokens'] - before['tokens']) / seconds:,.0f} tokens/s" if seconds > 0 else ""
    return f"{last['stage']} step {last['step']}, {last['token_nats']} nats{speed}"


def end(process: int) -> None:
    """Ends a process and all it started."""
    if process > 0:
        try:
            os.killpg(process, signal.SIGKILL)
        except ProcessLookupError:
            pass
