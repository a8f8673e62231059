"""Parameters in the mean of a state of a Gaussian chain that has no noise: EM cannot move them,
since no path that is possible now would be possible at other values."""




from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from probml.errors import Refusal
from probml.jaxpr.memo import memo
from probml.numerics.compiling import jit
from probml.numerics.process.inline_calls import evaluated
from probml.plan.plan import Plan
from probml.structure.densities import example
from probml.structure.structure import Structure

# what a parameter moves → the covariance about it
ABOUT = {"transition": "covariance", "offset": "covariance", "initial_mean": "initial_covariance"}


def refuse_noiseless(plan: Plan, engine: str) -> None:
    """
    Raises:
        Refusal: a free parameter enters a number of a chain that has no noise of its own.
    """
    for group in (group for group in plan.latents if plan.timed(group)):
        for name in (name for name in group.names if plan.structure.sites[name].chain):
            for parameter, argument, number in _noiseless_parameters(plan.structure, name):
                if parameter in plan.free:
                    raise Refusal(
                        f"{engine} cannot learn '{parameter}' of model "
                        f"'{plan.structure.model.name}': '{parameter}' enters element {number} of "
                        f"the {argument} of '{name}', and this element has no noise. A sequence of "
                        f"states that is possible at one value of '{parameter}' is impossible at "
                        f"every other value, so '{parameter}' would keep its initial value. Only "
                        "copies of other elements, such as lags, transition [[a, b], "
                        f"[1, 0]], may have no noise. Add noise to element {number}, or give "
                        f"'{parameter}' in the data",
                        ("MAP",))


@memo(256)
def _noiseless_parameters(structure: Structure, name: str) -> tuple[tuple[str, str, int], ...]:
    """(parameter, argument, number of the state) where the argument of a chain moves with the
    parameter and the number has no noise, at a point without zeros."""
    env = example(structure, name)
    mine = [key for key in env if np.issubdtype(env[key].dtype, np.floating)]
    if not mine:
        return ()

    @jit
    def derivatives(env: Mapping[str, jax.Array]):
        def at(key: str, step: float):
            return structure.cells(name, {**env, key: env[key] + step * (1 + env[key])})

        return {key: jax.jvp(lambda step, key=key: at(key, step), (jnp.zeros(()),),
                             (jnp.ones(()),)) for key in mine}

    with evaluated():
        found = jax.tree.map(np.asarray, derivatives(env))
    out = []
    for key, (values, slopes) in found.items():
        for argument, about in ABOUT.items():
            still = np.diagonal(values[about][0]) == 0
            rows = (slopes[argument][0] != 0).reshape(len(still), -1).any(1) & still
            out += [(key, argument, int(i)) for i in np.flatnonzero(rows)]
    return tuple(out)
