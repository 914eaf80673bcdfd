"""Comparisons of solvers, versions and files: pairing, values, verdicts, and what is refused."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from qcqpbench import Comparison, QcqpbenchError, Results, Scope
from qcqpbench.analysis.compare.comparison import Measure, SolverComparison, compare
from qcqpbench.catalog.machine import Machine
from tests.support.compared_files import MACHINE, NEW, OLD, general_run, run, runs, write_runs

_MARGINS = [0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4]
_GIP, _SCIP = "gip[starts=8]", "scip[gap=0.1]"


def two_files(folder: Path, old: list[float | None], new: list[float | None]) -> tuple[Path, Path]:
    first = write_runs(folder / "old.db", runs(old))
    return first, write_runs(folder / "new.db", runs(new, version=NEW))


def only(comparison: Comparison) -> SolverComparison:
    (solver,) = comparison.solvers
    return solver


def measure(comparison: Comparison, quantity: str) -> Measure:
    (result,) = [measure for measure in only(comparison).measures if measure.quantity == quantity]
    return result


# --- verdicts ---


@pytest.mark.parametrize(
    ("change", "verdict"), [(-0.1, "worse"), (0.1, "better"), (0.0, "the same"), (3e-5, "the same")]
)
def test_a_margin_that_changes_on_all_instances(tmp_path: Path, change: float, verdict: str) -> None:
    noise = [1 + 0.1 * math.sin(k) for k in range(10)]
    new: list[float | None] = [old + change * factor for old, factor in zip(_MARGINS, noise, strict=True)]
    comparison = compare(two_files(tmp_path, list(_MARGINS), new))
    result = measure(comparison, "kappa_bar")
    assert result.verdict == verdict
    assert comparison.is_loss == (verdict == "worse")
    expected = sum(change * factor for factor in noise) / 10 if abs(change) > 1e-4 else 0.0
    assert result.difference == pytest.approx(expected)
    counts = {"worse": (0, 0, 10), "better": (10, 0, 0), "the same": (0, 10, 0)}[verdict]
    assert (result.wins, result.ties, result.losses) == counts
    assert (result.first, result.second) == pytest.approx((0.95, sum(filter(None, new)) / 10))
    # Two verdicts, by Holm: of the margins, and of the times, which are equal. All signs agree in 2 of 1024 flips.
    assert result.p_value == (1.0 if verdict == "the same" else pytest.approx(2 / 1024, abs=1e-9))
    assert result.adjusted_p_value == pytest.approx(min(1, 2 * result.p_value))
    assert measure(comparison, "seconds").verdict == "the same"


@pytest.mark.parametrize(
    ("factor", "verdict"), [(1.5, "slower"), (0.5, "faster"), (1.03, "no evidence"), (1.0, "the same")]
)
def test_times_are_compared_by_their_ratio(tmp_path: Path, factor: float, verdict: str) -> None:
    times = [0.1 * 2**k for k in range(10)]
    first = write_runs(tmp_path / "old.db", runs(_MARGINS, times))
    second = write_runs(tmp_path / "new.db", runs(_MARGINS, [factor * time for time in times], version=NEW))
    comparison = compare([first, second])
    result = measure(comparison, "seconds")
    assert result.verdict == verdict
    assert comparison.is_loss == (verdict == "slower")
    assert result.difference == pytest.approx(factor)
    assert result.interval == pytest.approx((factor, factor))
    assert result.first == pytest.approx(0.1 * 2**4.5)
    assert result.ties == (10 if abs(factor - 1) < 0.05 else 0)


def test_the_effect_decides_which_ratio_of_times_matters(tmp_path: Path) -> None:
    first = write_runs(tmp_path / "old.db", runs(_MARGINS))
    second = write_runs(tmp_path / "new.db", runs(_MARGINS, [1.5] * 10, version=NEW))
    assert compare([first, second], effect=0.4).is_loss
    assert not compare([first, second], effect=0.6).is_loss


def test_few_instances_have_no_verdict(tmp_path: Path) -> None:
    comparison = compare(two_files(tmp_path, [0.5, 0.6, 0.7], [0.1, 0.1, 0.1]))
    assert measure(comparison, "kappa_bar").verdict == "too few instances"
    assert not comparison.is_loss
    assert "too few instances for a verdict: 3 of the 9 that it needs" in comparison.verdict[0]


def test_noise_is_no_evidence_and_says_how_many_instances_are_missing(tmp_path: Path) -> None:
    noise = [0.3, -0.2, 0.1, -0.1, 0.2, -0.3, 0.25, -0.25, 0.15, -0.1]
    comparison = compare(two_files(tmp_path, list(_MARGINS), [a + b for a, b in zip(_MARGINS, noise, strict=True)]))
    result = measure(comparison, "kappa_bar")
    assert result.verdict == "no evidence" and not comparison.is_loss
    assert result.interval is not None and result.interval.low < 0 < result.interval.high
    assert result.effect == pytest.approx(0.05 * 0.95)
    more = result.instances_needed - 10
    assert more > 0
    assert f"about {more} more instances would tell 5 %" in comparison.verdict[0]


def test_an_interval_inside_the_effect_excludes_it(tmp_path: Path) -> None:
    noise = [0.003 * (-1) ** k for k in range(10)]
    comparison = compare(two_files(tmp_path, list(_MARGINS), [a + b for a, b in zip(_MARGINS, noise, strict=True)]))
    assert measure(comparison, "kappa_bar").excludes_effect
    assert "a difference of 5 % is excluded" in comparison.verdict[0]


# --- values of an instance ---


def test_starts_are_averaged_within_an_instance(tmp_path: Path) -> None:
    first = write_runs(tmp_path / "old.db", [run(2, 0.4, 1.0), run(2, 0.6, 3.0, start=1)])
    second = write_runs(tmp_path / "new.db", [run(2, 0.5, 4.0), run(2, 0.9, 4.0, start=1)])
    comparison = compare([first, second])
    (values,) = measure(comparison, "kappa_bar").instances
    assert (values.runs, values.first, values.second) == pytest.approx((2, 0.5, 0.7))
    (values,) = measure(comparison, "seconds").instances
    assert (values.first, values.second) == pytest.approx((2.0, 4.0))
    assert measure(comparison, "seconds").difference == pytest.approx(2.0)


@pytest.mark.parametrize(("others", "penalty"), [((0.4, 0.6), 0.0), ((-0.3, 0.6), -0.3)])
def test_a_run_without_a_point_is_penalized(tmp_path: Path, others: tuple[float, float], penalty: float) -> None:
    first = write_runs(tmp_path / "old.db", [run(2, others[0]), run(2, others[1], start=1)])
    second = write_runs(tmp_path / "new.db", [run(2, None, 0.1), run(2, others[1], start=1)])
    comparison = compare([first, second])
    (values,) = measure(comparison, "kappa_bar").instances
    assert values.second == pytest.approx((penalty + others[1]) / 2)
    (values,) = measure(comparison, "seconds").instances
    # Three times the limit of 10 s, however early the run ended.
    assert values.second == pytest.approx((30 + 1) / 2)


def test_general_problems_are_compared_by_their_gaps(tmp_path: Path) -> None:
    # Minimization: the best objective is −10, so that −9 has a gap of 10 %; gaps above 100 % count as 100 %.
    old = [general_run(1, -9.0), general_run(2, -10.0), general_run(3, None), general_run(4, 50.0)]
    new = [general_run(1, -10.0), general_run(2, -8.0), general_run(3, -10.0), general_run(4, -10.0)]
    comparison = compare([write_runs(tmp_path / "old.db", old), write_runs(tmp_path / "new.db", new)])
    result = measure(comparison, "relative_gap")
    differences = {values.problem: values.difference for values in result.instances}
    assert differences == pytest.approx({"p1.qplib": 0.1, "p2.qplib": -0.2, "p3.qplib": 1.0, "p4.qplib": 1.0})
    assert (result.wins, result.losses) == (3, 1)
    assert (result.first, result.second) == pytest.approx((2.1 / 4, 0.2 / 4))


def test_tasks_and_general_problems_have_a_verdict_each(tmp_path: Path) -> None:
    items = [*runs(_MARGINS), general_run(1, -9.0)]
    comparison = compare([write_runs(tmp_path / "old.db", items), write_runs(tmp_path / "new.db", items)])
    assert [item.quantity for item in only(comparison).measures] == ["kappa_bar", "relative_gap", "seconds"]


# --- sides ---


def test_versions_of_one_file_are_compared_without_an_argument(tmp_path: Path) -> None:
    path = write_runs(
        tmp_path / "a.db", [*runs([0.1] * 9, version="source 0"), *runs(_MARGINS[:9]), *runs([0.2] * 9, version=NEW)]
    )
    comparison = compare([path])
    solver = only(comparison)
    # The two newest, labelled by the part of the version that differs.
    assert (solver.first.label, solver.second.label) == ("source 0a", "source 0b")
    assert comparison.is_loss and measure(comparison, "kappa_bar").verdict == "worse"
    chosen = compare([path], ["gip"], ["source 0b", "scipy 1, source 0a"])
    assert only(chosen).second.version == OLD and measure(chosen, "kappa_bar").verdict == "better"
    with pytest.raises(
        QcqpbenchError, match=r"versions must each be in one version of gip\S* in a.db, got 'source 0' for"
    ):
        compare([path], ["gip"], ["source 0", "0b"])


def test_two_solvers_of_one_file_and_labels(tmp_path: Path) -> None:
    path = write_runs(tmp_path / "a.db", [*runs(_MARGINS), *runs([0.2] * 10, solver=_SCIP)])
    comparison = compare([path], ["scip", _GIP], labels=["theirs", "ours"])
    solver = only(comparison)
    assert (solver.first.solver, solver.second.solver) == (_SCIP, _GIP)
    assert comparison.verdict[0].startswith("ours against theirs, κ̄: better: +0.75 ")


def test_parameters_choose_among_solvers_of_a_name(tmp_path: Path) -> None:
    other = "gip[starts=4]"
    path = write_runs(tmp_path / "a.db", [*runs(_MARGINS), *runs([0.2] * 10, solver=other)])
    assert only(compare([path], [_GIP, other])).second.solver == other
    with pytest.raises(
        QcqpbenchError,
        match=r"solvers must each denote one solver in a.db, got 'gip' for gip\[starts=4\], gip\[starts=8\]",
    ):
        compare([path], ["gip", other])


def test_two_files_are_compared_for_each_solver_of_both(tmp_path: Path) -> None:
    prover = runs([1.0] * 10, solver="sdr", scope=Scope.BOUND)
    first = write_runs(
        tmp_path / "old.db", [*runs(_MARGINS), *runs(_MARGINS, solver=_SCIP), *runs([1.0], solver="slsqp"), *prover]
    )
    second = write_runs(tmp_path / "new.db", [*runs(_MARGINS, version=NEW), *runs([0.2] * 10, solver=_SCIP), *prover])
    comparison = Results(first).compare(Results(second))
    assert [solver.first.solver for solver in comparison.solvers] == [_GIP, _SCIP]
    assert [solver.measures[0].verdict for solver in comparison.solvers] == ["the same", "worse"]
    # Four verdicts; the smallest p-value is multiplied by four.
    assert comparison.solvers[1].measures[0].adjusted_p_value == pytest.approx(4 * 2 / 1024)
    assert comparison.left_out == (
        "Not compared because only old.db has runs: slsqp.", "Not compared because they only prove bounds: sdr."
    )  # fmt: skip


def test_files_of_the_same_name_are_labelled_by_their_paths(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    first, second = write_runs(tmp_path / "r.db", runs(_MARGINS)), write_runs(tmp_path / "b" / "r.db", runs(_MARGINS))
    assert only(compare([first, second])).second.label == str(second)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"solvers": ["gop", "gip"]}, "unknown solver in a.db: 'gop'; allowed: gip[starts=8], scip[gap=0.1], sdr"),
        ({"solvers": ["gip", "gip"]}, "a.db: must hold two versions of gip"),
        ({"solvers": ["gip"]}, "a.db: must hold two versions of gip"),
        ({}, "a.db: must hold two versions of a solver, or solvers must be two, got neither"),
        ({"solvers": ["gip", "scip", "gip"]}, "solvers must be at most two, got 3"),
        ({"solvers": ["gip", "sdr"]}, "solvers must search for points, got 'sdr', which only proves bounds"),
        ({"versions": ["0a", "0b"]}, "versions must be given with a solver, got none"),
        ({"solvers": ["gip"], "versions": ["0a"]}, "versions must be two, the first and the second, got 1"),
        ({"solvers": ["gip"], "versions": ["0a", "0a"]}, "the two sides must differ, got gip"),
        ({"solvers": ["gip", "scip"], "labels": ["one"]}, "labels must be two, the first and the second, got 1"),
        ({"solvers": ["gip", "scip"], "effect": 0.0}, "effect must be a positive fraction, got 0.0"),
    ],
)  # fmt: skip
def test_wrong_arguments(tmp_path: Path, arguments: dict[str, Any], message: str) -> None:
    prover = runs([1.0], solver="sdr", scope=Scope.BOUND)
    path = write_runs(tmp_path / "a.db", [*runs(_MARGINS), *runs(_MARGINS, solver=_SCIP), *prover])
    with pytest.raises(QcqpbenchError, match=re.escape(message)):
        compare([path], **arguments)


# --- what cannot be compared ---


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"time_limit": 20.0}, "their runs have other limits: time_limit 10.0 against 20.0"),
        ({"tolerance": 1e-4}, "their runs have other limits: tolerance 1e-06 against 0.0001"),
        ({"threads": 2, "memory_limit_bytes": 5}, "limits: memory_limit_bytes None against 5; threads 1 against 2"),
        ({"start_seed": 1}, "they have no start in common"),
        ({"problem_id": "another"}, "they have no problem in common"),
    ],
)  # fmt: skip
def test_other_limits_starts_and_problems_are_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    first = write_runs(tmp_path / "old.db", runs(_MARGINS))
    second = write_runs(tmp_path / "new.db", runs(_MARGINS, **changes))
    with pytest.raises(QcqpbenchError, match=rf"^old.db and new.db cannot be compared: .*{re.escape(message)}$"):
        compare([first, second])


def test_runs_without_a_counterpart_are_left_out_and_counted(tmp_path: Path) -> None:
    first = write_runs(tmp_path / "old.db", [*runs(_MARGINS), *runs([9.0] * 10, start=1), run(77, 3.0)])
    second = write_runs(tmp_path / "new.db", [*runs(_MARGINS), *runs([9.0] * 10, time_limit=99.0)])
    solver = only(compare([first, second]))
    assert solver.measures[0].first == pytest.approx(0.95)
    assert [text.split(" that ")[0] for text in solver.left_out] == [
        "Left out: 11 runs of old.db", "Left out: 10 runs of new.db"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("machine", "reason"),
    [
        (replace(MACHINE, cpu="slow"), "Times are not compared: other machine (cpu fast against slow)."),
        (replace(MACHINE, python="3.12"), "Times are not compared: other machine (python 3.11 against 3.12)."),
        (Machine(), "Times are not compared: the machine is not known."),
    ],
)
def test_times_of_another_machine_are_not_compared(tmp_path: Path, machine: Machine, reason: str) -> None:
    first = write_runs(tmp_path / "old.db", runs(_MARGINS))
    second = write_runs(tmp_path / "new.db", runs([0.2] * 10, [9.0] * 10), machine)
    solver = only(compare([first, second]))
    assert [(item.quantity, item.verdict) for item in solver.measures] == [("kappa_bar", "worse")]
    assert solver.left_out == (reason,)


def test_another_commit_or_package_is_the_same_machine(tmp_path: Path) -> None:
    first = write_runs(tmp_path / "old.db", runs(_MARGINS))
    machine = replace(MACHINE, commit="c0ffee", packages={"scipy": "2"})
    second = write_runs(tmp_path / "new.db", runs(_MARGINS), machine)
    assert len(only(compare([first, second])).measures) == 2


# --- output ---


def test_formats_have_the_same_verdict(tmp_path: Path) -> None:
    comparison = compare(two_files(tmp_path, list(_MARGINS), [0.2] * 10))
    values = json.loads(comparison.to_json())
    assert values["is_loss"] is True and values["verdict"] == list(comparison.verdict)
    stored = values["solvers"][0]["measures"][0]
    assert (stored["quantity"], stored["verdict"], stored["losses"]) == ("kappa_bar", "worse", 10)
    assert len(stored["instances"]) == 10
    assert "| κ̄ | worse | 10 | 0.95 | 0.2 | −0.75 |" in comparison.to_markdown()
    assert "<td>worse</td>" in comparison.to_html() and "<script" not in comparison.to_html()
    assert str(comparison) == "\n".join(comparison.verdict)
    assert repr(comparison) == "<Comparison of 1 solvers: kappa_bar worse, seconds the same>"
    assert comparison._repr_html_().count("<li>") == 2


def test_texts_of_a_file_are_escaped(tmp_path: Path) -> None:
    hostile = "<script>|*[x](y)"
    first = write_runs(tmp_path / "old.db", runs(_MARGINS, version=f"1, {hostile}"))
    second = write_runs(tmp_path / "new.db", runs([0.2] * 10))
    comparison = compare([first, second], labels=[hostile, "b"])
    for text in (comparison.to_html(), comparison._repr_html_()):
        assert "&lt;script&gt;" in text and "<script>" not in text
    assert r"\<script\>\|\*\[x\](y)" in comparison.to_markdown() and "<script>" not in comparison.to_markdown()


def test_only_an_earlier_comparison_is_overwritten(tmp_path: Path) -> None:
    comparison = compare(two_files(tmp_path, list(_MARGINS), [0.2] * 10))
    for form in ("md", "html", "json"):
        path = tmp_path / f"c.{form}"
        comparison.write(path)
        comparison.write(path)
        path.write_text("my notes\n")
        with pytest.raises(QcqpbenchError, match="comparison of qcqpbench"):
            comparison.write(path)
    with pytest.raises(QcqpbenchError, match=r"path must be a \.md, \.html or \.json file, got '\S*c\.txt'"):
        comparison.write(tmp_path / "c.txt")
