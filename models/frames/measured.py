"""Where the priors of columns lie, and how wide they are: numbers that are stated, or measured on
the rows that are fitted."""

import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro import sample
from numpyro.distributions import constraints

import probml
from probml.language.measured import Measure, measured

SHARE = 0.1  # the default of `scale` where nothing parts the rows of a column, in spreads of it
TIME = 0.01  # the default of `rate` under a shape of 1, in mean waiting times, or rows of counts


def centre_of(name: str, value, d: int, column: str = "x"):
    """A prior centre of means as (d,): None is the mean of the column; else as `from_data`."""
    if value is None:
        return measured(name, Measure(column, "mean", 1.0, 0.0), (d,))
    return from_data(name, value, d, constraints.real)


def scale_of(name: str, value, d: int, column: str = "x"):
    """A prior scale as (d,): None is SHARE of the standard deviation of the column; else as
    `from_data`."""
    if value is None:
        return measured(name, Measure(column, "sd", SHARE, SHARE), (d,))
    return from_data(name, value, d)


def from_data(name: str, value, d: int, support=constraints.positive):
    """A setting of a prior as (d,): one number or d of them; "each" makes it a site `name` (d,),
    whose value stands in the data.

    An estimator computes it from its rows: the prior is then in units of their spread, and no value
    of it is compiled into the program.

    Raises:
        ModelError: another word.
    """
    if not isinstance(value, str):
        return jnp.broadcast_to(jnp.asarray(value, float), (d,))
    if value != "each":
        raise probml.ModelError(f"the prior setting '{name}' is {value!r}, expected numbers, or "
                                f"'each', which takes them from '{name}' in the data")
    # flat: given in the data it adds nothing to the evidence
    return sample(name, dist.ImproperUniform(support, (), (d,)))


def waiting_rate(name: str, shape: float, d: int, column: str):
    """The rate of the Gamma prior of an exponential's rate, a pseudo-time, as (d,): TIME mean
    waiting times; where the prior has a mode, it lies at the rate of all rows."""
    return measured(name, Measure(column, "mean", TIME if shape <= 1 else shape - 1, TIME), (d,))
