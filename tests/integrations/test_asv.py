"""Check the benchmark classes that other solvers' repositories use with asv."""

import inspect
import math
from dataclasses import replace
from pathlib import Path

import pytest
from asv_runner.discovery import disc_benchmarks

from qcqpbench import MaxMargin, QcqpbenchError, problem
from qcqpbench.catalog.best_known import shipped_records
from qcqpbench.catalog.status import Availability, PointStatus, Termination
from qcqpbench.integrations import asv
from qcqpbench.integrations._runs import gap_to_best_known
from qcqpbench.integrations.asv import SolverBenchmarks, SolverGaps, SolverTimes
from qcqpbench.results.results import Results
from qcqpbench.run.isolation.description import solver_facts
from tests.support.hostile import install
from tests.support.report_rows import general, row

# Their best known margins are proved optimal.
PROVED = ("covariance_perceptron[m=4,load=0.5,ensemble=gaussian,seed=1]", "covariance_perceptron[m=8,load=0.5,seed=1]")
TINY = "covariance_perceptron[m=4,load=1]"
AUTHOR = """
from qcqpbench.integrations.asv import SolverGaps, SolverTimes

class Setting:
    solvers = ["gip"]
    problems = {"small": ["parity[m=4]", "parity[m=5]"], "one": ["packing[k=3]"]}

class Gaps(Setting, SolverGaps):
    starts = 2

class Times(Setting, SolverTimes):
    time_limit = 3
"""


@pytest.fixture(autouse=True)
def in_new_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a new folder, as asv does, without the runs that this process has cached."""
    monkeypatch.chdir(tmp_path)
    for cached in (asv._suite, asv._verified_rows, asv._timed_runs):
        cached.cache_clear()


def test_asv_finds_the_subclasses_and_not_the_classes_they_derive_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "author_benchmarks"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "solver.py").write_text(AUTHOR)
    monkeypatch.syspath_prepend(tmp_path)
    found = {benchmark.name: benchmark for benchmark in disc_benchmarks(str(folder))}
    gaps = ("track_gap", "track_gap_to_theory", "track_missed_optima", "track_unsolved")
    times = ("time_solve", "track_peak_memory")
    assert set(found) == {*(f"solver.Gaps.{name}" for name in gaps), *(f"solver.Times.{name}" for name in times)}
    assert all(benchmark.check(str(folder)) for benchmark in found.values())
    assert {tuple(map(tuple, benchmark.params)) for benchmark in found.values()} == {(("'gip'",), ("'small'", "'one'"))}
    # One folder, and so one results file, for all of them.
    assert len({benchmark.setup_cache_key for benchmark in found.values()}) == 1


def test_the_base_classes_are_abstract() -> None:
    assert all(inspect.isabstract(kind) for kind in (SolverBenchmarks, SolverGaps, SolverTimes))


def test_results_of_other_settings_are_not_compared() -> None:
    class Gaps(SolverGaps):
        solvers = ("gip",)
        problems = {"group": PROVED}  # noqa: RUF012

    class MoreStarts(Gaps):
        starts = 2

    class OtherProblems(Gaps):
        problems = {"group": PROVED[:1]}  # noqa: RUF012

    class OtherSolvers(Gaps):
        solvers = ("gip", "slsqp")  # type: ignore[assignment]

    versions = [kind.version for kind in (Gaps, MoreStarts, OtherProblems)]
    assert len(set(versions)) == 3 and OtherSolvers.version == Gaps.version


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"solvers": "gip"}, "solvers must be a list, got 'gip'"),
        ({"solvers": ()}, "solvers must hold at least one entry, got none"),
        ({"problems": {}}, "problems must hold at least one group, got none"),
        ({"problems": {"a": "parity"}}, r"problems\['a'\] must be a list, got 'parity'"),
        ({"time_limit": -1}, "time_limit must be a positive number of seconds, got -1"),
        ({"starts": 0}, "starts must be a whole number, at least 1, got 0"),
    ],
)
def test_wrong_settings_are_refused_when_the_class_is_defined(attributes: dict[str, object], message: str) -> None:
    with pytest.raises(QcqpbenchError, match=f"^{message}$"):
        type("Gaps", (SolverGaps,), {"solvers": ("gip",), "problems": PROVED, **attributes})


def test_the_gap_is_relative_to_the_best_known_value() -> None:
    task = row(margin=0.2, kappa_bar=0.8, best_known=0.25)
    assert gap_to_best_known(task) == pytest.approx(0.2)
    assert gap_to_best_known(replace(task, best_known=0.1)) == pytest.approx(-1.0)
    assert gap_to_best_known(replace(task, margin=-0.2, kappa_bar=-0.8)) == 1.0
    assert gap_to_best_known(replace(task, margin=0.0, kappa_bar=0.0, best_known=0.0)) == 0.0
    assert gap_to_best_known(replace(task, margin=None, kappa_bar=None, point_status=PointStatus.NONE)) == 1.0
    assert gap_to_best_known(replace(task, best_known=None)) is None
    least = general(objective=-9.0, sense="minimize", best_known=-10.0)
    assert gap_to_best_known(least) == pytest.approx(0.1)
    assert gap_to_best_known(replace(least, objective=9.0, sense="maximize", best_known=10.0)) == pytest.approx(0.1)
    assert gap_to_best_known(replace(least, relative_violation=1e-3)) == 1.0


def values_of(group: SolverBenchmarks, solver: str, problems: str) -> dict[str, float]:
    """Return the values of all benchmarks of a class, as asv would compute them."""
    group.setup(solver, problems)
    names = [name for name in dir(group) if name.startswith("track_") or name == "time_solve"]
    return {name: getattr(group, name)(solver, problems) for name in names}


@pytest.mark.slow
def test_gaps_are_averages_over_the_problems_of_the_best_start() -> None:
    """Compare with the points in the results file, the shipped list and the theory of the problems."""

    class Gaps(SolverGaps):
        solvers = ("slsqp",)
        problems = {"proved": PROVED, "unknown": ("covariance_perceptron[m=4,load=1,seed=77]",)}  # noqa: RUF012
        starts = 3

    values = values_of(Gaps(), "slsqp", "proved")
    results = Results.open("runs.db")
    assert len(results) == 6
    gaps, differences = [], []
    for spec in PROVED:
        task = problem(spec)
        assert isinstance(task, MaxMargin) and task.metadata.theory is not None
        rows = [row for row in results if row.problem_id == task.id]
        margins = [float(task.margin(point)) for row in rows if (point := results.point(row)) is not None]
        record = shipped_records()[task.id]
        gaps.append(1 - max(margins) / record.margin)
        assert rows[0].kappa_bar_theory is not None
        differences.append(rows[0].kappa_bar_theory - max(margins) * record.kappa_bar / record.margin)
    assert values["track_gap"] == pytest.approx(sum(gaps) / 2, abs=1e-4)
    assert values["track_gap_to_theory"] == pytest.approx(sum(differences) / 2, abs=1e-4)
    assert values["track_missed_optima"] == sum(gap > 1e-4 for gap in gaps) / 2
    assert values["track_unsolved"] == sum(not row.margin or row.margin <= 0 for row in results) / 6
    # A second group adds its own runs; nothing is known of its problem.
    values = values_of(Gaps(), "slsqp", "unknown")
    assert math.isnan(values["track_gap"]) and math.isnan(values["track_missed_optima"])
    assert len(results) == 9
    # Later benchmarks read the runs.
    asv._verified_rows.cache_clear()
    Gaps().setup("slsqp", "proved")
    assert len(results.rows(all_rows=True)) == 9
    Gaps().setup_cache()
    assert not Path("runs.db").exists()


@pytest.mark.slow
def test_a_solver_that_ignores_its_limit_is_ended_and_not_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    site.mkdir()
    install(site)
    monkeypatch.syspath_prepend(site)

    class Setting:
        solvers = ("hostile[kind=spin_in_c]", "hostile")
        problems = (TINY,)
        time_limit = 0.5

    class Gaps(Setting, SolverGaps):
        pass

    class Times(Setting, SolverTimes):
        pass

    Gaps().setup(Setting.solvers[0], TINY)
    (ended,) = Results.open("runs.db")
    assert ended.termination is Termination.TIME_LIMIT and "killed while solving" in ended.message
    assert ended.solve_seconds is not None and ended.solve_seconds < 100
    with pytest.raises(NotImplementedError, match=r"must solve .* to be timed: killed while solving"):
        Times().setup(Setting.solvers[0], TINY)
    values = values_of(Times(), "hostile", TINY)
    assert values["track_peak_memory"] > 1e6
    assert len(Results.open("runs.db")) == 2


def test_solvers_that_cannot_run_are_left_out() -> None:
    class Gaps(SolverGaps):
        solvers = ("gip", "gurobi", "gipp")
        problems = ("packing[k=3]",)

    with pytest.raises(NotImplementedError, match="gip accepts only max-margin tasks"):
        Gaps().setup("gip", "packing[k=3]")
    with pytest.raises(QcqpbenchError, match="unknown solver 'gipp'; did you mean 'gip'"):
        Gaps().setup("gipp", "packing[k=3]")


def test_a_solver_without_its_packages_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gaps(SolverGaps):
        solvers = ("scip",)
        problems = (TINY,)

    facts = replace(solver_facts("scip"), availability=Availability.NOT_INSTALLED, reason="pyscipopt missing")
    monkeypatch.setattr("qcqpbench.integrations.asv.solver_facts", lambda spec: facts)
    with pytest.raises(NotImplementedError, match="scip: pyscipopt missing"):
        Gaps().setup("scip", TINY)
