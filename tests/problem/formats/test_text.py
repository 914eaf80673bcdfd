"""Check that damaged and hostile files of every text format give a clear error or the problem, in little memory."""

import gzip
import re
import tempfile
import tracemalloc
import zlib
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qcqpbench import QCQP, QcqpbenchError, read, write
from qcqpbench.problem.formats.by_suffix import FORMATS
from qcqpbench.problem.formats.reading import text as text_files
from qcqpbench.run.suite import expand_problem
from tests.support.sample_problems import TINY, larger

TEXTS = [suffix for suffix in FORMATS if suffix + ".gz" in FORMATS]
SAMPLES = {
    "no constraints": TINY["no constraints"],
    "unused and named": TINY["unused and named"],
    "range": TINY["range"],
    "epigraph": larger("epigraph", "covariance_perceptron[m=3,p=3]"),
}


@cache
def content(suffix: str, sample: str) -> bytes:
    """Return a sample as the bytes of a file."""
    with tempfile.TemporaryDirectory() as folder:
        write(SAMPLES[sample], path := Path(folder) / f"a{suffix}")
        return path.read_bytes()


def outcome(path: Path, raw: bytes) -> QCQP | None:
    """Return the problem in a file; None if it gives an error, which must be one line that names file and line."""
    path.write_bytes(raw)
    try:
        problem = read(path)
    except QcqpbenchError as error:
        message = str(error)
        assert re.match(rf"{re.escape(str(path))}:[1-9][0-9]*: \S", message), message
        assert "\n" not in message
        assert len(message) < 500
        return None
    assert isinstance(problem, QCQP)
    return problem


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("suffix", TEXTS)
def test_truncated_file_is_refused_or_the_same(tmp_path: Path, suffix: str, sample: str) -> None:
    """Cut a short file at every byte and a longer one at every line."""
    raw, path = content(suffix, sample), tmp_path / f"a{suffix}"
    ends = range(len(raw)) if len(raw) < 600 else [newline.end() for newline in re.finditer(b"\n", raw)]
    for end in ends:
        problem = outcome(path, raw[:end])
        assert problem is None or problem.id == SAMPLES[sample].id, raw[:end].decode()


@pytest.mark.parametrize("suffix", TEXTS)
def test_missing_and_repeated_lines_give_no_other_error(tmp_path: Path, suffix: str) -> None:
    lines, path = content(suffix, "epigraph").splitlines(keepends=True), tmp_path / f"a{suffix}"
    for k in range(len(lines)):
        outcome(path, b"".join(lines[:k] + lines[k + 1 :]))
        outcome(path, b"".join(lines[: k + 1] + lines[k:]))


@pytest.mark.parametrize("suffix", TEXTS)
def test_numbers_out_of_range_make_no_infinite_coefficient(tmp_path: Path, suffix: str) -> None:
    """Replace every number by ones out of range; only bounds may become infinite."""
    raw, path, expected = content(suffix, "unused and named"), tmp_path / f"a{suffix}", SAMPLES["unused and named"]
    for number in re.finditer(rb"(?<![\w.])[0-9]+(\.[0-9]+)?", raw):
        for huge in (b"1e999", b"9" * 400, b"1" * 5000, b"1e308", b"-1e308", b"1e-999", b"1e99999999999"):
            problem = outcome(path, raw[: number.start()] + huge + raw[number.end() :])
            if problem is not None and huge in (b"1e999", b"9" * 400, b"1" * 5000, b"1e99999999999"):
                assert (problem.quadratic != expected.quadratic).nnz == 0
                assert (problem.linear != expected.linear).nnz == 0
                assert problem.constant == expected.constant


@pytest.mark.parametrize("suffix", TEXTS)
def test_other_characters_are_refused_with_their_line(tmp_path: Path, suffix: str) -> None:
    lines, path = content(suffix, "range").splitlines(keepends=True), tmp_path / f"a{suffix}"
    for k, line in enumerate(lines):
        for odd in ("é".encode(), "１".encode(), b"\0", b"\x1b[2J", b"\xff", "\N{RIGHT-TO-LEFT OVERRIDE}".encode()):
            path.write_bytes(b"".join([*lines[:k], line.rstrip() + odd + b"\n", *lines[k + 1 :]]))
            with pytest.raises(
                QcqpbenchError, match=rf":{k + 1}: the text must be ASCII, got byte 0x[0-9a-f]{{2}}"
            ) as caught:
                read(path)
            assert str(caught.value).isprintable()


@st.composite
def damaged(draw: st.DrawFn, raw: bytes) -> bytes:
    """Draw files with some parts replaced by other parts, by bytes, or removed."""
    place = st.integers(0, len(raw))
    for _ in range(draw(st.integers(1, 4))):
        begin, length, source = draw(place), draw(st.integers(0, 12)), draw(place)
        other = draw(st.one_of(st.binary(max_size=6), st.just(raw[source : source + draw(st.integers(0, 40))])))
        raw = raw[:begin] + other + raw[begin + length :]
    return raw


@pytest.mark.parametrize("suffix", TEXTS)
def test_damaged_files_give_no_other_error(tmp_path_factory: pytest.TempPathFactory, suffix: str) -> None:
    @given(st.sampled_from(["unused and named", "epigraph"]).flatmap(lambda sample: damaged(content(suffix, sample))))
    def check(raw: bytes) -> None:
        outcome(tmp_path_factory.getbasetemp() / f"damaged{suffix}", raw)

    check()


@pytest.mark.parametrize("part", [b" ", b"\n", b"1\n"])
@pytest.mark.parametrize("suffix", TEXTS)
def test_gzip_bombs_are_refused_in_little_memory(tmp_path: Path, suffix: str, part: bytes) -> None:
    """Read small files that expand to large ones, alone and after the beginning of a correct one."""
    path, bomb = tmp_path / f"a{suffix}.gz", gzip.compress(part * 1_500_000)
    for raw in (bomb, gzip.compress(content(suffix, "range")[:-5]) + bomb):
        assert len(raw) < 10_000
        tracemalloc.start()
        try:
            path.write_bytes(raw)
            with pytest.raises(QcqpbenchError, match=r"a\..*:[0-9]+: ") as caught:
                read(path)
            assert tracemalloc.get_traced_memory()[1] < 20_000_000
        finally:
            tracemalloc.stop()
        # Other errors may come first.
        assert "the text must have at most" in str(caught.value) or part == b"1\n" or suffix == ".nl"


@pytest.mark.parametrize("suffix", TEXTS)
def test_long_texts_are_refused(tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    raw, path = content(suffix, "epigraph"), tmp_path / f"a{suffix}"
    monkeypatch.setattr(text_files, "_MAX_BYTES", len(raw) - 1)
    path.write_bytes(raw)
    with pytest.raises(QcqpbenchError, match="the text must have at most"):
        read(path)


@pytest.mark.parametrize("suffix", TEXTS)
def test_damaged_gzip_files_are_refused(tmp_path: Path, suffix: str) -> None:
    packed, path = gzip.compress(content(suffix, "range")), tmp_path / f"a{suffix}.gz"
    path.write_bytes(packed)
    problem = read(path)
    assert isinstance(problem, QCQP)
    assert problem.id == SAMPLES["range"].id
    for end in range(0, len(packed), 3):
        path.write_bytes(packed[:end])
        with pytest.raises(QcqpbenchError, match=re.escape(str(path))):
            read(path)
    for k in range(10, len(packed), 3):
        path.write_bytes(packed[:k] + bytes([packed[k] ^ 0x55]) + packed[k + 1 :])
        with pytest.raises(QcqpbenchError, match=re.escape(str(path))):
            read(path)
    path.write_bytes(zlib.compress(content(suffix, "range")))
    with pytest.raises(QcqpbenchError, match="gzip"):
        read(path)


@pytest.mark.parametrize("suffix", FORMATS)
def test_missing_and_empty_files_are_refused(tmp_path: Path, suffix: str) -> None:
    for path in (tmp_path / f"a{suffix}", tmp_path):
        with pytest.raises(QcqpbenchError):
            read(path)
    (tmp_path / f"b{suffix}").write_bytes(b"")
    with pytest.raises(QcqpbenchError, match=re.escape(f"b{suffix}")):
        read(tmp_path / f"b{suffix}")


def test_unknown_suffix_is_refused(tmp_path: Path) -> None:
    for name in ("a.npz.gz", "a.gz", "a.txt", "a", "npz"):
        with pytest.raises(QcqpbenchError, match=r"unknown file format .* allowed: \.npz, \.qplib"):
            read(tmp_path / name)


@pytest.mark.parametrize("suffix", FORMATS)
def test_suffixes_may_be_in_capitals(tmp_path: Path, suffix: str) -> None:
    for name in ("a" + suffix, "A" + suffix.upper()):
        write(TINY["range"], tmp_path / name)
    first, second = (read(tmp_path / name) for name in ("a" + suffix, "A" + suffix.upper()))
    assert first.id == second.id
    assert expand_problem(str(tmp_path)) == [str(tmp_path / name) for name in ("A" + suffix.upper(), "a" + suffix)]


def test_compressed_files_are_the_same_every_time(tmp_path: Path) -> None:
    for name in ("a.qplib.gz", "b.qplib.gz"):
        write(TINY["range"], tmp_path / name)
    assert (tmp_path / "a.qplib.gz").read_bytes() == (tmp_path / "b.qplib.gz").read_bytes()
