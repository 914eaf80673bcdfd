import re
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from qcqpbench import QCQP, MaxMargin, QcqpbenchError, problem, theory
from qcqpbench.catalog.registry import families, family
from qcqpbench.catalog.spec import parameters_of
from qcqpbench.theory import lookup

TASKS = [
    "covariance_perceptron[m=5,ensemble=paper",
    "covariance_perceptron[m=5,ensemble=psd",
    "covariance_perceptron[m=5,ensemble=gaussian",
    "covariance_perceptron[m=6,n=3,f=0.7,c=0.3",
    "covariance_perceptron[m=100",
    "parity[m=5",
    "parity[m=5,n=3",
]
CLASSICAL = "classical_perceptron[m=5"

# sha256 of the content, the same on every platform.
IDS = [
    ("covariance_perceptron[m=5,p=3]", "551317904887836ba678fe7ef9cb18a5266c74ee4d8105bdbe86b4169a76e41d"),
    (
        "covariance_perceptron[m=6,n=3,f=0.5,c=0.25,p=5,seed=7]",
        "2609e901dfe1d1d6a51b7019a89b3f931fad8d3df896807838f1cd1f52bef4cc",
    ),
    ("covariance_perceptron[m=5,p=3,ensemble=psd]", "367d7443543d9e007814a2e5ffc689237e8ff418dd2d72f6d747eea1ce3fbd96"),
    (
        "covariance_perceptron[m=5,p=3,ensemble=gaussian]",
        "67c901825a370c9868e2ce34ed4f049f6dc1a510c5be6a22fd66fd9f17594563",
    ),
    (
        "covariance_perceptron[m=30,load=5,ensemble=gaussian,seed=1]",
        "fff69d8fa175aecb1888b281c6d298bc2cb53b70d5c721eeea0a69a3dc395d4c",
    ),
    ("classical_perceptron[m=5,p=3]", "62cdc962834d346723ce59fca2d22102714d8eff5e431ba3fe0b83306f3fde40"),
    ("parity[m=5,p=3]", "728d6ac8365ae237292364ffe7897773f167e332592d5771249d552a1dd509b3"),
    (
        "parity[m=4,n=3,load=2,seed=12345678901234567890]",
        "403e0a4bc9d12a513f6a25dd91d10acb7987b7d77d751bdeaddde808d9d78643",
    ),
]


def task(spec: str) -> MaxMargin:
    instance = problem(spec)
    assert isinstance(instance, MaxMargin)
    return instance


def classical(spec: str) -> QCQP:
    instance = problem(spec)
    assert isinstance(instance, QCQP)
    return instance


@pytest.mark.parametrize(("spec", "expected"), IDS)
def test_instance_ids_never_change(spec: str, expected: str) -> None:
    assert problem(spec).id == expected


def raw(seed: int, axis: int, count: int) -> list[int]:
    """Return the first words of a random stream, from NumPy alone."""
    bits = np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(axis,)))
    return [int(bits.random_raw()) for _ in range(count)]


@pytest.mark.parametrize("m", [4, 5, 6, 7])
def test_the_papers_ensemble_against_a_loop(m: int) -> None:
    """Draw half a word of the stream for each entry of the strict lower triangle; each pattern starts a new word."""
    p, f, c = 10, 0.4, 0.3
    size = m * (m - 1) // 2
    words = iter(raw(2, 0, p * ((size + 1) // 2)))
    expected = np.zeros((p, m, m))
    for r in range(p):
        halves = [half for _ in range((size + 1) // 2) for word in [next(words)] for half in (word % 2**32, word >> 32)]
        for k in range(m):
            expected[r, k, k] = 1
            for l in range(k):  # noqa: E741
                half = halves.pop(0) / 2**32
                expected[r, k, l] = expected[r, l, k] = c if half < f / 2 else -c if half > 1 - f / 2 else 0
    instance = task(f"covariance_perceptron[m={m},n=3,p={p},f={f},c={c},seed=2]")
    np.testing.assert_array_equal(instance.patterns, expected)
    labels = [1 if word >= 2**63 else -1 for word in raw(2, 1, 3 * p)]
    np.testing.assert_array_equal(instance.labels.ravel(), labels)


@pytest.mark.parametrize("start", TASKS)
@pytest.mark.parametrize("seed", [0, 5])
def test_fewer_patterns_are_the_first_of_more(start: str, seed: int) -> None:
    large = task(f"{start},p=23,seed={seed}]")
    for p in (1, 2, 3, 4, 5, 22):
        small = task(f"{start},p={p},seed={seed}]")
        np.testing.assert_array_equal(small.patterns, large.patterns[:p])
        np.testing.assert_array_equal(small.labels, large.labels[:p])


def test_fewer_classical_patterns_are_the_first_of_more() -> None:
    large = classical(f"{CLASSICAL},p=23]").linear.toarray()
    for p in (1, 2, 22):
        np.testing.assert_array_equal(classical(f"{CLASSICAL},p={p}]").linear.toarray(), large[: 1 + p])


@pytest.mark.parametrize("ensemble", ["paper", "gaussian"])
def test_a_smaller_load_is_a_prefix_of_a_larger_one(ensemble: str) -> None:
    """Compare loads that need several blocks of random numbers."""
    small, large = (task(f"covariance_perceptron[m=30,load={load},ensemble={ensemble}]") for load in (0.5, 2))
    assert (small.p, large.p) == (30, 120)
    np.testing.assert_array_equal(small.patterns, large.patterns[:30])
    np.testing.assert_array_equal(small.labels, large.labels[:30])


def test_axes_and_seeds_are_independent() -> None:
    """Check that labels and patterns do not depend on each other's parameters, and both on the seed."""
    base, other_patterns, other_labels, other_seed = (
        task(f"covariance_perceptron[m=8,p=40,{rest}]") for rest in ("f=0.5", "f=0.1", "f=0.5,n=3", "f=0.5,seed=1")
    )
    np.testing.assert_array_equal(base.labels, other_patterns.labels)
    assert (base.patterns != other_patterns.patterns).any()
    np.testing.assert_array_equal(base.patterns, other_labels.patterns)
    assert (base.patterns != other_seed.patterns).any()
    assert (base.labels != other_seed.labels).any()


def check_signs_balance(values: NDArray[Any]) -> None:
    positive, total = int((values > 0).sum()), int((values != 0).sum())
    assert stats.binomtest(positive, total).pvalue > 1e-3


@pytest.mark.parametrize("f", [0.01, 0.2, 0.9, 1.0])
def test_statistics_of_the_papers_ensemble(f: float) -> None:
    instance = task(f"covariance_perceptron[m=40,p=200,n=3,f={f},c=0.3]")
    np.testing.assert_array_equal(instance.patterns, np.swapaxes(instance.patterns, 1, 2))
    np.testing.assert_array_equal(np.diagonal(instance.patterns, axis1=1, axis2=2), 1)
    entries = instance.patterns[:, *np.tril_indices(40, -1)]
    assert set(np.unique(entries)) <= {-0.3, 0.0, 0.3}
    filled = int((entries != 0).sum())
    assert filled == entries.size if f == 1 else stats.binomtest(filled, entries.size, f).pvalue > 1e-3
    check_signs_balance(entries)
    check_signs_balance(instance.labels)
    assert instance.scale == pytest.approx(np.sqrt(f * 0.3**2), rel=1e-15)
    if f < 1:
        assert entries.var() == pytest.approx(instance.scale**2, rel=0.1)


def test_statistics_of_the_gaussian_ensemble() -> None:
    instance = task("covariance_perceptron[m=40,p=100,f=0.2,c=0.5,ensemble=gaussian]")
    z = instance.patterns / np.sqrt(0.2 * 0.25)
    assert instance.scale == pytest.approx(np.sqrt(0.2 * 0.25), rel=1e-15)
    moments = np.array([z.mean(), (z**2).mean() - 1, (z**3).mean(), (z**4).mean() - 3])
    assert (np.abs(moments) < 4 * np.sqrt(np.array([1, 2, 15, 96]) / z.size)).all()
    assert stats.kstest(z.ravel(), "norm").pvalue > 0.01
    row, column = np.tril_indices(40, -1)
    assert stats.pearsonr(z[:, row, column].ravel(), z[:, column, row].ravel()).pvalue > 1e-3


@pytest.mark.parametrize("m", [2, 3, 4, 5, 6, 8, 10, 13, 16, 20, 30, 60])
@pytest.mark.parametrize("f", [0.01, 0.03, 0.1, 0.2, 0.5, 0.75, 1.0])
def test_the_psd_ensemble_is_positive_semidefinite(m: int, f: float) -> None:
    for seed in range(3):
        instance = task(f"covariance_perceptron[m={m},f={f},p=80,ensemble=psd,seed={seed}]")
        assert np.linalg.eigvalsh(instance.patterns).min() >= 0
        np.testing.assert_array_equal(instance.patterns, np.swapaxes(instance.patterns, 1, 2))


def test_the_psd_ensemble_refuses_a_large_c_and_states_the_largest() -> None:
    expected = r"c must be at most (\S+) for these .*, got 0.5: a pattern has the eigenvalue -"
    with pytest.raises(QcqpbenchError, match=expected) as caught:
        problem("covariance_perceptron[m=40,p=20,c=0.5,ensemble=psd]")
    stated = re.search(expected, str(caught.value))
    assert stated is not None
    instance = task(f"covariance_perceptron[m=40,p=20,c={stated[1]},ensemble=psd]")
    assert 0 <= np.linalg.eigvalsh(instance.patterns).min() < 0.02


def test_the_papers_patterns_are_not_covariances() -> None:
    instance = task("covariance_perceptron[p=5]")
    assert (instance.m, instance.n) == (100, 2)
    assert instance.smallest_eigenvalue == pytest.approx(np.linalg.eigvalsh(instance.patterns).min(), rel=1e-12)
    assert instance.smallest_eigenvalue == pytest.approx(1 - 2 * 0.5 * np.sqrt(0.2 * 100), rel=0.1)


@pytest.mark.parametrize("n", [2, 3])
def test_parity_patterns_are_rank_one(n: int) -> None:
    instance = task(f"parity[m=9,n={n},p=300]")
    assert set(np.unique(instance.patterns)) == {-1.0, 1.0}
    x = instance.patterns[:, 0]
    np.testing.assert_array_equal(instance.patterns, np.einsum("rk,rl->rkl", x, x))
    check_signs_balance(x[:, 1:])
    check_signs_balance(instance.labels)
    W = np.random.default_rng(0).standard_normal((n, 9))
    i, j = np.triu_indices(n, 1)
    expected = (x @ W[i].T) * (x @ W[j].T) * instance.labels
    np.testing.assert_allclose(instance.stabilities(W), expected, rtol=1e-10, atol=1e-12)


def test_the_classical_perceptron_is_the_convex_program() -> None:
    instance = classical("classical_perceptron[m=7,p=300]")
    x = np.random.default_rng(0).standard_normal(7)
    signed = instance.linear.toarray()[1:]
    assert signed.shape == (300, 7)
    assert set(np.unique(signed)) == {-1.0, 1.0}
    check_signs_balance(signed)
    assert instance.sense == "minimize"
    assert instance.objective(x) == pytest.approx(x @ x)
    np.testing.assert_allclose(instance.values(x), signed @ x, rtol=1e-12)
    np.testing.assert_array_equal(instance.hessian(np.ones(300)).toarray(), 2 * np.eye(7))
    assert (instance.lower == 1).all()
    assert (instance.upper == np.inf).all()


def test_classical_labels_and_patterns_come_from_separate_streams() -> None:
    """Recompute the rows ζ^r x^r from the two streams."""
    p, m = 20, 5
    x = np.array([1 if word >= 2**63 else -1 for word in raw(3, 0, p * m)]).reshape(p, m)
    labels = np.array([1 if word >= 2**63 else -1 for word in raw(3, 1, p)])
    instance = classical(f"classical_perceptron[m={m},p={p},seed=3]")
    np.testing.assert_array_equal(instance.linear.toarray()[1:], x * labels[:, None])


@pytest.mark.parametrize(
    ("spec", "p"),
    [
        ("covariance_perceptron[m=10]", 20),
        ("covariance_perceptron[m=10,load=0.25]", 5),
        ("covariance_perceptron[m=10,n=3,load=0.25]", 8),
        ("covariance_perceptron[m=10,load=0.1,n=4]", 4),
        ("covariance_perceptron[m=10,p=7]", 7),
        ("parity[m=10,load=0.3]", 6),
        ("classical_perceptron[m=10]", 10),
        ("classical_perceptron[m=10,load=0.3]", 3),
    ],
)
def test_load_counts_patterns_per_synapse(spec: str, p: int) -> None:
    instance = problem(spec)
    assert (instance.p if isinstance(instance, MaxMargin) else instance.n_constraints) == p


@pytest.mark.parametrize(
    "spec", [*(spec for spec, _ in IDS), "parity[m=4]", "classical_perceptron[m=4]", "covariance_perceptron[m=4]"]
)
def test_the_spec_of_an_instance_makes_it_again(spec: str) -> None:
    instance = problem(spec)
    assert instance.metadata.spec is not None
    assert problem(instance.metadata.spec).id == instance.id
    assert instance.metadata.spec == family(spec).spec
    assert f"seed={instance.metadata.seed}" in instance.metadata.spec


def test_an_instance_has_the_margins_of_theory() -> None:
    notes = problem("covariance_perceptron[m=50,load=2]").metadata.notes
    assert notes["kappa_bar_rs"] == pytest.approx(0.4706553526)
    assert notes["kappa_bar_theory"] == pytest.approx(0.39376, abs=5e-6)
    notes = problem("classical_perceptron[m=50,load=1]").metadata.notes
    assert notes["kappa_bar_rs"] == notes["kappa_bar_theory"] == pytest.approx(theory.covariance_kappa_bar(4, 1))


@pytest.mark.parametrize("ensemble", ["paper", "psd", "gaussian"])
@pytest.mark.parametrize(("m", "n", "p"), [(50, 2, 1), (50, 2, 200), (50, 3, 80), (10, 5, 99), (4, 3, 500)])
def test_the_theory_of_covariance_perceptrons_is_full_breaking(ensemble: str, m: int, n: int, p: int) -> None:
    prediction = family(f"covariance_perceptron[m={m},n={n},p={p},ensemble={ensemble}]").theory()
    assert prediction is not None
    assert prediction.kappa_bar == pytest.approx(theory.covariance_kappa_bar(p, m, n, rsb="full"), abs=1e-11)
    assert prediction.kappa_bar_rs == theory.covariance_kappa_bar(p, m, n, rsb=0)


@pytest.mark.parametrize(("m", "p"), [(50, 1), (50, 50), (50, 100), (50, 101), (10, 99), (2, 900)])
def test_the_theory_of_classical_perceptrons_is_full_breaking(m: int, p: int) -> None:
    prediction = family(f"classical_perceptron[m={m},p={p}]").theory()
    assert prediction is not None
    assert prediction.kappa_bar == pytest.approx(theory.classical_kappa_bar(p, m, rsb="full"), abs=1e-11)
    assert prediction.kappa_bar_rs == theory.classical_kappa_bar(p, m, rsb=0)
    assert (prediction.kappa_bar == prediction.kappa_bar_rs) == (p <= 2 * m)


@pytest.mark.parametrize(
    "spec",
    [
        "covariance_perceptron[m=201,p=1]",
        "covariance_perceptron[m=2,p=2500]",
        "classical_perceptron[m=2,p=1100]",
    ],
)
def test_full_breaking_is_not_computed_for_a_problem(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check loads beyond the table, where computing the prediction takes seconds."""
    monkeypatch.setattr(lookup, "solution_at_load", None)
    prediction = family(spec).theory()
    assert prediction is not None and prediction.kappa_bar is None and prediction.kappa_bar_rs is not None
    assert problem(spec).metadata.notes == {"kappa_bar_rs": prediction.kappa_bar_rs}


def test_a_family_has_no_theory_by_default() -> None:
    assert family("parity[m=4]").theory() is None


def test_every_family_is_registered() -> None:
    with_patterns = [
        name for name, kind in families().items() if "p" in (field.name for field, _ in parameters_of(kind))
    ]
    assert with_patterns == ["classical_perceptron", "covariance_perceptron", "parity"]
    assert "library" in families()


BIG = 10**12


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("covariance_perceptron[m=1]", "m must be at least 2 for covariances, got 1"),
        ("covariance_perceptron[n=1]", "n must be at least 2 for covariances, got 1"),
        ("covariance_perceptron[p=0]", "p must be at least 1, got 0"),
        ("covariance_perceptron[load=-1]", r"load must be positive and finite \(patterns per synapse\), got -1.0"),
        ("covariance_perceptron[load=inf]", r"load must be positive and finite \(patterns per synapse\), got inf"),
        ("covariance_perceptron[load=0]", r"load must be positive and finite \(patterns per synapse\), got 0.0"),
        (
            "covariance_perceptron[load=0.001]",
            "load must be at least 0.005 for 200 synapses to give a pattern, got 0.001",
        ),
        ("covariance_perceptron[load=1,p=3]", "exactly one of load and p must be given, got both"),
        ("covariance_perceptron[f=1.5]", "f must be more than 0 and at most 1, got 1.5"),
        ("covariance_perceptron[f=0]", "f must be more than 0 and at most 1, got 0.0"),
        ("covariance_perceptron[c=0]", "c must be positive and finite, got 0.0"),
        ("covariance_perceptron[c=inf]", "c must be positive and finite, got inf"),
        ("covariance_perceptron[seed=-1]", "seed must be 0 or more, got -1"),
        ("covariance_perceptron[ensemble=wishart]", r"ensemble must be paper\|psd\|gaussian, got wishart"),
        ("covariance_perceptron[mm=3]", "unknown parameter of covariance_perceptron 'mm'; did you mean 'm'"),
        (
            f"covariance_perceptron[m={BIG}]",
            "the patterns must fit into memory and be under 1 TiB, got .* GB: make m, n or p smaller",
        ),
        (f"covariance_perceptron[m={BIG**3},p=1]", "must fit into memory"),
        (f"covariance_perceptron[m=3,n={BIG},p=1]", "must fit into memory"),
        (f"covariance_perceptron[p={BIG},ensemble=gaussian]", "must fit into memory"),
        ("parity[m=1]", "m must be at least 2 for covariances, got 1"),
        ("parity[p=0]", "p must be at least 1, got 0"),
        (f"parity[m={BIG}]", "must fit into memory"),
        (f"parity[m={BIG**3},p=1]", "must fit into memory"),
        ("classical_perceptron[m=0]", "m must be at least 1, got 0"),
        ("classical_perceptron[load=-1]", r"load must be positive and finite \(patterns per synapse\), got -1.0"),
        ("classical_perceptron[n=2]", "unknown parameter of classical_perceptron 'n'"),
        (f"classical_perceptron[m={BIG}]", "must fit into memory"),
        (f"classical_perceptron[m={BIG**3},p=1]", "must fit into memory"),
        ("covariance_perceptro", "did you mean 'covariance_perceptron'"),
        ("perceptron", "did you mean"),
        ("nothing", "allowed: classical_perceptron, covariance_perceptron, library, .*parity, recorded, spin_glass"),
    ],
)
def test_wrong_specs_are_refused_in_one_line(spec: str, message: str) -> None:
    with pytest.raises(QcqpbenchError, match=message) as caught:
        problem(spec)
    assert "\n" not in str(caught.value)
