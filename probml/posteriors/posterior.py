"""The interface of posteriors of the sites outside rows, and the simplest of them, a point.

Each kind is a pytree of arrays: `Point` here, `Closed` (closed.py: conjugate blocks), `Draws` and
`Normal` (drawn.py: draws, or a normal distribution in unbounded coordinates), `Effects`
(random_effects.py: random effects given a point). Other code uses `Posterior` and never asks for
the kind.
The posterior of discrete sites outside rows is a joint table of log probabilities: one for a point,
one for each of several draws.
"""

import functools
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.typing import ArrayLike

from probml.device.rows import Known
from probml.errors import ModelError
from probml.language.former_members import former_members, rename_members
from probml.numerics.compile_effort import ASKED
from probml.numerics.compiling import jit
from probml.numerics.transfer import random_key
from probml.plan.plan import Plan
from probml.typing import Json, PyTree, SiteValues

OWN = 2**63 - 2**20  # the seed of draws that a fit makes for itself


class Averaged(NamedTuple):
    """What a query of rows averages over.

    Attributes:
        params: parameters. table: log p(discrete sites outside rows), an axis each; None: there are
            none. Both begin with an axis of draws if `several`.
        predictive: sites whose parameters are integrated out → arguments of their predictive.
    """

    params: Mapping[str, jax.Array]
    table: PyTree
    predictive: Mapping[str, PyTree]
    several: bool


FORMER = {"spread": "averaging_draws"}  # members: old name → the name now


@former_members(**FORMER)
class Posterior(Protocol):
    """A posterior distribution of the sites outside rows; `plan` and `known` are those of the fit.
    Defaults are those of a distribution that can only be drawn from."""

    @property
    def varies(self) -> bool:
        """Whether parameters differ from draw to draw; False of a point."""
        return False

    @property
    def partly(self) -> tuple[str, ...]:
        """The parameters that vary, if the others are at one point; () if all vary, or none."""
        return ()

    @property
    def exact(self) -> bool:
        """Whether every marginal is known in closed form."""
        return False

    @property
    def table(self) -> PyTree:
        """log p(discrete sites outside rows | data), an axis each, averaged over draws; None."""
        return None

    @property
    def tables(self) -> PyTree:
        """The same for every draw, (chains, draws, *states); None."""
        return None

    @property
    def chains(self) -> SiteValues | None:
        """The draws by chain, site → (chains, draws, ...), discrete ones as codes; None."""
        return None

    @property
    def stats(self) -> SiteValues:
        """The sampler's statistics of each draw: log_density, diverging, steps, accept."""
        return MappingProxyType({})

    @property
    def worth(self) -> Mapping[str, float]:
        """Effective sample size ("ess") and Pareto's k ("k_hat") of weighted draws; else empty."""
        return MappingProxyType({})

    def draw(self, plan: Plan, known: Known, n: int, seed: int) -> dict[str, jax.Array]:
        """n joint draws, site → (n, ...)."""

    def rows(self, n: int, seed: int) -> dict[str, np.ndarray]:
        """Latent variables of rows in the same draws as `draw`, if they were sampled with the
        parameters: site → (n, rows, *cells)."""
        return {}

    def marginal(self, plan: Plan, known: Known, name: str) -> dist.Distribution | None:
        """The marginal of a parameter; None: not in closed form."""
        return None

    def root(self, plan: Plan, known: Known, names: Collection[str]) -> dict[str, np.ndarray]:
        """Columns of a root of the joint covariance of some parameters, name → (k, *shape), see
        units.py; without those whose covariance is in no closed form."""
        return {}

    def averaging_draws(self, plan: Plan, known: Known, n: int) -> tuple[dict[str, jax.Array],
                                                                         PyTree]:
        """At most n draws to average over, the same at every call, and their tables."""
        return self.draw(plan, known, n, 0), None

    def averaged(self, params: Mapping[str, jax.Array], fitted: Plan, plan: Plan, known: Known,
                 n: int) -> Averaged:
        """What queries of `plan` average over, at most n draws; the same at every call.

        Args:
            params: the point estimates of the fit.
        """
        values, tables = self.averaging_draws(fitted, known, n)
        return Averaged({name: values[name] for name in params}, tables, {}, True)

    def saved(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """For a file: a description, with its kind at "posterior", and its arrays by name."""

    @classmethod
    def restored(cls, meta: Json, arrays: SiteValues, plan: Plan) -> Self:
        """The posterior that was `saved`; `arrays`: all of the file.

        Raises:
            ModelError: something is missing, or of another model.
        """


Kind = TypeVar("Kind", bound=type[Posterior])
KINDS: dict[str, type[Posterior]] = {}  # the kinds that a file may contain, by name


def register(kind: Kind) -> Kind:
    """Registers a kind of posterior, so that it can be loaded from files; a decorator.

    Raises:
        ModelError: another kind has its name.
    """
    rename_members(kind, FORMER)
    if KINDS.setdefault(kind.__name__, kind) is not kind:
        raise ModelError(f"posteriors.register: the kind {kind.__name__} is registered already")
    return kind


def part(arrays: SiteValues, prefix: str) -> dict[str, ArrayLike]:
    """The arrays of a file whose names begin with a prefix, by the rest of their names."""
    return {name[len(prefix) :]: value for name, value in arrays.items() if name.startswith(prefix)}


class _Point(NamedTuple):
    table: PyTree = None


@register
class Point(_Point, Posterior):
    """Parameters at one point, that of the fit, without uncertainty.

    Args:
        table: log p(discrete sites outside rows | data, the point), an axis each; None without
            such.
    """

    def draw(self, plan: Plan, known: Known, n: int, seed: int):
        return _drawn(plan, n, self.table, random_key(seed))

    def averaged(self, params: Mapping[str, jax.Array], fitted: Plan, plan: Plan, known: Known,
                 n: int):
        return Averaged(params, self.table, {}, False)

    def saved(self):
        return {}, {} if self.table is None else {"states": self.table}

    @classmethod
    def restored(cls, meta: Json, arrays: SiteValues, plan: Plan):
        return cls(arrays.get("states"))


def draw_states(plan: Plan, table: jax.Array, key: jax.Array) -> dict[str, jax.Array]:
    """One joint draw of the discrete sites outside rows, as codes."""
    flat = jax.random.categorical(jax.random.fold_in(key, 99), table.reshape(-1))
    places = jnp.unravel_index(flat, table.shape)
    return {name: jnp.asarray(plan.variables[name].values)[state].reshape(
        plan.structure.sites[name].shape
    ) for name, state in zip(plan.globals, places, strict=True)}


@functools.partial(jit, static_argnums=(0, 1), seldom=ASKED)
def _drawn(plan: Plan, n: int, table: jax.Array, key: jax.Array) -> dict[str, jax.Array]:
    return jax.vmap(lambda key: draw_states(plan, table, key))(jax.random.split(key, n))
