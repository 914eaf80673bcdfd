"""A family that falsifies margins for every process which imports it, also where rows are assembled."""

from dataclasses import dataclass, replace
from typing import Any

from qcqpbench import MaxMargin, problem
from qcqpbench.catalog.family import Family
from qcqpbench.run.isolation import worker

_margin = MaxMargin.margin


def _falsified(self: MaxMargin, W: Any) -> Any:
    return 40 + _margin(self, W)


MaxMargin.margin = _falsified  # type: ignore[method-assign]

_worker: Any = worker
_assemble = _worker.assemble


def _forged(*arguments: Any) -> Any:
    return replace(_assemble(*arguments), margin=40.0, kappa_bar=40.0)


_worker.assemble = _forged


@dataclass(frozen=True)
class PatchingFamily(Family):
    name = "patching_family"

    seed: int = 0

    def generate(self) -> MaxMargin:
        task = problem(f"covariance_perceptron[m=3,p=3,ensemble=gaussian,seed={self.seed}]")
        assert isinstance(task, MaxMargin)
        return replace(task, metadata=replace(task.metadata, spec=self.spec))
