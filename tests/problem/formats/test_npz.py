import json
import math
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from qcqpbench import QCQP, MaxMargin, QcqpbenchError, problem, read, write
from qcqpbench.problem.metadata import Metadata
from tests.support.sample_problems import metadata, qcqps

SPECS = ["covariance_perceptron[m=4,p=3,n=3]", "classical_perceptron[m=4,p=3]"]


@st.composite
def tasks(draw: st.DrawFn) -> MaxMargin:
    p, m, n = draw(st.integers(1, 3)), draw(st.integers(2, 3)), draw(st.integers(2, 3))
    # Entries whose symmetric part does not overflow: the file notes the smallest eigenvalue.
    entry = st.floats(-1e150, 1e150) | st.sampled_from([-0.0, 5e-324])
    patterns = np.array(draw(st.lists(entry, min_size=p * m * m, max_size=p * m * m))).reshape(p, m, m)
    labels = np.array(draw(st.lists(st.sampled_from([-1, 1]), min_size=3 * p, max_size=3 * p))).reshape(p, 3)
    scale = draw(st.floats(0, 1e300, exclude_min=True))
    return MaxMargin(patterns, labels[:, : n * (n - 1) // 2], scale, draw(metadata(n, m)))


def bits(value: Any) -> Any:
    """Return type, shape and bytes of an array, which must be read back."""
    return None if value is None else (value.dtype, value.shape, value.tobytes())


def fields(metadata: Metadata) -> tuple[Any, ...]:
    return (metadata.spec, metadata.seed, bits(metadata.reference), metadata.best_known, metadata.bounds)


@given(qcqps(names=st.text(), least=0))
def test_qcqp_is_read_back_to_the_last_bit(tmp_path_factory: pytest.TempPathFactory, first: QCQP) -> None:
    path = tmp_path_factory.getbasetemp() / "round_trip.npz"
    write(first, path)
    second = read(path)
    assert isinstance(second, QCQP)
    assert second.id == first.id
    for name in ("products", "lower", "upper", "x_lower", "x_upper", "start"):
        assert bits(getattr(second, name)) == bits(getattr(first, name)), name
    for name in ("quadratic", "linear"):
        one, two = getattr(first, name), getattr(second, name)
        assert two.shape == one.shape
        for part in ("data", "indices", "indptr"):
            assert getattr(two, part).tobytes() == getattr(one, part).tobytes()
    for name in ("sense", "variable_names", "constraint_names"):
        assert getattr(second, name) == getattr(first, name)
    assert struct.pack("<d", second.constant) == struct.pack("<d", first.constant)
    assert fields(second.metadata) == fields(first.metadata)
    assert second.metadata.notes == first.metadata.notes


@given(tasks())
def test_task_is_read_back_to_the_last_bit(tmp_path_factory: pytest.TempPathFactory, first: MaxMargin) -> None:
    path = tmp_path_factory.getbasetemp() / "round_trip.npz"
    write(first, path)
    second = read(path)
    assert isinstance(second, MaxMargin)
    assert second.id == first.id
    assert bits(second.patterns) == bits(first.patterns)
    assert bits(second.labels) == bits(first.labels)
    assert second.scale == first.scale
    assert fields(second.metadata) == fields(first.metadata)
    assert second.metadata.notes == {**first.metadata.notes, "smallest_eigenvalue": first.smallest_eigenvalue}


@pytest.mark.parametrize("spec", SPECS)
def test_problem_that_is_read_cannot_be_changed(tmp_path: Path, spec: str) -> None:
    write(problem(spec), tmp_path / "a.npz")
    again = read(str(tmp_path / "a.npz"))
    array = again.patterns if isinstance(again, MaxMargin) else again.lower
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1


def test_file_holds_plain_arrays_and_a_json_header(tmp_path: Path) -> None:
    """Read the file with NumPy."""
    task = problem(SPECS[0])
    write(task, tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz", allow_pickle=False) as archive:
        header = json.loads(archive["header"].tobytes())
        assert isinstance(task, MaxMargin)
        np.testing.assert_array_equal(archive["patterns"], task.patterns)
    assert (header["format"], header["schema"], header["kind"], header["id"]) == ("qcqpbench", 1, "maxmargin", task.id)
    assert (header["spec"], header["seed"]) == (task.metadata.spec, 0)
    expected = np.linalg.eigvalsh(task.patterns).min()
    assert header["notes"]["smallest_eigenvalue"] == pytest.approx(expected, rel=1e-12)


def refused(path: Path) -> str:
    """Return the error of reading a file, which must be one line that names the file."""
    with pytest.raises(QcqpbenchError) as caught:
        read(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return message


@pytest.mark.parametrize("spec", SPECS)
def test_truncated_files_are_refused(tmp_path: Path, spec: str) -> None:
    path = tmp_path / "cut.npz"
    write(problem(spec), path)
    whole = path.read_bytes()
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        refused(path)


@pytest.mark.slow
@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("flip", [0x01, 0x80, 0xFF])
def test_damaged_files_are_refused_or_the_same(tmp_path: Path, spec: str, flip: int) -> None:
    """Change single bytes: each gives an error, or the same problem if the byte has no meaning."""
    path = tmp_path / "hit.npz"
    first = problem(spec)
    write(first, path)
    whole = path.read_bytes()
    unharmed = 0
    for place in range(0, len(whole), 2):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ flip]) + whole[place + 1 :])
        try:
            unharmed += read(path).id == first.id
        except QcqpbenchError as error:
            assert str(error).startswith(f"{path}: ")
    assert 0 < unharmed < len(whole) / 4


def member(array: NDArray[Any] | None = None, **header: Any) -> bytes:
    """Return an .npy file, or only its header with these words."""
    if array is not None:
        words = {"descr": array.dtype.str, "fortran_order": False, "shape": array.shape, **header}
    else:
        words = {"descr": "<f8", "fortran_order": False, "shape": (1,), **header}
    text = repr(words).encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + (b"" if array is None else array.tobytes())


class Bomb:
    """An object that creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("name", ["header", "patterns", "labels", "reference", "extra"])
def test_reading_executes_nothing(tmp_path: Path, name: str) -> None:
    """Read a pickle as a whole file and as a member, as NumPy stores it and raw."""
    fuse, path = tmp_path / "executed", tmp_path / "bomb.npz"
    pickled = pickle.dumps(Bomb(fuse))
    write(problem(SPECS[0]), tmp_path / "good.npz")
    with zipfile.ZipFile(tmp_path / "good.npz") as archive:
        good = {file: archive.read(file) for file in archive.namelist()}
    payloads = [member(shape=(), descr="|O") + pickle.dumps(np.array(Bomb(fuse), dtype=object)), pickled]
    for payload in payloads:
        with zipfile.ZipFile(path, "w") as archive:
            for file, content in {**good, f"{name}.npy": payload}.items():
                archive.writestr(file, content)
        refused(path)
    path.write_bytes(pickled)
    refused(path)
    assert not fuse.exists()
    pickle.loads(pickled)
    assert fuse.exists()


def altered(tmp_path: Path, spec: str, words: dict[str, Any], arrays: dict[str, Any]) -> Path:
    """Write a file with other words in its header and other arrays; None omits an array."""
    path = tmp_path / "altered.npz"
    write(problem(spec), path)
    with np.load(path) as archive:
        content = {name: archive[name] for name in archive.files}
    header = json.loads(content["header"].tobytes()) | words
    content["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    np.savez(path, **{name: array for name, array in (content | arrays).items() if array is not None})
    return path


@pytest.mark.parametrize("spec", SPECS)
def test_newer_schema_is_refused(tmp_path: Path, spec: str) -> None:
    assert read(altered(tmp_path, spec, {}, {})).id == problem(spec).id
    message = refused(altered(tmp_path, spec, {"schema": 2, "kind": "tensor"}, {"labels": None, "lower": None}))
    assert "schema must be at most 1 for this version of qcqpbench, got 2" in message


@pytest.mark.parametrize(
    "header",
    [
        {"format": "other"},
        {"schema": "new"},
        {"schema": None},
        {"id": "0" * 64},
        {"kind": "tensor"},
        {"kind": None},
        {"scale": -1.0, "constant": 1e3},
        {"scale": "x", "constant": "x"},
        {"scale": 10**400, "constant": 10**400},
        {"bounds": 3},
        {"bounds": [{"value": 1.0}]},
        {"best_known": {"worst": 1.0}},
        {"best_known": {"value": "abc", "source": "x"}},
        {"best_known": {"value": math.nan, "source": "x"}},
        {"best_known": {"value": 10**400, "source": "x"}},
        {"best_known": {"value": True, "source": "x"}},
        {"best_known": {"value": 1.0, "source": 2}},
        {"best_known": [1.0, "x"]},
        {"bounds": [{"value": math.nan, "kind": "shor"}]},
        {"bounds": [{"value": 1.0, "kind": None}]},
        {"bounds": None},
        {"notes": [1]},
        {"notes": None},
        {"notes": {"a": [1]}},
        {"notes": {"kappa_bar_theory": "abc"}},
        {"notes": {"kappa_bar_rs": "abc"}},
        {"spec": 3},
        {"seed": "x"},
    ],
    ids=str,
)
@pytest.mark.parametrize("spec", SPECS)
def test_wrong_headers_are_refused(tmp_path: Path, spec: str, header: dict[str, Any]) -> None:
    refused(altered(tmp_path, spec, header, {}))


@pytest.mark.parametrize("spec", SPECS)
def test_the_prediction_in_older_files_is_replica_symmetric(tmp_path: Path, spec: str) -> None:
    path = altered(tmp_path, spec, {"notes": {"kappa_bar_theory": 0.5, "a": "b"}}, {})
    assert read(path).metadata.notes == {"kappa_bar_rs": 0.5, "a": "b"}
    path = altered(tmp_path, spec, {"notes": {"kappa_bar_theory": 0.4, "kappa_bar_rs": 0.5}}, {})
    assert read(path).metadata.notes == {"kappa_bar_theory": 0.4, "kappa_bar_rs": 0.5}
    path = altered(tmp_path, spec, {"notes": {"kappa_bar_theory": 0.5}, "spec": "my_family[m=4]"}, {})
    assert read(path).metadata.notes == {"kappa_bar_theory": 0.5}


@pytest.mark.parametrize("names", [[1, 2, 3, 4], "abcd", {"a": 1, "b": 2, "c": 3, "d": 4}], ids=str)
def test_wrong_names_are_refused(tmp_path: Path, names: Any) -> None:
    assert "variable_names must be a list of text" in refused(
        altered(tmp_path, SPECS[1], {"variable_names": names}, {})
    )


@pytest.mark.parametrize(
    ("spec", "arrays"),
    [
        (SPECS[0], {"patterns": None}),
        (SPECS[0], {"patterns": np.eye(4)}),
        (SPECS[0], {"patterns": np.full((3, 4, 4), np.nan)}),
        (SPECS[0], {"patterns": np.zeros((3, 4, 4))}),
        (SPECS[0], {"patterns": np.zeros((3, 4, 4), dtype=complex)}),
        (SPECS[0], {"labels": np.full((3, 3), 2)}),
        (SPECS[0], {"labels": np.full((3, 3), "a")}),
        (SPECS[0], {"reference": np.ones((3, 3))}),
        (SPECS[1], {"reference": np.ones((2, 2))}),
        (SPECS[0], {"header": None}),
        (SPECS[0], {"header": np.zeros(3)}),
        (SPECS[0], {"header": np.frombuffer(b"[" * 100_000, dtype=np.uint8)}),
        (SPECS[1], {"quadratic_indices": np.full(4, 99)}),
        (SPECS[1], {"quadratic_indptr": np.arange(3)}),
        (SPECS[1], {"linear_data": np.full(12, np.inf)}),
        (SPECS[1], {"linear_indices": np.full(12, -1)}),
        (SPECS[1], {"products": np.array([[1, 1], [0, 0], [2, 2], [3, 3]])}),
        (SPECS[1], {"upper": np.ones(2)}),
        (SPECS[1], {"lower": np.full(3, np.nan)}),
    ],
)
def test_wrong_arrays_are_refused(tmp_path: Path, spec: str, arrays: dict[str, Any]) -> None:
    refused(altered(tmp_path, spec, {}, arrays))


@pytest.mark.parametrize("index", [-1, 4, 2**31 - 1])
def test_index_out_of_range_is_refused_although_the_id_is_right(tmp_path: Path, index: int) -> None:
    """Use an index that would read foreign memory."""
    first = problem(SPECS[1])
    assert isinstance(first, QCQP)
    linear = first.linear.copy()
    linear.indices[-1] = index
    with pytest.raises(QcqpbenchError):
        write(first.replace(linear=linear), tmp_path / "a.npz")
        read(tmp_path / "a.npz")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"hello",
        b"PK\x03\x04",
        b"\x93NUMPY",
        member(np.zeros(3)),
        pickle.dumps([1, 2]),
        b"\x80\x04",
        b"PK\x05\x06" + bytes(18),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other.npz"
    path.write_bytes(content)
    refused(path)


@pytest.mark.parametrize(
    "content",
    [
        b"raw",
        member(shape=(10**15,)),
        member(shape=(10**30,)),
        member(shape=(-1,)),
        member(descr="|O"),
        member(descr="nonsense"),
        b"\x93NUMPY\x01\x00\x05\x00(((((",
        b"\x93NUMPY\x09\x00\x05\x00(((((",
        member(np.frombuffer(b"not json", dtype=np.uint8)),
        member(np.frombuffer(b"\xff\xfe", dtype=np.uint8)),
        member(np.frombuffer(b"[]", dtype=np.uint8)),
    ],
)
def test_other_archives_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("header.npy", content)
    refused(path)


def test_archive_bombs_are_refused(tmp_path: Path) -> None:
    """Use a small archive that declares a large size, which is checked before it is unpacked."""
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.npy", member())
        # The declared size is in the directory, which is written when the archive is closed.
        archive.filelist[0].file_size = 1 << 33
    assert "must unpack to at most 4294967296 bytes, got 8589934592" in refused(path)


def test_paths_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    (tmp_path / "folder.npz").mkdir()
    for name in ("missing.npz", "folder.npz", "a" * 300 + ".npz", "nul\0.npz"):
        refused(tmp_path / name)
    (tmp_path / "a.txt").touch()
    assert "unknown file format '.txt'; allowed: .npz" in refused(tmp_path / "a.txt")


def test_paths_that_cannot_be_written_are_refused(tmp_path: Path) -> None:
    """Check that the error names the path, and that no file is left."""
    (tmp_path / "file").touch()
    (tmp_path / "folder.npz").mkdir()
    names = ["none/a.npz", "file/a.npz", "folder.npz", "a.txt", "a" * 300 + ".npz", "nul\0.npz"]
    for name in names:
        path = tmp_path / name
        with pytest.raises(QcqpbenchError) as caught:
            write(problem(SPECS[0]), path)
        assert str(caught.value).startswith(f"{path}: ")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["file", "folder.npz"]


def test_failed_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.npz"
    write(problem(SPECS[0]), path)
    before = path.read_bytes()

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez_compressed", full)
    with pytest.raises(QcqpbenchError, match="No space left"):
        write(problem(SPECS[1]), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
