"""Covariance perceptrons by their parameters, and random points of them."""

import numpy as np
from numpy.typing import NDArray

import qcqpbench
from qcqpbench.problem.maxmargin import MaxMargin, unit_rows

Array = NDArray[np.float64]


def perceptron(spec: str) -> MaxMargin:
    task = qcqpbench.problem(f"covariance_perceptron[{spec}]")
    assert isinstance(task, MaxMargin)
    return task


def random_points(task: MaxMargin, count: int, seed: int = 0) -> Array:
    return unit_rows(np.random.default_rng(seed).standard_normal((count, task.n, task.m)))
