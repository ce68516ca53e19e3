"""Chooses the environment variables that a command gets: harmless ones, and those that the user names."""

import os
import re
from collections.abc import Iterable, Mapping
from typing import Final

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
# A user and a password in a URL, in a variable of any name.
_LOGIN: Final = re.compile(r"://[^/\s@]+@")


def choose_variables(given: Mapping[str, str], named: Iterable[str] = ()) -> dict[str, str]:
    """Returns the variables of `given` that a command gets. `named` holds "NAME" (passed on) or "NAME=VALUE"."""
    harmless = {name for name in given if name in _HARMLESS or name.startswith(_HARMLESS_BEGINNINGS)}
    chosen = {name: given[name] for name in harmless if not _LOGIN.search(given[name])}
    for word in named:
        name, has_value, value = word.partition("=")
        if has_value or name in given:
            chosen[name] = value if has_value else given[name]
    return chosen


def withheld(given: Mapping[str, str], named: Iterable[str] = ()) -> list[str]:
    """Returns the names of variables that a command does not get."""
    return sorted(given.keys() - choose_variables(given, named).keys())


def for_command(named: Iterable[str], source_path: str) -> dict[str, str]:
    """The whole environment of a command. Python takes modules of the tree before installed ones of the same name."""
    chosen = choose_variables(os.environ, named)
    paths = [source_path, *filter(None, [chosen.get("PYTHONPATH")])]
    return chosen | {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": os.pathsep.join(paths), "MIDFILL_VERIFY": "1"}
