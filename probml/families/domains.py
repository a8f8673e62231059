"""Domains: the set in which a value lies, with all properties of a support that others need.

A domain is that of one value of the base distribution: `dist.Normal(0, 1).expand([3]).to_event(1)`
has three values in `REAL`. It is made once a site, by `of`, from NumPyro's constraint; nothing else
reads constraints. Where the ends of a support are computed from other sites, the domain is not
`fixed`: it then has no rank to group by, and its bijection is that of the support where it is
asked.
"""

import copy
import math
import re
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.typing import ArrayLike
from numpyro.distributions import biject_to, constraints
from numpyro.distributions.transforms import Transform

from probml.families import bijections
from probml.families.densities.censored import accurate

SUMS = 1e-4  # by how much a probability vector may miss 1
ORDERS = tuple(map(type, (constraints.ordered_vector, constraints.positive_ordered_vector)))

# constraints of NumPyro without bounds → what a value must be
IN_WORDS = {
    "real": "real", "boolean": "0 or 1",
    "ordered_vector": "a vector of increasing numbers",
    "positive_ordered_vector": "a vector of increasing positive numbers",
    "lower_cholesky": "a lower triangular matrix with a positive diagonal",
    "positive_definite": "a positive definite matrix", "sphere": "a vector of length 1",
}


class Domain:
    """A set of values; equal and hashed by what it is, so that it may be part of a cache's key.

    Args:
        constraint: NumPyro's, as the distribution states it.
    """

    name = "other"  # in errors about parameters
    rank: int | None = None  # event axes of one value; None: not known without the site
    fixed = False  # the same whatever other sites are: NumPyro's `canonical` constraint
    canonical: constraints.Constraint | None = None
    discrete = False
    unbounded = False  # every number is a value, and its own coordinate
    log_scale = False  # any positive number: multiplied rather than added to
    probabilities = False  # its numbers are probabilities; 0 and 1 would be absorbing
    sums_to_one = False  # the last axis is a distribution
    triangular = False  # a matrix that its lower triangle determines
    host: bijections.Host | None = None  # the bijection on the host; None: not known there

    def __init__(self, constraint: object = None):
        self.constraint = self.canonical if constraint is None else constraint

    @property
    def key(self) -> tuple:
        """What makes two domains one: of a fixed domain its kind, else the very constraint."""
        return () if self.fixed else (id(self.constraint),)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.key == other.key

    def __hash__(self) -> int:
        return hash((type(self), self.key))

    def __repr__(self) -> str:
        return self.name

    @property
    def base(self) -> constraints.Constraint:
        """The constraint of one value."""
        return _peeled(self.constraint)

    @property
    def bounds(self) -> dict[str, ArrayLike]:
        """The ends that it has, by NumPyro's names."""
        return {end: getattr(self.base, end) for end in ("lower_bound", "upper_bound")
                if hasattr(self.base, end)}

    @property
    def from_zero(self) -> bool:
        """Whether it is the numbers from 0 on, as of a scale."""
        low = self.bounds.get("lower_bound")
        return not self.discrete and isinstance(low, int | float) and low == 0

    @property
    def ordered(self) -> bool:
        """Whether it is vectors of which each number is above the one before."""
        return type(self.base) in ORDERS

    @property
    def low_end(self) -> float:
        """The lower bound of the numbers of an ordered vector."""
        return 0.0 if isinstance(self.base, ORDERS[1]) else -np.inf

    @property
    def logarithmic(self) -> bool:
        """Whether its coordinates are logarithms, logits and such, which know no end where it has
        one."""
        return bool(self.bounds)

    @property
    def integer_range(self) -> tuple[ArrayLike, ArrayLike] | None:
        """The least and the greatest integer of the support, None where it is not finite or not of
        integers."""
        return None

    @property
    def checkable(self) -> bool:
        """Whether it is known before anything is computed which numbers lie outside."""
        return self.base is not None and not any(isinstance(v, jax.Array)
                                                 for v in vars(self.base).values())

    @property
    def ragged(self) -> bool:
        """Whether its ends differ from cell to cell."""
        return self.base is not None and any(np.ndim(v) for v in vars(self.base).values()
                                             if not isinstance(v, str))

    @property
    def inequalities(self) -> bool:
        """Whether it is bounds and orders alone; a simplex or a Cholesky factor holds up to
        rounding."""
        base = self.base
        return base is not None and (base.event_dim == 0 or type(base) in ORDERS)

    @property
    def support(self) -> constraints.Constraint:
        """The constraint that its coordinates are of."""
        return self.canonical if self.fixed else self.constraint

    @property
    def bijection(self) -> Transform:
        """NumPyro's one-to-one map from unbounded coordinates."""
        return biject_to(self.support)

    @property
    def description(self) -> str:
        """What a value must be, in words, for messages."""
        bounds: dict[str, ArrayLike] = self.bounds
        low: ArrayLike = bounds.get("lower_bound")
        high: ArrayLike = bounds.get("upper_bound")
        noun = "an integer " if self.discrete else "a number "
        if low is None and high is None:
            name = type(self.base).__name__.strip("_")
            name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
            return IN_WORDS.get(name, f"in numpyro.distributions.constraints.{name}")
        if np.ndim(low) == np.ndim(high) == 0 and low == 0 and high is None:
            equal = self.discrete or isinstance(self.base, constraints.greater_than_eq)
            return "zero or positive" if equal else "positive"
        ends = [infinite if end is None else "a computed bound" if isinstance(end, jax.core.Tracer)
                else np.asarray(end).tolist() for end, infinite in ((low, "−∞"), (high, "∞"))]
        suffix = ", element by element" * bool(np.ndim(low) or np.ndim(high))
        return f"{noun}from {ends[0]} to {ends[1]}{suffix}"

    def contains(self, values: np.ndarray) -> np.ndarray:
        """Which values lie inside, edges as the distribution has them: one answer a value."""
        return np.asarray(self.base(values))

    def holds(self, value: np.ndarray) -> bool:
        """Whether a parameter's value lies inside or on the edge, as far as that does not depend
        on other sites."""
        return True

    def rearranged(self, place: Callable[[np.ndarray], np.ndarray]) -> "Domain":
        """The same domain with the bounds of its cells in another layout of cells."""
        base = copy.copy(self.base)
        for end, bound in vars(self.base).items():
            if np.ndim(bound):
                setattr(base, end, place(bound))
        return type(self)(base)

    def middle(self, shape: tuple[int, ...]) -> jax.Array:
        """The point in its middle: 0 in unbounded coordinates. Computed when a program runs: while
        it compiles, XLA takes two minutes for a product of 1,000 × 1,000 constants."""
        return self.bijection(jax.lax.optimization_barrier(jnp.zeros(self.unbounded_shape(shape))))

    def unbounded_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the unbounded coordinates of an array of its values. Between bounds each
        number has one; these bounds may be computed in a trace that has ended."""
        return shape if self.bounds else self.bijection.inverse_shape(shape)

    def size(self, shape: tuple[int, ...]) -> int:
        """How many unbounded coordinates an array of its values has."""
        return math.prod(self.unbounded_shape(shape))

    def factor(self, value: np.ndarray) -> np.ndarray:
        """The lower Cholesky factor of a value, rows of length 1; of domains of correlations and of
        their factors."""
        raise NotImplementedError

    def of_factor(self, factor: np.ndarray) -> np.ndarray:
        """The value that has this factor."""
        raise NotImplementedError

    def shaken(self, value: np.ndarray, share: np.ndarray) -> np.ndarray:
        """Values moved by a share of themselves, still of this kind; not always inside."""
        return value * (1 + share)


class Real(Domain):
    name, rank, fixed, canonical, unbounded = "real", 0, True, constraints.real, True
    checkable = False  # whatever is finite
    host = bijections.PLAIN

    def shaken(self, value: np.ndarray, share: np.ndarray):
        return value + share * np.maximum(np.abs(value).max(), 1.0)


class Positive(Domain):
    """Positive numbers; 0 too, where the constraint has it."""

    name, rank, fixed, canonical = "positive", 0, True, constraints.positive
    log_scale = logarithmic = True
    host = bijections.LOGARITHMS

    def holds(self, value: np.ndarray):
        return bool((value >= 0).all())


class UnitInterval(Domain):
    name, rank, fixed, canonical = "unit interval", 0, True, constraints.unit_interval
    logarithmic = probabilities = True
    host = bijections.LOGITS

    def holds(self, value: np.ndarray):
        return bool(((value >= 0) & (value <= 1)).all())

    def shaken(self, value: np.ndarray, share: np.ndarray):
        return np.clip(value * (1 + share), 0, 1)


class OpenUnitInterval(UnitInterval):
    description = "between 0 and 1, ends excluded"

    def contains(self, values: np.ndarray):
        return (values > 0) & (values < 1)


class Circle(Domain):
    """Angles −π … π, which are one point."""

    name, rank, fixed, canonical = "circle", 0, True, constraints.circular
    logarithmic = False
    description = "an angle in −π … π"


class Simplex(Domain):
    """Probability vectors; without 0, where a density is 0 or infinite on the edge.

    Args:
        interior: only positive probabilities.
    """

    name, rank, fixed, canonical = "simplex", 1, True, constraints.simplex
    logarithmic = probabilities = sums_to_one = True
    bijection, host = bijections.SIMPLEX, bijections.STICKS

    def __init__(self, constraint: object = None, interior: bool = False):
        super().__init__(constraint)
        self.interior = interior

    @property
    def description(self):
        return f"a vector of {'positive ' if self.interior else ''}probabilities that sums to 1"

    def contains(self, values: np.ndarray):
        inside = (values > 0) if self.interior else (values >= 0)
        return inside.all(-1) & (np.abs(values.sum(-1) - 1) < SUMS)

    def holds(self, value: np.ndarray):
        return bool((value >= 0).all() and np.allclose(value.sum(-1), 1.0, atol=SUMS))

    def shaken(self, value: np.ndarray, share: np.ndarray):
        perturbed = value * (1 + share)
        return perturbed / perturbed.sum(-1, keepdims=True)


class PositiveDefinite(Domain):
    name, rank, fixed = "positive definite", 2, True
    canonical, triangular = constraints.positive_definite, True
    bijection, host = bijections.POSITIVE_DEFINITE, bijections.DEFINITE

    def holds(self, value: np.ndarray):
        return bool(np.allclose(value, np.swapaxes(value, -1, -2), rtol=1e-4)
                    and (np.linalg.eigvalsh(value) > 0).all())


class LowerCholesky(Domain):
    name, rank, fixed = "lower cholesky", 2, True
    canonical, triangular = constraints.lower_cholesky, True
    bijection, host = bijections.LOWER_CHOLESKY, bijections.TRIANGLES

    def holds(self, value: np.ndarray):
        return bool(np.array_equal(value, np.tril(value))
                    and (np.diagonal(value, axis1=-2, axis2=-1) > 0).all())


class Correlations(Domain):
    """Correlation matrices, or their Cholesky factors: at the boundary a variable is a linear
    combination of those before it, as with a correlation of ±1."""

    rank, fixed, logarithmic = 2, True, True


class CorrelationFactor(Correlations):
    name, canonical = "correlation cholesky", constraints.corr_cholesky
    description = "a Cholesky factor of correlations"

    def factor(self, value: np.ndarray):
        return value

    def of_factor(self, factor: np.ndarray):
        return factor


class CorrelationMatrix(Correlations):
    name, canonical = "correlation matrix", constraints.corr_matrix
    description = "a matrix of correlations"

    def factor(self, value: np.ndarray):
        least = np.finfo(value.dtype).eps * np.eye(value.shape[-1], dtype=value.dtype)
        return np.linalg.cholesky(value + 4 * value.shape[-1] * least)

    def of_factor(self, factor: np.ndarray):
        return factor @ np.swapaxes(factor, -1, -2)


class Integers(Domain):
    """Whole numbers low … high, one of which may be computed or have no end."""

    name, discrete = "whole number", True

    @property
    def key(self):
        plain = {end: bound for end, bound in self.bounds.items() if np.isscalar(bound)}
        return (tuple(plain.items()) if plain.keys() == self.bounds.keys()
                else (id(self.constraint),))

    @property
    def integer_range(self):
        if self.base is constraints.boolean:
            return 0, 1
        return (tuple(self.bounds.values()) if isinstance(self.base, constraints.integer_interval)
                else None)


REAL, POSITIVE, UNIT_INTERVAL, CIRCLE = Real(), Positive(), UnitInterval(), Circle()
SIMPLEX, POSITIVE_DEFINITE, LOWER_CHOLESKY = Simplex(), PositiveDefinite(), LowerCholesky()
CORRELATION_FACTOR, CORRELATION_MATRIX = CorrelationFactor(), CorrelationMatrix()
NONNEGATIVE, OPEN_UNIT_INTERVAL = Positive(constraints.nonnegative), OpenUnitInterval()
NOTHING = Domain()  # of what has no support: a factor, a value that is computed

_SINGLE: dict[type, type[Domain]] = {
    type(domain.canonical): type(domain)
    for domain in (REAL, CIRCLE, SIMPLEX, POSITIVE_DEFINITE, LOWER_CHOLESKY, CORRELATION_FACTOR,
                   CORRELATION_MATRIX)
}


def add(kind: type[Domain]) -> None:
    """Make a domain known: it is that of its `canonical` constraint from now on."""
    _SINGLE[type(kind.canonical)] = kind


def of(support: object) -> Domain:
    """The domain of a distribution's support, whatever of its axes are events."""
    base = _peeled(support)
    if base is None:
        return NOTHING
    if base.is_discrete:
        return Integers(support)
    if type(base) in _SINGLE:
        return _SINGLE[type(base)](support)
    low, high = (getattr(base, end, None) for end in ("lower_bound", "upper_bound"))
    if any(isinstance(end, jax.Array) or np.ndim(end) for end in (low, high) if end is not None):
        return Domain(support)
    if low == 0 and high is None:
        return Positive(support)
    return UnitInterval(support) if (low, high) == (0, 1) else Domain(support)


def supported(distribution: dist.Distribution, value: jax.Array) -> jax.Array:
    """log_prob, and −∞ outside the support, which NumPyro does not check (supports of inequalities
    only)."""
    with accurate():
        log, support = distribution.log_prob(value), of_values(distribution)
    return jnp.where(support(value), log, -jnp.inf) if of(support).inequalities else log


def log_prob_of_codes(distribution: dist.Distribution, value: ArrayLike) -> jax.Array:
    """log_prob, also of whole numbers that are floats where the distribution, such as NumPyro's
    categoricals, takes integers alone; −∞ of others."""
    try:
        return distribution.log_prob(value)
    except TypeError:
        codes = jnp.asarray(value).astype(int)
        log, is_code = distribution.log_prob(codes), codes == value
    return jnp.where(is_code.all(tuple(range(log.ndim, is_code.ndim))), log, -jnp.inf)


def of_values(distribution: dist.Distribution) -> constraints.Constraint:
    """The support that a distribution states, or None where it is one of other numbers than its
    values: of a censored interval, both ends of which are one value, it is that of the number
    between them, and an end may lie outside."""
    support = distribution.support
    return support if support is None or support.event_dim >= distribution.event_dim else None


def _peeled(support: object) -> constraints.Constraint:
    while hasattr(support, "base_constraint"):
        support = support.base_constraint
    return support
