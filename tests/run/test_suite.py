import itertools
import math
import os
import warnings
from pathlib import Path
from typing import Any

import pytest

import qcqpbench
from qcqpbench import QcqpbenchError
from qcqpbench.catalog.registry import families, family, solver, solvers
from qcqpbench.catalog.spec import parse
from qcqpbench.run.run_spec import OPTIONS, RunOptionArguments, RunSpec
from qcqpbench.run.suite import Settings, Suite, problem_labels, solver_labels
from qcqpbench.run.suite_file import load_suite, suites

TASK, OTHER = "covariance_perceptron[m=3,p=3]", "covariance_perceptron[m=3,p=4]"
BASE = """
starts = 2

[[problem]]
name = "parity"
m = 3
load = [0.5, 1]

[[solver]]
name = "gip"
"""


def load(tmp_path: Path, text: str) -> Suite:
    (tmp_path / "mine.toml").write_text(text)
    return load_suite(tmp_path / "mine.toml")


def options(run: RunSpec) -> tuple[float, int | None, int, int]:
    return run.time_limit, run.memory_limit_bytes, run.threads, run.start_seed


def listed(suite: Suite) -> list[tuple[str, str, int]]:
    """Return (problem, solver's name, start) of the runs."""
    return [(run.problem, run.solver.partition("[")[0], run.start) for run in suite.runs()]


# --- runs ---


def test_files_are_read_before_the_first_run(tmp_path: Path) -> None:
    """Check also that a generated problem is made only in its turn."""
    qcqpbench.write(qcqpbench.problem(TASK), tmp_path / "a.npz")
    good = [family(OTHER).spec, *Suite.of([str(tmp_path)], ["gip"]).problems]
    (tmp_path / "b.npz").write_bytes(b"nothing")
    with pytest.raises(QcqpbenchError, match=r"b\.npz: must be .*, got a damaged"):
        next(Suite.of([OTHER, str(tmp_path)], ["gip"]).runs())
    (tmp_path / "b.npz").unlink()
    runs = Suite.of([good[0], good[1], "recorded[path=nowhere]"], ["gip"]).runs()
    assert [next(runs).problem, next(runs).problem] == good
    with pytest.raises(QcqpbenchError):
        next(runs)


def test_file_with_a_name_that_is_not_utf8_is_left_out(tmp_path: Path) -> None:
    for name in (b"a.npz", b"b\xff.npz", b"c.npz"):
        qcqpbench.write(qcqpbench.problem(TASK), tmp_path / os.fsdecode(name))
    with pytest.warns(UserWarning, match="must be UTF-8 .*; the file is left out") as warned:
        suite = Suite.of([str(tmp_path)], ["gip"])
    assert len(warned) == 1
    assert suite.problems == (str(tmp_path / "a.npz"), str(tmp_path / "c.npz"))


def test_a_suite_is_a_product(tmp_path: Path) -> None:
    text = BASE.replace('"gip"', '["gip", "slsqp"]').replace("m = 3", "m = [3, 4]\nseed = [0, 7]")
    problems = [
        family(f"parity[m={m},load={load},seed={seed}]").spec
        for m, seed, load in itertools.product((3, 4), (0, 7), (0.5, 1))
    ]
    expected = list(itertools.product(problems, ("gip", "slsqp"), (0, 1)))
    suite = load(tmp_path, text)
    assert listed(suite) == expected
    assert suite.size == len(expected)


def test_a_job_holds_all_settings() -> None:
    suite = Suite.of(
        [TASK],
        ["ipopt[formulation=min_norm]"],
        Settings(starts=2, start_seed=5, time_limit=60, memory_limit_bytes=1_500_000_000, threads=3),
    )
    spec = family(TASK).spec
    ipopt = solver("ipopt[formulation=min_norm]")
    expected = RunSpec(
        problem=spec,
        problem_id=qcqpbench.problem(TASK).id,
        solver=ipopt.spec,
        version=ipopt.identity(),
        formulation="min_norm",
        start=0,
        start_seed=5,
        time_limit=60.0,
        memory_limit_bytes=1_500_000_000,
        threads=3,
    )
    first, second = suite.runs()
    assert first == expected
    assert (second.start, second.problem_id) == (1, expected.problem_id)
    # 60 and 60.0 are the same limit.
    assert isinstance(first.time_limit, float)
    assert next(Suite.of([TASK], ["ipopt"]).runs()).time_limit == math.inf


def test_spellings_of_one_problem_are_one() -> None:
    """Give load=0.5 of 6 synapses and p=3: other specs, the same problem, so the same runs."""
    runs = list(
        Suite.of([TASK, "covariance_perceptron[ m=3, load=0.5 ]"], ["slsqp", "slsqp[formulation=epigraph]"]).runs()
    )
    assert len(runs) == 1


def test_problems_are_made_when_their_turn_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    kind = type(family("parity"))
    real = kind.generate
    monkeypatch.setattr(kind, "generate", lambda self: made.append(self.spec) or real(self))  # type: ignore[func-returns-value]
    suite = Suite.of([f"parity[m={m}]" for m in (2, 3, 4)], ["gip", "slsqp"], Settings(starts=3))
    assert suite.size == 18 and made == []
    runs = suite.runs()
    next(runs)
    assert len(made) == 1
    assert len(list(runs)) == 17
    assert len(made) == 3


def test_a_block_overrides_the_settings(tmp_path: Path) -> None:
    extra = """
    [[solver]]
    name = "ipopt[formulation=min_norm]"
    tol = [1e-6, 1e-8]
    starts = 1
    time_limit = 3
    memory_limit = 0.5
    threads = 2
    seed = 9
    """
    runs = list(load(tmp_path, f"time_limit = 7\n{BASE}{extra}").runs())
    gip = [run for run in runs if run.solver.startswith("gip")]
    ipopt = [run for run in runs if run.solver.startswith("ipopt")]
    assert (len(gip), len(ipopt)) == (2 * 2, 2 * 2)
    assert {(run.time_limit, run.memory_limit_bytes, run.threads, run.start_seed) for run in gip} == {(7.0, None, 1, 0)}
    assert {(run.time_limit, run.memory_limit_bytes, run.threads, run.start_seed) for run in ipopt} == {
        (3.0, 500_000_000, 2, 9)
    }
    assert {run.solver for run in ipopt} == {
        solver(f"ipopt[formulation=min_norm,tol={tol}]").spec for tol in (1e-6, 1e-8)
    }


def test_the_last_block_for_a_solver_counts(tmp_path: Path) -> None:
    suite = load(tmp_path, BASE + '[[solver]]\nname = "gip"\nstarts = 3\ntime_limit = 5\nwhere.load = 1\n')
    specs = [family(f"parity[m=3,load={load}]").spec for load in (0.5, 1)]
    assert listed(suite) == [(specs[0], "gip", k) for k in range(2)] + [(specs[1], "gip", k) for k in range(3)]


@pytest.mark.parametrize("where", ["where.m = [3, 9]", "where = { m = 3 }", 'where.name = "parity"\nwhere.m = 3'])
def test_a_solver_for_some_problems(tmp_path: Path, where: str) -> None:
    text = BASE.replace("m = 3", "m = [3, 4]").replace("starts = 2", "")
    suite = load(tmp_path, f'{text}\n[[solver]]\nname = "slsqp"\n{where}\n')
    assert [problem for problem, name, _ in listed(suite) if name == "slsqp"] == [
        family(f"parity[m=3,load={load}]").spec for load in (0.5, 1)
    ]


def test_a_star_is_every_solver(tmp_path: Path) -> None:
    suite = load(tmp_path, BASE.replace('"gip"', '"*"'))
    assert {name for _, name, _ in listed(suite)} == set(solvers())


def test_solvers_of_tasks_are_left_out_on_qcqps(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="gip accepts only max-margin tasks; it is left out on general QCQPs"):
        runs = listed(Suite.of(["classical_perceptron[m=3]", TASK], ["gip", "slsqp"]))
    assert [name for _, name, _ in runs] == ["slsqp", "gip", "slsqp"]
    with pytest.warns(UserWarning), pytest.raises(QcqpbenchError, match="a suite must have at least one run, got none"):
        list(Suite.of(["classical_perceptron[m=3]"], ["gip"]).runs())
    text = '[[problem]]\nname = "classical_perceptron"\nm = 3\n[[solver]]\nname = "*"\n'
    with warnings.catch_warnings(action="error"):
        names = {name for _, name, _ in listed(load(tmp_path, text))}
    assert "gip" not in names and "ipopt" in names


# --- files of problems ---


def test_files_and_folders(tmp_path: Path) -> None:
    folder = tmp_path / "instances" / "deep"
    folder.mkdir(parents=True)
    for path, spec in ((tmp_path / "instances" / "b.npz", TASK), (folder / "a[1].npz", OTHER)):
        qcqpbench.write(qcqpbench.problem(spec), path)
    (folder / "notes.txt").touch()
    expected = [str(tmp_path / "instances" / "b.npz"), str(folder / "a[1].npz")]
    suite = Suite.of([str(tmp_path / "instances")], ["gip"])
    assert sorted(suite.problems) == sorted(expected)
    assert {run.problem_id for run in suite.runs()} == {qcqpbench.problem(spec).id for spec in (TASK, OTHER)}
    assert [run.problem for run in Suite.of([expected[0]], ["gip"]).runs()] == expected[:1]
    # From a suite file a path is seen from where the file is.
    text = '[[problem]]\nfile = "instances/b.npz"\n[[problem]]\nfile = "instances"\n[[solver]]\nname = "gip"\n'
    suite = load(tmp_path, text)
    assert sorted(suite.problems) == sorted(expected)
    assert suite.size == 2


@pytest.mark.parametrize(
    ("problems", "message"),
    [
        (["none.npz"], "none.npz: no such file or folder"),
        (["empty"], "empty: must hold at least one problem file, got none; allowed: .npz"),
        (["nothing"], "unknown problem 'nothing'"),
        (["parity[m=1]"], "m must be at least 2"),
        ([], "problems must hold at least one entry, got none"),
    ],
)
def test_wrong_problems(problems: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "parity").mkdir()
    with pytest.raises(QcqpbenchError, match=message.replace("[", r"\[")):
        Suite.of(problems, ["gip"])
    assert Suite.of(["parity"], ["gip"]).problems == (family("parity").spec,)


@pytest.mark.parametrize(
    "wrong",
    [{"starts": 0}, {"starts": 1.5}, {"starts": True}, {"start_seed": -1}, {"time_limit": 0}, {"time_limit": math.nan},
     {"memory_limit_bytes": -1}, {"memory_limit_bytes": float("inf")}, {"threads": 0}, {"time_limit": "1"}],
)  # fmt: skip
def test_wrong_settings(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(QcqpbenchError, match=f"^{name} must be a .*, got "):
        Settings(**wrong)


# --- mistakes in a suite file: one line with the file, the line and the requirement ---

MISTAKES = [
    (BASE + "m 3\n", 11, "must be TOML: "),
    (BASE + 'name = "again"\n', 11, "must be TOML: "),
    (BASE + 'tol = [1e-3,\n', 11, "must be TOML: "),
    (BASE.replace("starts", "strats"), 2, "unknown key 'strats'; did you mean 'starts'? allowed: about, memory_limit"),
    (BASE.replace("starts = 2", "starts = 0"), 2, "starts must be a whole number, at least 1, got 0"),
    (BASE.replace("starts = 2", 'starts = "2"'), 2, "starts must be a whole number, at least 1, got '2'"),
    (BASE.replace("starts = 2", "time_limit = false"), 2, "time_limit must be a positive number of seconds, got False"),
    (BASE.replace("starts = 2", "about = 2"), 2, "about must be text, got 2"),
    (BASE.replace('"parity"', '"party"'), 5, "unknown problem 'party'; did you mean 'parity'? allowed: classical_perc"),
    (BASE.replace('"parity"', '"parity[m=3"'), 5, "a spec must look like"),
    (BASE.replace('"parity"', '"parity[m=3]"'), 6, "m must be given once, got m=3 in the spec too"),
    (BASE.replace('"parity"', "3"), 5, "a [[problem]] must be a spec or a list of specs, got 3; allowed: classical_"),
    (BASE.replace('name = "parity"', ""), 4, "name of a [[problem]] must be a spec or a list of specs, got None"),
    (BASE.replace('"parity"', "[]"), 5, "name of a [[problem]] must be a spec or a list of specs, got []"),
    (BASE.replace("m = 3", "k = 3"), 6, "unknown key of parity 'k'; allowed: file, load, m, n, name, p, seed"),
    (BASE.replace("m = 3", "m = 1"), 6, "m must be at least 2 for covariances, got 1"),
    (BASE.replace("m = 3", 'm = "many"'), 6, "m must be a whole number, got many"),
    (BASE.replace("m = 3", "m = { a = 3 }"), 6, "m must be text, a number, or a list of these, got {'a': 3}"),
    (BASE.replace("[0.5, 1]", "[]"), 7, "load must have at least one value, got []"),
    (BASE.replace("[0.5, 1]", "[0.5, -1]"), 7, "load must be positive and finite (patterns per synapse), got -1.0"),
    (BASE.replace("[0.5, 1]", "[0.5, [1]]"), 7, "load must be text, a number, or a list of these, got [0.5, [1]]"),
    (BASE.replace('"gip"', '"gyp"'), 10, "unknown solver 'gyp'; did you mean 'gip'? allowed: branch_and_bound"),
    (BASE.replace('"gip"', '["gip", "gyp"]'), 10, "unknown solver 'gyp'"),
    (BASE + "start = 3\n", 11, "unknown key of gip 'start'; did you mean 'starts'? allowed: "),
    (BASE + "starts = -3\n", 11, "starts must be a whole number, at least 1, got -3"),
    (BASE + "memory_limit = []\n", 11, "memory_limit must be a finite positive number of GB, got []"),
    (BASE + 'precision = "single"\n', 11, "precision must be mixed|double, got single"),
    (BASE + "where = 3\n", 11, "where must name parameters, such as where.m = [25, 50], got 3"),
    (BASE + "where.k = 3\n", 11, "unknown parameter of the problems 'k'; allowed: load, m, n, name, seed"),
    (BASE + "where.m = 99\n", 11, "where must match one of the problems, which have m: 3, got {'m': [99]}"),
    (BASE + "where = { m = 3, load = 7 }\n", 11, "which have m: 3; load: 0.5, 1.0, got {'m': [3], 'load': [7]}"),
    (BASE + '\n[[solver]]\nname = "slsqp"\nftol = 0\n', 14, "ftol must be a positive number, got 0.0"),
    (BASE + '\n[[problem]]\nfile = "none"\n', 13, "none: no such file or folder"),
    (BASE + '\n[[problem]]\nfile = 3\n', 13, "file must be the path of a file or a folder, got 3"),
    (BASE + '\n[[problem]]\nm = 3\nfile = "none"\n', 14, "file must be the only key of its block"),
    (BASE.replace("[[solver]]", "[solver]"), 9, "solver must be given by blocks that begin with [[solver]]"),
    (BASE.replace("[[solver]]", "[[solvers]]"), 9, "unknown key 'solvers'; did you mean 'solver'?"),
    ("", 1, "a suite must have at least one block that begins with [[problem]]"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line", "message"), MISTAKES)
def test_a_mistake_is_one_line(tmp_path: Path, text: str, line: int, message: str) -> None:
    with pytest.raises(QcqpbenchError) as caught:
        load(tmp_path, text)
    said = str(caught.value)
    assert said.startswith(f"{tmp_path / 'mine.toml'}:{line}: "), said
    assert message in said
    assert "\n" not in said


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(QcqpbenchError, match=r"none\.toml: cannot be read: No such file"):
        load_suite(tmp_path / "none.toml")
    (tmp_path / "a.toml").write_bytes(b'about = "\xff"')
    with pytest.raises(QcqpbenchError, match=r"a\.toml: must be UTF-8 text"):
        load_suite(tmp_path / "a.toml")
    (tmp_path / "b.toml").mkdir()
    with pytest.raises(QcqpbenchError, match="cannot be read: Is a directory"):
        load_suite(tmp_path / "b.toml")
    with pytest.raises(QcqpbenchError, match=r"unknown suite 'smok'; did you mean 'smoke'\? allowed: .*paper"):
        load_suite("smok")


# --- the suites that ship ---


def test_shipped_suites_have_time_limits() -> None:
    assert suites() == [
        "best_known",
        "breadth",
        "capacity",
        "default",
        "global",
        "paper",
        "power",
        "proved",
        "scaling",
        "smoke",
    ]
    for name in suites():
        suite = load_suite(name)
        assert suite.about and suite.name == name
        # A run without an end would keep a suite from ever being done.
        assert all(entry.settings.time_limit < math.inf for entry in suite.entries)


@pytest.mark.parametrize("name", ["smoke", "default", "breadth"])
def test_small_suites_hold_every_solver(name: str) -> None:
    assert {entry.solver.name for entry in load_suite(name).entries} == set(solvers())


def test_the_suite_breadth_holds_every_shipped_family_without_a_folder() -> None:
    names = {parse(problem)[0] for problem in load_suite("breadth").problems}
    assert names == {name for name in families() if name != "library"}


def test_the_suite_power_has_ten_starts_on_the_small_networks() -> None:
    runs = [(run.problem.split("=")[-1], run.start) for run in load_suite("power").runs() if "ipopt" in run.solver]
    assert ("case57]", 9) in runs and ("case118]", 0) in runs and ("case118]", 1) not in runs
    assert len(runs) == 7 * 10 + 2


def test_the_paper_suite_has_the_instances_of_the_papers_figure() -> None:
    suite = load_suite("paper")
    parameters: list[dict[str, Any]] = [family(problem).parameters for problem in suite.problems]
    assert {(values["m"], values["n"], values["f"], values["c"], values["ensemble"]) for values in parameters} == {
        (100, 2, 0.2, 0.5, "paper")
    }
    loads = {values["load"] for values in parameters}
    assert min(loads) == 0.25 and max(loads) == 4
    assert sorted((values["load"], values["seed"]) for values in parameters) == sorted(
        itertools.product(loads, range(5))
    )
    starts = {(entry.solver.name, entry.solver.formulation): entry.settings.starts for entry in suite.entries}
    assert starts["ipopt", "min_norm"] == 10
    assert starts["soft_margin", None] == 10
    assert starts["qcqp", "min_norm"] == 5


# --- labels ---


def test_labels_of_problems_denote_the_same_problems() -> None:
    specs = [
        family(f"covariance_perceptron[m=20,load={load},seed={seed}]").spec for load in (1, 2.5) for seed in (0, 3)
    ]
    labels = problem_labels([*specs, "f/one.npz"])
    assert [family(labels[spec]).spec for spec in specs] == specs
    assert labels[specs[-1]] == "covariance_perceptron[m=20,c=0.5,load=2.5,seed=3]"
    assert labels["f/one.npz"] == "f/one.npz"
    # A default is spelled out if another problem has another value.
    assert labels[specs[0]] == "covariance_perceptron[m=20,c=0.5,load=1.0,seed=0]"


def test_labels_of_solvers_denote_the_same_solvers() -> None:
    specs = [solver(text).spec for text in ("gip", "ipopt", "ipopt[formulation=min_norm]")]
    labels = solver_labels(specs)
    assert [solver(label).spec for label in labels.values()] == specs
    assert labels[specs[0]] == "gip"
    assert "formulation=epigraph" in labels[specs[1]]


def test_labels_of_unknown_names_keep_all_parameters() -> None:
    assert problem_labels(["a[m=1]"]) == solver_labels(["a[m=1]"]) == {"a[m=1]": "a[m=1]"}


def test_arguments_of_run_are_the_run_options() -> None:
    assert RunOptionArguments.__annotations__.keys() == OPTIONS.keys()
