"""Expressions of .nl files, expanded into polynomials."""

import math
import re
from collections.abc import Callable, Iterable

import numpy as np

from .text import NUMBER, Text, shorten

# Coefficients by the number of the monomial: (i + 1) · size + j + 1 for x_i x_j, i ≥ j, where size is the number of
# variables plus one, (i + 1) · size for x_i, and 0 for the constant.
Polynomial = dict[int, float]

_OPERATORS = {"o0": "+", "o1": "-", "o2": "*", "o3": "/", "o5": "^", "o16": "negative", "o54": "sum"}
_PRODUCTS = re.compile(rf"(?:o2\nn{NUMBER}\no2\nv[0-9]{{1,9}}\nv[0-9]{{1,9}}\n)*+")
_TO_NUMBERS = str.maketrans("onv", "   ")
_QUADRATIC = "a quadratic expression must consist of sums, products of two variables, and numbers"
_MAX_TERMS = 1 << 22


class Expressions:
    """Reader of expressions in `n` variables and `n_defined` defined variables.

    `line(expected)` returns the next line of `text`, or raises an error that names `expected` at the end of the file.

    A small file can expand to many terms, so the number of terms is limited.
    """

    def __init__(self, text: Text, line: Callable[[str], str], n: int, n_defined: int) -> None:
        self.text = text
        self.n, self.n_defined, self.size = n, n_defined, n + 1
        self.defined: dict[int, Polynomial] = {}
        self._line = line
        self._work = 0

    def read(self) -> Polynomial:
        """Read the next expression and return it as a polynomial.

        Operators precede their operands. The stack holds the operators that wait for operands, the number of missing
        operands, and the result so far.
        """
        stack: list[tuple[str, int, Polynomial | None]] = []
        while True:
            word = self._line("an expression")
            if word[:1] != "o":
                value = self._operand(word)
            else:
                operator, missing, partial = self._operator(word)
                if missing:
                    stack.append((operator, missing, partial))
                    continue
                value = partial or {}
            while stack:
                operator, missing, partial = stack.pop()
                value = value if partial is None else self._combined(operator, partial, value)
                if missing > 1:
                    stack.append((operator, missing - 1, value))
                    break
            else:
                return value

    def _operator(self, word: str) -> tuple[str, int, Polynomial | None]:
        """Return the operator that `word` denotes, the number of its missing operands, and its result so far."""
        self.text.require(word in _OPERATORS, f"{_QUADRATIC}, got operator {shorten(word)}")
        operator = _OPERATORS[word]
        if operator == "negative":
            return "-", 1, {}
        if operator == "sum":
            count = self.text.whole(self._line("the number of terms"), "number of terms", least=1)
            return "+", *self._products(count)
        return operator, 2, None

    def _operand(self, word: str) -> Polynomial:
        """Return the polynomial of `word`, a number, a variable or a defined variable."""
        if word[:1] == "n":
            return {0: self.text.number(word[1:])}
        self.text.require(word[:1] == "v", f"expected an operator, n or v, got {shorten(word)}")
        k = self.text.whole(word[1:], "variable", self.n + self.n_defined - 1)
        if k < self.n:
            return {(k + 1) * self.size: 1.0}
        self.text.require(k in self.defined, f"v{k} must be defined before it is used, got no definition")
        self._count(len(self.defined[k]))
        return dict(self.defined[k])

    def _products(self, count: int) -> tuple[int, Polynomial]:
        """Read leading products of a sum of `count` terms; return the number of other terms and the products' sum.

        Products in the form of `nl.write` are read in blocks, for speed.
        """
        total: Polynomial = {}
        step = 1
        while count:
            step = min(2 * step, 4096, count)
            block = self.text.block(5 * step)
            plain = block and _PRODUCTS.fullmatch(block)
            numbers = np.fromstring(block.translate(_TO_NUMBERS) if plain else "", sep=" ").reshape(-1, 5)
            values, variables = numbers[:, 1], numbers[:, 3:].astype(np.int64) + 1
            if not plain or not np.isfinite(values).all() or variables.max() >= self.size:
                self.text.put_back()
                break
            keys = variables.max(axis=1) * self.size + variables.min(axis=1)
            _add(total, zip(keys.tolist(), values.tolist(), strict=True))
            count -= step
        return count, total

    def _combined(self, operator: str, first: Polynomial, second: Polynomial) -> Polynomial:
        """Return the result of `operator` applied to two polynomials."""
        if operator == "-":
            second = self._scaled(second, -1.0)
        if operator in "+-":
            result = self.sum(first, second)
        elif operator == "*":
            result = self._product(first, second)
        else:
            self.text.require(_is_constant(second), f"{_QUADRATIC}, got a divisor or an exponent with variables")
            number = second.get(0, 0.0)
            if operator == "/":
                self.text.require(number != 0, "a divisor must not be 0, got 0")
                self._count(len(first))
                result = {key: value / number for key, value in first.items()}
            else:
                self.text.require(number in (1, 2), f"an exponent must be 1 or 2, got {number}")
                result = self._product(first, first) if number == 2 else first
        if _is_constant(result):
            number = result.get(0, 0.0)
            self.text.require(math.isfinite(number), f"a number must be in the floating-point range, got {number}")
        return result

    def sum(self, first: Polynomial, second: Polynomial) -> Polynomial:
        """Return the sum of two polynomials; the larger one is modified in place."""
        first, second = (first, second) if len(first) >= len(second) else (second, first)
        self._count(len(second))
        _add(first, second.items())
        return first

    def _scaled(self, polynomial: Polynomial, factor: float) -> Polynomial:
        """Return `polynomial` multiplied by `factor`."""
        self._count(len(polynomial))
        return {key: factor * value for key, value in polynomial.items()}

    def _product(self, first: Polynomial, second: Polynomial) -> Polynomial:
        """Return the product of two polynomials, which must be at most quadratic."""
        for one, two in ((first, second), (second, first)):
            if _is_constant(one):
                return self._scaled(two, one.get(0, 0.0))
        self._count(len(first) + len(second) + len(first) * len(second))
        for key in (*first, *second):
            self.text.require(key % self.size == 0, f"{_QUADRATIC}, got a product of more than two variables")
        result: Polynomial = {}
        for i, factor in first.items():
            _add(result, ((max(i, j) + min(i, j) // self.size, factor * value) for j, value in second.items()))
        return result

    def linear(self, coefficients: dict[int, float]) -> Polynomial:
        """Return the polynomial with these linear coefficients, given by variable."""
        return {(k + 1) * self.size: value for k, value in coefficients.items()}

    def _count(self, work: int) -> None:
        """Add `work` terms to the number of terms so far; raise an error above the limit."""
        self._work += work
        if self._work > _MAX_TERMS + 8 * self.text.line:
            raise self.text.error(f"the file must expand to at most {_MAX_TERMS} terms, got more")


def _add(target: Polynomial, terms: Iterable[tuple[int, float]]) -> None:
    for key, value in terms:
        target[key] = target.get(key, 0.0) + value


def _is_constant(polynomial: Polynomial) -> bool:
    return not polynomial or (len(polynomial) == 1 and 0 in polynomial)
