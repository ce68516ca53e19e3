"""What is looked at before a run goes to a cluster: room, versions, models. With a stand-in for Ray, which is large."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from midfill_infill.engines.installed import distribution_version
from midfill_infill.engines.supervise import EngineSettings
from midfill_infill.errors import MidfillError
from midfill_infill.refactor.generating.ray_workers import RayWorkers

OURS = distribution_version()


class Cluster:
    """As much of Ray's module as is used. `nodes[i]` is what actor i says of itself; None while it has no place."""

    def __init__(self, nodes: list[tuple[str, str, str] | None], **resources: float) -> None:
        self.nodes, self.resources = nodes, resources
        self.placed: list[tuple[Any, ...]] = []
        self.killed, self.has_ended = 0, False
        self.exceptions = SimpleNamespace(RayError=RuntimeError)

    def is_initialized(self) -> bool:
        return False

    def init(self, **options: object) -> None:
        return

    def cluster_resources(self) -> dict[str, float]:
        return self.resources

    def remote(self, **options: object) -> Any:
        def place(*words: Any) -> Any:
            self.placed.append(words)
            return SimpleNamespace(about=SimpleNamespace(remote=lambda: words[0]))

        return lambda actor: SimpleNamespace(remote=place)

    def wait(self, asked: list[int], *, num_returns: int, timeout: float) -> tuple[list[int], list[int]]:
        assert num_returns == len(asked) and timeout > 0
        return [n for n in asked if self.nodes[n]], [n for n in asked if not self.nodes[n]]

    def get(self, asked: list[int]) -> list[Any]:
        return [self.nodes[number] for number in asked]

    def kill(self, handle: object) -> None:
        self.killed += 1

    def shutdown(self) -> None:
        self.has_ended = True


def start(monkeypatch: pytest.MonkeyPatch, cluster: Cluster, device: Any = "cpu") -> RayWorkers:
    monkeypatch.setitem(sys.modules, "ray", cluster)  # type: ignore[arg-type]
    return RayWorkers(EngineSettings(device=device), 2, "auto")


def test_where_actors_stand_is_known_and_no_two_runs_share_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes: list[tuple[str, str, str] | None] = [("n1", OURS, "m w"), ("n2", OURS, "m w")]
    first, second = Cluster(nodes, CPU=2), Cluster(nodes, CPU=2)
    workers = start(monkeypatch, first)
    assert workers.placement == {"n1": 1, "n2": 1} and workers.answered == {"n1": 0, "n2": 0}
    start(monkeypatch, second)
    runs = {words[2] for words in (*first.placed, *second.placed)}
    assert len(runs) == 2 and all(runs)


TROUBLES: dict[str, tuple[Cluster, str, str]] = {
    "too few processors": (Cluster([], CPU=1), "cpu", "--ray 2 wants 2 CPUs, the cluster has 1"),
    "no GPU": (Cluster([], CPU=64), "cuda", "--ray 2 wants 2 GPUs, the cluster has 0"),
    "room that others have": (Cluster([("n1", OURS, "m"), None], CPU=2), "cpu", "1 of 2 actors have an engine"),
    "another version": (Cluster([("n1", OURS, "m"), ("n2", "0", "m")], CPU=2), "cpu", "the node n2 has midfill 0"),
    "other weights": (Cluster([("n1", OURS, "m a"), ("n2", OURS, "m b")], CPU=2), "cpu", "node n2 has the model m b"),
}  # fmt: skip


@pytest.mark.parametrize("name", TROUBLES)
def test_a_cluster_that_cannot_do_it_says_so_and_is_left(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    cluster, device, says = TROUBLES[name]
    with pytest.raises(MidfillError) as raised:
        start(monkeypatch, cluster, device)
    assert raised.value.code == "engine_error" and says in raised.value.message
    assert cluster.killed == len(cluster.placed) and cluster.has_ended
