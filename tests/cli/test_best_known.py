"""Output of `best-known list`, progress of `best-known check`; tests/catalog tests what the command checks."""

import json
from pathlib import Path

import pytest

from qcqpbench.catalog.best_known import shipped_path
from qcqpbench.cli.main import main
from tests.support.terminals import on_terminal, without_codes


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Return a list of two instances."""
    path = tmp_path / "small.csv"
    path.write_text("".join(shipped_path().read_text().splitlines(keepends=True)[:3]))
    return path


def test_check_prints_a_line_for_each_instance(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["best-known", "check", str(small)]) == 0
    out, err = capsys.readouterr()
    assert out == "small.csv: 2 instances recomputed: all margins and bounds agree\n"
    assert [line.partition("[m=10,")[0] for line in err.splitlines()] == [
        "[1/2] covariance_perceptron",
        "[2/2] covariance_perceptron",
    ]


@pytest.mark.slow
def test_check_shows_a_bar_on_a_terminal(small: Path) -> None:
    """Check that the bar is erased at the end."""
    code, text = on_terminal("best-known", "check", str(small), columns=150)
    plain = without_codes(text)
    assert code == 0 and "2/2" in plain and "covariance_perceptron[m=10," in plain
    last = without_codes(text[text.rindex("\x1b[2K") :])
    assert last.strip() == "small.csv: 2 instances recomputed: all margins and bounds agree"


def test_list_measures_margins_against_full_rsb(capsys: pytest.CaptureFixture[str]) -> None:
    """Compare with the values of both theories at a load of 2, computed by an independent program."""
    spec = "covariance_perceptron[m=100,n=2,f=0.2,c=0.5,load=2.0,ensemble=paper,seed=0]"
    assert main(["best-known", "list", "--json"]) == 0
    (record,) = (record for record in json.loads(capsys.readouterr().out) if record["problem"] == spec)
    assert record["kappa_bar_theory"] == pytest.approx(0.39376, abs=5e-5)
    assert record["kappa_bar_rs"] == pytest.approx(0.47066, abs=5e-5)
    assert record["gap_to_theory"] == pytest.approx(0.39376 - record["kappa_bar"], abs=5e-5)
    assert main(["best-known"]) == 0
    head, *lines, legend = capsys.readouterr().out.splitlines()
    assert head.split() == [
        *("problem", "margin", "kappa_bar", "kappa_bar_theory", "gap_to_theory", "bound", "gap", "solver")
    ]
    (line,) = (line for line in lines if "m=100,n=2,c=0.5,load=2.0,ensemble=paper,seed=0]" in line)
    assert line.split()[3:5] == ["0.39376", f"{record['gap_to_theory']:.5g}"]
    assert "full replica-symmetry breaking" in legend
