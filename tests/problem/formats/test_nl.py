import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from qcqpbench import QCQP, QcqpbenchError, read, write
from qcqpbench.solvers._pyomo_model import load_pyomo, pyomo_model
from tests.support.sample_problems import TINY, assert_same, larger, points, qcqps, tame

CASES = {**TINY, "epigraph": larger("epigraph"), "min_norm": larger("min_norm")}

# As AMPL writes it: min (x0 + 2 x1)² / 4 − x1 x2 + 5, −1 ≤ −(2 x0 x2 − d) + 3 ≤ 4, x1 ≥ 1 with d = x0 + x1² + 7 x2.
FILE = """g3 1 1 0	# problem by hand
 3 2 1 1 0 0	# vars, constraints, objectives, ranges, eqns
 1 1	# nonlinear constraints, objectives
 0 0	# network constraints: nonlinear, linear
 3 3 3	# nonlinear vars in constraints, objectives, both
 0 0 0 1	# linear network variables; functions; arith, flags
 0 0 0 0 0	# discrete variables: binary, integer, nonlinear (b,c,o)
 4 3	# nonzeros in Jacobian, gradients
 0 0	# max name lengths: constraints, variables
 0 1 0 0 0	# common exprs: b,c,o,c1,o1
V3 2 0	#d
0 1
2 7
o5	#^
v1	#x[2]
n2
C0	#curved
o0	# +
o16	#-
o1	# -
o2	#*
n2
o2
v0
v2
v3
n3
C1	#straight
n0
O0 0	#objective
o54	#sumlist
3
o3	#/
o5
o0
v0
o2
n2
v1
n2
n4
o16
o2
v1
v2
n5
x1
1 0.5
r
0 -1 4
2 1
b
3
2 0
0 -1.5 2e0
k2
1
3
J0 3
0 0
1 0
2 0
J1 1
1 1
G0 3
0 0
1 0
2 0
"""


@pytest.fixture
def asl() -> Any:
    """Return a function that reads a file with PyNumero and AMPL's own library."""
    pytest.importorskip("pyomo.environ")
    with load_pyomo():
        asl = pytest.importorskip("pyomo.contrib.pynumero.asl")
        if not asl.AmplInterface.available():
            pytest.skip("PyNumero has no ASL: tools/pynumero.sh")
        from pyomo.contrib.pynumero.interfaces.ampl_nlp import AslNLP  # noqa: PLC0415

        return lambda path: AslNLP(str(path))


def orders(path: Path, case: QCQP) -> list[NDArray[np.int64]]:
    """Return the places in the problem of the variables and constraints of the file."""
    places = [np.arange(case.n_variables), np.arange(case.n_constraints)]
    for kind, entries in re.findall(r"^S([01]) \d+ qcqpbench_order\n((?:\d+ \d+\n)+)", path.read_text(), re.M):
        k, original = np.array(entries.split(), dtype=np.int64).reshape(-1, 2).T
        places[int(kind)][k] = original
    return places


def assert_agree(case: QCQP, nlp: Any, x_order: NDArray[np.int64], order: NDArray[np.int64]) -> None:
    """Compare with PyNumero, which minimizes, and moves the right sides of equations to the left."""
    sign = -1 if case.sense == "maximize" else 1
    shift = np.where(case.lower == case.upper, case.lower, 0.0)
    np.testing.assert_array_equal(nlp.primals_lb(), case.x_lower[x_order])
    np.testing.assert_array_equal(nlp.primals_ub(), case.x_upper[x_order])
    for x in points(case):
        nlp.set_primals(x[x_order])
        close(nlp.evaluate_objective(), sign * case.objective(x))
        close(nlp.evaluate_grad_objective(), sign * case.gradient(x)[x_order])
        if case.n_constraints:
            np.testing.assert_array_equal(nlp.constraints_lb(), (case.lower - shift)[order])
            np.testing.assert_array_equal(nlp.constraints_ub(), (case.upper - shift)[order])
            close(nlp.evaluate_constraints(), (case.values(x) - shift)[order])
            close(nlp.evaluate_jacobian().toarray(), case.jacobian(x).toarray()[order][:, x_order])
            multipliers = np.arange(1.0, 1 + case.n_constraints)
            nlp.set_duals(multipliers[order])
            nlp.set_obj_factor(sign * 1.0)
            hessian = case.hessian(multipliers, 1.0).toarray()[x_order][:, x_order]
            close(nlp.evaluate_hessian_lag().toarray(), hessian)


def close(actual: Any, expected: Any) -> None:
    np.testing.assert_allclose(actual, expected, rtol=1e-11, atol=1e-9)


def refused(path: Path) -> str:
    with pytest.raises(QcqpbenchError) as caught:
        read(path)
    return str(caught.value)


@given(qcqps())
def test_problem_is_read_back_to_the_last_bit(tmp_path_factory: pytest.TempPathFactory, first: QCQP) -> None:
    path = tmp_path_factory.getbasetemp() / "round_trip.nl"
    write(first, path)
    second = read(path)
    assert_same(first, second)
    assert isinstance(second, QCQP)
    assert (second.start is None) == (first.start is None)
    if first.start is not None:
        np.testing.assert_array_equal(second.start, first.start)


@pytest.mark.parametrize("suffix", [".nl", ".nl.gz"])
@pytest.mark.parametrize("name", CASES)
def test_samples_are_read_back(tmp_path: Path, name: str, suffix: str) -> None:
    write(CASES[name], tmp_path / f"a{suffix}")
    assert_same(CASES[name], read(tmp_path / f"a{suffix}"))


@pytest.mark.parametrize("name", CASES)
def test_ampl_reads_the_same_problem(tmp_path: Path, name: str, asl: Any) -> None:
    write(CASES[name], path := tmp_path / "a.nl")
    nlp = asl(path)
    assert_agree(CASES[name], nlp, *orders(path, CASES[name]))
    start = CASES[name].start
    if start is not None:
        np.testing.assert_array_equal(nlp.init_primals(), start[orders(path, CASES[name])[0]])


def test_ampl_reads_the_same_random_problems(tmp_path: Path, asl: Any) -> None:
    @settings(max_examples=30)
    @given(qcqps(tame, tame))
    def check(case: QCQP) -> None:
        write(case, path := tmp_path / "a.nl")
        assert_agree(case, asl(path), *orders(path, case))

    check()


def scip_accepts(case: QCQP, x: NDArray[np.float64], path: Path, off: float = 0.0, off_objective: float = 0.0) -> bool:
    """Return whether SCIP finds that the functions have the values of qcqpbench at x, shifted by some amounts.

    SCIP does not return values, but checks constraints. It reads a nonlinear objective as nlobjvar ≥ f_0, or ≤.
    """
    scip = pytest.importorskip("pyscipopt")
    sides = case.values(x) + off
    free = np.full(case.n_variables, np.inf)
    write(case.replace(lower=sides, upper=sides, x_lower=-free, x_upper=free), path)
    place = {f"x{k}": x[i] for k, i in enumerate(orders(path, case)[0])}
    model = scip.Model()
    model.hideOutput()
    model.readProblem(str(path))
    assert model.getObjectiveSense() == case.sense
    point = model.createSol()
    linear_objective, others = 0.0, []
    for variable in model.getVars():
        if variable.name == "nlobjvar":
            others.append(variable)
            continue
        value = place[variable.name] if variable.name in place else variable.getLbOriginal()
        model.setSolVal(point, variable, value)
        linear_objective += variable.getObj() * value
    for variable in others:
        model.setSolVal(point, variable, case.objective(x) - linear_objective + off_objective)
    if not others:
        close(linear_objective, case.objective(x))
    return bool(model.checkSol(point, original=True))


@pytest.mark.solver
@pytest.mark.parametrize("name", CASES)
def test_scip_reads_the_same_problem(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    better = 1e-4 if case.sense == "maximize" else -1e-4
    for x in points(case, count=1):
        assert scip_accepts(case, x, tmp_path / "a.nl")
        for off in (1e-4, -1e-4):
            assert scip_accepts(case, x, tmp_path / "a.nl", off) == (case.n_constraints == 0)
        curved = case.quadratic.indptr[1] > 0
        assert scip_accepts(case, x, tmp_path / "a.nl", off_objective=better) == (not curved)
        assert scip_accepts(case, x, tmp_path / "a.nl", off_objective=-better)


@pytest.mark.solver
@pytest.mark.parametrize("name", ["no constraints", "equality", "range", "unused and named", "epigraph", "min_norm"])
def test_files_of_pyomo_are_read(tmp_path: Path, name: str) -> None:
    """Match by names, because Pyomo omits variables and constraints without terms."""
    pytest.importorskip("pyomo.environ")
    case = CASES[name]
    with load_pyomo():
        pyomo_model(case).write(str(tmp_path / "a.nl"), io_options={"symbolic_solver_labels": True})
    problem = read(tmp_path / "a.nl")
    assert isinstance(problem, QCQP)
    x_order, order = (
        np.array(re.findall(r"\[(\d+)\]$", (tmp_path / f"a.{kind}").read_text(), re.M), dtype=np.int64)
        for kind in ("col", "row")
    )
    assert problem.sense == case.sense
    np.testing.assert_array_equal([problem.lower, problem.upper], [case.lower[order], case.upper[order]])
    np.testing.assert_array_equal([problem.x_lower, problem.x_upper], [case.x_lower[x_order], case.x_upper[x_order]])
    assert len(order) == case.n_constraints
    for x in points(case):
        close(problem.objective(x[x_order]), case.objective(x))
        close(problem.values(x[x_order]), case.values(x)[order])


def test_file_of_ampl_is_read(tmp_path: Path, asl: Any) -> None:
    (path := tmp_path / "a.nl").write_text(FILE)
    case = read(path)
    assert isinstance(case, QCQP)
    nlp = asl(path)
    for x in points(case):
        d = x[0] + x[1] ** 2 + 7 * x[2]
        close(case.objective(x), (x[0] + 2 * x[1]) ** 2 / 4 - x[1] * x[2] + 5)
        close(case.values(x), [d - 2 * x[0] * x[2], x[1]])
        nlp.set_primals(x)
        close(nlp.evaluate_objective(), case.objective(x))
        # AMPL keeps the constant in the function.
        close(nlp.evaluate_constraints(), case.values(x) + np.array([3, 0]))
    np.testing.assert_array_equal([nlp.constraints_lb(), nlp.constraints_ub()], [[-1, 1], [4, np.inf]])
    np.testing.assert_array_equal([case.lower, case.upper], [[-4, 1], [1, np.inf]])
    np.testing.assert_array_equal(case.start, [0, 0.5, 0])


@st.composite
def expressions(draw: st.DrawFn, degree: int = 2, depth: int = 4) -> str:
    """Draw expressions of x0, x1, x2 of at most this degree."""
    number = st.sampled_from(["n3", "n-0.5", "n1.25e-1\t# an eighth"])
    if depth == 0 or draw(st.integers(0, 5)) == 0:
        return draw(number if degree == 0 else st.sampled_from(["v0", "v1", "v2"])) + "\n"
    below = expressions(degree, depth - 1)
    kinds = ["o0", "o1", "o16", "o54", "o3", "o2"] + (["o2", "o5"] if degree == 2 else [])
    match kind := draw(st.sampled_from(kinds)):
        case "o16":
            operands = draw(below)
        case "o54":
            terms = draw(st.lists(below, min_size=3, max_size=5))
            operands = f"{len(terms)}\n" + "".join(terms)
        case "o3":
            operands = draw(below) + "n4\n"
        case "o5":
            operands = draw(expressions(1, depth - 1)) + "n2\n"
        case "o2":
            first = draw(st.integers(0, degree))
            operands = draw(expressions(first, depth - 1)) + draw(expressions(degree - first, depth - 1))
        case _:
            operands = draw(below) + draw(below)
    return f"{kind}\n{operands}"


def test_expressions_have_the_values_of_ampl(tmp_path: Path, asl: Any) -> None:
    before, _, rest = FILE.partition("o54\t#sumlist\n")
    rest = rest.partition("x1\n")[2]

    @given(expressions())
    def check(expression: str) -> None:
        (path := tmp_path / "a.nl").write_text(f"{before}{expression}x1\n{rest}")
        case, nlp = read(path), asl(path)
        assert isinstance(case, QCQP)
        for x in points(case):
            nlp.set_primals(x)
            close(nlp.evaluate_objective(), case.objective(x))

    check()


@pytest.mark.parametrize(
    ("old", "new", "line", "reason"),
    [
        ("g3 1", "b3 1", 1, "binary"),
        ("g3 1", "h3 1", 1, "must begin with g"),
        (" 3 2 1 1 0 0", " 3 2 2 1 0 0", 2, "2 objectives"),
        (" 3 2 1 1 0 0", " 3 2 1 1 0 1", 2, "must have no logical constraints"),
        (" 3 2 1 1 0 0", " 3 2 1", 2, "expected at least 5 numbers"),
        (" 3 2 1 1 0 0", " 0 0 0 0 0 0", 2, "must have variables, got none"),
        (" 0 0 0 0 0\t# disc", " 0 1 0 0 0\t# disc", 7, "integer variables"),
        (" 0 0 0 1\t", " 0 1 0 1\t", 6, "functions"),
        ("n2\nC0", "n3\nC0", 16, "an exponent must be 1 or 2, got 3.0"),
        ("v1\t#x[2]", "v3", 15, "v3 must be defined before it is used"),
        ("V3 2 0", "V4 2 0", 11, "must be from 3 to 3"),
        ("n2\nn4", "n2\nv0", 41, "divisor"),
        ("n2\nn4", "n2\nn0", 41, "a divisor must not be 0"),
        ("n2\nn4", "n2\nn1e999", 41, "floating-point range"),
        ("o5\no0", "o44\no0", 34, "operator 'o44'"),
        ("v3\nn3", "o2\nv3\nv0\nn3", 28, "more than two variables"),
        ("C1\t#straight", "C0", 28, "second time"),
        ("2 7\n", "2 7 1\n", 13, "index value"),
        ("2 7\n", "0 7\n", 13, "second time"),
        ("0 -1 4", "5 -1 4", 50, "a range must be 0 l u, 1 u, 2 l, 3 or 4 c"),
        ("0 -1 4", "0 4 -1", 50, "a range must contain a number, got [4.0, -1.0]"),
        ("k2\n1", "k2\n2", 68, "segment k must agree with the columns of segments J, got [2, "),
        ("J1 1\n1 1\n", "", 66, "must have 4 nonzeros in the Jacobian, got 3"),
        ("J1 1\n1 1", "J1 1\n3 1", 64, "must be from 0 to 2"),
        ("x1\n1 0.5", "y1\n1 0.5", 47, "a segment must begin with one of"),
        ("b\n3\n2 0\n0 -1.5 2e0\n", "", 64, "must have 1 segments b, got 0"),
    ],
)
def test_mistakes_are_refused_with_their_line(tmp_path: Path, old: str, new: str, line: int, reason: str) -> None:
    assert FILE.count(old) == 1
    (path := tmp_path / "a.nl").write_text(FILE.replace(old, new))
    assert re.fullmatch(rf"{re.escape(str(path))}:{line}: .*{re.escape(reason)}.*", refused(path)), refused(path)


def wrong_counts() -> Iterator[str]:
    """Yield files that declare one more or one less variable, constraint, objective, nonzero or defined variable."""
    lines = FILE.splitlines(keepends=True)
    for k, place in ((1, 0), (1, 1), (1, 2), (7, 0), (7, 1), (9, 1)):
        words = lines[k].split("\t")[0].split()
        for step in (-1, 1):
            changed = [*words[:place], str(int(words[place]) + step), *words[place + 1 :]]
            yield "".join([*lines[:k], " ".join(changed) + "\n", *lines[k + 1 :]])


def test_wrong_counts_are_refused(tmp_path: Path) -> None:
    for content in wrong_counts():
        (tmp_path / "a.nl").write_text(content)
        assert re.search(r"a\.nl:\d+: ", refused(tmp_path / "a.nl"))


def test_files_that_expand_to_many_terms_are_refused(tmp_path: Path) -> None:
    count = 5000
    total = f"o54\n{count}\n" + "".join(f"v{k}\n" for k in range(count))
    head = FILE.split("V3", maxsplit=1)[0].replace(" 0 1 0 0 0\t", " 0 0 0 0 0\t").replace(" 4 3\t", " 0 0\t")
    head = head.replace(" 3 2 1 1 0 0", f" {count} 0 1 0 0 0")
    rest = "b\n" + "3\n" * count
    (path := tmp_path / "a.nl").write_text(f"{head}O0 0\no2\n{total}{total}{rest}")
    assert "must expand to at most" in refused(path)
    path.write_text(f"{head}O0 0\n" + "o16\n" * 10000 + total + rest)
    assert "must expand to at most" in refused(path)
    path.write_text(f"{head}O0 0\n{total}{rest}")
    problem = read(path)
    assert isinstance(problem, QCQP)
    np.testing.assert_array_equal(problem.linear[[0]].toarray(), np.ones((1, count)))
