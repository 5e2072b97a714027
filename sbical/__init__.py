"""sbical: calibrate a robot's MuJoCo model from its logs.

>>> import sbical
>>> simulator = sbical.load_simulator("servo_pendulum")
>>> simulator.name
'servo_pendulum'

Importing the package loads none of its dependencies; each name below loads what it needs when it is first used.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from sbical.errors import SbicalError

if TYPE_CHECKING:
    from sbical.calibrate import calibrate
    from sbical.calibration import Calibration, load_calibration
    from sbical.plan import plan
    from sbical.prior import load_prior
    from sbical.recording import read_recordings
    from sbical.simulator import Simulator, load_simulator

__version__ = "0.1.0"

__all__ = [
    "Calibration",
    "SbicalError",
    "Simulator",
    "__version__",
    "calibrate",
    "load_calibration",
    "load_prior",
    "load_simulator",
    "plan",
    "read_recordings",
]

_HOME = {
    "Calibration": "sbical.calibration",
    "Simulator": "sbical.simulator",
    "calibrate": "sbical.calibrate",
    "load_calibration": "sbical.calibration",
    "load_prior": "sbical.prior",
    "load_simulator": "sbical.simulator",
    "plan": "sbical.plan",
    "read_recordings": "sbical.recording",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'sbical' has no attribute '{name}'; it offers {', '.join(__all__)}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


class _Package(ModuleType):
    """Keeps ``sbical.calibrate`` and ``sbical.plan`` the verbs, although modules of these names exist.

    Python binds a submodule to its package when it is first imported, which would replace the function by the module.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOME and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
