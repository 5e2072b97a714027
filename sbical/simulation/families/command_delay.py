"""Transport delay between a logged command and its effect, exact below the timestep.

The command is averaged over each step after the delay, which is continuous down to zero; MuJoCo's own
``actuator_delay`` rounds to a step and starts from an empty history.
"""

from __future__ import annotations

import numpy as np

from sbical.simulation.families.base import Binding, Effect, Family, Hooks, Role, Values


def _bind(binding: Binding, effect: Effect) -> Hooks:
    def command(edges: np.ndarray, values: Values) -> np.ndarray:
        return edges - values["delay"][:, None]

    return Hooks(command=command)


FAMILY = Family(
    name="command_delay",
    equation="u_k = mean of the command over [t_k - delay, t_k + h - delay]  (control signal)",
    target="command",
    roles={"delay": Role("s", "nonnegative", "time between the logged command and its effect")},
    bind=_bind,
)
