"""What a posterior of the sites outside rows is, and the least of them: a point.

Four kinds, each a pytree of arrays: `Point` here, `Closed` (closed.py: conjugate blocks), `Draws`
and `Normal` (drawn.py: samples, or a normal in unbounded coordinates). Whoever asks one does so
through `Posterior`, and never which kind it is. Discrete sites outside rows stand beside the
parameters as a joint table of log probabilities: one for a point, one a draw for draws.
"""

import functools
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from probml.device.rows import Known
from probml.errors import ModelError
from probml.numerics.compile_effort import ASKED
from probml.numerics.compiling import jit
from probml.numerics.transfer import random_key
from probml.plan.plan import Plan

OWN = 2**63 - 2**20  # the seed of what a fit draws for itself, which nobody gives


class Averaged(NamedTuple):
    """What a query of rows averages over."""

    params: Mapping[str, jax.Array]  # with a leading axis of draws where `several`
    table: Any  # log p(discrete sites outside rows), an axis each, led by draws likewise; None
    predictive: Mapping[str, Any]  # sites whose parameters are integrated out → their arguments
    several: bool


class Posterior(Protocol):
    """What is known of the sites outside rows. `plan` and `known` are of the fit that found it.
    A kind that derives from this says what is not as of a point in draws alone."""

    @property
    def varies(self) -> bool:
        """Whether parameters differ from draw to draw; False of a point."""
        return False

    @property
    def partly(self) -> tuple[str, ...]:
        """What varies, where all else is at one point; () where all does, or nothing."""
        return ()

    @property
    def exact(self) -> bool:
        """Whether every marginal is known in closed form."""
        return False

    @property
    def table(self) -> Any:
        """log p(discrete sites outside rows | data), an axis each, averaged over draws; None."""
        return None

    @property
    def tables(self) -> Any:
        """The same of every draw, (chains, draws, *states); None where there are no such."""
        return None

    @property
    def chains(self) -> Mapping[str, Any] | None:
        """Draws as they were made, site → (chains, draws, ...), discrete ones as codes."""
        return None

    @property
    def stats(self) -> Mapping[str, Any]:
        """What a sampler says of each draw: log_density, diverging, steps, accept."""
        return MappingProxyType({})

    @property
    def worth(self) -> Mapping[str, Any]:
        """Of weighted draws, how many independent ones they are worth and Pareto's k; of others
        nothing."""
        return MappingProxyType({})

    def draw(self, plan: Plan, known: Known, n: int, seed: int) -> dict[str, jax.Array]:
        """n joint draws, site → (n, ...)."""

    def rows(self, n: int, seed: int) -> dict[str, np.ndarray]:
        """Unseen numbers inside rows in the same draws as `draw`'s, where they were sampled with
        the parameters: site → (n, rows, *cells)."""
        return {}

    def marginal(self, plan: Plan, known: Known, name: str) -> dist.Distribution | None:
        """The marginal of a parameter; None: not in closed form."""
        return None

    def root(self, plan: Plan, known: Known, names: Collection[str]) -> dict[str, np.ndarray]:
        """Columns of a root of the joint covariance of some parameters, name → (k, *shape), as
        posteriors/units.py tells it; none of those whose covariance is in no closed form."""
        return {}

    def spread(self, plan: Plan, known: Known, n: int) -> tuple[dict[str, jax.Array], Any]:
        """At most n draws to average over, the same at every call, and their tables."""
        return self.draw(plan, known, n, 0), None

    def averaged(self, params: Mapping[str, jax.Array], fitted: Plan, plan: Plan, known: Known,
                 n: int) -> Averaged:
        """What the queries of `plan` average over, at most n draws; the same at every call.

        Args:
            params: the point that stands for the posterior.
        """
        values, tables = self.spread(fitted, known, n)
        return Averaged({name: values[name] for name in params}, tables, {}, True)

    def saved(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """What a file says of it, and its arrays by name; `posterior`: its kind."""

    @classmethod
    def restored(cls, meta: Mapping[str, Any], arrays: Mapping[str, Any], plan: Plan) -> Self:
        """The one that `saved` told of, every array in its place; `arrays`: all of the file.

        Raises:
            ModelError: what is missing, or of another model.
        """


Kind = TypeVar("Kind", bound=type)
KINDS: dict[str, type] = {}  # what a file may hold, by the name it says


def register(kind: Kind) -> Kind:
    """Make a kind of posterior known to files; a decorator.

    Raises:
        ModelError: another kind has its name.
    """
    if KINDS.setdefault(kind.__name__, kind) is not kind:
        raise ModelError(f"posteriors.register: the kind {kind.__name__} is registered already")
    return kind


def part(arrays: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """The arrays of a file below a prefix, by the rest of their names."""
    return {name[len(prefix) :]: value for name, value in arrays.items() if name.startswith(prefix)}


class _Point(NamedTuple):
    table: Any = None


@register
class Point(_Point, Posterior):
    """Parameters at one point, which the fit holds, and nothing known of how far they may be off.

    Args:
        table: log p(discrete sites outside rows | data, the point), an axis each; None without
            such.
    """

    def draw(self, plan, known, n, seed):
        return _drawn(plan, n, self.table, random_key(seed))

    def averaged(self, params, fitted, plan, known, n):
        return Averaged(params, self.table, {}, False)

    def saved(self):
        return {}, {} if self.table is None else {"states": self.table}

    @classmethod
    def restored(cls, meta, arrays, plan):
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
