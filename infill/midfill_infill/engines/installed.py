"""What of Midfill is installed here. Asks the packaging metadata and the import system; imports none of it."""

import importlib.util
from importlib.metadata import PackageNotFoundError, version
from typing import Final

ENGINE_PACKAGES: Final = ("torch", "tokenizers", "safetensors", "fastapi", "uvicorn")


def distribution_version() -> str:
    return package_version("midfill") or "0+source"


def package_version(name: str) -> str | None:
    """The installed version of a distribution, None where it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def missing_engine_packages() -> list[str]:
    return [name for name in ENGINE_PACKAGES if importlib.util.find_spec(name) is None]
