"""MPS files of others: their dialects, their mistakes, and where readers differ."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from qcqpbench import QCQP, QcqpbenchError, read, write

RIGHT = QCQP.from_terms(
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
def test_dialects(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.mps").write_bytes(text.encode())
    found = read(tmp_path / "a.mps")
    assert isinstance(found, QCQP)
    assert found.id == RIGHT.id


@pytest.mark.parametrize("name", ["a b", "2x", "-1", "$a", "*", "ä", "a_lhs", "obj", ""])
def test_names_that_do_not_fit(tmp_path: Path, name: str) -> None:
    first = QCQP.from_terms(2, linear=([0, 1], [0, 1], [1.0, 2.0]), lower=[1.0], upper=[2.0])
    write(first, tmp_path / "a.mps")
    write(replace(first, variable_names=("y", name), constraint_names=(name,)), tmp_path / "b.mps")
    assert (tmp_path / "a.mps").read_text() == (tmp_path / "b.mps").read_text()


@pytest.mark.parametrize(
    ("low", "high", "rows"),
    [
        (-1.0, 2.0, [" L c1"]),
        # Of 1 − 1e−20 nothing is left, 1e−20 + 1 is 1.
        (1e-20, 1.0, [" G c1"]),
        # No number added to one end is the other.
        (-1.0, 1.0 + 2.0**-52, [" G c1_lhs", " L c1_rhs"]),
        # The range is infinite, its ends are not.
        (-9e19, 9e19, [" G c1_lhs", " L c1_rhs"]),
    ],
)
def test_ranges_are_exact(tmp_path: Path, low: float, high: float, rows: list[str]) -> None:
    first = QCQP.from_terms(1, quadratic=([1], [0], [0], [1.0]), lower=[low], upper=[high])
    write(first, tmp_path / "a.mps")
    assert (tmp_path / "a.mps").read_text().split("\n")[3 : 3 + len(rows)] == rows
    assert read(tmp_path / "a.mps").id == first.id


NUMBER = "is no number"
TWICE = "is given twice"
# What is replaced in PLAIN, by what, and what is wrong then in which line.
MISTAKES: list[tuple[str, str, int, str]] = [
    (PLAIN, "", 1, "an MPS file begins with NAME"),
    ("* a comment", " x", 1, "an MPS file begins with NAME"),
    ("ENDATA\n", "", 27, "the file ends without ENDATA"),
    ("ENDATA\n", "ENDAT", 30, "'ENDAT' is not read; read are NAME, OBJSENSE, ROWS"),
    ("ENDATA\n", "ENDATA\n\n x\n", 30, "text stands behind ENDATA"),
    ("ENDATA", "SOS\n S1 s\nENDATA", 30, "'SOS' is not read"),
    ("ENDATA", "INDICATORS\n IF first x 1\nENDATA", 30, "'INDICATORS' is not read"),
    ("ENDATA", "RHS\nENDATA", 30, "a second section 'RHS'"),
    ("    MAX\n", "    MAX\n    MIN\n", 5, "a second sense"),
    ("ENDATA", "QMATRIX\nENDATA", 30, "a second section 'QUADOBJ'"),
    ("ENDATA", "QCMATRIX second\nENDATA", 30, "a second section 'QCMATRIX second'"),
    ("some name\n", "some name\n x\n", 3, "a line that belongs to no section stands behind NAME"),
    ("MAX", "BEST", 4, "'BEST' is no sense; right is MAX or MIN"),
    ("ROWS", "ROWS 3", 5, "behind ROWS stand 1 words; right: 0"),
    ("QCMATRIX   second", "QCMATRIX", 27, "behind QCMATRIX stand 0 words; right: 1"),
    (" N  cost", " G  cost", 30, "there is no objective, a row of kind N"),
    (PLAIN[PLAIN.index("COLUMNS") :], "ENDATA\n", 10, "there are no variables"),
    (" L  first", " X  first", 7, "a row is N, L, G or E, and a name"),
    (" L  first", " L  first row", 7, "a row is N, L, G or E, and a name"),
    (" L  first", " L  cost", 7, "a second row is called 'cost'"),
    ("    x         cost", " M 'MARKER' 'INTORG'\n x cost", 11, "integer variables are not read"),
    ("    x         cost", "    x 1       cost", 11, "right in COLUMNS is a variable, and once or twice a row"),
    ("3.0   first", "3.0   last", 11, "'last' is no row"),
    ("3.0   first", "0x3   first", 11, NUMBER),
    ("3.0   first", "3,0   first", 11, NUMBER),
    ("3.0   first", "nan   first", 11, NUMBER),
    ("3.0   first", "inf   first", 11, NUMBER),
    ("3.0   first", "1e999   first", 11, "'1e999' is larger than any floating-point number"),
    ("3.0   first", "3.0   cost", 11, f"a coefficient {TWICE}"),
    ("    z         third", "    x         third", 13, "the lines of 'x' do not follow each other"),
    ("second            4.0", "second  4.0 first 2", 16, "right in RHS is a name"),
    ("second            4.0", "first            4.0", 16, f"RHS of a row {TWICE}"),
    ("RHS       second", "OTHER     second", 16, "a second set of RHS, 'OTHER'"),
    ("second            4.0", "second            inf", 16, "the range from inf to inf holds no number"),
    ("RNG       third             2.0", "RNG       cost 2.0", 18, "an objective has no range"),
    ("RNG       third             2.0", "RNG       third 2.0 third 3.0", 18, f"RANGES of a row {TWICE}"),
    (" FR BND", " BV BND", 20, "'BV' is no bound of a continuous variable; right: LO, FX, MI, FR, UP, PL"),
    (" FR BND       x", " LI BND       x 3", 20, "'LI' is no bound"),
    (" FR BND       x", " SC BND       x 3", 20, "'SC' is no bound"),
    (" FR BND       x", " UP BND       x", 20, "is no variable"),
    (" FR BND       x", " UP x", 20, "right in BOUNDS is UP, a name, a variable and a number"),
    (" FR BND       x", " FR BND       w", 20, "'w' is no variable"),
    (" FR BND       x", " UP BND       x  -2", 20, "a negative UP needs a lower bound: LO or MI"),
    ("z                 1.0\nQ", "z                -2.0\nQ", 23, "the range from -1.0 to -2.0 holds no number"),
    (" UP BND       z", " UP BND       y", 23, f"a bound of 'y' {TWICE}"),
    (" UP BND       z", " UP OTHER     z", 23, "a second set of BOUNDS, 'OTHER'"),
    ("    x         y                -3.0", "    x         y", 26, "right in QUADOBJ are two variables and a number"),
    ("    x         y                -3.0", "    x         y   z  -3.0", 26, "right in QUADOBJ are two variables"),
    ("    x         y                -3.0", "    x         w  -3.0", 26, "'w' is no variable"),
    ("    x         y                -3.0", "    x         y  1e999", 26, "'1e999' is larger than any"),
    ("QUADOBJ", "QMATRIX", 24, "QMATRIX is not symmetric; right are both triangles"),
    ("QCMATRIX   second", "QCMATRIX   cost", 27, "QCMATRIX needs a constraint"),
    ("QCMATRIX   second", "QCMATRIX   fourth", 27, "'fourth' is no row"),
    ("z         y                 0.5", "z         y                 0.6", 27, "QCMATRIX is not symmetric"),
    ("    z         y                 0.5\n", "", 27, "QCMATRIX is not symmetric"),
    ("0.5\nENDATA", "0.5\n    ü   y  1\nENDATA", 30, "byte 0xc3 is no ASCII text"),
]


@pytest.mark.parametrize(("old", "new", "line", "message"), MISTAKES)
def test_mistakes(tmp_path: Path, old: str, new: str, line: int, message: str) -> None:
    path = tmp_path / "a.mps"
    path.write_bytes(PLAIN.replace(old, new, 1).encode())
    with pytest.raises(QcqpbenchError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
