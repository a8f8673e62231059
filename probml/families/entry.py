"""The properties of one NumPyro distribution: its likelihood, its role as a prior, and its
peculiarities."""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import numpyro.distributions as dist

from probml.families import domains
from probml.families.domains import Domain
from probml.families.form import Prior
from probml.families.likelihood import Likelihood
from probml.families.location_scale import LocationScale


@dataclass(frozen=True)
class Entry:
    """One distribution, in any of the classes that NumPyro has for it."""

    types: tuple[type, ...] = ()
    likelihood: Likelihood | None = None  # its kernel; None: NumPyro's own log_prob, row by row
    prior: Prior | None = None  # its conjugate role, if it has one
    improper: bool = False  # a density without a finite integral: flat
    kinked: bool = False  # no derivative at its centre: no Newton steps
    domains: tuple[type[Domain], ...] = ()  # of its own, by their `canonical` constraint
    # in unbounded coordinates, of a distribution that is both and no more (location_scale.py)
    location_scale: Callable[[dist.Distribution], LocationScale] | None = None
    coupled: bool = False  # whether that scale is a matrix
    # (distribution, value) → its log density, where NumPyro's formula loses precision
    log_prob: Callable[[dist.Distribution, jax.Array], jax.Array] | None = None
    # an equal distribution, where NumPyro's draws and moments lose precision too
    sharp: Callable[[dist.Distribution], dist.Distribution] | None = None
    interior: bool = False  # 0 or infinite on the edge of its support, where no data may lie

    def log_density(self, distribution: dist.Distribution, value: jax.Array,
                    mode: bool) -> jax.Array:
        """log p of a value outside rows, −∞ outside its support; `mode` as in Prior."""
        if self.prior is not None:
            return self.prior.log_density(distribution, value, mode)
        return domains.supported(distribution, value)


NOTHING = Entry()  # of an unknown distribution
