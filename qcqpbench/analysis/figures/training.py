"""Figures of single training runs.

`training`: outputs of a network before and after training, and the margin that separates the classes.
`optimization`: the paper's gradient ascent on the soft margin, step by step.
"""

from collections.abc import Sequence

from qcqpbench import theory
from qcqpbench.problem.maxmargin import MaxMargin, unit_rows
from qcqpbench.run.isolation.description import problem_apart
from qcqpbench.run.run_spec import random_start
from qcqpbench.run.suite import Settings, Suite

from .base import Axes, Data, Figure, MeasuredRow, Table, describe_parameters, entry, grid, point_of, with_points
from .style import BLACK, BLUE, GREY, ORANGE, PALE, RED, curve

_ASCENT_PROBLEM = "covariance_perceptron[m=100,n=2,f=0.2,c=0.5,p=20]"
_ETA, _RATE = 4.0, 0.01
_STEPS, _STEPS_PER_LINE = 3000, 10


def _training_suite(quick: bool) -> Suite:
    m, p = (20, 20) if quick else (50, 50)
    problems = grid("covariance_perceptron", m=m, n=3, f=0.2, c=0.5, p=p)
    return Suite("training", "", tuple(problems), (entry("gip", Settings(time_limit=60)),))


def _training_data(rows: Sequence[MeasuredRow]) -> Data:
    """Return the outputs Q_12 and Q_13 of each pattern, and the margins, at the start and the final point of a run."""
    row = with_points(rows)[0]
    task = problem_apart(row.problem)
    assert isinstance(task, MaxMargin)
    table: Table = []
    assert row.kappa_bar_rs is not None
    # As in the paper, theory is replica symmetry.
    margins = {"theory": row.kappa_bar_rs * task.scale}
    weights = {"before": random_start(task, row.start, row.start_seed), "after": unit_rows(point_of(row))}
    for phase, W in weights.items():
        margins[phase] = float(task.margin(W))
        for r, (Q, label) in enumerate(zip(task.covariances(W), task.labels.tolist(), strict=True)):
            outputs = {"Q12": float(Q[0, 1]), "Q13": float(Q[0, 2])}
            table.append({"phase": phase, "pattern": r, "label12": label[0], "label13": label[1], **outputs})
    table += [{"phase": phase, "margin": margin} for phase, margin in margins.items()]
    caption = (
        f"Training of a covariance perceptron with n = 3 outputs; two of the three covariances are shown, G₁ = Q₁₂ and "
        f"G₂ = Q₁₃. Each symbol is one of p = {task.p} patterns; the colour is the label of G₁ (red: +1, blue: −1), "
        f"the shape that of G₂ (disk: +1, square: −1). a: at a random start, κ = {margins['before']:.3f}; b: after "
        f"training with gip, κ = {margins['after']:.3f}. Grey: the margin κ, the smallest distance of any output, Q₂₃ "
        f"included, from its threshold (lines at 0). Dashed: theory for m → ∞, replica symmetry, "
        f"κ = {margins['theory']:.3f}. "
        f"{describe_parameters(row, 'm', 'n', 'f', 'c')}, rows of W of unit length."
    )
    return Data(table, caption)


def _paint_training(axes: Sequence[Axes], data: Data) -> None:
    reach = 1.08 * max(abs(line[name]) for line in data.with_column("pattern") for name in ("Q12", "Q13"))
    margins = {line["phase"]: line["margin"] for line in data.with_column("margin")}
    for panel, phase in zip(axes, ("before", "after"), strict=True):
        for line, span in ((panel.axhline, panel.axhspan), (panel.axvline, panel.axvspan)):
            line(0, color=BLACK, linewidth=0.8)
            if phase == "after":
                span(-margins[phase], margins[phase], color=PALE, linewidth=0, zorder=0)
                for sign in (-1, 1):
                    line(sign * margins["theory"], color=BLACK, linewidth=0.7, linestyle="--")
        for label12, color in ((1, RED), (-1, BLUE)):
            for label13, marker in ((1, "o"), (-1, "s")):
                lines = data.where(phase=phase, label12=label12, label13=label13)
                curve(panel, lines, "Q12", "Q13", marker, color=color)
        panel.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", xlabel="G₁ = Q₁₂", ylabel="G₂ = Q₁₃")
        panel.set_title(f"{panel.get_title('left')}   {phase} training")


TRAINING = Figure("training", _training_suite, _training_data, _paint_training)


def _optimization_data(_: Sequence[MeasuredRow]) -> Data:
    """Iterate W ← unit rows of W + rate · ∇κ_η(W) from a random start, and return every tenth step.

    The ascent is computed here because a run of soft_margin stores only the steps that improve the margin.
    """
    task = problem_apart(_ASCENT_PROBLEM)
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
    predicted = float(theory.covariance_kappa_bar(task.p, task.m, task.n, rsb=0)) * task.scale
    table.append({"theory": predicted})
    caption = (
        f"Gradient ascent on the soft margin $κ_η$, rows of W scaled to unit length after every step. a: the readout "
        f"covariances Q₁₂ʳ = (WPʳWᵀ)₁₂ of p = {task.p} patterns, red for labels ζʳ = +1, blue for −1; grey lines: ±κ "
        f"at the end. b: the margin κ and the soft margin $κ_η$. The ascent maximizes $κ_η$, not κ: κ is "
        f"{max(margins):.3f} at step {margins.index(max(margins))} and {margins[-1]:.3f} at the end. Dashed: theory "
        f"for the largest margin, m → ∞, replica symmetry, κ = {predicted:.3f}. Parameters: m = {task.m}, n = 2, "
        f"f = 0.2, c = 0.5, η = {_ETA:g}, rate ι = {_RATE:g}."
    )
    return Data(table, caption)


def _paint_optimization(axes: Sequence[Axes], data: Data) -> None:
    left, right = axes
    margins = data.with_column("margin")
    for first in data.where(step=0)[1:]:
        color = RED if first["label"] > 0 else BLUE
        curve(left, data.where(pattern=first["pattern"]), "step", "Q12", color=color, linewidth=0.8)
    for sign in (-1, 1):
        left.axhline(sign * margins[-1]["margin"], color=GREY, linewidth=0.8, zorder=0)
    (line,) = data.with_column("theory")
    label = "largest κ, replica symmetry, m → ∞"
    right.axhline(line["theory"], color=BLACK, linestyle="--", linewidth=0.8, label=label)
    curve(right, margins, "step", "margin", color=BLACK, label="margin κ")
    curve(right, margins, "step", "soft_margin", color=ORANGE, label="soft margin $κ_η$")
    left.set(xlabel="step", ylabel="readout covariance Q₁₂ʳ")
    right.set(xlabel="step", ylabel="margin")
    right.legend(loc="lower right")


OPTIMIZATION = Figure("optimization", None, _optimization_data, _paint_optimization)
