"""Numbers of a report against an independent computation from the rows, and reports of false claims and failures."""

import math
import re
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qcqpbench.analysis.report.numbers.contents import contents
from qcqpbench.analysis.report.numbers.facts import limits
from qcqpbench.analysis.report.numbers.sources import read
from qcqpbench.analysis.report.pytest_benchmark import MicroBenchmark
from qcqpbench.analysis.report.render.html import html
from qcqpbench.analysis.report.render.markdown import markdown
from qcqpbench.analysis.report.verdict import left_out, verdict
from qcqpbench.analysis.rows import ReportRow
from qcqpbench.catalog.status import PointStatus, Scope
from tests.support.report_rows import feasible, general, lost, many, number, results, row, table
from tests.support.results_files import TASK, add_runs, change


@pytest.fixture(scope="module")
def rows() -> list[ReportRow]:
    """Return 600 random results of 5 solvers, without some of the runs."""
    return [each for k, each in enumerate(many(3, 4, 2, 5, 5)) if k % 37]


def ids(rows: list[ReportRow]) -> set[str]:
    return {each.problem_id for each in rows}


# --- independent computation ---


def test_summary_table_matches_the_rows(rows: list[ReportRow]) -> None:
    best = {id: max(number(each.kappa_bar) for each in feasible(rows) if each.problem_id == id) for id in ids(rows)}
    for line in table(contents(results(rows)), "summary"):
        solver_rows = [each for each in rows if each.solver == line["solver"]]
        assert (line["runs"], line["problems"]) == (len(solver_rows), len(ids(solver_rows)))
        assert line["not run"] == len(best) - len(ids(solver_rows))
        assert line["solved"] == sum(number(each.kappa_bar) > 0 for each in feasible(solver_rows))
        gaps = []
        for id in ids(solver_rows):
            values = [number(each.kappa_bar) for each in feasible(solver_rows) if each.problem_id == id]
            gaps.append((best[id] - max(values)) / max(abs(best[id]), 0.01) if values else math.inf)
        assert line["best known"] == sum(gap <= 1e-4 for gap in gaps)
        assert line["median gap"] == pytest.approx(np.median(gaps))
        assert line["largest gap"] == pytest.approx(max(gap for gap in gaps if gap < math.inf))


def test_capacity_table_matches_the_rows(rows: list[ReportRow]) -> None:
    lines = table(contents(results(rows)), "capacity-data")
    assert len(lines) == 3 * 4 * 5
    for line in lines:
        here = [
            each
            for each in rows
            if each.solver == line["solver"] and f"m={line['m']}," in each.problem
            and f"load={line['load']}," in each.problem
        ]  # fmt: skip
        per_set = [[number(each.kappa_bar) for each in feasible(here) if each.problem_id == id] for id in ids(here)]
        per_set = [values for values in per_set if values]
        assert line["κ̄ best"] == pytest.approx(np.mean([max(values) for values in per_set]))
        assert line["min"] == min(max(values) for values in per_set)
        assert line["κ̄ median"] == pytest.approx(np.mean([np.median(values) for values in per_set]))
        assert line["positive runs"] == sum(number(each.kappa_bar) > 0 for each in feasible(here))
        assert line["runs"] == len(here)


def times_to(rows: list[ReportRow], solver: str, share: float) -> dict[str, tuple[list[float | None], float]]:
    """Return by problem the seconds of each run until that share of the best known, None if never, and of restarts.

    The traces are read backwards, unlike in `metrics`.
    """
    times_by_problem = {}
    for id in ids(rows):
        most = max(number(each.kappa_bar) for each in feasible(rows) if each.problem_id == id)
        goal = most - (1 - share) * max(abs(most), 0.01)
        times: list[float | None] = []
        spent = 0.0
        for each in rows:
            if each.solver == solver and each.problem_id == id:
                time, end = None, number(each.build_seconds) + (each.solve_seconds or 10.0)
                if each.point_status is PointStatus.FEASIBLE and number(each.kappa_bar) >= goal:
                    time = end
                    for at, value in reversed(each.trace):
                        time = number(each.build_seconds) + at if value >= goal else time
                times.append(time)
                spent += end if time is None else time
        successes = sum(time is not None for time in times)
        times_by_problem[id] = times, spent / successes if successes else math.inf
    return times_by_problem


def test_times_to_target_match_the_rows(rows: list[ReportRow]) -> None:
    """Check arithmetic and shifted geometric means of penalized times."""
    numbers = contents(results(rows))
    for line, means in zip(table(numbers, "targets"), table(numbers, "means"), strict=True):
        times = times_to(rows, line["solver"], line["target"])
        assert (line["solver"], line["target"]) == (means["solver"], means["target"])
        assert line["runs reaching it"] == sum(
            time is not None for run_times, _ in times.values() for time in run_times
        )
        assert line["problems reached"] == sum(math.isfinite(restarts) for _, restarts in times.values())

        def shifted(values: list[float]) -> float:
            return float(np.exp(np.log(np.array(values) + numbers.shift).mean()) - numbers.shift)

        assert means["restarts, all"] == pytest.approx(shifted([min(30.0, expected) for _, expected in times.values()]))
        for penalty in (1, 3):
            values = [
                statistics.fmean([penalty * 10.0 if time is None else time for time in run_times or [None]])
                for run_times, _ in times.values()
            ]
            assert line[f"mean s, failed {penalty}×"] == pytest.approx(statistics.fmean(values))
            assert means[f"{penalty}×, all"] == pytest.approx(shifted(values))


def test_profiles_match_counts_of_problems(rows: list[ReportRow]) -> None:
    """Check the profiles of all solvers and of each pair."""
    numbers = contents(results(rows))
    names = [f"solver{k}" for k in range(5)]
    expected = {
        share: {name: {id: each[1] for id, each in times_to(rows, name, share).items()} for name in names}
        for share in (0.9, 0.95, 0.99)
    }
    for line in table(numbers, "profiles"):
        times = expected[line["target"]]
        solver_times = times[line["solver"]]
        for ratio in (1, 2, 5, 10, 100):
            near = [
                id
                for id in solver_times
                if solver_times[id] <= ratio * min(each[id] for each in times.values()) < math.inf
            ]
            assert line[f"{ratio}×"] == pytest.approx(len(near) / len(solver_times), abs=1e-4)
        for limit in (0.01, 0.1, 1, 10, 100):
            assert line[f"{limit:g} s"] == pytest.approx(
                sum(t <= limit for t in solver_times.values()) / len(solver_times), abs=1e-4
            )
    pairs = table(numbers, "pairs")
    assert len(pairs) == 10
    for line in pairs:
        for share in (0.9, 0.95, 0.99):
            first, second = expected[share][line["first"]], expected[share][line["second"]]
            ahead = sum(first[id] <= second[id] and first[id] < math.inf for id in first) / len(first)
            assert line[f"{100 * share:g} %: first"] == pytest.approx(ahead, abs=1e-4)


def test_anytime_curves_end_at_the_mean_margin_of_all_runs(rows: list[ReportRow]) -> None:
    panels = contents(results(rows)).anytime
    assert sum(panel.load is None for panel in panels) == 3
    for panel in panels:
        where = f"load={panel.load}," if panel.load is not None else ""
        here = [each for each in rows if f"m={panel.m}," in each.problem and where in each.problem]
        best = {id: max(number(e.kappa_bar) for e in feasible(here) if e.problem_id == id) for id in ids(here)}
        best = {id: value for id, value in best.items() if value > 0}
        assert panel.problems == len(best)
        for name, curve in panel.curves.items():
            ends = []
            for id, most in best.items():
                solver_rows = [e for e in here if e.solver == name and e.problem_id == id]
                margins = [max(0.0, e.kappa_bar or 0.0) for e in solver_rows]
                ends.append(statistics.fmean(margins) / (1 if where else most) if solver_rows else 0.0)
            assert curve[-1] == pytest.approx(statistics.fmean(ends), abs=1e-4)


def test_statuses_count_every_row(rows: list[ReportRow]) -> None:
    numbers = contents(results(rows))
    assert sum(line.runs for line in numbers.statuses) == len(rows)
    assert sum(line.runs for line in numbers.messages) == len(rows) - len(feasible(rows))


def test_growth_exponents_match_polyfit(rows: list[ReportRow]) -> None:
    """Check growth with m at four loads, and with p at three m."""
    panels = contents(results(rows)).sizes
    assert [panel.axis for panel in panels] == ["m"] * 4 + ["p"] * 3
    for panel in panels:
        at = panel.at.replace(" ", "").replace("load", "load=") + ("," if panel.axis == "p" else "")
        here = [each for each in rows if at in each.problem]
        assert len(panel.fits) == 10
        for fit in panel.fits:
            times: dict[int, list[float]] = {}
            for each in here:
                m, load = re.search(r"m=(\d+),.*load=([\d.]+),", each.problem).groups()  # type: ignore[union-attr]
                if each.solver == fit.solver:
                    # A killed run counts with its time limit.
                    time = number(each.build_seconds) if fit.what == "build" else each.solve_seconds or 10.0
                    size = int(m) if panel.axis == "m" else round(2 * int(m) * float(load))
                    times.setdefault(size, []).append(time)
            x, y = np.log(list(times)), np.log([np.median(each) for each in times.values()])
            assert fit.exponent == pytest.approx(np.polyfit(x, y, 1)[0], abs=1e-9)


def test_band_ranges_from_best_known_to_bound(rows: list[ReportRow]) -> None:
    panel = contents(results(rows)).capacity[0]
    for load, low, high, with_bound, sets in panel.band:
        here = feasible([each for each in rows if "m=10," in each.problem and f"load={load}," in each.problem])
        best = [max(number(each.kappa_bar) for each in here if each.problem_id == id) for id in ids(here)]
        bounds = [min(2 * number(e.bound) for e in here if e.problem_id == id and e.bound) for id in ids(here)]
        assert (with_bound, sets) == (2, 2)
        assert [low, high] == pytest.approx([np.mean(best), np.mean(bounds)])


# --- false claims, failures, missing solvers ---


def problems(count: int) -> list[str]:
    return [f"covariance_perceptron[m=10,n=2,load=1.0,seed={seed}]" for seed in range(count)]


@pytest.fixture(scope="module")
def dishonest() -> list[ReportRow]:
    """Return runs of solvers that are honest, lie about their points, are always late, or run on one problem only."""
    rows = []
    for k, problem in enumerate(problems(4)):
        rows.append(row(problem, "honest", kappa_bar=1.0))
        claims: dict[str, Any] = {"claimed_objective": 5.0, "termination": "optimal", "bound": 0.1}
        rows.append(row(problem, "liar", margin=None, kappa_bar=None, point_status="invalid", **claims))
        rows.append(lost(problem=problem, solver="late", message="killed"))
        rows += [row(problem, "choosy", kappa_bar=1.0, build_seconds=0.0, solve_seconds=0.01)] * (k == 0)
    return rows


def test_false_claims_and_failures_gain_nothing(dishonest: list[ReportRow]) -> None:
    numbers = contents(results(dishonest))
    lines = {line["solver"]: line for line in table(numbers, "summary")}
    assert [lines[name]["solved"] for name in ("honest", "liar", "late", "choosy")] == [4, 0, 0, 1]
    assert [lines[name]["best known"] for name in ("honest", "liar", "late", "choosy")] == [4, 0, 0, 1]
    assert lines["liar"]["false claims"] == 4 and lines["late"]["no point"] == 4 and lines["choosy"]["not run"] == 3
    assert len(numbers.refuted) == 4
    assert numbers.capacity[0].band == ()
    means = {line["solver"]: line for line in table(numbers, "means") if line["target"] == 0.95}
    assert means["late"]["3×, all"] == pytest.approx(30) and means["liar"]["1×, all"] == pytest.approx(10)
    assert means["choosy"]["1×, common"] < means["honest"]["1×, common"]
    assert means["late"]["restarts, all"] == pytest.approx(30)
    # The one problem that choosy was run on.
    assert [means["late"][f"{name}, common"] for name in ("restarts", "1×", "3×")] == pytest.approx([30, 10, 30])
    assert [means["choosy"][f"{name}, common"] for name in ("restarts", "1×", "3×")] == pytest.approx([0.01] * 3)
    assert means["choosy"]["3×, all"] > means["honest"]["3×, all"] == pytest.approx(1.5)
    last = {name: curve[-1] for name, curve in numbers.profiles[0].all.items()}
    assert last == {"honest": 1.0, "liar": 0.0, "late": 0.0, "choosy": 0.25}
    assert {name: curve[-1] for name, curve in numbers.anytime[0].curves.items()} == last


def test_verdict_names_false_claims_failures_and_missing_runs(dishonest: list[ReportRow]) -> None:
    text = " ".join(verdict(contents(results(dishonest))))
    assert "honest finds the largest margins: the best known on all 4 problems. Next is choosy, whose " in text
    assert "Runs that fail where others succeed: late 4 of 4 and liar 4 of 4." in text
    assert "Claims refuted by verification: liar 4." in text
    assert "Bounds refuted by a verified point: liar." in text
    assert "1 solver was not run on all problems (see What was left out)." in text
    missing = "choosy: not run on 3 of 4 problems, which count with a gap of 100 %."
    assert missing in left_out(contents(results(dishonest)))


def test_unsolved_problem_is_no_failure_of_a_solver() -> None:
    first, second = "covariance_perceptron[m=10,n=2,load=1.0]", "covariance_perceptron[m=10,n=2,load=4.0]"
    rows = [row(first, "a"), row(first, "b", kappa_bar=-0.5), row(second, "a", kappa_bar=-1.0), lost(problem=second)]
    text = " ".join(verdict(contents(results(rows))))
    assert "No run has a positive margin on 1 problem, load 4. " in text
    assert "Runs that fail where others succeed: b 1 of 1." in text


def test_verdict_compares_the_largest_margins_with_theory(rows: list[ReportRow]) -> None:
    largest = []
    for load in (0.25, 4.0):
        here = feasible([each for each in rows if "m=30," in each.problem and f"load={load}," in each.problem])
        means = []
        for name in {each.solver for each in here}:
            solver_rows = [each for each in here if each.solver == name]
            means.append(
                np.mean(
                    [max(number(e.kappa_bar) for e in solver_rows if e.problem_id == id) for id in ids(solver_rows)]
                )
            )
        largest.append(f"{max(means):.3f} at load {load:g}")
    theories = "theory (full RSB) predicts 2.641 and -0.122 for m → ∞"
    sentence = f"Largest κ̄ at m = 30: {' and '.join(largest)}; {theories}."
    assert sentence in verdict(contents(results(rows)))


def test_table_of_margins_names_both_theories(rows: list[ReportRow]) -> None:
    lines = [line for line in table(contents(results(rows)), "capacity-data") if line["load"] == 0.25]
    assert lines
    for line in lines:
        assert line["theory (full RSB)"] == pytest.approx(2.64059, abs=5e-5)
        assert line["replica symmetry (paper)"] == pytest.approx(2.64589, abs=5e-5)


def test_point_of_another_solver_refutes_claims() -> None:
    rows = [row(solver="good"), lost(solver="blind", termination="infeasible")]
    rows += [row(solver=name, kappa_bar=value, termination="optimal") for name, value in (("b", 0.9), ("c", 0.99999))]
    lines = {line["solver"]: line["false claims"] for line in table(contents(results(rows)), "summary")}
    assert lines == {"good": 0, "blind": 1, "b": 1, "c": 0}


def test_solver_of_bounds_does_not_compete(dishonest: list[ReportRow]) -> None:
    """Check that its points still count for the best known values."""
    proofs = [row(problem, "prover", kappa_bar=1.25, bound=0.75, scope="bound") for problem in problems(4)]
    numbers = contents(results([*dishonest, *proofs]))
    for id in ("summary", "capacity-data", "targets", "means", "profiles"):
        assert "prover" not in {line["solver"] for line in table(numbers, id)}, id
    lines = {line["solver"]: line for line in table(numbers, "summary")}
    assert lines["honest"]["best known"] == 0 and lines["honest"]["median gap"] == pytest.approx(0.2)
    assert lines["honest"]["optimality gap"] == pytest.approx(1 / 3)
    bounds = {line["solver"]: line for line in table(numbers, "bounds")}
    assert bounds["prover"]["with bound"] == 4 and bounds["prover"]["median gap"] == pytest.approx(1 / 6)
    assert bounds["liar"]["with bound"] == 0 and bounds["liar"]["refuted"] == 4
    assert numbers.capacity[0].band == ((1.0, 1.25, 1.5, 4, 4),)


def test_bounds_alone_are_reported() -> None:
    rows = [row(solver="prover", bound=0.75, scope="bound")]
    assert verdict(contents(results(rows)))[0].startswith("Upper bounds: prover on 1 of 1 problem (median gap 33.3 %).")
    assert "proved bound" in html(results(rows)) and "## Upper bounds" in markdown(results(rows))


def test_a_problem_without_a_point_has_an_infinite_gap() -> None:
    """Check that one of two problems without a point makes the median gap infinite."""
    first, second = problems(2)
    rows = [row(first, "a"), lost(problem=second, solver="a"), row(first, "b"), row(second, "b")]
    lines = {line["solver"]: line["median gap"] for line in table(contents(results(rows)), "summary")}
    assert lines == {"a": None, "b": 0.0}


def test_statuses_are_sorted_by_solver_and_by_the_texts_of_the_statuses() -> None:
    changes = [("b", "error", "none"), ("a", "optimal", "feasible"), ("a", "error", "none"), ("a", "error", "invalid")]
    rows = [row(solver=solver, termination=claim, point_status=status) for solver, claim, status in changes]
    statuses = contents(results(rows)).statuses
    assert [(line.solver, str(line.termination), str(line.point_status)) for line in statuses] == sorted(changes)


def test_messages_are_those_of_unsuccessful_runs_and_false_claims() -> None:
    claims = {"optimal": 0.5, "locally_optimal": 1.0, "finished": 0.5, "stalled": 0.5, "bored": 0.5}
    rows = [row(solver=name, termination=name, kappa_bar=value, message=name) for name, value in claims.items()]
    messages = contents(results(rows)).messages
    assert [(line.solver, str(line.termination), line.message) for line in messages] == [
        (name, name, name) for name in ("bored", "optimal", "stalled")
    ]


def test_missing_limits_are_stated() -> None:
    free = row(time_limit=math.inf, threads=2)
    assert limits([free]) == "no time limit a run, no memory limit, 2 threads"
    bounded = row(memory_limit_bytes=2_500_000_000)
    expected = "10 s or no time limit a run, 2.5 GB or no memory limit, 1 or 2 threads"
    assert limits([free, bounded]) == limits([bounded, free]) == expected


def test_scope_of_old_rows_is_that_of_the_shipped_solver(tmp_path: Path) -> None:
    """Check rows of schema 5, which do not store the scope, of a shipped and of an unknown solver."""
    path = tmp_path / "old.db"
    add_runs(path, [TASK], ["certificate[tol=0.1]", "slsqp"])
    change(path, "UPDATE run SET scope = NULL")
    change(path, "UPDATE run SET solver = 'unknown[tol=1]' WHERE solver LIKE 'slsqp%'")
    assert {each.solver_name: each.scope for each in read([path]).rows} == {
        "certificate": Scope.BOUND,
        "unknown": Scope.LOCAL,
    }


def test_tolerance_is_stated_if_it_is_not_the_default() -> None:
    assert limits([row(tolerance=1e-6)]) == "10 s a run, no memory limit, 1 thread"
    expected = "10 s a run, no memory limit, 1 thread, feasible to 1e-06 or 0.05"
    assert limits([row(tolerance=1e-6), row(tolerance=0.05)]) == expected


def test_limits_are_a_column_only_if_they_differ() -> None:
    same, other = [row(solver="a"), row(solver="b")], [row(solver="a"), row(solver="b", time_limit=3.0)]
    assert "limits" not in table(contents(results(same)), "summary")[0]
    assert [line["limits"] for line in table(contents(results(other)), "summary")] == [
        "10 s a run",
        "3 s a run",
    ]
    assert "limits differ between runs" in verdict(contents(results(other)))[-1]
    (sentence,) = (each for each in left_out(contents(results(other))) if each.startswith("Limits differ"))
    assert sentence.endswith("10 s a run, no memory limit, 1 thread: a; 3 s a run, no memory limit, 1 thread: b.")


def test_verdict_has_at_most_six_short_sentences(rows: list[ReportRow], dishonest: list[ReportRow]) -> None:
    everything = [*rows, *dishonest, lost(solver="absent", termination="skipped")]
    everything += [row(solver=f"further{k}", kappa_bar=0.1, bound=0.5, time_limit=k + 1.0) for k in range(20)]
    micro = [MicroBenchmark(name="x", group="", min=1.0, median=1.0, stddev=0.0, rounds=1, extra="")]
    everything += [general(solver=name, objective=k, best_known=2.0) for k, name in enumerate("ab" * 40)]
    everything += [row(solver="x" * 1500, kappa_bar=9.0)]
    sentences = verdict(contents(results(everything, micro)))
    assert len(sentences) == 6 and max(map(len, sentences)) < 300


@pytest.mark.parametrize("rows", [[], [lost(termination="skipped", message="not installed")], [lost()]])
def test_report_without_results_has_a_verdict(rows: list[ReportRow]) -> None:
    assert "<h2>Verdict</h2>" in html(results(rows))
    assert "## Verdict" in markdown(results(rows))


def test_verdict_names_skipped_solvers() -> None:
    rows = [row(), lost(solver="absent", termination="skipped", message="pip install it")]
    numbers = contents(results(rows))
    assert "Compare with care: 1 solver was skipped (see What was left out)." in verdict(numbers)
    assert "Runs of absent on 1 problem: skipped (pip install it)." in left_out(numbers)
