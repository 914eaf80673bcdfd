"""Conversion of Python values to the types that a results file stores."""

import json
import math
from collections.abc import Mapping
from enum import Enum
from typing import Any

import numpy as np


def plain(value: Any) -> Any:
    """Return `value` as a number, text, JSON text (mappings) or None; NaN and integers beyond 64 bits become None."""
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
    """Return `value` with types that JSON supports; non-finite numbers and integers beyond 64 bits become text."""
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
    """Return `mapping` as JSON text with sorted keys."""
    return json.dumps(_jsonable(mapping), sort_keys=True)
