"""Shares of suites: together they hold each run once; the SLURM script of examples/ runs them."""

import math
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

import qcqpbench
from qcqpbench.errors import QcqpbenchError
from qcqpbench.run.isolation.description import problem_apart
from qcqpbench.run.suite import Settings, Share, Suite
from tests.support.results_files import ROOT, call, read_rows

PROBLEMS = [f"parity[m={m}]" for m in (2, 3, 4)]
SOLVERS = ["gip[starts=1]", "slsqp"]


def a_suite(starts: int = 3) -> Suite:
    return Suite.of(PROBLEMS, SOLVERS, Settings(starts=starts))


@pytest.mark.parametrize("count", [1, 2, 3, 7, 50])
def test_shares_together_hold_each_run_once(count: int) -> None:
    suite = a_suite()
    shares = [replace(suite, share=Share(number, count)) for number in range(1, count + 1)]
    keys = [[run.key for run in share.runs()] for share in shares]
    assert sorted(key for share in keys for key in share) == sorted(run.key for run in suite.runs())
    assert [share.size for share in shares] == [len(share) for share in keys]


def test_the_share_of_a_run_does_not_depend_on_the_rest_of_the_suite() -> None:
    whole, part = a_suite(), Suite.of(PROBLEMS[1:2], SOLVERS[:1], Settings(starts=3))
    for number in (1, 2):
        runs = {run.key for run in replace(whole, share=Share(number, 2)).runs()}
        assert {run.key for run in replace(part, share=Share(number, 2)).runs()} <= runs


def test_shares_have_similar_sizes() -> None:
    """Compare with a binomial distribution: the largest of ten deviations is below five standard deviations."""
    runs, count = 10_000, 10
    shares = [Share(number, count) for number in range(1, count + 1)]
    sizes = Counter(
        share.number for k in range(runs) for share in shares if share.holds(f"parity[m={k // 10}]", "gip", k % 10)
    )
    deviation = 5 * math.sqrt(runs / count * (1 - 1 / count))
    assert sum(sizes.values()) == runs and all(abs(size - runs / count) < deviation for size in sizes.values())


def test_problems_without_a_run_in_the_share_are_not_generated(monkeypatch: pytest.MonkeyPatch) -> None:
    generated: list[str] = []

    def generate(spec: str) -> object:
        generated.append(spec)
        return problem_apart(spec)

    monkeypatch.setattr(sys.modules[Suite.__module__], "problem_apart", generate)
    share = replace(a_suite(starts=1), share=Share(3, 7))
    assert {run.problem for run in share.runs()} == set(generated)
    assert len(generated) < len(PROBLEMS)


@pytest.mark.parametrize("text", ["0/3", "4/3", "3", "a/b", "1/0", "-1/3", "1/2/3", "", "1.0/2", "²/3"])
def test_wrong_shares(text: str) -> None:
    with pytest.raises(QcqpbenchError, match="share must be a text such as 3/10"):
        Share.of(text)


@pytest.mark.slow
def test_an_empty_share_is_a_file_without_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("run", "smoke", "-p", "parity[m=2]", "-s", "slsqp", "-r", "1", "-j", "1")
    results = [tmp_path / f"{number}.db" for number in (1, 2)]
    codes = [call(capsys, *words, "--share", f"{n}/2", "-o", path)[0] for n, path in enumerate(results, 1)]
    assert codes == [0, 0] and sorted(len(read_rows(path)) for path in results) == [0, 1]
    assert call(capsys, "merge", *results, "-o", tmp_path / "all.db")[0] == 0
    assert len(read_rows(tmp_path / "all.db")) == 1


@pytest.mark.slow
def test_python_runs_a_share(tmp_path: Path) -> None:
    arguments = {"problems": PROBLEMS[:1], "solvers": ["slsqp"], "starts": 6, "jobs": 1}
    parts = [qcqpbench.run(**arguments, share=f"{k}/2", output=tmp_path / f"{k}.db") for k in (1, 2)]  # type: ignore[arg-type]
    assert sorted(row.start for part in parts for row in part) == list(range(6))
    with pytest.raises(QcqpbenchError, match="share must be"):
        qcqpbench.run(**arguments, share="2", output=tmp_path / "x.db")  # type: ignore[arg-type]


@pytest.mark.slow
def test_the_slurm_script_runs_all_shares(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Run the script with the variables that SLURM sets, each task twice: the second time it resumes."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    arguments = [
        "smoke",
        str(tmp_path / "shares"),
        "-p",
        "parity[m=3]",
        "-s",
        "gip[starts=1]",
        "-s",
        "slsqp",
        "-r",
        "3",
    ]
    for task in ("1", "2", "1"):
        variables = {"SLURM_ARRAY_TASK_ID": task, "SLURM_ARRAY_TASK_COUNT": "2", "SLURM_CPUS_PER_TASK": "1"}
        done = subprocess.run(
            ["bash", ROOT / "examples" / "slurm_array.sh", *arguments],
            env=os.environ | variables | {"PATH": path},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    shares = sorted((tmp_path / "shares").iterdir())
    assert [share.name for share in shares] == ["share-1.db", "share-2.db"]
    call(capsys, "merge", *shares, "-o", tmp_path / "all.db")
    expected = Suite.of(["parity[m=3]"], ["gip[starts=1]", "slsqp"], Settings(starts=3, time_limit=10.0)).runs()
    assert sorted(row.key for row in read_rows(tmp_path / "all.db", all_rows=True)) == sorted(
        run.key for run in expected
    )
