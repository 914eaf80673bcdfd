"""Print the tables of docs/background/gip.md, which defines the symbols: margins, times, upper bounds and costs of gip.

    python docs/gip_benchmark.py solvers LOAD…    margins and times on five pattern sets per load: one run of gip, ten
                                                  starts of ipopt[formulation=epigraph], and at loads 1 and 2 three
                                                  starts of ipopt[formulation=min_norm]
    python docs/gip_benchmark.py certificate      optimality gaps that certificates prove at loads 0.1, 0.25 and 0.5
    python docs/gip_benchmark.py iteration        time of an iteration of one path and of 16 paths, time of its matrix
                                                  products alone (floor), growth with m, and peak memory
    python docs/gip_benchmark.py schedule M…      deficits from full RSB at loads 2 and 3, gaussian ensemble, with the
                                                  default schedule and with gip[mu0=0.5,shrink=0.4]
    python docs/gip_benchmark.py steps            time of a Newton step of a path on small tasks, NumPy and compiled
    python docs/gip_benchmark.py small N,M…       share of instances with N outputs and M inputs on which one run of gip
                                                  reaches the best margin of IPOPT, multistart and branch and bound, and
                                                  its CPU time in units of one IPOPT start; N,M is 2,10 to 5,50

Every run is made once, in one process and one thread, so ratios of times are more reliable than times.
"""

import os
import sys

os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"))

import time
import tracemalloc
from collections.abc import Callable
from statistics import mean
from typing import Any

import numpy as np
from scipy.linalg import lapack

import qcqpbench
from qcqpbench.catalog.certificate.shor import certify_margin
from qcqpbench.catalog.registry import solver
from qcqpbench.catalog.solver import Budget
from qcqpbench.run.attempt import Attempt, solve
from qcqpbench.run.run_spec import random_start
from qcqpbench.solvers._gip_kernel import instructions, newton_steps
from qcqpbench.solvers._gip_passes import Passes, Patterns, warm_up
from qcqpbench.solvers._gip_paths import Rules, Status, new_paths
from qcqpbench.solvers._gip_schedule import schedule
from qcqpbench.solvers._gip_stack import Stack
from qcqpbench.solvers._gip_state import Batch
from qcqpbench.solvers.gip import batch_of_starts

# Seeds that were not used to choose gip's settings, except its number of starts (docs/background/gip.md).
SEEDS = range(70, 75)


def task(load: float, seed: int, m: int = 100, ensemble: str = "paper") -> Any:
    """Return the task of an ensemble with this load, seed and number of inputs."""
    return qcqpbench.problem(f"covariance_perceptron[m={m},load={load},seed={seed},ensemble={ensemble}]")


def seconds(attempts: list[Attempt]) -> float:
    """Return the total build and solve time of the attempts."""
    return sum((attempt.solve_seconds or 0.0) + (attempt.build_seconds or 0.0) for attempt in attempts)


def solvers(loads: list[float]) -> None:
    """Print margins and times of gip and IPOPT."""
    print(
        "| load P̂ | set (seed) | gip: κ̄ | best of 10 IPOPT starts: κ̄ | difference in κ̄ | gip: time, s |"
        " 10 IPOPT starts: time, s | gip time / IPOPT time | best of 3 min-norm IPOPT starts: κ̄ |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for load in loads:
        rows = []
        for seed in SEEDS:
            problem = task(load, seed)
            # The first call imports modules, which must not count in the time of gip.
            solve(problem, "gip[starts=1]")
            gip = solve(problem, "gip")
            ipopt = [solve(problem, "ipopt", random_start(problem, k), 120) for k in range(10)]
            form = "ipopt[formulation=min_norm]"
            norm = [solve(problem, form, random_start(problem, k), 120) for k in range(3 if load in (1, 2) else 0)]
            best = max(attempt.kappa_bar or -np.inf for attempt in ipopt)
            best_norm = max((attempt.kappa_bar or -np.inf for attempt in norm), default=np.nan)
            row = (gip.kappa_bar or np.nan, best, seconds([gip]), seconds(ipopt), best_norm)
            rows.append(row)
            show(load, str(seed), row)
        show(load, "mean", tuple(mean(column) for column in zip(*rows, strict=True)))


def show(load: float, name: str, row: tuple[float, ...]) -> None:
    """Print one row of the comparison; `name` is the seed or "mean"."""
    kappa, best, gip_seconds, ipopt_seconds, norm = row
    norm_text = "not run" if np.isnan(norm) else f"{norm:.4f}"
    print(
        f"| {load} | {name} | {kappa:.4f} | {best:.4f} | {kappa - best:+.4f} | {gip_seconds:.3f} |"
        f" {ipopt_seconds:.2f} | 1/{ipopt_seconds / gip_seconds:.0f} | {norm_text} |",
        flush=True,
    )


def certificate() -> None:
    """Print the optimality gaps that certificates prove for gip's points."""
    print(
        "| load P̂ | set (seed) | κ̄ | upper bound on κ̄ | gap, % of the bound |"
        " certificate time, s / gip time, s = ratio | proved optimal |"
    )
    print("|---|---|---|---|---|---|---|")
    for load in (0.1, 0.25, 0.5):
        gaps = []
        for seed in SEEDS:
            problem = task(load, seed)
            begin = time.perf_counter()
            solution = solver("gip").build(problem)(random_start(problem), Budget())
            solve_seconds = time.perf_counter() - begin
            proof = certify_margin(problem, solution.x, solution.multipliers)
            assert proof.gap is not None and proof.margin is not None
            gaps.append(proof.gap)
            kappa, bound = proof.margin / problem.scale, proof.bound / problem.scale
            ratio = f"{proof.seconds:.2f} / {solve_seconds:.2f} = {proof.seconds / solve_seconds:.1f}"
            optimal = "yes" if proof.proved_optimal else "no"
            print(f"| {load} | {seed} | {kappa:.4f} | {bound:.4f} | {proof.gap:.3%} | {ratio} | {optimal} |")
        print(f"| {load} | mean | – | – | {mean(gaps):.3%} | – | – |", flush=True)


def fastest(call: Callable[[], object], repeats: int = 7) -> float:
    """Return the time of the fastest of `repeats` calls, in seconds."""
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return min(times)


def per_iteration(problem: Any) -> tuple[float, float]:
    """Return the seconds of a Newton iteration of one path (mean over 16 paths) and of 16 paths in lockstep."""
    passes = Passes(problem, mixed=True)
    plan = schedule(problem.n, problem.m, 16, width=0.5, shrink=0.4)
    *_, (W, _) = warm_up(passes, batch_of_starts(random_start(problem), 16), plan.smoothing)

    def iteration(W: Any) -> float:
        steps = 0

        def iterate() -> None:
            nonlocal steps
            batch, steps = Batch(passes, W.copy(), plan.only(list(range(len(W)))), 1e-9), 0
            for _ in range(6):
                steps += int(batch.live.sum())
                batch.iterate()

        return fastest(iterate, 5) / steps * len(W)

    return mean(iteration(W[k : k + 1]) for k in range(16)), iteration(W)


def floor(problem: Any) -> float:
    """Return the seconds of the products and factorizations that an iteration of one path needs, in float32."""
    patterns = problem.patterns.astype(np.float32)
    p, m = problem.p, problem.m
    w = np.ones((2, m), dtype=np.float32)
    slopes = np.ones((p, 2 * m + 1), dtype=np.float32)
    matrix = np.asfortranarray(np.eye(2 * m + 1, dtype=np.float32))
    weights = np.ones((1, p), dtype=np.float32)
    return (
        fastest(lambda: np.matmul(w, patterns))
        + fastest(lambda: weights @ patterns.reshape(p, -1))
        + fastest(lambda: slopes.T @ slopes)
        + fastest(lambda: lapack.spotrf(matrix, lower=1))
    )


def memory(problem: Any, spec: str) -> float:
    """Return the peak memory of a run, patterns included, as a multiple of the size of the patterns."""
    tracemalloc.start()
    solver(spec).build(problem)(random_start(problem), Budget())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return float(1 + peak / problem.patterns.nbytes)


def iteration() -> None:
    """Print the time of an iteration, its floor, and the peak memory as a multiple of the size of the patterns."""
    print(
        "| inputs m | load P̂ | iteration, ms | floor, ms | iteration / floor | 16 paths / 1 path (time) |"
        " peak memory, 1 path | peak memory, default starts |"
    )
    print("|---|---|---|---|---|---|---|---|")
    times = {}
    for m, load in ((100, 1), (100, 2), (100, 3), (200, 1), (400, 1)):
        problem = task(load, 0, m)
        (one, batch), least = per_iteration(problem), floor(problem)
        times[m, load] = one
        space = " | ".join(f"{memory(problem, spec):.2f}" for spec in ("gip[starts=1,max_iter=2]", "gip[max_iter=2]"))
        print(
            f"| {m} | {load} | {1e3 * one:.2f} | {1e3 * least:.2f} | {one / least:.2f} | {batch / one:.1f} | {space} |",
            flush=True,
        )
    sizes = np.array([100, 200, 400])
    slope = np.polyfit(np.log(sizes), np.log([times[m, 1] for m in sizes.tolist()]), 1)[0]
    print(f"\nThe time of an iteration at P̂ = 1 grows as m^{slope:.2f}.")


# Numbers of pattern sets at each number of inputs; the seeds count from 0, and no setting was chosen on these sets.
SETS_OF_SIZE = {50: 24, 100: 12, 200: 8, 400: 2}


def schedules(sizes: list[int]) -> None:
    """Print deficits from full RSB and times of gip on the same sets, by default and with a given schedule."""
    print(
        "| load P̂ | inputs m | sets | deficit, gip[mu0=0.5,shrink=0.4] | deficit, default | gain in κ̄ |"
        " time, gip[mu0=0.5,shrink=0.4], s | time, default, s | ratio |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for load in (2, 3):
        for m in sizes:
            rows = []
            for seed in range(SETS_OF_SIZE[m]):
                problem = task(load, seed, m, "gaussian")
                solve(problem, "gip[starts=1,max_iter=1]")
                runs = [solve(problem, spec) for spec in ("gip[mu0=0.5,shrink=0.4]", "gip")]
                deficits = [
                    run.kappa_bar_theory - run.kappa_bar for run in runs if run.kappa_bar and run.kappa_bar_theory
                ]
                rows.append([*deficits, deficits[0] - deficits[1], *(seconds([run]) for run in runs)])
            old, new, gain, old_seconds, new_seconds = (mean(column) for column in zip(*rows, strict=True))
            errors = np.std(rows, axis=0, ddof=1) / np.sqrt(len(rows))
            print(
                f"| {load} | {m} | {len(rows)} | {old:.4f} ± {errors[0]:.4f} | {new:.4f} ± {errors[1]:.4f} |"
                f" {gain:+.4f} ± {errors[2]:.4f} | {old_seconds:.2f} | {new_seconds:.2f} |"
                f" {new_seconds / old_seconds:.2f} |",
                flush=True,
            )


def seconds_per_step(patterns: Patterns, W: Any, stepper: Any) -> float:
    """Return the CPU time of the paths from `W` by their number of steps, the smallest of three runs."""
    times = []
    for _ in range(3):
        paths, begin = new_paths(patterns, W, 1.0), time.process_time()
        while (paths.status <= Status.ARRIVED).any():
            paths.status[paths.status == Status.ARRIVED] = Status.RUNNING
            stepper.follow(paths, 100_000)
        times.append((time.process_time() - begin) / paths.age.sum())
    return float(min(times))


def steps() -> None:
    """Print the time of a Newton step of a path on small tasks, in NumPy and in compiled code."""
    print(f"| outputs n | inputs m | patterns p | NumPy, µs | compiled ({instructions()}), µs | ratio |")
    print("|---|---|---|---|---|---|")
    for n, m, p in (
        (2, 10, 20),
        (3, 10, 20),
        (5, 10, 10),
        (2, 20, 40),
        (3, 20, 40),
        (5, 20, 20),
        (2, 50, 100),
        (3, 50, 100),
    ):
        problem: Any = qcqpbench.problem(f"covariance_perceptron[n={n},m={m},p={p},seed=0]")
        passes = Passes(problem, mixed=True)
        patterns = Patterns(problem, passes.unit, passes.symmetric, single=True)
        W, rules = batch_of_starts(random_start(problem), 128), Rules(0.4, 0.004, 1e-9, max_age=80)

        numpy_seconds, compiled_seconds = (
            seconds_per_step(patterns, W, stepper)
            for stepper in (Stack(patterns, rules), newton_steps(patterns, rules))
        )
        print(
            f"| {n} | {m} | {p} | {1e6 * numpy_seconds:.1f} | {1e6 * compiled_seconds:.1f} |"
            f" {numpy_seconds / compiled_seconds:.1f} |",
            flush=True,
        )


# Loads of two outputs, and shares of the capacity that theory predicts for more outputs (suite best_known).
LOADS = (0.1, 0.25, 0.5, 1, 1.5, 2, 2.5, 3, 3.5)
CAPACITY_SHARES = (1 / 8, 1 / 4, 1 / 2, 3 / 4, 7 / 8)
# No setting was chosen on these seeds. Each instance has its own seed, in turn.
FRESH_SEEDS = range(100, 130)
REPEATS = {(2, 10): 4, (3, 10): 6, (5, 10): 6, (2, 20): 4, (3, 20): 4, (5, 20): 2, (2, 50): 2, (3, 50): 2, (5, 50): 1}
IPOPT_STARTS = {10: 60, 20: 20, 50: 10}
TIMED_STARTS = 3


def small_specs(n: int, m: int) -> list[str]:
    """Return the specs of the fresh instances with n outputs and m inputs."""
    if n == 2:
        sizes = [f"load={load}" for load in LOADS]
    elif n == 3:
        sizes = [f"p={int(4 * share * m)}" for share in CAPACITY_SHARES]
    else:
        sizes = [f"load={0.4 * share:g}" for share in CAPACITY_SHARES]
    cells = [(size, ensemble) for size in sizes for ensemble in ("paper", "psd", "gaussian")]
    # The seeds shift by one whenever a cycle through them would begin at the first cell again.
    seeds = len(FRESH_SEEDS)
    shift = [repeat * len(cells) // seeds if seeds % len(cells) == 0 else 0 for repeat in range(REPEATS[n, m])]
    numbers = [len(cells) * repeat + cell + shift[repeat] for repeat in range(len(shift)) for cell in range(len(cells))]
    return [
        f"covariance_perceptron[m={m},n={n},{size},ensemble={ensemble},seed={FRESH_SEEDS[number % seeds]}]"
        for (size, ensemble), number in zip(cells * len(shift), numbers, strict=True)
    ]


def ipopt_margins(problem: Any, numbers: range) -> list[float]:
    """Return the margins of the IPOPT starts with these numbers."""
    return [solve(problem, "ipopt", random_start(problem, k), 60).margin or -np.inf for k in numbers]


def reference(problem: Any) -> float:
    """Return the best margin of solvers other than the run of gip that is measured."""
    margins = ipopt_margins(problem, range(TIMED_STARTS, IPOPT_STARTS[problem.m]))
    rounds = [solve(problem, "multistart", random_start(problem, k)).margin or -np.inf for k in (1, 2)]
    proofs = []
    if problem.n == 2 and problem.m == 10 and problem.load <= 1:
        proofs = [solve(problem, "branch_and_bound", random_start(problem, 3), 5).margin or -np.inf]
    # Patterns of the ensembles "paper" and "psd" are symmetric with ones on the diagonal (docs/background/gip.md).
    symmetric = problem.n == 2 and np.array_equal(problem.patterns, problem.patterns.swapaxes(1, 2))
    return float(max(*margins, *rounds, *proofs, 0.0 if symmetric else -np.inf))


def small(groups: list[tuple[int, int]]) -> None:
    """Print hit rates and CPU times of one run of gip on fresh instances with few weights."""
    print(
        f"| outputs n | inputs m | instances | hits | gip ({instructions()}): CPU time, s |"
        " 1 IPOPT start: CPU time, s | ratio |"
    )
    print("|---|---|---|---|---|---|---|")
    for n, m in groups:
        rows = []
        for spec in small_specs(n, m):
            problem: Any = qcqpbench.problem(spec)
            solve(problem, "gip[starts=1,max_iter=1]")
            gip = solve(problem, "gip")
            ipopt = [solve(problem, "ipopt", random_start(problem, k), 60) for k in range(TIMED_STARTS)]
            best = max(reference(problem), *(run.margin or -np.inf for run in ipopt))
            hit = (gip.margin or 0.0) >= best - 1e-6 * max(abs(best), 0.01 * problem.scale)
            rows.append((hit, gip.cpu_seconds or 0.0, mean(run.cpu_seconds or 0.0 for run in ipopt)))
        hits, gip_seconds, ipopt_seconds = (mean(column) for column in zip(*rows, strict=True))
        print(
            f"| {n} | {m} | {len(rows)} | {hits:.1%} | {gip_seconds:.3f} | {ipopt_seconds:.3f} |"
            f" {gip_seconds / ipopt_seconds:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["solvers", *loads]:
            solvers([float(load) for load in loads])
        case ["certificate"]:
            certificate()
        case ["iteration"]:
            iteration()
        case ["schedule", *sizes]:
            schedules([int(m) for m in sizes] or list(SETS_OF_SIZE))
        case ["steps"]:
            steps()
        case ["small", *groups]:
            names = groups or [f"{n},{m}" for n, m in REPEATS]
            small([(int(n), int(m)) for n, m in (name.split(",") for name in names)])
        case _:
            sys.exit(__doc__)
