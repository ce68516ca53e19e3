"""Engines of other projects, by the protocol that they speak: one file each, found by name. Does no I/O."""

from typing import Final

from midfill_infill.engines.outside.chat import Chat
from midfill_infill.engines.outside.fim import Fim
from midfill_infill.engines.outside.llamacpp import LlamaCpp
from midfill_infill.engines.outside.ollama import Ollama
from midfill_infill.engines.outside.openai import OpenAI
from midfill_infill.engines.outside.protocol import Protocol

PROTOCOLS: Final[dict[str, Protocol]] = {
    "ollama": Ollama(),
    "llamacpp": LlamaCpp(),
    "openai": OpenAI(),
    "fim": Fim(),
    "chat": Chat(),
}
