"""Check the commands convert, solve and run with files of every format."""

from pathlib import Path

import pytest

from qcqpbench import QCQP, formulation, problem, read, write
from qcqpbench.cli.main import main
from qcqpbench.problem.formats.by_suffix import FORMATS
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.results.store import Store
from tests.support.sample_problems import TINY

TASK = "covariance_perceptron[m=3,p=3]"
# With a number as constant, its minimum is −√2 + the number.
DISK = QCQP(
    q=(1.0, 1.0),
    quadratic_constraints=[(((1.0, 0.0), (0.0, 1.0)), None, -float("inf"), 1.0)],
    x_lower=[-2, -2],
    x_upper=[2, 2],
)


def test_convert_from_each_format_to_the_next(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = TASK
    for form, suffix in ((["--formulation", "epigraph"], ".npz"), *(([], suffix) for suffix in [*FORMATS, ".npz"])):
        target = str(tmp_path / f"a{suffix}")
        assert main(["convert", source, target, *form]) == 0
        source = target
    task = problem(TASK)
    assert isinstance(task, MaxMargin)
    expected = formulation("epigraph").encode(task).id
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(FORMATS) + 2
    assert all(line.endswith(f"id {expected}") for line in lines)
    assert read(source).id == expected


@pytest.mark.parametrize("suffix", [suffix for suffix in FORMATS if suffix != ".npz"])
def test_converting_a_task_requires_a_formulation(
    tmp_path: Path, suffix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["convert", TASK, str(tmp_path / f"a{suffix}")]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "give a formulation, as in convert --formulation epigraph" in err
    assert not list(tmp_path.iterdir())


def test_solve_reads_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(DISK, tmp_path / "disk.nl.gz")
    assert main(["solve", str(tmp_path / "disk.nl.gz"), "-s", "slsqp"]) == 0
    assert "-1.4142" in capsys.readouterr().out


def test_run_reads_all_files_of_a_folder(tmp_path: Path) -> None:
    """Use files of every format, also in a folder inside the folder, and other files."""
    (folder := tmp_path / "instances" / "inner").mkdir(parents=True)
    for number, suffix in enumerate(FORMATS):
        place = folder if number % 2 else folder.parent
        write(DISK.replace(constant=float(number)), place / f"disk{number}{suffix}")
    for name in ("disk.sol", "index.csv", "README", "a.gz", "notes.nl.txt"):
        (folder / name).write_text("nothing")
    output = str(tmp_path / "a.db")
    arguments = ["run", "-p", str(folder.parent), "-s", "slsqp", "--timeout", "60", "-j", "1", "-o", output]
    assert main(arguments) == 0
    with Store(output) as store:
        objectives = {Path(row.problem).name: row.objective for row in store.rows()}
    expected = {f"disk{number}{suffix}": number - 2**0.5 for number, suffix in enumerate(FORMATS)}
    assert objectives == pytest.approx(expected, abs=1e-6)


def test_wrong_file_is_an_error_of_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(TINY["range"], tmp_path / "a.qplib")
    (tmp_path / "a.qplib").write_text((tmp_path / "a.qplib").read_text().replace("minimize", "best"))
    for command in (
        ["solve", str(tmp_path / "a.qplib"), "-s", "slsqp"],
        ["convert", str(tmp_path / "a.qplib"), "b.nl"],
    ):
        assert main(command) == 2
        err = capsys.readouterr().err
        assert err == f"qcqpbench: {tmp_path}/a.qplib:3: expected minimize or maximize, got 'best'\n"
