"""Check the reader of LP files: dialects, mistakes, and forms that programs read differently."""

from pathlib import Path

import numpy as np
import pytest

from qcqpbench import QCQP, QcqpbenchError, read, write
from tests.support.other_readers import read_by

EXPECTED = QCQP.from_terms(
    3,
    sense="maximize",
    quadratic=([0, 0, 1], [0, 1, 2], [0, 0, 1], [2.0, -1.5, 1.0]),
    linear=([0, 0, 1, 2, 2], [0, 1, 0, 1, 2], [3.0, 1.0, -1.0, 2.0, -1.0]),
    lower=[-np.inf, 4.0],
    upper=[2.5, 4.0],
    x_lower=[-np.inf, 0.0, -1.0],
    x_upper=[np.inf, 5.0, 1.0],
)
PLAIN = r"""\ a comment
Maximize
 obj: 3 x + y + [ 4 x ^2 - 3 x * y ] / 2
Subject To
 first: - x + [ z * y ] <= 2.5
 second: 2 y - z = 4
Bounds
 x free
 0 <= y <= 5
 -1 <= z <= 1
End
"""
DIALECTS = {
    "plain": PLAIN,
    "capitals": PLAIN.replace("Maximize", "MAXIMIZE").replace("Subject To", "SUBJECT TO").replace("free", "FREE"),
    "short": PLAIN.replace("Maximize", "max").replace("Subject To", "st").replace("Bounds", "bound"),
    "s.t.": PLAIN.replace("Subject To", "s.t."),
    "such that": PLAIN.replace("Subject To", "such that"),
    "a line in two": PLAIN.replace(" ", "\n ").replace("Subject\n To", "Subject To").replace("a\n comment", ""),
    "a comment in a line": PLAIN.replace("3 x + y", "3 x \\ the first\n + y"),
    "windows": PLAIN.replace("\n", "\r\n"),
    "no labels": PLAIN.replace("first: ", "").replace("second: ", "").replace("obj: ", ""),
    "dense": PLAIN.replace("3 x + y + [ 4 x ^2 - 3 x * y ] / 2", "3x+y+[4x^2-3x*y]/2").replace(" <= ", "<="),
    "wide": PLAIN.replace("x ^2", "x ^ 2").replace("first:", "first :"),
    "squares as products": PLAIN.replace("x ^2", "x * x"),
    "old relations": PLAIN.replace("<=", "=<"),
    "strict relations": PLAIN.replace("<=", "<"),
    "two signs of equality": PLAIN.replace("= 4", "== 4"),
    "twice": PLAIN.replace("3 x + y", "x + y + 2 x").replace("z * y", "0.5 y * z + 0.5 z * y"),
    "two brackets": PLAIN.replace("4 x ^2 - 3 x * y ] / 2", "4 x ^2 ] / 2 - [ 3 y * x ] / 2"),
    "exponents": PLAIN.replace("2.5", "25.e-1").replace("obj: 3 x", "obj: +.3E+1 x"),
    "bounds turned": PLAIN.replace("-1 <= z <= 1", "1 >= z >= -1").replace("0 <= y <= 5", "5 >= y"),
    "bounds apart": PLAIN.replace("-1 <= z <= 1", "z <= 1\n z >= -1"),
    "infinite": PLAIN.replace("x free", "x >= -1e30\n x <= +Infinity"),
    "default bounds": PLAIN.replace("0 <= y <= 5", "y <= 5"),
    "side with a sign": PLAIN.replace("2.5", "+ 2.5"),
    "constant zero": PLAIN.replace("/ 2", "/ 2 + 0"),
    "e as a name": PLAIN.replace(" x", " e5"),
}


@pytest.mark.parametrize("text", DIALECTS.values(), ids=DIALECTS)
def test_dialects_are_read_as_the_same_problem(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.lp").write_bytes(text.encode())
    problem = read(tmp_path / "a.lp")
    assert isinstance(problem, QCQP)
    assert problem.id == EXPECTED.id


def read_text(tmp_path: Path, text: str) -> QCQP:
    (tmp_path / "a.lp").write_text(text)
    problem = read(tmp_path / "a.lp")
    assert isinstance(problem, QCQP)
    return problem


@pytest.mark.parametrize(
    ("constraints", "lower", "upper"),
    [
        ("c1: -1 <= x + [ x ^2 ] <= 3", [-1.0], [3.0]),
        ("c1: 3 >= x + [ x ^2 ] >= -1", [-1.0], [3.0]),
        ("c1: -inf <= x <= 3", [-np.inf], [3.0]),
        ("c1: x >= -1e30", [-np.inf], [np.inf]),
        ("c1: >= -2", [-2.0], [np.inf]),
        ("c_lhs: x + [ x ^2 ] >= -1\n c_rhs: x + [ x ^2 ] <= 3", [-1.0], [3.0]),
        ("c_lhs: x >= -1\n c_rhs: 2 x <= 3", [-1.0, -np.inf], [np.inf, 3.0]),
        ("c_lhs: x >= 4\n c_rhs: x <= 3", [4.0, -np.inf], [np.inf, 3.0]),
        ("c_lhs: x <= 4\n c_rhs: x <= 3", [-np.inf, -np.inf], [4.0, 3.0]),
        ("c: x >= 9\n c_lhs: x >= 1\n c_rhs: x <= 3", [9.0, 1.0, -np.inf], [np.inf, np.inf, 3.0]),
    ],
)
def test_ranges_are_read(tmp_path: Path, constraints: str, lower: list[float], upper: list[float]) -> None:
    problem = read_text(tmp_path, f"Minimize\n x\nSubject To\n {constraints}\nEnd\n")
    assert (problem.lower.tolist(), problem.upper.tolist()) == (lower, upper)


def test_constants_of_scip_and_gurobi_are_read(tmp_path: Path) -> None:
    """Read both forms, and a variable of the same name that is no constant."""
    text = "Minimize\n x - 2.5 Constant + [ 2 y * x ] / 2\nSubject To\nBounds\n Constant = 1\nEnd\n"
    expected = QCQP.from_terms(
        2, quadratic=([0], [0], [1], [1.0]), linear=([0], [0], [1.0]), constant=-2.5, x_lower=[0.0, 0.0]
    )
    for same in (text, "Minimize\n x + [ 2 y * x ] / 2 - 2.5\nSubject To\nEnd\n"):
        assert read_text(tmp_path, same).id == expected.id
    for other in (text.replace("= 1", "= 2"), text.replace("To\n", "To\n x + Constant >= 1\n")):
        problem = read_text(tmp_path, other)
        assert (problem.n_variables, problem.constant) == (3, 0.0)


@pytest.mark.parametrize(
    "name", ["a b", "x[1]", "2x", "e1", "E", "free", "Inf", "End", "st", "x-y", "Constant", "ä", "a_lhs", ""]
)
def test_names_that_cannot_be_written_are_replaced(tmp_path: Path, name: str) -> None:
    first = QCQP.from_terms(2, linear=([0, 1], [0, 1], [1.0, 2.0]), lower=[1.0], upper=[2.0])
    write(first, tmp_path / "a.lp")
    write(first.replace(variable_names=("y", name), constraint_names=(name,)), tmp_path / "b.lp")
    assert (tmp_path / "a.lp").read_text() == (tmp_path / "b.lp").read_text()


NO_TERM = "expected a sign and a term, or <=, >= or =, a number and a new line, got"
LARGE = "a number must be in the floating-point range"
# Text of PLAIN, its replacement, and the line and text of the error.
MISTAKES: list[tuple[str, str, int, str]] = [
    (PLAIN, "", 1, "expected Minimize or Maximize at the beginning, got 'the end of the file'"),
    ("Maximize", "", 3, "expected Minimize or Maximize at the beginning, got"),
    ("Maximize", "x\nMaximize", 2, "expected Minimize or Maximize at the beginning, got 'x'"),
    (
        PLAIN,
        "Minimize\n 5 Constant\nBounds\n Constant = 1\nEnd\n",
        5,
        "the file must have variables, got none but Constant",
    ),
    ("End\n", "", 11, "expected End, got the end of the file"),
    ("End\n", "En", 11, "expected End, got the end of the file"),
    ("End\n", "End\n\nx\n", 13, "expected nothing after End, got 'x'"),
    (
        "Bounds",
        "Generals\n x\nBounds",
        7,
        "variables must be continuous, terms linear or quadratic, got the section Generals",
    ),
    ("Bounds", "Lazy  constraints\n c: x >= 1\nBounds", 7, "got the section Lazy constraints"),
    ("End", "BINARY\n x\nEnd", 11, "got the section BINARY"),
    ("End", "SOS\n s: S1 :: x : 1\nEnd", 11, "got the section SOS"),
    ("End", "Semi-Continuous\n x\nEnd", 11, "got the section Semi-Continuous"),
    ("Bounds", "st", 7, "the sections must be Minimize or Maximize, Subject To, Bounds, End, each once, got st"),
    ("Subject To", "Bounds", 7, "each once, got Bounds"),
    ("Maximize", "Subject To", 2, "each once, got Subject To"),
    (PLAIN[PLAIN.index(" obj") :], "End\n", 1, "the file must have variables, got none"),
    ("3 x + y", "3 x + ü", 3, "the text must be ASCII, got byte 0xc3"),
    ("3 x + y", "3 x + \0", 3, "the text must be ASCII, got byte 0x00"),
    ("3 x + y", "3 x + y >= 2", 3, "expected a term of the objective, got"),
    ("3 x + y", "3 x +", 3, "expected a term of the objective, got"),
    ("3 x + y", "3 x + 1.2.3 y", 3, "expected a term of the objective, got '+ 1.2.3 y + [ 4 x ^2 - 3 x * y ] / 2'"),
    ("3 x + y", "3 x + 0x10", 3, "expected a term of the objective, got"),
    ("3 x + y", "3 x + inf", 3, "expected a term of the objective, got"),
    ("obj:", "obj: name:", 3, "expected a term of the objective, got"),
    ("^2", "^3", 3, "expected terms such as 2 x ^2 and - 2 x * y in [ ], got"),
    ("x ^2", "x", 3, "- 2 x * y in [ ], got"),
    ("x ^2", "x y", 3, "- 2 x * y in [ ], got"),
    ("] / 2", "/ 2", 3, "- 2 x * y in [ ], got"),
    ("[ 4", "2 [ 4", 3, "expected + or - before [, got none"),
    ("+ [ 4", "[ 4", 3, "expected + or - before [, got none"),
    ("] / 2", "]", 4, "brackets in the objective must be followed by / 2"),
    ("] / 2", "] / 3", 3, "brackets in the objective must be followed by / 2"),
    ("z * y ]", "z * y ] / 2", 5, "brackets in a constraint must not be followed by / 2"),
    ("<= 2.5", "<= 2.5 z", 5, NO_TERM),
    ("<= 2.5", "", 6, NO_TERM),
    ("<= 2.5", "<= 2.5 third: x >= 1", 5, NO_TERM),
    ("<= 2.5", "<= nan", 5, NO_TERM),
    ("- x +", "- x 3 y +", 5, NO_TERM),
    ("- x +", "- x + - y +", 5, NO_TERM),
    ("- x +", "- 2e5x +", 5, NO_TERM),
    ("- x +", "- 2 * x +", 5, "a number without a variable must be on the right side"),
    ("- x +", "- 2 +", 5, "a number without a variable must be"),
    ("- x +", "1 >= - x +", 5, "a range must be 1 <= … <= 2 or 2 >= … >= 1"),
    ("- x +", "3 <= - x +", 5, "a range must contain a number, got 3.0 to 2.5"),
    ("= 4", "= inf", 6, "a range must contain a number, got inf to inf"),
    ("second:", "first:", 6, "names of constraints must differ, got 'first' twice"),
    ("4 x ^2", "4 x ^2\n + 1e999 y ^2", 4, LARGE),
    ("- x +", "- 1e999 x +", 5, LARGE),
    ("2.5", "1e999", 5, LARGE),
    ("<= 5", "<= 1e999", 9, LARGE),
    ("0 <= y <= 5", "5 <= y <= 0", 9, "a range must contain a number, got 5.0 to 0.0"),
    ("0 <= y <= 5", "y <= -1", 9, "a range must contain a number, got 0.0 to -1.0"),
    ("0 <= y <= 5", "y", 9, "expected a bound such as -1 <= x <= 2, x >= 1 or x free, got 'y'"),
    ("0 <= y <= 5", "0 <= 2 y <= 5", 9, "expected a bound such as"),
    ("0 <= y <= 5", "y >= 0\n y >= 1", 10, "a bound of 'y' must be given once, got it twice"),
    ("0 <= y <= 5", "y <= 5\n y free", 10, "a bound of 'y' must be given once, got it twice"),
]


@pytest.mark.parametrize(("old", "new", "line", "message"), MISTAKES)
def test_mistakes_are_refused_with_their_line(tmp_path: Path, old: str, new: str, line: int, message: str) -> None:
    path = tmp_path / "a.lp"
    path.write_bytes(PLAIN.replace(old, new, 1).encode())
    with pytest.raises(QcqpbenchError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.solver
def test_bare_constant_is_a_variable_to_gurobi(tmp_path: Path) -> None:
    """Check the reason for writing the constant as a variable."""
    path = tmp_path / "a.lp"
    path.write_text("Minimize\n x + 7.5\nSubject To\nEnd\n")
    assert read_by("gurobi", path).variable_names == ("x", "7.5")
    write(read_text(tmp_path, path.read_text()), path)
    problem = read_by("gurobi", path)
    assert (problem.n_variables, problem.constant) == (1, 7.5)
