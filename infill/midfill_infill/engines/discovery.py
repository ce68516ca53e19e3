"""Finds engines of other projects on this machine: asks local ports what they serve. Fills with none of them."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from midfill_infill.engines.client import get_json
from midfill_infill.engines.endpoint import LOCAL_HOSTS, ollama_url, split_address
from midfill_infill.engines.outside import PROTOCOLS

TIMEOUT_S: Final = 0.5
# Default ports of the servers, and the port that llama.cpp's editor plugins expect.
_LLAMACPP_PORTS: Final = (8080, 8012)
_OPENAI_PORTS: Final = {1234: "LM Studio", 8000: "vLLM"}
_MAX_MODELS: Final = 8


@dataclass(frozen=True)
class LocalServer:
    """A server on this machine. `settings` are values of the `engine` setting, one for each of its models."""

    name: str
    url: str
    settings: tuple[str, ...]


def find_servers(
    llamacpp_ports: Sequence[int] = _LLAMACPP_PORTS, openai_ports: Mapping[int, str] = _OPENAI_PORTS
) -> Iterator[LocalServer]:
    """Yields the servers that answer within half a second. Sends no content of any file."""
    url = ollama_url() or PROTOCOLS["ollama"].default_url
    address = split_address(url)
    if address is not None and address.hostname in LOCAL_HOSTS:  # OLLAMA_HOST may name another machine
        models = _read_models(get_json(f"{url}/api/tags", TIMEOUT_S), "models")
        if models:
            yield LocalServer("Ollama", url, tuple(f"ollama:{model}" for model in models))
    for port in llamacpp_ports:
        url = f"http://127.0.0.1:{port}"
        props = get_json(f"{url}/props", TIMEOUT_S)
        if isinstance(props, dict) and "default_generation_settings" in props:
            model = os.path.basename(str(props.get("model_path") or ""))
            title = f"llama.cpp with {model}" if model else "llama.cpp"
            yield LocalServer(title, url, (f"llamacpp:{url}",))
    for port, name in openai_ports.items():
        url = f"http://127.0.0.1:{port}"
        models = _read_models(get_json(f"{url}/v1/models", TIMEOUT_S), "data")
        if models:
            yield LocalServer(name, url, tuple(f"openai:{model}@{url}" for model in models))


def _read_models(answer: Any, key: str) -> list[str]:
    """The names of the first models in the list under `key` of a server's answer, without those of Midfill's engine."""
    if not isinstance(answer, dict):
        return []
    names: list[str] = []
    listed = answer.get(key)
    for model in listed if isinstance(listed, list) else ():
        if isinstance(model, dict) and model.get("owned_by") != "midfill":
            name = model.get("name") or model.get("id")
            if name:
                names.append(str(name))
    return names[:_MAX_MODELS]
