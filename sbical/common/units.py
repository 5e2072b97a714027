"""Units of logs, priors and roles: one linear map from what is written to SI.

Unit strings are read by pint (https://pint.readthedocs.io): ``"N m/A"``, ``"N m s/rad"``, ``"deg"``, ``"%"``, ``"ms"``,
``"kg m^2"``, ``"1"``.
Angles count as dimensionless, as in SI: ``"N m/rad"`` and ``"N m"`` are compatible.
"""

from __future__ import annotations

import re
from functools import lru_cache
from tokenize import TokenError
from typing import Any

from sbical.errors import RecordingError, SbicalError

#: Characters of a unit; pint itself drops commas and comments and reads the rest.
_CHARACTERS = r"[\w \t*/^().%°·⋅Ω²³⁻¹-]*"


def conversion(unit: str, si: str, *, where: str, error: type[SbicalError] = RecordingError) -> tuple[float, float]:
    """``(scale, offset)`` with ``value_si = scale * value + offset``.

    ``where`` names what carries the unit ("column 'position' of run1.csv"). Raises ``error`` for a unit that does not exist
    or measures another quantity than ``si``.
    """
    for text in (unit, si):
        if _parse(text) is None:
            raise error(
                f"{where}: no unit '{text}'; write units like rad, deg, deg/s, ms, N m, N m s/rad, kg m^2, %, or 1 for a plain number"
            )
    if not compatible(unit, si):
        raise error(f"{where}: [{unit}] cannot become [{si}]: another quantity; declare the unit that the values have{_hint(unit, si)}")
    return _linear(unit, si)


def compatible(unit: str, si: str) -> bool:
    """Whether both units exist and measure the same quantity."""
    a, b = _parse(unit), _parse(si)
    if a is None or b is None or a.dimensionality != b.dimensionality:
        return False
    # pint makes 1 Hz one rad/s, which is wrong by 2 pi for whoever counts turns
    return _counts_cycles(unit) == _counts_cycles(si) or "rad" not in f"{a} {b}"


@lru_cache(maxsize=256)
def _linear(unit: str, si: str) -> tuple[float, float]:
    zero, one = (float(_registry().Quantity(x, _parse(unit)).to(_parse(si)).magnitude) for x in (0.0, 1.0))
    # temperatures are the only scales with an offset; rounding removes what the subtraction left
    return (round(one - zero, 12), zero) if zero else (one, 0.0)


def _counts_cycles(unit: str) -> bool:
    parsed = _parse(unit)
    return parsed is not None and "hertz" in str(parsed)


def _hint(unit: str, si: str) -> str:
    if _counts_cycles(unit) or _counts_cycles(si):
        return " (Hz does not say whether it counts turns or radians: write turn/s or rad/s)"
    if "Nm" in unit:
        return f" (with a space: '{unit.replace('Nms', 'N m s').replace('Nm', 'N m')}')"
    return ""


@lru_cache(maxsize=1)
def _registry() -> Any:
    # pint takes a quarter of a second to import; most of sbical needs no unit
    import pint

    return pint.UnitRegistry(autoconvert_offset_to_baseunit=False)


@lru_cache(maxsize=256)
def _parse(unit: str) -> Any | None:
    """The pint unit, or None for text that is not one."""
    import pint

    if not re.fullmatch(_CHARACTERS, unit) or not unit.strip():
        return None
    try:
        return _registry().parse_units(unit)
    except (pint.PintError, ValueError, TypeError, AttributeError, AssertionError, SyntaxError, TokenError, ZeroDivisionError):
        # what pint raises for text that is not a unit, found by feeding it typos
        return None
