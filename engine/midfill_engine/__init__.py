"""The denoising engine. Knows tokens, models and requests; never a file, a language, a syntax tree or an editor."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("midfill")
except PackageNotFoundError:  # run from a source tree that was never installed
    __version__ = "0+unknown"
