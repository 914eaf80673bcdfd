"""Figure `optimization`: the paper's gradient ascent on the soft margin, step by step."""

from collections.abc import Sequence

from qcqpbench.problem.maxmargin import MaxMargin, unit_rows
from qcqpbench.results.store import Row
from qcqpbench.run.attempt import random_start
from qcqpbench.run.isolation.description import problem_apart

from .base import Axes, Data, Figure, Table
from .style import BLACK, BLUE, GREY, ORANGE, RED, curve

_PROBLEM = "covariance_perceptron[m=100,n=2,f=0.2,c=0.5,p=20]"
_ETA, _RATE = 4.0, 0.01
_STEPS, _STEPS_PER_LINE = 3000, 10


def _data(_: Sequence[Row]) -> Data:
    """Iterate W ← unit rows of W + rate · ∇κ_η(W) from a random start, and return every tenth step.

    The ascent is computed here because a run of soft_margin stores only the steps that improve the margin.
    """
    task = problem_apart(_PROBLEM)
    assert isinstance(task, MaxMargin)
    W = random_start(task)
    table: Table = []
    margins = []
    for step in range(_STEPS + 1):
        stabilities = task.stabilities(W)
        soft, weights = task.soft_minimum(stabilities, _ETA)
        margins.append(float(stabilities.min()))
        if step % _STEPS_PER_LINE == 0:
            table.append({"step": step, "margin": margins[-1], "soft_margin": float(soft)})
            for r, (label, stability) in enumerate(zip(task.labels[:, 0].tolist(), stabilities[:, 0], strict=True)):
                table.append({"step": step, "pattern": r, "label": label, "Q12": float(label * stability)})
        W = unit_rows(W + _RATE * task.stability_gradient(W, weights))
    theory = float(task.metadata.notes["kappa_bar_theory"]) * task.scale
    table.append({"theory": theory})
    caption = (
        f"Gradient ascent on the soft margin $κ_η$, rows of W scaled to unit length after every step. a: the readout "
        f"covariances Q₁₂ʳ = (WPʳWᵀ)₁₂ of p = {task.p} patterns, red for labels ζʳ = +1, blue for −1; grey lines: ±κ "
        f"at the end. b: the margin κ and the soft margin $κ_η$. The ascent maximizes $κ_η$, not κ: κ is "
        f"{max(margins):.3f} at step {margins.index(max(margins))} and {margins[-1]:.3f} at the end. Dashed: theory "
        f"for the largest margin, m → ∞, κ = {theory:.3f}. Parameters: m = {task.m}, n = 2, f = 0.2, c = 0.5, "
        f"η = {_ETA:g}, rate ι = {_RATE:g}."
    )
    return Data(table, caption)


def _paint(axes: Sequence[Axes], data: Data) -> None:
    left, right = axes
    margins = data.with_column("margin")
    for first in data.where(step=0)[1:]:
        color = RED if first["label"] > 0 else BLUE
        curve(left, data.where(pattern=first["pattern"]), "step", "Q12", color=color, linewidth=0.8)
    for sign in (-1, 1):
        left.axhline(sign * margins[-1]["margin"], color=GREY, linewidth=0.8, zorder=0)
    (line,) = data.with_column("theory")
    right.axhline(line["theory"], color=BLACK, linestyle="--", linewidth=0.8, label="largest κ, theory, m → ∞")
    curve(right, margins, "step", "margin", color=BLACK, label="margin κ")
    curve(right, margins, "step", "soft_margin", color=ORANGE, label="soft margin $κ_η$")
    left.set(xlabel="step", ylabel="readout covariance Q₁₂ʳ")
    right.set(xlabel="step", ylabel="margin")
    right.legend(loc="lower right")


OPTIMIZATION = Figure("optimization", None, _data, _paint)
