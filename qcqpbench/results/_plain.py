"""Values as a results file stores them."""

import json
import math
from collections.abc import Mapping
from enum import Enum
from typing import Any

import numpy as np


def plain(value: Any) -> Any:
    """Return a value as the file stores it: 64-bit numbers, Unicode text, dicts as JSON; None for NaN."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float):
        return None if math.isnan(value) else value
    if isinstance(value, int):
        return value if abs(value) < 1 << 63 else None
    if isinstance(value, Mapping):
        return json.dumps(_jsonable(value))
    return None if value is None else str(value).encode(errors="replace").decode()


def _jsonable(value: Any) -> Any:
    """Return a value that JSON has: non-finite numbers and integers beyond 64 bits become text."""
    if isinstance(value, Mapping):
        return {str(name): _jsonable(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return value if abs(value) < 1 << 63 else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return str(value)


def sorted_json(mapping: Mapping[str, Any]) -> str:
    """Return a mapping as JSON that does not depend on the order of its names."""
    return json.dumps(_jsonable(mapping), sort_keys=True)
