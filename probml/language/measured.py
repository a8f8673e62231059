"""Numbers of a prior that are measured on the rows that are fitted, such as where a column lies and
how wide it is: no unit and no zero of measurement then matters to the answer.

To engines they are sites outside rows whose values are known: those of the data, where these give
them, else what is measured (dataset/measures.py). Where nothing is fitted, as in `simulate` without
a fit, and in plain NumPyro, they are numbers that are stated.
"""

import contextvars
from contextlib import AbstractContextManager
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro import sample

from probml.numerics.process.shared_changes import assigned

_SITES: contextvars.ContextVar[bool] = contextvars.ContextVar("sites", default=False)


class Measure(NamedTuple):
    """What is measured: so many times the "mean", or the "sd", of the column `of`.

    Attributes:
        stated: the value where there is no such column.
    """

    of: str
    statistic: str
    times: float
    stated: float


class Measured(dist.ImproperUniform):
    """A number without a prior that is not estimated; a draw of it is the stated value."""

    pytree_aux_fields = ("stated",)

    def __init__(self, support: object, shape: tuple[int, ...], stated: float):
        self.stated = stated
        super().__init__(support, (), shape)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()):
        return jnp.full((*sample_shape, *self.event_shape), self.stated)


def measured(name: str, measure: Measure, shape: tuple[int, ...] = ()) -> jax.Array:
    """The number of that name, of shape `shape`, that of the column's cells."""
    if not _SITES.get():
        return jnp.full(shape, measure.stated)
    support = dist.constraints.real if measure.statistic == "mean" else dist.constraints.positive
    return sample(name, Measured(support, shape, measure.stated), infer={"measured": measure})


def as_sites() -> AbstractContextManager[None]:
    """Within it such numbers are sites."""
    return assigned(_SITES, True)
