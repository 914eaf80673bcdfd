import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import qcqpbench
from qcqpbench import QCQP, MaxMargin, QcqpbenchError, formulation, problem, read, theory, write
from qcqpbench.catalog.registry import families, solver
from qcqpbench.catalog.status import Availability
from qcqpbench.cli.main import COMMANDS, main

SCRIPT = Path(sys.executable).with_name("qcqpbench")
SMALL = "covariance_perceptron[m=4,p=3]"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([SCRIPT, *arguments], capture_output=True, text=True, check=False, timeout=60)


def test_command_table_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    """Check the table by which only the module of the requested command is imported."""
    with pytest.raises(SystemExit):
        main(["--help"])
    text = capsys.readouterr().out
    defined = {line.split()[0] for line in text.splitlines() if line.startswith("    ") and line[4] not in " -"}
    assert defined == {command for commands in COMMANDS.values() for command in commands}
    for command in defined:
        with pytest.raises(SystemExit):
            main([command, "--help"])
        assert f"usage: qcqpbench {command}" in capsys.readouterr().out


def test_list_names_families_and_parameters(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "problems"]) == 0
    text = capsys.readouterr().out
    for word in ("covariance_perceptron", "classical_perceptron", "parity", "ensemble", "paper|psd|gaussian"):
        assert word in text


def test_list_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "problems", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert list(rows) == list(families())
    assert rows["covariance_perceptron"]["parameters"]["m"] == {"is": "whole number", "default": 100}
    assert rows["library"]["parameters"]["path"] == {"is": "text", "default": None}
    assert all(row["about"] for row in rows.values())


@pytest.mark.solver
def test_list_gives_the_reason_for_each_value_that_cannot_run(capsys: pytest.CaptureFixture[str]) -> None:
    if solver("casadi[plugin=knitro]").availability()[0] is Availability.AVAILABLE:
        pytest.skip("KNITRO is installed")
    if solver("casadi").availability()[0] is not Availability.AVAILABLE:
        pytest.skip("CasADi is not installed")
    assert main(["list", "solvers"]) == 0
    lines = capsys.readouterr().out.splitlines()
    reason = "the plug-in knitro of CasADi does not find its solver: install knitro"
    assert [line for line in lines if "knitro]" in line] == [f"{'':14}casadi[plugin=knitro]: {reason}"]
    assert not any("plugin=ipopt]" in line for line in lines)


def theory_rows(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, float]]:
    assert main(["theory", "--json", *arguments]) == 0
    rows: list[dict[str, float]] = json.loads(capsys.readouterr().out)
    return rows


def test_theory_for_loads(capsys: pytest.CaptureFixture[str]) -> None:
    """Compare with values that were computed by an independent program, and the share and κ_AT to three digits."""
    rows = theory_rows(capsys, "--load", "0.5", "1", "4", "--m", "50")
    assert [row["p"] for row in rows] == [50, 100, 400]
    np.testing.assert_allclose([row["kappa_bar_rs"] for row in rows], [1.7355777028, 1.0343140614, 0], atol=1e-9)
    np.testing.assert_allclose([row["kappa_bar_1rsb_q0"] for row in rows[:2]], [1.72065, 0.99700], atol=5e-5)
    np.testing.assert_allclose([row["kappa_bar_theory"] for row in rows[:2]], [1.71978, 0.99501], atol=5e-5)
    np.testing.assert_allclose([row["active_share"] for row in rows], [0.465, 0.742, 1], atol=5e-4)
    np.testing.assert_allclose([row["kappa_at"] for row in rows[:2]], [0.303, -0.146], atol=5e-4)
    bits = 50 * 49 / 2 + 1
    np.testing.assert_allclose([row["information"] for row in rows], [50 * bits, 100 * bits, 400 * bits])
    np.testing.assert_allclose([row["information_per_synapse"] for row in rows], [bits / 2, bits, 4 * bits])


def test_theory_for_pattern_counts_and_margins(capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = theory_rows(capsys, "--p", "200")
    assert [row["load"], row["kappa_bar_rs"]] == pytest.approx([1, 1.0343140614])
    (row,) = theory_rows(capsys, "--kappa-bar", "0", "--n", "5", "--m", "30")
    assert [row["kappa_bar"], row["p_rs"], row["load_rs"]] == pytest.approx([0, 60, 60 / 150])
    # The capacity of n = 2 outputs is the load 3.3645; with q_0 = 0 it is 3.3810. p is proportional to m/(n−1).
    assert [row["load"], row["p"]] == pytest.approx([3.3645 / 10, 3.3645 * 15], rel=1e-4)
    assert [row["load_1rsb_q0"], row["p_1rsb_q0"]] == pytest.approx([3.3810 / 10, 3.3810 * 15], rel=1e-4)
    (row,) = theory_rows(capsys, "--kappa-bar", "-1.5", "--f", "0.2")
    bits = theory.covariance_information(-1.5, 100, 2, 0.2)
    assert row["information"] / bits == pytest.approx(row["p"] / row["p_rs"])


def test_theory_of_margins_is_the_inverse_of_theory_of_loads(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (("--n", "3"), ("--classical",)):
        (row,) = theory_rows(capsys, "--load", "2.5", *arguments)
        for end in ("rs", "theory", *(["1rsb_q0"] if "--n" in arguments else [])):
            (inverse,) = theory_rows(capsys, "--kappa-bar", str(row[f"kappa_bar_{end}"]), *arguments)
            name = "load" if end == "theory" else f"load_{end}"
            assert inverse[name] == pytest.approx(2.5, rel=1e-5)


def test_theory_for_the_classical_perceptron(capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = theory_rows(capsys, "--classical", "--kappa-bar", "0", "--n", "1", "--m", "30")
    assert [row["p"], row["p_rs"], row["load"], row["information"]] == pytest.approx([60, 60, 2, 60 * 31])
    (row,) = theory_rows(capsys, "--classical", "--kappa-bar", "-1.5", "--m", "1")
    assert row["p"] == pytest.approx(36.37, abs=5e-3) and row["p_rs"] > 37


def test_theory_prints_a_table_and_explains_its_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["theory"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + 10 + 5
    assert lines[1].split()[:5] == ["load", "p", "kappa_bar_rs", "kappa_bar_1rsb_q0", "kappa_bar_theory"]
    assert lines[5].split()[:5] == ["1", "200", "1.03431", "0.997004", "0.995012"]
    assert lines[12].startswith("kappa_bar_rs: replica symmetry")
    assert lines[14].startswith("kappa_bar_theory: full replica-symmetry breaking")
    assert main(["theory", "--classical", "--kappa-bar", "0"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines[3:]] == ["load_rs, p_rs", "load, p"]


def test_convert_writes_the_problem_of_a_spec(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.npz"
    assert main(["convert", SMALL, str(path)]) == 0
    task = read(path)
    assert isinstance(task, MaxMargin)
    assert task.id == problem(SMALL).id
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert f"{path}: MaxMargin[p=3,m=4,n=2," in out
    assert task.id in out


@pytest.mark.parametrize("name", ["min_norm", "epigraph"])
def test_convert_writes_a_file_in_a_formulation(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    task = problem(SMALL)
    assert isinstance(task, MaxMargin)
    source, target = tmp_path / "a.npz", tmp_path / "b.npz"
    write(task, source)
    assert main(["convert", str(source), str(target), "--formulation", name]) == 0
    encoded = read(target)
    assert isinstance(encoded, QCQP)
    assert encoded.id == formulation(name).encode(task).id
    assert f"QCQP[variables={encoded.n_variables},constraints={encoded.n_constraints}," in capsys.readouterr().out


def test_version_and_help_exit_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    for word in ("--version", "--help"):
        with pytest.raises(SystemExit) as caught:
            main([word])
        assert caught.value.code == 0
    assert f"qcqpbench {qcqpbench.__version__}\n" in capsys.readouterr().out


@pytest.mark.parametrize("words", [[], ["--debug"]])
def test_without_a_command_the_help_is_printed(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Compare with --help; the exit code is that of wrong usage."""
    assert main(words) == 2
    out, err = capsys.readouterr()
    with pytest.raises(SystemExit):
        main(["--help"])
    assert (out, err) == (capsys.readouterr().out, "")


ASCII_ENVIRONMENTS = [
    {"PYTHONIOENCODING": "ascii"},
    {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
]


@pytest.mark.parametrize("environment", ASCII_ENVIRONMENTS)
@pytest.mark.parametrize(
    ("words", "code", "replaced"),
    [
        ("theory --help", 0, r"\u03ba"),
        ("list problems", 0, ""),
        ("solve κ -s gip", 2, r"\u2026"),
        ("check slsqp --case annulus", 0, r"\u2264"),
        ("run -p parity[m=2,p=2] -s slsqp", 0, r"\u2192"),
    ],
)
def test_output_that_is_ascii_has_replaced_characters(
    words: str, code: int, replaced: str, environment: dict[str, str], tmp_path: Path
) -> None:
    done = subprocess.run(
        [SCRIPT, *words.split()],
        capture_output=True,
        check=False,
        timeout=60,
        cwd=tmp_path,
        env=os.environ | environment,
    )
    text = (done.stdout + done.stderr).decode("ascii")
    assert done.returncode == code and "Traceback" not in text and replaced in text


def test_the_help_does_not_import_rich() -> None:
    program = "import sys; from qcqpbench.cli.main import main; code = main([]); assert 'rich' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL).returncode == 0


BAD = [
    ("invalid choice: 'dance'", ["dance"]),
    ("invalid choice: 'things'", ["list", "things"]),
    ("unrecognized arguments: --xyz", ["list", "problems", "--xyz"]),
    ("m must be at least 2 for covariances, got 1", ["convert", "covariance_perceptron[m=1]", "OUT"]),
    ("p must be at least 1, got 0", ["convert", "covariance_perceptron[p=0]", "OUT"]),
    (
        "load must be positive and finite (patterns per synapse), got -1.0",
        ["convert", "covariance_perceptron[load=-1]", "OUT"],
    ),
    ("f must be more than 0 and at most 1, got 1.5", ["convert", "covariance_perceptron[f=1.5]", "OUT"]),
    ("exactly one of load and p must be given, got both", ["convert", "covariance_perceptron[load=1,p=3]", "OUT"]),
    ("unknown parameter of covariance_perceptron 'patterns'", ["convert", "covariance_perceptron[patterns=3]", "OUT"]),
    ("m must be a whole number, got many", ["convert", "parity[m=many]", "OUT"]),
    ("did you mean 'covariance_perceptron'?", ["convert", "covariance_perceptrn", "OUT"]),
    (
        "the patterns must fit into memory and be under 1 TiB, got 1.6e+13 GB: make m, n or p smaller",
        ["convert", "covariance_perceptron[m=10000000]", "OUT"],
    ),
    ("must fit into memory", ["convert", "parity[m=10000000,p=10000000000000]", "OUT"]),
    ("must fit into memory", ["convert", "classical_perceptron[m=1000000000000]", "OUT"]),
    (
        "a spec must look like name[parameter=value,…], got 'covariance_perceptron[m=3'",
        ["convert", "covariance_perceptron[m=3", "OUT"],
    ),
    ("missing.npz: no such file", ["convert", "missing.npz", "OUT"]),
    ("missing.xyz: unknown file format '.xyz'; allowed: .npz, .qplib, ", ["convert", "missing.xyz", "OUT"]),
    ("problem.txt: unknown file format '.txt'; allowed: .npz, .qplib, ", ["solve", "problem.txt", "-s", "gip"]),
    ("missing.npz: no such file", ["solve", "missing.npz", "-s", "gip"]),
    ("cannot be written: No such file or directory", ["convert", SMALL, "none/a.npz"]),
    ("cannot be written: Not a directory", ["convert", SMALL, "file/a.npz"]),
    ("cannot be written: Is a directory", ["convert", SMALL, "folder.npz"]),
    ("unknown file format '.txt'; allowed: .npz", ["convert", SMALL, "a.txt"]),
    ("invalid choice: 'dual'", ["convert", SMALL, "OUT", "--formulation", "dual"]),
    (
        "IN must be a max-margin task with --formulation, got the general QCQP classical_perceptron[m=3]",
        ["convert", "classical_perceptron[m=3]", "OUT", "--formulation", "epigraph"],
    ),
    ("file.npz: must be a qcqpbench problem, got a damaged or different file", ["convert", "file.npz", "OUT"]),
    ("ensemble must be paper|psd|gaussian, got a b", ["convert", 'covariance_perceptron[ensemble="a\nb"]', "OUT"]),
    ("--m must be at least 1, got 0", ["theory", "--m", "0"]),
    ("n must be at least 2 for covariances, got 1", ["theory", "--n", "1"]),
    ("p must be positive and finite, got [0.]", ["theory", "--p", "0"]),
    ("load", ["theory", "--load", "-1"]),
    ("--load must be a finite positive number, got inf", ["theory", "--load", "inf"]),
    ("p(n-1)/(2m) must be from 0.00125 to 599 for rsb='full', got 1000", ["theory", "--load", "1000"]),
    ("kappa_bar must be from -2.5 to 40 for rsb='full', got -5", ["theory", "--kappa-bar=-5"]),
    ("f must be from 0 to 1, got 2.0", ["theory", "--f", "2"]),
    ("kappa_bar must be a number, got NaN", ["theory", "--kappa-bar", "nan"]),
    ("not allowed with argument", ["theory", "--load", "1", "--p", "3"]),
    ("invalid int value: '1.5'", ["theory", "--m", "1.5"]),
]


@pytest.mark.parametrize(("message", "arguments"), BAD)
def test_wrong_usage_is_one_line(
    message: str,
    arguments: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.npz").mkdir()
    for name in ("file", "file.npz"):
        (tmp_path / name).touch()
    assert main([word.replace("OUT", "out.npz") for word in arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("qcqpbench: ")
    assert err.endswith("\n")
    assert err.count("\n") == 1
    assert message in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "file.npz", "folder.npz"]


def test_debug_shows_the_traceback() -> None:
    with pytest.raises(QcqpbenchError, match="m must be at least 2 for covariances, got 1"):
        main(["--debug", "convert", "covariance_perceptron[m=1]", "out.npz"])


@pytest.mark.parametrize(
    "arguments",
    [
        ("convert", "covariance_perceptron[m=1]", "/tmp/a.npz"),
        ("convert", SMALL, "/no/where.npz"),
        ("theory", "--m", "x"),
    ],
)
def test_the_installed_command_fails_in_one_line(arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("qcqpbench: ")
    assert done.stderr.count("\n") == 1


def test_the_installed_command_writes_a_problem(tmp_path: Path) -> None:
    done = run("convert", SMALL, str(tmp_path / "a.npz"))
    assert (done.returncode, done.stderr) == (0, "")
    assert read(tmp_path / "a.npz").id in done.stdout


def test_a_closed_pipe_is_no_error() -> None:
    """Close the pipe as `qcqpbench list problems | head -0` does: neither an error nor a traceback."""
    with subprocess.Popen([SCRIPT, "list", "problems"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 0
