"""Check the reader of MPS files: dialects, mistakes, and forms that programs read differently."""

from pathlib import Path

import numpy as np
import pytest

from qcqpbench import QCQP, QcqpbenchError, read, write

EXPECTED = QCQP.from_terms(
    3,
    sense="maximize",
    quadratic=([0, 0, 2], [0, 1, 2], [0, 0, 1], [2.0, -3.0, 1.0]),
    linear=([0, 0, 1, 2, 3], [0, 1, 0, 1, 2], [3.0, 1.0, -1.0, 2.0, 1.0]),
    constant=-7.0,
    lower=[-np.inf, 4.0, -1.0],
    upper=[2.5, np.inf, 1.0],
    x_lower=[-np.inf, 0.0, -1.0],
    x_upper=[np.inf, 5.0, 1.0],
)
PLAIN = """* a comment
NAME          some name
OBJSENSE
    MAX
ROWS
 N  cost
 L  first
 G  second
 L  third
COLUMNS
    x         cost              3.0   first            -1.0
    y         cost              1.0   second            2.0
    z         third             1.0
RHS
    RHS       cost              7.0   first             2.5
    RHS       second            4.0   third             1.0
RANGES
    RNG       third             2.0
BOUNDS
 FR BND       x
 UP BND       y                 5.0
 LO BND       z                -1.0
 UP BND       z                 1.0
QUADOBJ
    x         x                 4.0
    x         y                -3.0
QCMATRIX   second
    z         y                 0.5
    y         z                 0.5
ENDATA
"""
DIALECTS = {
    "plain": PLAIN,
    "windows": PLAIN.replace("\n", "\r\n"),
    "tabs": PLAIN.replace("    ", "\t"),
    "narrow": "\n".join(
        f"{' ' * line.startswith(' ')}{' '.join(line.split())}"
        for line in PLAIN.replace("* a comment\n", "").split("\n")
    ),
    "lower case": PLAIN.replace("ROWS", "rows").replace("NAME", "Name").replace("MAX", "maximize").replace("FR", "fr"),
    "comments and blank lines": PLAIN.replace("\n", "\n* more: UP BND x 1\n\n  \n"),
    "no name": PLAIN.replace("NAME          some name\n", ""),
    "sense in its line": PLAIN.replace("OBJSENSE\n    MAX", "OBJSENSE MAX"),
    "sets without names": PLAIN.replace(" RHS ", "     ").replace(" RNG ", "     ").replace(" BND ", "     "),
    "a pair a line": PLAIN.replace("3.0   first", "3.0\n    x    first").replace(
        "7.0   first", "7.0\n    RHS    first"
    ),
    "both bounds infinite": PLAIN.replace(" FR BND       x", " MI BND       x\n PL BND       x"),
    "infinite bounds": PLAIN.replace(" FR BND       x", " LO BND       x -1e30\n UP BND       x inf"),
    "numbers that do not count": PLAIN.replace(" FR BND       x", " FR BND       x   0.0"),
    "lower before upper": PLAIN.replace(" UP BND       y", " LO BND       y 0\n UP BND       y"),
    "range of G": PLAIN.replace(" L  third", " G  third").replace("third             1.0\nRANGES", "third -1\nRANGES"),
    "range of E": PLAIN.replace(" L  third", " E  third").replace("third             2.0", "third -2.0"),
    "range of E upwards": PLAIN.replace(" L  third", " E  third").replace(
        "third             1.0\nRANGES", "third -1\nRANGES"
    ),
    "negative range": PLAIN.replace("third             2.0", "third -2.0"),
    "another N row": PLAIN.replace(" L  first", " N  other\n L  first").replace(
        "3.0   first", "3.0   other 9.0\n x first"
    ),
    "zeros": PLAIN.replace("third             1.0\nRHS", "third             1.0   second 0.0\nRHS"),
    "whole QMATRIX": PLAIN.replace("QUADOBJ", "QMATRIX").replace("-3.0\n", "-3.0\n    y         x  -3.0\n"),
    "entries twice": PLAIN.replace("    x         x                 4.0", " x x 1.5\n x x 2.5"),
    "SCIP's diagonal": PLAIN.replace("z         y                 0.5", "x x 0.5\n x x -0.5\n z y 0.5"),
    "other triangle": PLAIN.replace("x         y                -3.0", "y x -3"),
    "exponents": PLAIN.replace("4.0", ".4E+1").replace("5.0", "+5.e0"),
    "Q before the bounds": PLAIN.replace(PLAIN[PLAIN.index("BOUNDS") : PLAIN.index("QUADOBJ")], "").replace(
        "ENDATA", PLAIN[PLAIN.index("BOUNDS") : PLAIN.index("QUADOBJ")] + "ENDATA"
    ),
}


@pytest.mark.parametrize("text", DIALECTS.values(), ids=DIALECTS)
def test_dialects_are_read_as_the_same_problem(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.mps").write_bytes(text.encode())
    problem = read(tmp_path / "a.mps")
    assert isinstance(problem, QCQP)
    assert problem.id == EXPECTED.id


@pytest.mark.parametrize("name", ["a b", "2x", "-1", "$a", "*", "ä", "a_lhs", "obj", ""])
def test_names_that_cannot_be_written_are_replaced(tmp_path: Path, name: str) -> None:
    first = QCQP.from_terms(2, linear=([0, 1], [0, 1], [1.0, 2.0]), lower=[1.0], upper=[2.0])
    write(first, tmp_path / "a.mps")
    write(first.replace(variable_names=("y", name), constraint_names=(name,)), tmp_path / "b.mps")
    assert (tmp_path / "a.mps").read_text() == (tmp_path / "b.mps").read_text()


@pytest.mark.parametrize(
    ("low", "high", "rows"),
    [
        (-1.0, 2.0, [" L c1"]),
        # 1 − 1e−20 is rounded, 1e−20 + 1 is 1.
        (1e-20, 1.0, [" G c1"]),
        # No number added to one end gives the other.
        (-1.0, 1.0 + 2.0**-52, [" G c1_lhs", " L c1_rhs"]),
        # The width of the range counts as infinite, its ends do not.
        (-9e19, 9e19, [" G c1_lhs", " L c1_rhs"]),
    ],
)
def test_ranges_are_written_exactly(tmp_path: Path, low: float, high: float, rows: list[str]) -> None:
    first = QCQP.from_terms(1, quadratic=([1], [0], [0], [1.0]), lower=[low], upper=[high])
    write(first, tmp_path / "a.mps")
    assert (tmp_path / "a.mps").read_text().split("\n")[3 : 3 + len(rows)] == rows
    assert read(tmp_path / "a.mps").id == first.id


NUMBER = "expected a number, got"
ONCE = "must be given once"
# Text of PLAIN, its replacement, and the line and text of the error.
MISTAKES: list[tuple[str, str, int, str]] = [
    (PLAIN, "", 1, "expected NAME at the beginning of an MPS file"),
    ("* a comment", " x", 1, "expected NAME at the beginning of an MPS file"),
    ("ENDATA\n", "", 27, "expected ENDATA, got the end of the file"),
    ("ENDATA\n", "ENDAT", 30, "QCMATRIX, ENDATA, got 'ENDAT'"),
    ("ENDATA\n", "ENDATA\n\n x\n", 30, "expected nothing after ENDATA, got 'x'"),
    ("ENDATA", "SOS\n S1 s\nENDATA", 30, "a section must be one of NAME, OBJSENSE, ROWS, COLUMNS"),
    ("ENDATA", "INDICATORS\n IF first x 1\nENDATA", 30, "got 'INDICATORS'"),
    ("ENDATA", "RHS\nENDATA", 30, "a section must occur once, got a second 'RHS'"),
    ("    MAX\n", "    MAX\n    MIN\n", 5, "the sense must be given once"),
    ("ENDATA", "QMATRIX\nENDATA", 30, "a section must occur once, got a second 'QUADOBJ'"),
    ("ENDATA", "QCMATRIX second\nENDATA", 30, "a section must occur once, got a second 'QCMATRIX second'"),
    ("some name\n", "some name\n x\n", 3, "expected a section after NAME, got 'x'"),
    ("MAX", "BEST", 4, "the sense must be MAX or MIN, got 'BEST'"),
    ("ROWS", "ROWS 3", 5, "ROWS must be followed by 0 to 0 words, got 1"),
    ("QCMATRIX   second", "QCMATRIX", 27, "QCMATRIX must be followed by 1 to 1 words, got 0"),
    (" N  cost", " G  cost", 30, "the file must have an objective, a row of kind N"),
    (PLAIN[PLAIN.index("COLUMNS") :], "ENDATA\n", 10, "the file must have variables, got none"),
    (" L  first", " X  first", 7, "a row must be N, L, G or E, and a name"),
    (" L  first", " L  first row", 7, "a row must be N, L, G or E, and a name"),
    (" L  first", " L  cost", 7, "names of rows must differ, got 'cost' twice"),
    ("    x         cost", " M 'MARKER' 'INTORG'\n x cost", 11, "variables must be continuous, got a MARKER"),
    ("    x         cost", "    x 1       cost", 11, "a line in COLUMNS must be a variable, and once or twice a row"),
    ("3.0   first", "3.0   last", 11, "expected a row, got 'last'"),
    ("3.0   first", "0x3   first", 11, NUMBER),
    ("3.0   first", "3,0   first", 11, NUMBER),
    ("3.0   first", "nan   first", 11, NUMBER),
    ("3.0   first", "inf   first", 11, NUMBER),
    ("3.0   first", "1e999   first", 11, "a number must be in the floating-point range, got '1e999'"),
    ("3.0   first", "3.0   cost", 11, f"a coefficient {ONCE}"),
    ("    z         third", "    x         third", 13, "the lines of 'x' must follow each other"),
    ("second            4.0", "second  4.0 first 2", 16, "a line in RHS must be an optional name"),
    ("second            4.0", "first            4.0", 16, f"RHS of a row {ONCE}"),
    ("RHS       second", "OTHER     second", 16, "RHS must have one set, got a second, 'OTHER'"),
    ("second            4.0", "second            inf", 16, "a range must contain a number, got inf to inf"),
    (
        "RNG       third             2.0",
        "RNG       cost 2.0",
        18,
        "RANGES must be of constraints, got one of an objective",
    ),
    ("RNG       third             2.0", "RNG       third 2.0 third 3.0", 18, f"RANGES of a row {ONCE}"),
    (" FR BND", " BV BND", 20, "a bound must be one of LO, FX, MI, FR, UP, PL, got 'BV'"),
    (" FR BND       x", " LI BND       x 3", 20, "UP, PL, got 'LI'"),
    (" FR BND       x", " SC BND       x 3", 20, "UP, PL, got 'SC'"),
    (" FR BND       x", " UP BND       x", 20, "expected a variable, got 'BND'"),
    (" FR BND       x", " UP x", 20, "BOUNDS must be UP, an optional name, a variable and a number"),
    (" FR BND       x", " FR BND       w", 20, "expected a variable, got 'w'"),
    (" FR BND       x", " UP BND       x  -2", 20, "a negative UP must have a lower bound, LO or MI"),
    ("z                 1.0\nQ", "z                -2.0\nQ", 23, "a range must contain a number, got -1.0 to -2.0"),
    (" UP BND       z", " UP BND       y", 23, f"a bound of 'y' {ONCE}"),
    (" UP BND       z", " UP OTHER     z", 23, "BOUNDS must have one set, got a second, 'OTHER'"),
    (
        "    x         y                -3.0",
        "    x         y",
        26,
        "a line in QUADOBJ must be two variables and a number",
    ),
    ("    x         y                -3.0", "    x         y   z  -3.0", 26, "a line in QUADOBJ must be two variables"),
    ("    x         y                -3.0", "    x         w  -3.0", 26, "expected a variable, got 'w'"),
    ("    x         y                -3.0", "    x         y  1e999", 26, "floating-point range, got '1e999'"),
    ("QUADOBJ", "QMATRIX", 24, "QMATRIX must be symmetric, with both triangles"),
    ("QCMATRIX   second", "QCMATRIX   cost", 27, "QCMATRIX must be of a constraint, got the objective"),
    ("QCMATRIX   second", "QCMATRIX   fourth", 27, "expected a row, got 'fourth'"),
    ("z         y                 0.5", "z         y                 0.6", 27, "QCMATRIX must be symmetric"),
    ("    z         y                 0.5\n", "", 27, "QCMATRIX must be symmetric"),
    ("0.5\nENDATA", "0.5\n    ü   y  1\nENDATA", 30, "the text must be ASCII, got byte 0xc3"),
]


@pytest.mark.parametrize(("old", "new", "line", "message"), MISTAKES)
def test_mistakes_are_refused_with_their_line(tmp_path: Path, old: str, new: str, line: int, message: str) -> None:
    path = tmp_path / "a.mps"
    path.write_bytes(PLAIN.replace(old, new, 1).encode())
    with pytest.raises(QcqpbenchError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
