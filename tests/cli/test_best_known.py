"""The progress of `best-known check`; tests/catalog tests what the command checks."""

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
