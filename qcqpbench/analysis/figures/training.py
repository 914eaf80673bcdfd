"""Figure `training`: outputs of a network before and after training, and the margin that separates the classes."""

from collections.abc import Sequence

from qcqpbench.problem.maxmargin import MaxMargin, unit_rows
from qcqpbench.results.store import Row
from qcqpbench.run.attempt import random_start
from qcqpbench.run.isolation.description import problem_apart
from qcqpbench.run.suite import Settings, Suite

from .base import Axes, Data, Figure, Table, describe_parameters, entry, grid
from .style import BLACK, BLUE, PALE, RED, curve


def _suite(quick: bool) -> Suite:
    m, p = (20, 20) if quick else (50, 50)
    problems = grid("covariance_perceptron", m=m, n=3, f=0.2, c=0.5, p=p)
    return Suite("training", "", tuple(problems), (entry("gip", Settings(time_limit=60)),))


def _data(rows: Sequence[Row]) -> Data:
    """Return the outputs Q_12 and Q_13 of each pattern, and the margins, at the start and the final point of a run."""
    row = next(row for row in rows if row["point"] is not None)
    task = problem_apart(row["problem"])
    assert isinstance(task, MaxMargin)
    table: Table = []
    margins = {"theory": row["kappa_bar_theory"] * task.scale}
    weights = {"before": random_start(task, row["start"], row["seed"]), "after": unit_rows(row["point"])}
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
        f"included, from its threshold (lines at 0). Dashed: theory for m → ∞, κ = {margins['theory']:.3f}. "
        f"{describe_parameters(row, 'm', 'n', 'f', 'c')}, rows of W of unit length."
    )
    return Data(table, caption)


def _paint(axes: Sequence[Axes], data: Data) -> None:
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


TRAINING = Figure("training", _suite, _data, _paint)
