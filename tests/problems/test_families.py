from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from qcqpbench import QCQP, MaxMargin, QcqpbenchError, problem, theory
from qcqpbench.catalog.registry import families, family
from qcqpbench.catalog.spec import parameters_of

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
    made = problem(spec)
    assert isinstance(made, MaxMargin)
    return made


def classical(spec: str) -> QCQP:
    made = problem(spec)
    assert isinstance(made, QCQP)
    return made


@pytest.mark.parametrize(("spec", "expected"), IDS)
def test_instances_are_the_same_for_ever(spec: str, expected: str) -> None:
    assert problem(spec).id == expected


def raw(seed: int, axis: int, count: int) -> list[int]:
    bits = np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(axis,)))
    return [int(bits.random_raw()) for _ in range(count)]


@pytest.mark.parametrize("m", [4, 5, 6, 7])
def test_the_papers_ensemble_against_a_loop(m: int) -> None:
    """Half a word of the stream for each entry of the strict lower triangle; each pattern starts a new word."""
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
    made = task(f"covariance_perceptron[m={m},n=3,p={p},f={f},c={c},seed=2]")
    np.testing.assert_array_equal(made.patterns, expected)
    labels = [1 if word >= 2**63 else -1 for word in raw(2, 1, 3 * p)]
    np.testing.assert_array_equal(made.labels.ravel(), labels)


@pytest.mark.parametrize("start", TASKS)
@pytest.mark.parametrize("seed", [0, 5])
def test_fewer_patterns_are_the_first_of_more(start: str, seed: int) -> None:
    large = task(f"{start},p=23,seed={seed}]")
    for p in (1, 2, 3, 4, 5, 22):
        small = task(f"{start},p={p},seed={seed}]")
        np.testing.assert_array_equal(small.patterns, large.patterns[:p])
        np.testing.assert_array_equal(small.labels, large.labels[:p])


def test_fewer_patterns_are_the_first_of_more_classically() -> None:
    large = classical(f"{CLASSICAL},p=23]").linear.toarray()
    for p in (1, 2, 22):
        np.testing.assert_array_equal(classical(f"{CLASSICAL},p={p}]").linear.toarray(), large[: 1 + p])


@pytest.mark.parametrize("ensemble", ["paper", "gaussian"])
def test_a_smaller_load_is_a_prefix_of_a_larger_one(ensemble: str) -> None:
    """Long enough for several blocks of random numbers."""
    small, large = (task(f"covariance_perceptron[m=30,load={load},ensemble={ensemble}]") for load in (0.5, 2))
    assert (small.p, large.p) == (30, 120)
    np.testing.assert_array_equal(small.patterns, large.patterns[:30])
    np.testing.assert_array_equal(small.labels, large.labels[:30])


def test_axes_and_seeds_are_independent() -> None:
    """The labels depend on neither the patterns' parameters nor vice versa; another seed changes both."""
    base, other_patterns, other_labels, other_seed = (
        task(f"covariance_perceptron[m=8,p=40,{rest}]") for rest in ("f=0.5", "f=0.1", "f=0.5,n=3", "f=0.5,seed=1")
    )
    np.testing.assert_array_equal(base.labels, other_patterns.labels)
    assert (base.patterns != other_patterns.patterns).any()
    np.testing.assert_array_equal(base.patterns, other_labels.patterns)
    assert (base.patterns != other_seed.patterns).any()
    assert (base.labels != other_seed.labels).any()


def signs_balance(values: NDArray[Any]) -> None:
    positive, total = int((values > 0).sum()), int((values != 0).sum())
    assert stats.binomtest(positive, total).pvalue > 1e-3


@pytest.mark.parametrize("f", [0.01, 0.2, 0.9, 1.0])
def test_statistics_of_the_papers_ensemble(f: float) -> None:
    made = task(f"covariance_perceptron[m=40,p=200,n=3,f={f},c=0.3]")
    np.testing.assert_array_equal(made.patterns, np.swapaxes(made.patterns, 1, 2))
    np.testing.assert_array_equal(np.diagonal(made.patterns, axis1=1, axis2=2), 1)
    entries = made.patterns[:, *np.tril_indices(40, -1)]
    assert set(np.unique(entries)) <= {-0.3, 0.0, 0.3}
    filled = int((entries != 0).sum())
    assert filled == entries.size if f == 1 else stats.binomtest(filled, entries.size, f).pvalue > 1e-3
    signs_balance(entries)
    signs_balance(made.labels)
    assert made.scale == pytest.approx(np.sqrt(f * 0.3**2), rel=1e-15)
    if f < 1:
        assert entries.var() == pytest.approx(made.scale**2, rel=0.1)


def test_statistics_of_the_gaussian_ensemble() -> None:
    made = task("covariance_perceptron[m=40,p=100,f=0.2,c=0.5,ensemble=gaussian]")
    z = made.patterns / np.sqrt(0.2 * 0.25)
    assert made.scale == pytest.approx(np.sqrt(0.2 * 0.25), rel=1e-15)
    moments = np.array([z.mean(), (z**2).mean() - 1, (z**3).mean(), (z**4).mean() - 3])
    assert (np.abs(moments) < 4 * np.sqrt(np.array([1, 2, 15, 96]) / z.size)).all()
    assert stats.kstest(z.ravel(), "norm").pvalue > 0.01
    row, column = np.tril_indices(40, -1)
    assert stats.pearsonr(z[:, row, column].ravel(), z[:, column, row].ravel()).pvalue > 1e-3


@pytest.mark.parametrize("m", [2, 3, 4, 5, 6, 8, 10, 13, 16, 20, 30, 60])
@pytest.mark.parametrize("f", [0.01, 0.03, 0.1, 0.2, 0.5, 0.75, 1.0])
def test_the_psd_ensemble_is_positive_semidefinite(m: int, f: float) -> None:
    for seed in range(3):
        made = task(f"covariance_perceptron[m={m},f={f},p=80,ensemble=psd,seed={seed}]")
        assert np.linalg.eigvalsh(made.patterns).min() >= 0
        np.testing.assert_array_equal(made.patterns, np.swapaxes(made.patterns, 1, 2))


def test_the_psd_ensemble_keeps_its_promise_or_says_how() -> None:
    with pytest.raises(QcqpbenchError, match=r"c=0.5 gives a pattern with the eigenvalue -.*; right is c <= "):
        problem("covariance_perceptron[m=40,p=20,c=0.5,ensemble=psd]")
    with pytest.raises(QcqpbenchError) as caught:
        problem("covariance_perceptron[m=40,p=20,c=0.5,ensemble=psd]")
    right = str(caught.value).split()[-1]
    made = task(f"covariance_perceptron[m=40,p=20,c={right},ensemble=psd]")
    assert 0 <= np.linalg.eigvalsh(made.patterns).min() < 0.02


def test_the_papers_patterns_are_no_covariances() -> None:
    made = task("covariance_perceptron[p=5]")
    assert (made.m, made.n) == (100, 2)
    assert made.smallest_eigenvalue == pytest.approx(np.linalg.eigvalsh(made.patterns).min(), rel=1e-12)
    assert made.smallest_eigenvalue == pytest.approx(1 - 2 * 0.5 * np.sqrt(0.2 * 100), rel=0.1)


@pytest.mark.parametrize("n", [2, 3])
def test_parity_patterns_are_rank_one(n: int) -> None:
    made = task(f"parity[m=9,n={n},p=300]")
    assert set(np.unique(made.patterns)) == {-1.0, 1.0}
    x = made.patterns[:, 0]
    np.testing.assert_array_equal(made.patterns, np.einsum("rk,rl->rkl", x, x))
    signs_balance(x[:, 1:])
    signs_balance(made.labels)
    W = np.random.default_rng(0).standard_normal((n, 9))
    i, j = np.triu_indices(n, 1)
    expected = (x @ W[i].T) * (x @ W[j].T) * made.labels
    np.testing.assert_allclose(made.stabilities(W), expected, rtol=1e-10, atol=1e-12)


def test_classical_perceptron_is_the_convex_program() -> None:
    made = classical("classical_perceptron[m=7,p=300]")
    x = np.random.default_rng(0).standard_normal(7)
    signed = made.linear.toarray()[1:]
    assert signed.shape == (300, 7)
    assert set(np.unique(signed)) == {-1.0, 1.0}
    signs_balance(signed)
    assert made.sense == "minimize"
    assert made.objective(x) == pytest.approx(x @ x)
    np.testing.assert_allclose(made.values(x), signed @ x, rtol=1e-12)
    np.testing.assert_array_equal(made.hessian(np.ones(300)).toarray(), 2 * np.eye(7))
    assert (made.lower == 1).all()
    assert (made.upper == np.inf).all()


def test_classical_labels_are_no_part_of_the_patterns() -> None:
    """Labels and patterns by their own streams: row r is ζ^r x^r."""
    p, m = 20, 5
    x = np.array([1 if word >= 2**63 else -1 for word in raw(3, 0, p * m)]).reshape(p, m)
    labels = np.array([1 if word >= 2**63 else -1 for word in raw(3, 1, p)])
    made = classical(f"classical_perceptron[m={m},p={p},seed=3]")
    np.testing.assert_array_equal(made.linear.toarray()[1:], x * labels[:, None])


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
    made = problem(spec)
    assert (made.p if isinstance(made, MaxMargin) else made.n_constraints) == p


@pytest.mark.parametrize(
    "spec", [*(spec for spec, _ in IDS), "parity[m=4]", "classical_perceptron[m=4]", "covariance_perceptron[m=4]"]
)
def test_an_instance_knows_where_it_is_from(spec: str) -> None:
    made = problem(spec)
    assert made.metadata.spec is not None
    assert problem(made.metadata.spec).id == made.id
    assert made.metadata.spec == family(spec).spec
    assert f"seed={made.metadata.seed}" in made.metadata.spec


def test_an_instance_knows_its_theory() -> None:
    notes = problem("covariance_perceptron[m=50,load=2]").metadata.notes
    assert notes["kappa_bar_theory"] == pytest.approx(0.4706553526)
    notes = problem("classical_perceptron[m=50,load=1]").metadata.notes
    assert notes["kappa_bar_theory"] == pytest.approx(theory.covariance_kappa_bar(4, 1))


def test_every_family_is_found() -> None:
    found = [name for name, kind in families().items() if "p" in (field.name for field, _ in parameters_of(kind))]
    assert found == ["classical_perceptron", "covariance_perceptron", "parity"]
    assert "library" in families()


BIG = 10**12


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("covariance_perceptron[m=1]", "m=1 is not allowed"),
        ("covariance_perceptron[n=1]", "n=1 is not allowed"),
        ("covariance_perceptron[p=0]", "p=0 is not allowed"),
        ("covariance_perceptron[load=-1]", "load=-1.0 is not allowed"),
        ("covariance_perceptron[load=inf]", "load=inf is not allowed"),
        ("covariance_perceptron[load=0]", "load=0.0 is not allowed"),
        ("covariance_perceptron[load=0.001]", "load=0.001 gives no pattern; right is at least 0.005"),
        ("covariance_perceptron[load=1,p=3]", "give load or p, not both"),
        ("covariance_perceptron[f=1.5]", "f=1.5 is not allowed"),
        ("covariance_perceptron[f=0]", "f=0.0 is not allowed"),
        ("covariance_perceptron[c=0]", "c=0.0 is not allowed"),
        ("covariance_perceptron[c=inf]", "c=inf is not allowed"),
        ("covariance_perceptron[seed=-1]", "seed=-1 is not allowed"),
        ("covariance_perceptron[ensemble=wishart]", r"right is: paper\|psd\|gaussian"),
        ("covariance_perceptron[mm=3]", "unknown parameter of covariance_perceptron 'mm'; did you mean 'm'"),
        (f"covariance_perceptron[m={BIG}]", "GB, more than there is; make m, n or p smaller"),
        (f"covariance_perceptron[m={BIG**3},p=1]", "more than there is"),
        (f"covariance_perceptron[m=3,n={BIG},p=1]", "more than there is"),
        (f"covariance_perceptron[p={BIG},ensemble=gaussian]", "more than there is"),
        ("parity[m=1]", "m=1 is not allowed"),
        ("parity[p=0]", "p=0 is not allowed"),
        (f"parity[m={BIG}]", "more than there is"),
        (f"parity[m={BIG**3},p=1]", "more than there is"),
        ("classical_perceptron[m=0]", "m=0 is not allowed"),
        ("classical_perceptron[load=-1]", "load=-1.0 is not allowed"),
        ("classical_perceptron[n=2]", "unknown parameter of classical_perceptron 'n'"),
        (f"classical_perceptron[m={BIG}]", "more than there is"),
        (f"classical_perceptron[m={BIG**3},p=1]", "more than there is"),
        ("covariance_perceptro", "did you mean 'covariance_perceptron'"),
        ("perceptron", "did you mean"),
        ("nothing", "allowed: classical_perceptron, covariance_perceptron, library, parity"),
    ],
)
def test_wrong_specs(spec: str, message: str) -> None:
    with pytest.raises(QcqpbenchError, match=message) as caught:
        problem(spec)
    assert "\n" not in str(caught.value)
