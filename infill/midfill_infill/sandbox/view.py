"""Lists the paths and variables of the machine that a command sees, the paths with bubblewrap only. Starts nothing.

It sees system programs, a few files of /etc, tools and caches of the home, the copy, and what the user allows. Because
this is an allowlist, keys, tokens and sockets are hidden wherever they are.
"""

import os
import pwd
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import filterfalse
from pathlib import Path
from typing import Final

from midfill_infill.sandbox.command import Command

_SYSTEM: Final = ("/usr", "/opt", "/nix", "/gnu", "/home/linuxbrew/.linuxbrew", "/sys/devices/system", "/sys/fs/cgroup")
_MAYBE_MERGED: Final = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_ETC: Final = (
    "alternatives", "ca-certificates", "ca-certificates.conf", "crypto-policies", "debian_version", "default/locale",
    "fonts", "gai.conf", "group", "host.conf", "hostname", "hosts", "inputrc", "java", "ld.so.cache", "ld.so.conf",
    "ld.so.conf.d", "locale.alias", "locale.conf", "localtime", "lsb-release", "machine-id", "magic", "mime.types",
    "nsswitch.conf", "os-release", "passwd", "perl", "pki/ca-trust", "pki/tls/certs", "protocols", "resolv.conf",
    "services", "shells", "ssl/cert.pem", "ssl/certs", "ssl/openssl.cnf", "terminfo", "timezone",
)  # fmt: skip
# Interpreters, tools and their download caches; no folder with credentials or sockets.
_TOOLS: Final = (
    ".asdf/installs", ".asdf/shims", ".bun/bin", ".bun/install/cache", ".cabal/bin", ".cabal/packages",
    ".cache/go-build", ".cache/pip", ".cache/pypoetry/virtualenvs", ".cache/uv", ".cache/yarn", ".cargo/bin",
    ".cargo/git", ".cargo/registry", ".composer/vendor", ".deno/bin", ".elan/toolchains", ".fnm", ".gem/ruby",
    ".ghcup/bin", ".gradle/caches", ".gradle/wrapper", ".ivy2/cache", ".julia/packages", ".local/bin", ".local/lib",
    ".local/pipx/venvs", ".local/share/fnm", ".local/share/mise/installs", ".local/share/pipx/venvs",
    ".local/share/pnpm", ".local/share/uv/python", ".local/share/uv/tools", ".local/share/virtualenvs",
    ".m2/repository", ".npm/_cacache", ".nuget/packages", ".nvm/versions", ".opam", ".pyenv/bin", ".pyenv/libexec",
    ".pyenv/shims", ".pyenv/versions", ".rbenv/shims", ".rbenv/versions", ".rustup", ".rvm/rubies",
    ".sdkman/candidates", ".virtualenvs", ".volta/bin", ".volta/tools", "go/bin", "go/pkg", "anaconda3", "mambaforge",
    "miniconda3", "miniforge3",
)  # fmt: skip
_ROOTS: Final = tuple(map(Path, ("/usr", "/opt", "/nix", "/gnu", "/bin", "/sbin", "/lib", "/lib64")))
_MASKED: Final = ("/proc/kcore", "/proc/keys", "/proc/key-users", "/proc/kmsg", "/proc/timer_list", "/proc/kallsyms")
_FROZEN: Final = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs", "/proc/acpi", "/proc/scsi")
_HARMLESS: Final = frozenset(
    ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "LANG", "LANGUAGE", "TZ", "TERM", "COLORTERM", "COLUMNS",
     "LINES", "NO_COLOR", "FORCE_COLOR", "CI", "DEBUG", "EDITOR", "PAGER", "SOURCE_DATE_EPOCH", "DEBIAN_FRONTEND",
     "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "PYENV_ROOT", "PYENV_VERSION", "DJANGO_SETTINGS_MODULE",
     "NODE_ENV", "NODE_OPTIONS", "NODE_PATH", "NVM_DIR", "NVM_BIN", "FNM_DIR", "VOLTA_HOME", "BUN_INSTALL",
     "PNPM_HOME", "DENO_DIR", "CARGO_HOME", "CARGO_TARGET_DIR", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN", "RUSTFLAGS",
     "RUST_BACKTRACE", "RUST_LOG", "JAVA_HOME", "JDK_HOME", "MAVEN_HOME", "GRADLE_HOME", "GEM_HOME", "GEM_PATH",
     "RUBYOPT", "RUBYLIB", "RBENV_ROOT", "DOTNET_ROOT", "ASDF_DIR", "ASDF_DATA_DIR", "MISE_DATA_DIR", "CC", "CXX",
     "CPP", "LD", "AR", "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "LIBRARY_PATH", "LD_LIBRARY_PATH", "CPATH",
     "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "PKG_CONFIG_PATH", "CMAKE_PREFIX_PATH", "MAKEFLAGS", "MAKELEVEL",
     "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_DIRS", "CUDA_VISIBLE_DEVICES", "CUDA_HOME",
     "TOKENIZERS_PARALLELISM", "MPLBACKEND", "QT_QPA_PLATFORM", "LOCALE_ARCHIVE", "NIX_PATH", "NIX_PROFILES", "GOPATH",
     "GOROOT", "GOFLAGS", "GOCACHE", "GOMODCACHE", "GOOS", "GOARCH", "GOTOOLCHAIN")
)  # fmt: skip
_HARMLESS_BEGINNINGS: Final = (
    "LC_", "PYTEST_", "PYTHON", "HYPOTHESIS_", "COVERAGE_", "TOX_", "GIT_AUTHOR_", "GIT_COMMITTER_", "OMP_", "MKL_",
    "OPENBLAS_", "CGO_",
)  # fmt: skip
# A user and a password in a URL, and the header that a CI's checkout keeps its token in.
_LOGIN: Final = re.compile(rb"(://)[^/\s@]+@")
_HEADER: Final = re.compile(rb"^.*extraheader.*$\n?", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True)
class CopiedTree:
    """A folder that a command may write. The sandbox mounts it at `root`, the tree it is a copy of. `shown` are
    read-only beside it; `git` are git's own folders, without logins.
    """

    folder: Path
    root: Path
    shown: tuple[Path, ...] = ()
    git: tuple[Path, ...] = ()


def find_homes() -> list[Path]:
    """The user's home folders, from the environment and from the system's user database."""
    found = [Path.home()]
    with suppress(KeyError):
        found.append(Path(pwd.getpwuid(os.getuid()).pw_dir))
    return [home for home in dict.fromkeys(found) if home.is_absolute() and len(home.parts) > 1]


def machine_words() -> Iterator[str]:
    """A root of read-only system folders, with /dev, /proc, /tmp and an empty home of its own."""
    for path in _SYSTEM:
        yield from ("--ro-bind-try", path, path)
    for path in _MAYBE_MERGED:
        if os.path.islink(path):
            yield from ("--symlink", os.readlink(path), path)
        else:
            yield from ("--ro-bind-try", path, path)
    for name in _ETC:
        if (path := f"/etc/{name}") and os.path.exists(path):
            yield from ("--ro-bind", os.path.realpath(path), path)
    yield from ("--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--tmpfs", "/run", "--tmpfs", "/var/tmp")
    for path in _FROZEN:
        if os.path.exists(path):
            yield from ("--ro-bind", path, path)
    for path in _MASKED:
        if os.path.exists(path):
            yield from ("--ro-bind", "/dev/null", path)
    for home in find_homes():
        if not any(home.is_relative_to(root) or root.is_relative_to(home) for root in _ROOTS):
            yield from ("--tmpfs", str(home))
            yield from _read_only(home / name for name in _TOOLS)


def tree_words(tree: CopiedTree, command: Command) -> Iterator[str]:
    """The tree, writable, with what is shown and allowed inside of it and beside it."""

    def is_inside(path: Path) -> bool:
        return path.is_relative_to(tree.root)

    yield from _read_only(filterfalse(is_inside, (*_interpreters(tree, command), *command.allowed, *tree.git)))
    yield from ("--bind", str(tree.folder), str(tree.root))
    yield from _read_only(filter(is_inside, (*tree.shown, *tree.git, *command.allowed)))
    yield from _read_only(filterfalse(is_inside, tree.shown))
    for git in tree.git:
        for folder in filter(os.path.isdir, (git / "midfill", git / "fsmonitor--daemon")):
            yield from ("--tmpfs", str(folder))
        for path in git.glob("*.ipc"):
            yield from ("--ro-bind", "/dev/null", str(path))
    yield from ("--remount-ro", "/", "--chdir", str(tree.root / command.folder))


def _read_only(paths: Iterable[Path]) -> Iterator[str]:
    for path in dict.fromkeys(paths):
        if os.access(path, os.R_OK):
            yield from ("--ro-bind", os.path.realpath(path), str(path))


def _interpreters(tree: CopiedTree, command: Command) -> Iterator[Path]:
    """Yields the folders of the command and of the Pythons it may use, unless the system folders hold them."""
    name = command.words[0]
    programs = [Path(sys.executable), tree.root / name, *(Path(folder) / name for folder in _search_path())]
    programs += [folder / "bin/python" for folder in tree.shown]
    found = [Path(sys.prefix), Path(sys.base_prefix), *(Path(path) for path in _search_path())]
    for program in programs:
        if os.path.isfile(program) and os.access(program, os.X_OK):
            found += _prefixes(program)
    homes = find_homes()
    for prefix in dict.fromkeys(found):
        is_wide = any(home.is_relative_to(prefix) or prefix == home / ".local" for home in homes)
        if not (is_wide or any(prefix.is_relative_to(root) for root in _ROOTS)):
            yield prefix


def _prefixes(program: Path) -> Iterator[Path]:
    """The folders that each link on the way to a program stands in; `PREFIX` for a `PREFIX/bin` with a library."""
    for _ in range(10):
        folder = program.parent
        around = folder.parent
        has_library = folder.name == "bin" and any(os.path.exists(around / name) for name in ("lib", "pyvenv.cfg"))
        yield around if has_library else folder
        if not os.path.islink(program):
            return
        program = folder / os.readlink(program)


def _search_path() -> list[str]:
    return [folder for folder in os.environ.get("PATH", "").split(os.pathsep) if os.path.isabs(folder)]


def without_logins(config: bytes) -> bytes:
    """Git's settings without passwords and tokens."""
    return _LOGIN.sub(rb"\1", _HEADER.sub(b"", config))


def choose_variables(given: Mapping[str, str], named: Iterable[str] = ()) -> dict[str, str]:
    """Returns the variables of `given` that a command gets. `named` holds "NAME" (passed on) or "NAME=VALUE"."""
    harmless = {name for name in given if name in _HARMLESS or name.startswith(_HARMLESS_BEGINNINGS)}
    chosen = {name: given[name] for name in harmless if not _LOGIN.search(os.fsencode(given[name]))}
    for word in named:
        name, has_value, value = word.partition("=")
        if has_value or name in given:
            chosen[name] = value if has_value else given[name]
    return chosen


def withheld(given: Mapping[str, str], named: Iterable[str] = ()) -> list[str]:
    """Returns the names of variables that a command does not get."""
    return sorted(given.keys() - choose_variables(given, named).keys())


def choose_environment(named: Iterable[str], source_path: str) -> dict[str, str]:
    """The whole environment of a command. Python takes modules of the tree before installed ones of the same name."""
    chosen = choose_variables(os.environ, named)
    paths = [source_path, *filter(None, [chosen.get("PYTHONPATH")])]
    return chosen | {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": os.pathsep.join(paths), "MIDFILL_VERIFY": "1"}
