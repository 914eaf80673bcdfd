"""Time and memory of the core: import, generation of a problem, evaluation of points, encoding."""

import numpy as np

from qcqpbench import MaxMargin, formulation, problem
from qcqpbench.catalog.registry import family

SPEC = "covariance_perceptron[m=50,load=1]"


def make_task(spec: str) -> MaxMargin:
    task = problem(spec)
    assert isinstance(task, MaxMargin)
    return task


def timeraw_import() -> str:
    """Return the statement to time; the package loads its parts when they are first used."""
    return "import qcqpbench"


def timeraw_import_all() -> str:
    """Return the statement that loads all parts."""
    return "import qcqpbench; [getattr(qcqpbench, name) for name in qcqpbench.__all__]"


class Generate:
    """Generation of a problem."""

    params = ("paper", "psd", "gaussian")
    param_names = ("ensemble",)

    def setup(self, ensemble: str) -> None:
        self.family = family(f"{SPEC[:-1]},ensemble={ensemble}]")

    def time_generate(self, ensemble: str) -> None:
        self.family.generate()

    def peakmem_generate(self, ensemble: str) -> None:
        self.family.generate()


class Evaluate:
    """Evaluation of points."""

    def setup(self) -> None:
        self.task = make_task(SPEC)
        self.W = np.random.default_rng(0).standard_normal((10, self.task.n, self.task.m))
        self.qcqp = formulation("min_norm").encode(self.task)
        self.x = np.random.default_rng(0).standard_normal(self.qcqp.n_variables)

    def time_margin_of_ten(self) -> None:
        self.task.margin(self.W)

    def time_constraints(self) -> None:
        self.qcqp.values(self.x)


class Encode:
    """Encoding of a task as a QCQP."""

    params = ("epigraph", "min_norm")
    param_names = ("formulation",)

    def setup(self, name: str) -> None:
        self.task, self.formulation = make_task(SPEC), formulation(name)

    def time_encode(self, name: str) -> None:
        self.formulation.encode(self.task)

    def peakmem_encode(self, name: str) -> None:
        self.formulation.encode(self.task)
