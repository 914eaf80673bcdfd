"""SCIP and Gurobi as independent readers and writers of files."""

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from qcqpbench import QCQP
from tests.support.sample_problems import points

PROGRAMS = ["scip", "gurobi"]
Terms = list[tuple[int, str, str | None, float]]


def program(name: str) -> Any:
    """Return the module of SCIP or Gurobi; skip the test if it is not installed."""
    return pytest.importorskip({"scip": "pyscipopt", "gurobi": "gurobipy"}[name])


@functools.cache
def _environment() -> Any:
    gurobipy = program("gurobi")
    return gurobipy.Env(params={"OutputFlag": 0})


def read_by(name: str, path: Path) -> QCQP:
    """Return the problem that a program reads from a file.

    The quadratic objective, which SCIP makes a constraint, and ranges, which Gurobi makes variables, are restored.
    """
    return _scip_reads(path) if name == "scip" else _gurobi_reads(path)


def written_by(name: str, problem: QCQP, path: Path) -> None:
    """Write a problem with a program: SCIP with a linear objective, Gurobi without ranges."""
    if name == "scip":
        _scip_writes(problem, path)
    else:
        _gurobi_writes(problem, path)


def assert_agree(first: QCQP, second: QCQP) -> None:
    """Assert that two problems are the same up to rounding, matched by names.

    A range may be two constraints, a variable without terms and a constraint without sides may be missing, and a
    variable Constant may represent the constant.
    """
    x, rows = (
        _names(first.variable_names, "x", first.n_variables),
        _names(first.constraint_names, "c", first.n_constraints),
    )
    others = {name: k for k, name in enumerate(_names(second.variable_names, "x", second.n_variables))}
    other_rows = {name: k for k, name in enumerate(_names(second.constraint_names, "c", second.n_constraints))}
    used = np.union1d(first.linear.indices, first.products)
    shared = [name for name in x if name in others]
    assert {x[i] for i in used} <= {*shared}
    assert {*others} - {*x} <= {"Constant"}
    assert second.sense == first.sense
    for one, two in ((first.x_lower, second.x_lower), (first.x_upper, second.x_upper)):
        close(two[[others[name] for name in shared]], one[[x.index(name) for name in shared]])
    sample = points(first)
    other_sample = np.ones((len(sample), second.n_variables))
    other_sample[:, [others[name] for name in shared]] = sample[:, [x.index(name) for name in shared]]
    close(second.objective(other_sample), first.objective(sample))
    values, other_values = first.values(sample), second.values(other_sample)
    matched = set()
    for r, name in enumerate(rows):
        sides = np.array([first.lower[r], first.upper[r]])
        if name in other_rows:
            k = other_rows[name]
            close(np.array([second.lower[k], second.upper[k]]), sides)
            matches = [k]
        elif np.isfinite(sides).all():
            matches = [other_rows[f"{name}_lhs"], other_rows[f"{name}_rhs"]]
            close(
                np.array([[second.lower[k], second.upper[k]] for k in matches]),
                np.array([[sides[0], np.inf], [-np.inf, sides[1]]]),
            )
        else:
            assert np.isinf(sides).all()
            matches = []
        for k in matches:
            close(other_values[:, k], values[:, r])
        matched.update(matches)
    assert matched == {*range(second.n_constraints)}


def close(actual: NDArray[np.float64], expected: NDArray[np.float64]) -> None:
    np.testing.assert_allclose(actual, expected, rtol=1e-11, atol=1e-9)


def _names(names: tuple[str, ...] | None, letter: str, count: int) -> tuple[str, ...]:
    return names or tuple(f"{letter}{k + 1}" for k in range(count))


def _problem(
    sense: str,
    variables: list[tuple[str, float, float]],
    rows: list[tuple[str, float, float]],
    terms: Terms,
    constant: float,
) -> QCQP:
    """Return the problem of terms (row, variable, second variable or None, coefficient); row 0 is the objective."""
    index = {name: k for k, (name, _, _) in enumerate(variables)}
    sides, boxes = ([(low, high) for _, low, high in part] for part in (rows, variables))
    quadratic = [(r, index[i], index[j], value) for r, i, j, value in terms if j is not None]
    linear = [(r, index[i], value) for r, i, j, value in terms if j is None]
    bounds = [[[_infinite(pair[k]) for pair in part] for k in (0, 1)] for part in (sides, boxes)]
    return QCQP.from_terms(
        len(variables),
        sense=sense,  # type: ignore[arg-type]
        quadratic=[[term[k] for term in quadratic] for k in range(4)],
        linear=[[term[k] for term in linear] for k in range(3)],
        constant=constant,
        lower=bounds[0][0],
        upper=bounds[0][1],
        x_lower=bounds[1][0],
        x_upper=bounds[1][1],
        variable_names=tuple(index),
        constraint_names=tuple(name for name, _, _ in rows),
    )


def _infinite(value: float) -> float:
    """Return a bound as both programs read it, which is infinite from 1e20 on."""
    return float(np.copysign(np.inf, value)) if abs(value) >= 1e20 else value


def _scip_reads(path: Path) -> QCQP:
    model = program("scip").Model()
    model.hideOutput()
    model.readProblem(str(path))
    variables = [(v.name, v.getLbOriginal(), v.getUbOriginal()) for v in model.getVars()]
    terms: Terms = [(0, v.name, None, v.getObj()) for v in model.getVars()]
    rows: list[tuple[str, float, float]] = []
    for constraint in model.getConss():
        row = len(rows) + 1
        if constraint.name in ("quadobj", "qmatrix"):
            row = 0
            sides = (model.getLhs(constraint), model.getRhs(constraint))
            assert sides == ((-1e20, 0.0) if model.getObjectiveSense() == "minimize" else (0.0, 1e20))
        else:
            rows.append((constraint.name, model.getLhs(constraint), model.getRhs(constraint)))
        if constraint.isLinear():
            terms += [(row, name, None, value) for name, value in model.getValsLinear(constraint).items()]
            continue
        products, squares, linear = model.getTermsQuadratic(constraint)
        terms += [(row, i.name, j.name, value) for i, j, value in products]
        terms += [(row, i.name, i.name, value) for i, value, _ in squares]
        terms += [(row, i.name, None, value) for i, _, value in squares]
        terms += [(row, i.name, None, value) for i, value in linear]
    added = ("quadobjvar", "qmatrixvar")
    assert sum(value for r, name, _, value in terms if name in added) == 0
    variables = [variable for variable in variables if variable[0] not in added]
    terms = [term for term in terms if term[1] not in added]
    return _problem(model.getObjectiveSense(), variables, rows, terms, model.getObjoffset())


def _gurobi_reads(path: Path) -> QCQP:
    gurobipy = program("gurobi")
    model = gurobipy.read(str(path), _environment())
    assert not (model.NumIntVars or model.NumSOS or model.NumGenConstrs or model.IsMultiObj)
    objective = model.getObjective()
    terms = [*_gurobi_terms(0, objective)]
    rows = []
    ranges = {f"MPS_Rg{name}": name for name in model.ConstrName + model.QCName} if path.suffix == ".mps" else {}
    spans = {v.VarName: v.UB for v in model.getVars() if v.VarName in ranges}
    constraints = [(c.ConstrName, c.Sense, c.RHS, model.getRow(c)) for c in model.getConstrs()]
    constraints += [(c.QCName, c.QCSense, c.QCRHS, model.getQCRow(c)) for c in model.getQConstrs()]
    for row, (name, sense, side, left) in enumerate(constraints, 1):
        low, high = (-np.inf if sense == "<" else side), (np.inf if sense == ">" else side)
        for term in _gurobi_terms(row, left):
            if term[1] in spans:
                other = side - term[3] * spans[term[1]]
                low, high = min(side, other), max(side, other)
            else:
                terms.append(term)
        rows.append((name, low, high))
    variables = [(v.VarName, v.LB, v.UB) for v in model.getVars() if v.VarName not in spans]
    return _problem("maximize" if model.ModelSense < 0 else "minimize", variables, rows, terms, model.ObjCon)


def _gurobi_terms(row: int, expression: Any) -> Iterator[tuple[int, str, str | None, float]]:
    linear = expression
    if hasattr(expression, "getLinExpr"):
        linear = expression.getLinExpr()
        for k in range(expression.size()):
            yield row, expression.getVar1(k).VarName, expression.getVar2(k).VarName, expression.getCoeff(k)
    for k in range(linear.size()):
        yield row, linear.getVar(k).VarName, None, linear.getCoeff(k)


def _expression(problem: QCQP, row: int, x: list[Any], total: Any) -> Any:
    quadratic, linear = problem.quadratic[[row]].tocoo(), problem.linear[[row]].tocoo()
    pairs = problem.products[quadratic.col]
    products = [value * x[i] * x[j] for (i, j), value in zip(pairs, quadratic.data.tolist(), strict=True)]
    return total([*products, *(value * x[i] for i, value in zip(linear.col, linear.data.tolist(), strict=True))])


def _scip_writes(problem: QCQP, path: Path) -> None:
    scip = program("scip")
    model = scip.Model()
    model.hideOutput()
    finite = [
        [None if np.isinf(value) else value for value in part.tolist()] for part in (problem.x_lower, problem.x_upper)
    ]
    names = _names(problem.variable_names, "x", problem.n_variables)
    x = [model.addVar(name, lb=low, ub=high) for name, low, high in zip(names, *finite, strict=True)]
    model.setObjective(_expression(problem, 0, x, scip.quicksum) + problem.constant, problem.sense)
    rows = _names(problem.constraint_names, "c", problem.n_constraints)
    for r, (name, low, high) in enumerate(zip(rows, problem.lower.tolist(), problem.upper.tolist(), strict=True)):
        sides = [None if np.isinf(side) else side for side in (low, high)]
        if sides != [None, None]:
            model.addCons(scip.ExprCons(_expression(problem, r + 1, x, scip.quicksum), *sides), name)
    model.writeProblem(str(path), verbose=False)


def _gurobi_writes(problem: QCQP, path: Path) -> None:
    gurobipy = program("gurobi")
    model = gurobipy.Model(env=_environment())
    names = _names(problem.variable_names, "x", problem.n_variables)
    bounds = zip(names, problem.x_lower.tolist(), problem.x_upper.tolist(), strict=True)
    x = [model.addVar(name=name, lb=low, ub=high) for name, low, high in bounds]
    objective = _expression(problem, 0, x, gurobipy.quicksum) + problem.constant
    model.setObjective(objective, -1 if problem.sense == "maximize" else 1)
    rows = _names(problem.constraint_names, "c", problem.n_constraints)
    for r, (name, low, high) in enumerate(zip(rows, problem.lower.tolist(), problem.upper.tolist(), strict=True)):
        left = _expression(problem, r + 1, x, gurobipy.quicksum)
        if low == high:
            model.addConstr(left == low, name)
        elif np.isfinite(low):
            model.addConstr(left >= low, name)
        elif np.isfinite(high):
            model.addConstr(left <= high, name)
    model.update()
    model.write(str(path))
