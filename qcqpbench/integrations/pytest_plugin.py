"""Pytest plug-in: benchmarks of solvers on problems, with points that the suite verifies after the timed part.

pytest loads the plug-in wherever qcqpbench is installed. It does nothing unless a test uses its fixtures, and imports
the rest of qcqpbench only then; ``-p no:qcqpbench`` leaves it out. A test of a solver's author may be as short as ::

    def test_solve(qcqpbench_solve):
        qcqpbench_solve()

with the solvers and problems in the configuration of pytest ::

    [tool.pytest.ini_options]
    qcqpbench_solvers = ["my_solver"]
    qcqpbench_problems = ["covariance_perceptron[m=10,load=1]", "covariance_perceptron[m=20,load=1]"]
    qcqpbench_time_limit = "5"

or in the marker of a test, which takes precedence ::

    @pytest.mark.qcqpbench(solvers=["my_solver[tol=1e-3]"], problems=["packing[k=5]"], time_limit=5)
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from qcqpbench import Attempt, RunOptions
    from qcqpbench.run.isolation.worker import Worker
    from qcqpbench.run.run_spec import RunSpec

_SOLVER, _PROBLEM = "qcqpbench_solver", "qcqpbench_problem"
_MARKER = "qcqpbench"
# Fields of an attempt that are written to `extra_info`, if they have a value.
_EXTRA_INFO = (
    "margin",
    "kappa_bar",
    "objective",
    "violation",
    "best_known",
    "bound",
    "gap",
    "point_status",
    "termination",
    "iterations",
    "message",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the settings of pytest's configuration file."""
    parser.addini("qcqpbench_solvers", "specs of the solvers that qcqpbench_solve runs", type="linelist", default=[])
    parser.addini("qcqpbench_problems", "specs or files of the problems", type="linelist", default=[])
    parser.addini("qcqpbench_time_limit", "time limit of a run in seconds", default="10")


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker, and register the fixture that depends on whether pytest-benchmark is active."""
    config.addinivalue_line(
        "markers",
        "qcqpbench(solvers, problems, time_limit, …): what the fixture qcqpbench_solve runs in a test, in place of the "
        "settings of the configuration file",
    )
    config.pluginmanager.register(_Timed() if config.pluginmanager.hasplugin("benchmark") else _NotTimed())


class _Timed:
    """Plug-in for sessions with pytest-benchmark."""

    @pytest.fixture
    def _qcqpbench_timer(self, benchmark: Any) -> Any:
        return benchmark


class _NotTimed:
    """Plug-in for sessions without pytest-benchmark."""

    @pytest.fixture
    def _qcqpbench_timer(self) -> None:
        return None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give a test that uses the fixtures all pairs of its solvers and problems."""
    if not {_SOLVER, _PROBLEM} & set(metafunc.fixturenames):
        return
    from qcqpbench import QcqpbenchError  # noqa: PLC0415 (only for tests that use the plug-in)

    try:
        solvers, problems = _specs(metafunc.config, metafunc.definition)
    except QcqpbenchError as error:
        raise pytest.Collector.CollectError(f"{metafunc.definition.nodeid}: {error}") from None
    for name, specs in ((_PROBLEM, problems), (_SOLVER, solvers)):
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, specs, indirect=True)


def _specs(config: pytest.Config, definition: pytest.Item) -> tuple[list[str], list[str]]:
    """Return the specs of the solvers and of the problems of a test; raise QcqpbenchError if one is wrong."""
    from qcqpbench import Suite  # noqa: PLC0415
    from qcqpbench.errors import require  # noqa: PLC0415
    from qcqpbench.run.suite import expand_problem, problem_labels  # noqa: PLC0415

    given = _marked(definition)
    values = {name: given.get(name, config.getini(f"qcqpbench_{name}")) for name in ("solvers", "problems")}
    for name, value in values.items():
        where = f"the setting qcqpbench_{name} or the marker qcqpbench must name"
        require(value not in ([], ()), f"{where} at least one of the {name}, got none")
    _options(config, definition)
    Suite.of(values["problems"], values["solvers"])
    problems: list[str] = []
    for text in map(str, values["problems"]):
        members = expand_problem(text)
        is_one = len(members) == 1 and not Path(text).is_dir()
        problems += [text] if is_one else problem_labels(members).values()
    return list(dict.fromkeys(map(_solver_spec, values["solvers"]))), list(dict.fromkeys(problems))


def _solver_spec(solver: Any) -> str:
    """Return the spec of a solver that is given by its spec or as an object."""
    return solver if isinstance(solver, str) else str(solver.spec)


def _marked(node: pytest.Item) -> dict[str, Any]:
    """Return the arguments of a test's marker."""
    from qcqpbench.errors import require  # noqa: PLC0415

    marker = node.get_closest_marker(_MARKER)
    if marker is None:
        return {}
    require(not marker.args, f"the marker qcqpbench must have named arguments only, got {marker.args!r:.100}")
    return dict(marker.kwargs)


def _options(config: pytest.Config, node: pytest.Item) -> RunOptions:
    """Return the options of the runs of a test."""
    from qcqpbench import RunOptions  # noqa: PLC0415
    from qcqpbench.errors import nearest  # noqa: PLC0415
    from qcqpbench.run.run_spec import OPTIONS  # noqa: PLC0415

    given = {name: value for name, value in _marked(node).items() if name not in ("solvers", "problems")}
    for name in given.keys() - OPTIONS.keys():
        raise nearest(name, ["solvers", "problems", *OPTIONS], "argument of the marker qcqpbench")
    if "time_limit" not in given:
        text = config.getini("qcqpbench_time_limit")
        try:
            given["time_limit"] = float(text)
        except ValueError:
            given["time_limit"] = text
    return RunOptions(**given)


@pytest.fixture
def qcqpbench_solver(request: pytest.FixtureRequest) -> str:
    """Spec of the solver of a test."""
    return str(request.param)


@pytest.fixture
def qcqpbench_problem(request: pytest.FixtureRequest) -> str:
    """Spec or file of the problem of a test."""
    return str(request.param)


@pytest.fixture(scope="session")
def _qcqpbench_worker() -> Iterator[Worker]:
    from qcqpbench.run.isolation.worker import Worker  # noqa: PLC0415

    with Worker() as worker:
        yield worker


@pytest.fixture
def qcqpbench_solve(
    request: pytest.FixtureRequest,
    qcqpbench_solver: str,
    qcqpbench_problem: str,
    _qcqpbench_worker: Worker,
    _qcqpbench_timer: Any,
) -> Solve:
    """Return a function that runs the solver on the problem, times it, and verifies its point; see `Solve`."""
    options = _options(request.config, request.node)
    return Solve(qcqpbench_solver, qcqpbench_problem, options, _qcqpbench_worker, _qcqpbench_timer)


class Solve:
    """Function that runs a solver on a problem, times it, and verifies its point: the fixture ``qcqpbench_solve``."""

    def __init__(self, solver: str, problem: str, options: RunOptions, worker: Worker, benchmark: Any) -> None:
        self._solver, self._problem, self._options = solver, problem, options
        self._worker, self._benchmark = worker, benchmark

    def __call__(self, *, must_be_feasible: bool = True) -> Attempt:
        """Run the solver from start 0, time it if pytest-benchmark is active, and verify its point.

        The first run is in a process of its own, which is killed at the limits. The test fails if this process crashes,
        the solver raises an exception, or a limit is exceeded. If pytest-benchmark is active, building and solving are
        then timed in the process of the test, and the point of the last round is verified in a process in which no
        solver's code runs. The values of that round are added to ``benchmark.extra_info``.

        Parameters
        ----------
        must_be_feasible
            Whether the test also fails if the point of one of these two runs is not feasible.

        Returns
        -------
        Attempt
            The record of the last timed round, or of the first run if nothing was timed.
        """
        from ._runs import TimedRun  # noqa: PLC0415

        __tracebackhide__ = True
        spec = self._spec()
        first = self._worker.run(spec).attempt
        self._check_end(first)
        if must_be_feasible:
            self._check_point(first)
        if self._benchmark is None:
            return first
        self._benchmark.group = self._problem
        attempt = self._worker.verify(spec, self._benchmark(TimedRun(spec)))
        self._benchmark.extra_info.update(_extra_info(attempt), peak_memory_bytes=first.peak_memory_bytes)
        if must_be_feasible:
            self._check_point(attempt)
        return attempt

    def _spec(self) -> RunSpec:
        """Return the spec of the run; skip the test if the solver is not available or does not accept the problem.

        pytest-benchmark would warn of a test that is skipped earlier, in the set-up of its fixtures.
        """
        from qcqpbench import MaxMargin, QcqpbenchError, Suite  # noqa: PLC0415
        from qcqpbench.catalog.status import Availability  # noqa: PLC0415
        from qcqpbench.run.isolation.description import problem_apart, solver_facts  # noqa: PLC0415
        from qcqpbench.run.suite import Settings  # noqa: PLC0415

        try:
            facts = solver_facts(self._solver)
            if facts.availability is not Availability.AVAILABLE:
                pytest.skip(f"{self._solver}: {facts.reason}")
            if not facts.takes_qcqps and not isinstance(problem_apart(self._problem), MaxMargin):
                pytest.skip(f"{self._solver} accepts only max-margin tasks; {self._problem} is a general QCQP")
            return next(Suite.of([self._problem], [self._solver], Settings(**vars(self._options))).runs())
        except QcqpbenchError as error:
            pytest.fail(str(error), pytrace=False)

    def _check_end(self, attempt: Attempt) -> None:
        """Fail the test if a run broke off or exceeded a limit; skip it if the solver cannot run here."""
        from qcqpbench.catalog.status import Termination  # noqa: PLC0415

        from ._runs import ended_by_itself  # noqa: PLC0415

        if attempt.termination is Termination.SKIPPED:
            pytest.skip(f"{self._solver}: {attempt.message}")
        limit = self._options.time_limit
        if not ended_by_itself(attempt, limit):
            self._fail(f"the run must end by itself within {limit:g} s, got {_ending(attempt)}")

    def _check_point(self, attempt: Attempt) -> None:
        """Fail the test if a run has no feasible point."""
        if attempt.success:
            return
        violation = attempt.relative_violation
        point = "no point" if attempt.point is None else f"an {attempt.point_status} point"
        point += "" if violation is None else f" with a relative violation of {violation:.3g}"
        self._fail(f"the point must be feasible to {self._options.tolerance:g}, got {point} ({_ending(attempt)})")

    def _fail(self, reason: str) -> NoReturn:
        pytest.fail(f"{self._solver} on {self._problem}: {reason}", pytrace=False)


def _ending(attempt: Attempt) -> str:
    """Return the termination of an attempt, with its message if there is one."""
    return f"{attempt.termination}: {attempt.message}" if attempt.message else str(attempt.termination)


def _extra_info(attempt: Attempt) -> dict[str, str | float]:
    """Return the values of an attempt that pytest-benchmark stores, by name."""
    from ._runs import gap_to_best_known  # noqa: PLC0415

    values = {name: getattr(attempt, name) for name in _EXTRA_INFO}
    values |= {"gap_to_best_known": gap_to_best_known(attempt), "version": attempt.spec.version}
    return {
        name: value if isinstance(value, int | float) else str(value)
        for name, value in values.items()
        if value not in (None, "")
    }
