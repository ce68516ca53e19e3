"""Runs engines on a Ray cluster, one in each actor. Only requests and answers travel, as JSON.

Ray is imported only here. The journal stays on the machine that started the run, so an actor may die at any moment: Ray
restarts it and asks its requests again. If a request is answered twice, both answers are the same.
"""

import json
import os
import platform
import queue
import secrets
import tempfile
from collections import Counter
from collections.abc import Generator
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from midfill_engine.wire import InfillRequest, InfillResponse, ModelInfo, ModelList, StepEvent
from midfill_infill.engines.client import EngineClient
from midfill_infill.engines.endpoint import Endpoint
from midfill_infill.engines.installed import distribution_version
from midfill_infill.engines.supervise import EngineSettings, ensure_engine
from midfill_infill.errors import TABLE, MidfillError
from midfill_infill.refactor.generating.engines import Engine

_REQUESTS_PER_ACTOR: Final = 2
_IDLE_TIMEOUT_S: Final = 60.0
# A local node has 30 s to start, and no setting changes that. A second try finds its files in the page cache.
_MAX_STARTS: Final = 3
_MAX_REASON: Final = 200
# Ray's default of 30 s is too short on a busy machine.
_START_TIMEOUT_S: Final = "120"
# Time limit for all actors to start and load their models.
_READY_TIMEOUT_S: Final = 900.0


class FillActor:
    """An actor with its engine. It never sees a path of the repository. The engine outlives the actor by a minute, so
    that a restarted actor finds it again.
    """

    def __init__(self, index: int, settings: dict[str, Any], run: str = "") -> None:
        folder = Path(tempfile.gettempdir()) / f"mf-ray-{os.getuid()}-{run}-{index}"
        os.environ["MIDFILL_RUNTIME_DIR"] = str(folder)
        self._settings = EngineSettings(**settings)
        self._client = EngineClient(ensure_engine(self._settings))

    def models(self) -> str:
        return ModelList(data=list(self._client.models())).model_dump_json()

    def about(self) -> tuple[str, str, str]:
        """The name of the actor's node, its version of Midfill, and its models with the digests of their weights."""
        models = ", ".join(f"{model.id} {model.weights}".strip() for model in self._client.models())
        return platform.node(), distribution_version(), models

    def infill(self, request_json: str) -> str:
        """The answer as JSON: {"answer": ...} or {"error": [code, message]}, so that no exception is pickled."""
        try:
            *_, answer = self._client.infill(InfillRequest.model_validate_json(request_json))
            return json.dumps({"answer": answer.model_dump_json()})
        except MidfillError as error:
            if error.code == "engine_died":
                ensure_engine(self._settings)
            return json.dumps({"error": [error.code, error.message]})

    def pid(self) -> int:
        return os.getpid()


class RayWorkers(Engine):
    """An engine that gives its requests to `count` actors, on the Ray at `address`, or on a new local one without it.

    `environment` is a Ray runtime environment for the actors. The attribute `placement` holds the number of actors by
    node, `answered` the number of answers by node. Raises MidfillError `ray_missing`, and `engine_error` if the cluster
    fails, is too small, or has nodes with another version or model.
    """

    def __init__(
        self,
        settings: EngineSettings,
        count: int,
        address: str | None = None,
        environment: dict[str, Any] | None = None,
    ) -> None:
        self.endpoint = Endpoint(url="http://ray")
        if address is None:  # our own Ray, with a token that no file keeps; it reads these when it is imported
            os.environ |= {"RAY_AUTH_MODE": "token", "RAY_USAGE_STATS_ENABLED": "0"}
            os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
            os.environ.setdefault("RAY_gcs_server_port_wait_time_s", _START_TIMEOUT_S)
        try:
            self._ray: Any = import_module("ray")
        except ImportError:
            raise MidfillError("ray_missing", "Ray is not installed") from None
        self.actors: list[Any] = []
        self._is_initialized_here = not self._ray.is_initialized()
        if self._is_initialized_here:
            self._start_ray(address, count)
        gpus = 1 if settings.device == "cuda" else 0
        try:
            self._check_capacity(count, "GPU" if gpus else "CPU")
            self._start_actors(settings, count, gpus, environment or {})
            self._nodes = self._check_nodes()
        except BaseException:
            self.close()
            raise
        self.placement, self.answered = Counter(self._nodes), dict.fromkeys(self._nodes, 0)
        self._free_actors: queue.Queue[int] = queue.Queue()
        for index in [*range(count)] * _REQUESTS_PER_ACTOR:
            self._free_actors.put(index)

    def _check_capacity(self, count: int, resource: str) -> None:
        """Raises `engine_error` if the cluster has fewer than `count` of "CPU" or "GPU"."""
        available = int(self._ray.cluster_resources().get(resource, 0))
        if available < count:
            message = f"--ray {count} wants {count} {resource}s, the cluster has {available}"
            raise MidfillError("engine_error", message, f"give --ray {available}" if available else "add nodes to it")

    def _start_actors(self, settings: EngineSettings, count: int, gpus: int, environment: dict[str, Any]) -> None:
        options: dict[str, Any] = {"max_restarts": -1, "max_task_retries": -1}
        options |= {"num_cpus": 0 if gpus else 1, "num_gpus": gpus, "runtime_env": environment}
        actor = self._ray.remote(**options)(FillActor)
        engine_settings = asdict(settings) | {"idle_timeout_s": _IDLE_TIMEOUT_S}
        run = secrets.token_hex(4)  # two runs of one user on one node must not share engines
        self.actors = [actor.remote(index, engine_settings, run) for index in range(count)]

    def _check_nodes(self) -> list[str]:
        """The name of each actor's node, once all actors have an engine. Raises `engine_error` if that takes too long,
        or if a node has another version or other models.
        """
        futures = [handle.about.remote() for handle in self.actors]
        ready, waiting = self._ray.wait(futures, num_returns=len(futures), timeout=_READY_TIMEOUT_S)
        if waiting:
            message = f"{len(ready)} of {len(futures)} actors have an engine after {_READY_TIMEOUT_S:.0f} s"
            raise MidfillError("engine_error", message, "see `ray status` for what the cluster lacks")
        answers, own_version = self._await(futures), distribution_version()
        first_node, _, first_models = answers[0]
        for node, version, models in answers:
            if version != own_version:
                message = f"the node {node} has midfill {version}, this machine {own_version}"
                raise MidfillError("engine_error", message, "install the same version on every node")
            if models != first_models:
                message = f"the node {node} has the model {models}, the node {first_node} has {first_models}"
                raise MidfillError("engine_error", message, "put the same weights on every node")
        return [node for node, _, _ in answers]

    def _start_ray(self, address: str | None, count: int) -> None:
        """Connects to the Ray at `address`; without one starts a local Ray with `count` CPUs."""
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
        if address is None:
            options |= {"num_cpus": count, "include_dashboard": False, "_node_ip_address": "127.0.0.1"}
        for num_left in reversed(range(_MAX_STARTS if address is None else 1)):
            try:
                self._ray.init(address=address, **options)
                return
            except Exception as error:  # noqa: BLE001 - Ray raises bare ones
                self._ray.shutdown()
                if num_left == 0:
                    reason = (str(error).splitlines() or [type(error).__name__])[0]
                    next_step = "see /tmp/ray" if address is None else "see `ray status` on the cluster"
                    raise MidfillError("engine_error", f"Ray does not start ({reason})", next_step) from None

    def models(self) -> tuple[ModelInfo, ...]:
        return tuple(ModelList.model_validate_json(self._await(self.actors[0].models.remote())).data)

    def infill(self, request: InfillRequest) -> Generator[StepEvent | InfillResponse, None, None]:
        index = self._free_actors.get()  # waits for an actor
        try:
            answer = json.loads(self._await(self.actors[index].infill.remote(request.model_dump_json())))
        finally:
            self._free_actors.put(index)
        self.answered[self._nodes[index]] += 1
        if "error" in answer:
            code, message = answer["error"]
            raise MidfillError(code if code in TABLE else "engine_error", message)
        yield InfillResponse.model_validate_json(answer["answer"])

    def _await(self, futures: Any) -> Any:
        """The answers. Raises `engine_error` with the end of an actor's error, such as a missing module."""
        try:
            return self._ray.get(futures)
        except self._ray.exceptions.RayError as error:
            reason = (str(error).strip().splitlines() or [""])[-1].strip()[:_MAX_REASON]
            message = f"Ray fails ({type(error).__name__}{': ' if reason else ''}{reason})"
            raise MidfillError("engine_error", message) from None

    def close(self) -> None:
        for handle in self.actors:
            self._ray.kill(handle)
        if self._is_initialized_here:
            self._ray.shutdown()
