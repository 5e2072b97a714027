"""sbical: calibrate a robot's MuJoCo model from its logs.

>>> import sbical
>>> simulator = sbical.load_simulator("servo_pendulum")
>>> simulator.name
'servo_pendulum'

Importing the package loads none of its dependencies; each name below loads what it needs when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sbical.errors import SbicalError

if TYPE_CHECKING:
    from sbical.inference.plan import plan
    from sbical.pipeline import calibrate
    from sbical.priors.prior import load_prior
    from sbical.recordings.recording import read_recordings
    from sbical.results.calibration import Calibration, load_calibration
    from sbical.simulation.simulator import Simulator
    from sbical.simulation.simulator_toml import load_simulator

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
    "Calibration": "sbical.results.calibration",
    "Simulator": "sbical.simulation.simulator",
    "calibrate": "sbical.pipeline",
    "load_calibration": "sbical.results.calibration",
    "load_prior": "sbical.priors.prior",
    "load_simulator": "sbical.simulation.simulator_toml",
    "plan": "sbical.inference.plan",
    "read_recordings": "sbical.recordings.recording",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'sbical' has no attribute '{name}'; it offers {', '.join(__all__)}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
