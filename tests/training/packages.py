"""Tiny wheels and npm archives, and toy source files that differ enough to be no copies of each other."""

import io
import json
import random
import tarfile
import zipfile
from pathlib import Path

NAMES = "total value count rows items first last left right start width height index offset buffer".split()

PYTHON = '''\
"""Handles {a} and {b}."""


def add_{a}({b}, {c}):
    """Adds {b} to {c}."""
    total = {b} + {c}
    if total > {n}:
        print("large {a}", total)
        total = total - {n}
    return total


class Counter{n}:
    def __init__(self, {d}={n}):
        self.{d} = {d}

    def step(self):
        self.{d} = add_{a}(self.{d}, [1, 2, 3][0])
        return self.{d}
'''
SCRIPT = """\
export function add{n}({a}, {b}) {{
  const {c} = {a} + {b};
  if ({c} > {n}) {{
    console.log("large {d}", {c});
  }}
  for (const {d} of [{a}, {b}]) {{
    {c}.push({d} * {n});
  }}
  return {c};
}}
"""


def write_source(template: str, number: int) -> str:
    """`template` with names and figures of its own."""
    parts = []
    for part in range(3):
        draw = random.Random(f"{number} {part}")
        names = [f"{draw.choice(NAMES)}_{draw.choice(NAMES)}" for _ in range(4)]
        parts.append(template.format(**dict(zip("abcd", names, strict=True)), n=draw.randrange(100)))
    return "\n\n".join(parts)


def write_wheel(
    folder: Path,
    name: str,
    files: dict[str, str],
    licence: str = "License-Expression: MIT",
    version: str = "1.0",
    terms: str = "Terms of all.",
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        for inside, text in files.items():
            wheel.writestr(f"{name.replace('-', '_')}/{inside}", text)
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n{licence}\n\n")
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: toy\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")
        wheel.writestr(f"{info}/licenses/LICENSE.txt", f"{terms}\n{licence}\n")
    return path


def write_npm(folder: Path, name: str, files: dict[str, str], licence: object = "MIT") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name.replace('@', '').replace('/', '-')}-1.0.0.tgz"
    with tarfile.open(path, "w:gz") as npm:
        package = {"name": name, "version": "1.0.0", "license": licence}
        for inside, text in {"package.json": json.dumps(package), **files}.items():
            member = tarfile.TarInfo(f"package/{inside}")
            member.size = len(text.encode())
            npm.addfile(member, io.BytesIO(text.encode()))
    return path
