"""Expressions of .nl files, multiplied out."""

import math
import re
from collections.abc import Callable, Iterable

import numpy as np

from ._text import NUMBER, Text, shorten

# The coefficients of monomials. x_i x_j, i ≥ j, has the number (i + 1) · size + j + 1, where size is the number of
# variables and one; x_i has (i + 1) · size, and the constant 0.
Polynomial = dict[int, float]

_OPERATORS = {"o0": "+", "o1": "-", "o2": "*", "o3": "/", "o5": "^", "o16": "negative", "o54": "sum"}
_PRODUCTS = re.compile(rf"(?:o2\nn{NUMBER}\no2\nv[0-9]{{1,9}}\nv[0-9]{{1,9}}\n)*+")
_TO_NUMBERS = str.maketrans("onv", "   ")
_RIGHT = "right are sums, products of two variables, and numbers"
_MOST_WORK = 1 << 22


class Expressions:
    """Reads expressions of n variables and the defined ones from a file, of which `line` gives the next line.

    Multiplying out is work that a small file can make large: it is counted and bounded.
    """

    def __init__(self, text: Text, line: Callable[[str], str], n: int, n_defined: int) -> None:
        self.text = text
        self.n, self.n_defined, self.size = n, n_defined, n + 1
        self.defined: dict[int, Polynomial] = {}
        self._line = line
        self._work = 0

    def read(self) -> Polynomial:
        """The next expression. Operators come before their operands; the stack holds those that wait for more: what
        they do, how many are missing, and what they have."""
        stack: list[tuple[str, int, Polynomial | None]] = []
        while True:
            word = self._line("an expression")
            if word[:1] != "o":
                value = self._operand(word)
            else:
                self.text.require(word in _OPERATORS, f"operator {shorten(word)} is not quadratic; {_RIGHT}")
                operator, missing = _OPERATORS[word], 2
                found: Polynomial | None = None
                if operator == "negative":
                    operator, missing, found = "-", 1, {}
                if operator == "sum":
                    operator = "+"
                    count = self.text.whole(self._line("the number of terms"), "number of terms", least=1)
                    missing, found = self._products(count)
                if missing:
                    stack.append((operator, missing, found))
                    continue
                value = found or {}
            while stack:
                operator, missing, found = stack.pop()
                value = value if found is None else self._combined(operator, found, value)
                if missing > 1:
                    stack.append((operator, missing - 1, value))
                    break
            else:
                return value

    def _operand(self, word: str) -> Polynomial:
        if word[:1] == "n":
            return {0: self.text.number(word[1:])}
        self.text.require(word[:1] == "v", f"{shorten(word)} is not allowed here; right is an operator, n or v")
        k = self.text.whole(word[1:], "variable", self.n + self.n_defined - 1)
        if k < self.n:
            return {(k + 1) * self.size: 1.0}
        self.text.require(k in self.defined, f"v{k} is not defined before this line")
        self._count(len(self.defined[k]))
        return dict(self.defined[k])

    def _products(self, count: int) -> tuple[int, Polynomial]:
        """The terms of a sum as far as they are products in the way they are written here, many at once: how many
        others are left, and the sum."""
        found: Polynomial = {}
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
            _add(found, zip(keys.tolist(), values.tolist(), strict=True))
            count -= step
        return count, found

    def _combined(self, operator: str, first: Polynomial, second: Polynomial) -> Polynomial:
        if operator == "-":
            second = self._scaled(second, -1.0)
        if operator in "+-":
            result = self.sum(first, second)
        elif operator == "*":
            result = self._product(first, second)
        else:
            self.text.require(_is_constant(second), f"a divisor or an exponent has variables; {_RIGHT}")
            number = second.get(0, 0.0)
            if operator == "/":
                self.text.require(number != 0, "this divides by 0")
                self._count(len(first))
                result = {key: value / number for key, value in first.items()}
            else:
                self.text.require(number in (1, 2), f"the exponent is {number}; right is 1 or 2")
                result = self._product(first, first) if number == 2 else first
        if _is_constant(result):
            self.text.require(math.isfinite(result.get(0, 0.0)), "a number is larger than any floating-point number")
        return result

    def sum(self, first: Polynomial, second: Polynomial) -> Polynomial:
        first, second = (first, second) if len(first) >= len(second) else (second, first)
        self._count(len(second))
        _add(first, second.items())
        return first

    def _scaled(self, polynomial: Polynomial, factor: float) -> Polynomial:
        self._count(len(polynomial))
        return {key: factor * value for key, value in polynomial.items()}

    def _product(self, first: Polynomial, second: Polynomial) -> Polynomial:
        for one, two in ((first, second), (second, first)):
            if _is_constant(one):
                return self._scaled(two, one.get(0, 0.0))
        self._count(len(first) + len(second) + len(first) * len(second))
        for key in (*first, *second):
            self.text.require(key % self.size == 0, f"a product has more than two variables; {_RIGHT}")
        result: Polynomial = {}
        for i, factor in first.items():
            _add(result, ((max(i, j) + min(i, j) // self.size, factor * value) for j, value in second.items()))
        return result

    def linear(self, coefficients: dict[int, float]) -> Polynomial:
        return {(k + 1) * self.size: value for k, value in coefficients.items()}

    def _count(self, work: int) -> None:
        self._work += work
        if self._work > _MOST_WORK + 8 * self.text.line:
            raise self.text.error(f"multiplied out, the file has more than {_MOST_WORK} terms")


def _add(target: Polynomial, terms: Iterable[tuple[int, float]]) -> None:
    for key, value in terms:
        target[key] = target.get(key, 0.0) + value


def _is_constant(polynomial: Polynomial) -> bool:
    return not polynomial or (len(polynomial) == 1 and 0 in polynomial)
