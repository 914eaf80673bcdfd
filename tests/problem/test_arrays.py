import hashlib
import struct
from typing import Any

import numpy as np
import pytest

from qcqpbench import QcqpbenchError
from qcqpbench.problem._arrays import digest, locked


@pytest.mark.parametrize(
    "values",
    [np.arange(6.0), np.arange(12.0)[::2], np.arange(6), np.arange(6.0).reshape(2, 3).T, np.arange(12.0)[:6]],
)
def test_locked_array_cannot_be_changed(values: np.ndarray[Any, Any]) -> None:
    array = locked(values, np.float64, "values")
    before = array.copy()
    values[...] = 7
    np.testing.assert_array_equal(array, before)
    assert array.flags.c_contiguous
    with pytest.raises(ValueError, match="read-only"):
        array[...] = 7


def test_locked_array_does_not_change_with_the_owner_of_a_read_only_view() -> None:
    owner = np.zeros(3)
    view = owner.view()
    view.flags.writeable = False
    array = locked(view, np.float64, "values")
    owner[0] = 1
    assert array[0] == 0


def test_locked_array_is_not_copied_again() -> None:
    array = locked([1.0, 2.0], np.float64, "values")
    assert locked(array, np.float64, "values") is array


@pytest.mark.parametrize("values", [[[1], [1, 2]], ["a"], [None, 1j]])
def test_values_that_are_no_numbers_are_refused(values: Any) -> None:
    with pytest.raises(QcqpbenchError, match=r"^things must be an array of (real )?numbers"):
        locked(values, np.float64, "things")


def test_digest_hashes_the_documented_bytes() -> None:
    text = b"kind" + b"'word'" + b"(2, 1)" + struct.pack("<2d", 1.5, 0.0) + b"(3,)" + struct.pack("<3b", 1, -1, 1)
    parts = ("word", np.array([[1.5], [-0.0]]), np.array([1, -1, 1], dtype=np.int8))
    assert digest("kind", *parts) == hashlib.sha256(text).hexdigest()


def test_digest_does_not_depend_on_memory_layout() -> None:
    array = np.arange(70_000 * 2.0).reshape(2, -1)
    text = b"kind(2, 70000)" + struct.pack("<140000d", *map(float, range(140_000)))
    expected = hashlib.sha256(text).hexdigest()
    for same in (array, np.asfortranarray(array), array.astype(">f8")):
        assert digest("kind", same) == expected
