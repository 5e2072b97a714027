from __future__ import annotations

import math

import pytest

from sbical.common.units import compatible, conversion
from sbical.errors import PriorError, RecordingError


@pytest.mark.parametrize(
    ("unit", "si", "scale", "offset"),
    [
        ("rad", "rad", 1.0, 0.0),
        ("deg", "rad", math.pi / 180, 0.0),
        ("deg/s", "rad/s", math.pi / 180, 0.0),
        ("rpm", "rad/s", 2 * math.pi / 60, 0.0),
        ("turn/s", "rad/s", 2 * math.pi, 0.0),
        ("N m/A", "N m/A", 1.0, 0.0),
        ("N m s/rad", "N m s/rad", 1.0, 0.0),
        ("mN m", "N m", 1e-3, 0.0),
        ("kg m^2", "kg m^2", 1.0, 0.0),
        ("g cm^2", "kg m^2", 1e-7, 0.0),
        ("1", "1", 1.0, 0.0),
        ("%", "1", 0.01, 0.0),
        ("ms", "s", 1e-3, 0.0),
        ("mV", "V", 1e-3, 0.0),
        ("Hz", "1/s", 1.0, 0.0),
        ("degC", "K", 1.0, 273.15),
        ("degF", "K", 5 / 9, 459.67 * 5 / 9),
    ],
)
def test_known_units_convert(unit: str, si: str, scale: float, offset: float) -> None:
    assert conversion(unit, si, where="x") == pytest.approx((scale, offset), rel=1e-11)


def test_same_unit_is_bitwise_unchanged() -> None:
    for unit in ("rad", "N m", "V", "s", "kg m^2", "N m s/rad", "1/rad"):
        assert conversion(unit, unit, where="x") == (1.0, 0.0)


def test_unknown_unit_names_itself_and_where() -> None:
    with pytest.raises(RecordingError) as caught:
        conversion("radd", "rad", where="column 'position' of run1")
    assert str(caught.value) == (
        "column 'position' of run1: no unit 'radd'; "
        "write units like rad, deg, deg/s, ms, N m, N m s/rad, kg m^2, %, or 1 for a plain number"
    )


def test_wrong_dimension_names_both_units_and_raises_the_error_asked_for() -> None:
    with pytest.raises(PriorError) as caught:
        conversion("V", "N m", where="prior entry 'limit'", error=PriorError)
    assert str(caught.value) == "prior entry 'limit': [V] cannot become [N m]: another quantity; declare the unit that the values have"


@pytest.mark.parametrize(("unit", "hint"), [("Nm", "(with a space: 'N m')"), ("Hz", "write turn/s or rad/s")])
def test_common_mistakes_get_the_fix(unit: str, hint: str) -> None:
    si = "N m" if unit == "Nm" else "rad/s"
    with pytest.raises(RecordingError, match="another quantity") as caught:
        conversion(unit, si, where="x")
    assert hint in str(caught.value)


@pytest.mark.parametrize("text", ["", " ", "N m/", "'a'", "m**", "1/0", "#", "m,s", "2 m", "(", "m^m", "__import__('os')"])
def test_text_that_is_no_unit_is_an_error_not_a_crash(text: str) -> None:
    assert not compatible(text, "m")
    with pytest.raises(RecordingError, match="no unit"):
        conversion(text, "m", where="x")


def test_compatible() -> None:
    assert compatible("deg", "rad")
    assert compatible("N m/rad", "N m")
    assert not compatible("Hz", "rad/s")
    assert not compatible("kg", "N")
