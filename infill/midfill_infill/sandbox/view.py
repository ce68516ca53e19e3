"""Decides which paths and variables of the machine a command sees; bubblewrap alone hides paths. Starts nothing.

A command sees system programs, a few files of /etc, tools and caches of the home, the copy, and what the user allows.
Because this is an allowlist, keys, tokens and sockets are hidden wherever they are.
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
_MAYBE_LINKS: Final = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
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
_MODULE_CACHES: Final = (".vite", ".vite-temp", ".vitest")  # in `node_modules`
_SYSTEM_ROOTS: Final = tuple(map(Path, ("/usr", "/opt", "/nix", "/gnu", "/bin", "/sbin", "/lib", "/lib64")))
# Files of /proc that /dev/null replaces, and paths of /proc that are read-only.
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
# The user and password in a URL, and the line of git's settings in which the checkout of a CI keeps its token.
_LOGIN: Final = re.compile(rb"(://)[^/\s@]+@")
_HEADER: Final = re.compile(rb"^.*extraheader.*$\n?", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True)
class CopiedTree:
    """The copy of a tree: a `folder` that a command may write. The sandbox mounts it at `root`, the path of the tree.
    It also mounts, read-only, the folders `shown` and git's own folders `git`, without the logins in their settings.
    `go_cache` is a folder for the results of Go's compiler, which Go has to write.
    """

    folder: Path
    root: Path
    shown: tuple[Path, ...] = ()
    git: tuple[Path, ...] = ()
    go_cache: Path | None = None


def find_homes() -> list[Path]:
    """The user's home folders, from the environment and from the system's user database."""
    homes = [Path.home()]
    with suppress(KeyError):
        homes.append(Path(pwd.getpwuid(os.getuid()).pw_dir))
    return [home for home in dict.fromkeys(homes) if home.is_absolute() and len(home.parts) > 1]


def machine_words() -> Iterator[str]:
    """Bubblewrap's arguments for read-only system folders, its own /dev, /proc and /tmp, and a home with tools."""
    for path in _SYSTEM:
        yield from ("--ro-bind-try", path, path)
    for path in _MAYBE_LINKS:
        if os.path.islink(path):
            yield from ("--symlink", os.readlink(path), path)
        else:
            yield from ("--ro-bind-try", path, path)
    for name in _ETC:
        path = f"/etc/{name}"
        if os.path.exists(path):
            yield from ("--ro-bind", os.path.realpath(path), path)
    yield from ("--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--tmpfs", "/run", "--tmpfs", "/var/tmp")
    for path in _FROZEN:
        if os.path.exists(path):
            yield from ("--ro-bind", path, path)
    for path in _MASKED:
        if os.path.exists(path):
            yield from ("--ro-bind", "/dev/null", path)
    for home in find_homes():
        if not any(home.is_relative_to(root) or root.is_relative_to(home) for root in _SYSTEM_ROOTS):
            yield from ("--tmpfs", str(home))
            yield from _read_only(home / name for name in _TOOLS)


def tree_words(tree: CopiedTree, command: Command) -> Iterator[str]:
    """Bubblewrap's arguments for the writable copy, and for what is shown and allowed outside and inside of it. A later
    mount covers an earlier one.
    """

    def is_inside(path: Path) -> bool:
        return path.is_relative_to(tree.root)

    yield from _read_only(filterfalse(is_inside, (*_interpreters(tree, command), *command.allowed, *tree.git)))
    yield from ("--bind", str(tree.folder), str(tree.root))
    yield from _read_only(filter(is_inside, (*tree.shown, *tree.git, *command.allowed)))
    yield from _read_only(filterfalse(is_inside, tree.shown))
    for folder in tree.shown:  # Vitest fails if it cannot write its cache, wherever all tests pass
        for cache in filter(os.path.isdir, (folder / name for name in _MODULE_CACHES)):
            yield from ("--tmpfs", str(cache))
    for git in tree.git:  # hides journals of runs, and the sockets of git's file monitor
        for folder in filter(os.path.isdir, (git / "midfill", git / "fsmonitor--daemon")):
            yield from ("--tmpfs", str(folder))
        for path in git.glob("*.ipc"):
            yield from ("--ro-bind", "/dev/null", str(path))
    if tree.go_cache is not None:  # runs share it; so that they do not share results of tests, each test runs
        flags = choose_variables(os.environ, command.variables).get("GOFLAGS", "")
        yield from ("--bind", str(tree.go_cache), "/run/go-build", "--setenv", "GOCACHE", "/run/go-build")
        yield from ("--setenv", "GOFLAGS", f"{flags} -count=1".lstrip())
    yield from ("--setenv", "UV_CACHE_DIR", "/tmp/uv")  # uv ends if it cannot write its cache
    yield from ("--remount-ro", "/", "--chdir", str(tree.root / command.folder))


def _read_only(paths: Iterable[Path]) -> Iterator[str]:
    """Bubblewrap's arguments for those of the paths that this user can read."""
    for path in dict.fromkeys(paths):
        if os.access(path, os.R_OK):
            yield from ("--ro-bind", os.path.realpath(path), str(path))


def _interpreters(tree: CopiedTree, command: Command) -> Iterator[Path]:
    """Folders of the command, of Pythons that it may use, and of PATH; none that is seen already or shows a home."""
    name = command.words[0]
    programs = [Path(sys.executable), tree.root / name, *(Path(folder) / name for folder in _search_path())]
    programs += [folder / "bin/python" for folder in tree.shown]
    prefixes = [Path(sys.prefix), Path(sys.base_prefix), *(Path(path) for path in _search_path())]
    for program in programs:
        if os.path.isfile(program) and os.access(program, os.X_OK):
            prefixes += _prefixes(program)
    homes = find_homes()
    for prefix in dict.fromkeys(prefixes):
        shows_home = any(home.is_relative_to(prefix) or prefix == home / ".local" for home in homes)
        if not (shows_home or any(prefix.is_relative_to(root) for root in _SYSTEM_ROOTS)):
            yield prefix


def _prefixes(program: Path) -> Iterator[Path]:
    """The folder of a program, or `PREFIX` for a `PREFIX/bin` beside a library; then that of the target of a link."""
    for _ in range(10):
        folder = program.parent
        prefix = folder.parent
        has_library = folder.name == "bin" and any(os.path.exists(prefix / name) for name in ("lib", "pyvenv.cfg"))
        yield prefix if has_library else folder
        if not os.path.islink(program):
            return
        program = folder / os.readlink(program)


def _search_path() -> list[str]:
    """The absolute folders of PATH."""
    return [folder for folder in os.environ.get("PATH", "").split(os.pathsep) if os.path.isabs(folder)]


def without_logins(config: bytes) -> bytes:
    """Git's settings without passwords and tokens."""
    return _LOGIN.sub(rb"\1", _HEADER.sub(b"", config))


def choose_variables(environment: Mapping[str, str], requested: Iterable[str] = ()) -> dict[str, str]:
    """The variables that a command gets: harmless ones of `environment` without a login in their value, and `requested`
    ones, each "NAME" (of `environment`) or "NAME=VALUE".
    """
    harmless = {name for name in environment if name in _HARMLESS or name.startswith(_HARMLESS_BEGINNINGS)}
    chosen = {name: environment[name] for name in harmless if not _LOGIN.search(os.fsencode(environment[name]))}
    for request in requested:
        name, equals_sign, value = request.partition("=")
        if equals_sign:
            chosen[name] = value
        elif name in environment:
            chosen[name] = environment[name]
    return chosen


def withheld(environment: Mapping[str, str], requested: Iterable[str] = ()) -> list[str]:
    """The sorted names of the variables of `environment` that a command does not get."""
    return sorted(environment.keys() - choose_variables(environment, requested).keys())


def choose_environment(requested: Iterable[str], source_path: str) -> dict[str, str]:
    """A command's environment. In it Python finds modules of `source_path` first, and uv changes no environment."""
    chosen = {"UV_NO_SYNC": "1"} | choose_variables(os.environ, requested)
    paths = [source_path, *filter(None, [chosen.get("PYTHONPATH")])]
    return chosen | {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": os.pathsep.join(paths), "MIDFILL_VERIFY": "1"}
