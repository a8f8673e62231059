"""The interface of posteriors of the sites outside rows, and three of them: a point, draws, and a
normal distribution in unbounded coordinates.

Each kind is a pytree of arrays: `Point` here, `Closed` (closed.py: conjugate blocks), `Draws` and
`Normal` here, `Effects`
(random_effects.py: random effects given a point). Other code uses `Posterior` and never asks for
the kind.
The posterior of discrete sites outside rows is a joint table of log probabilities: one for a point,
one for each of several draws.
"""

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.typing import ArrayLike

from probml.device.rows import Known
from probml.errors import ModelError, listed
from probml.evidence import density
from probml.numerics.compiling import ASKED, jit
from probml.numerics.transfer import placed, random_key
from probml.plan.plan import Plan
from probml.typing import Json, PyTree, SiteValues

OWN = 2**63 - 2**20  # the seed of draws that a fit makes for itself


class Belief(NamedTuple):
    """What a query of rows averages over: a point or draws of the parameters (leading axis),
    closed-form predictive distributions, and the posterior of discrete sites outside rows."""

    params: dict[str, jax.Array]
    # log posterior over the joint states of the discrete sites outside rows; may have a leading
    # axis of draws if params have
    table: jax.Array | None
    # site whose parameters are integrated out → arguments of its predictive (closed.py)
    predictive: dict[str, PyTree]

    @classmethod
    def at_draw(cls, plan: Plan, known: Known, draw: Mapping) -> tuple["Belief", Known]:
        """Belief and known values at one draw of the parameters, and of those sites outside rows
        that the plan conditions on."""
        given = {name: draw.get(name, value) for name, value in known.given.items()}
        return cls({name: draw[name] for name in plan.free}, None, {}), known._replace(given=given)

    def map_draws(self, plan: Plan, ask: Callable, *more: jax.Array) -> PyTree:
        """ask(belief at draw i, *(array[i] for array in more)) of every draw i, stacked."""
        per_draw = self.table is not None and self.table.ndim > len(plan.globals)
        return jax.lax.map(lambda parts: ask(self._replace(
            params=parts[0], table=parts[1] if per_draw else self.table), *parts[2:]),
            (self.params, self.table if per_draw else None, *more))


class Posterior(Protocol):
    """A posterior distribution of the sites outside rows; `plan` and `known` are those of the fit.
    Defaults are those of a distribution that can only be drawn from."""

    varies: bool = False  # whether parameters differ from draw to draw; False of a point
    exact: bool = False  # whether every marginal is known in closed form

    @property
    def partly(self) -> tuple[str, ...]:
        """The parameters that vary, if the others are at one point; () if all vary, or none."""
        return ()

    @property
    def table(self) -> PyTree:
        """log p(discrete sites outside rows | data), an axis each, averaged over draws; None."""
        return None

    @property
    def tables(self) -> PyTree:
        """log p(discrete sites outside rows | data) of every draw, (chains, draws, *states);
        None."""
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
                 n: int) -> tuple[Belief, bool]:
        """What queries of `plan` average over, at most n draws, and whether its parameters are
        draws; the same at every call.

        Args:
            params: the point estimates of the fit.
        """
        values, tables = self.averaging_draws(fitted, known, n)
        return Belief({name: values[name] for name in params}, tables, {}), True

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
    if KINDS.setdefault(kind.__name__, kind) is not kind:
        raise ModelError(f"posteriors.register: the kind {kind.__name__!r} is already registered. "
                         f"Give the class another name")
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
        return Belief(dict(params), self.table, {}), False

    def saved(self):
        return {}, {} if self.table is None else {"states": self.table}

    @classmethod
    def restored(cls, meta: Json, arrays: SiteValues, plan: Plan):
        return cls(arrays.get("states"))


def draw_states(plan: Plan, table: jax.Array, key: jax.Array) -> dict[str, jax.Array]:
    """One joint draw of the discrete sites outside rows, as codes."""
    flat = jax.random.categorical(jax.random.fold_in(key, 99), table.reshape(-1))
    codes = jnp.unravel_index(flat, table.shape)
    return {name: jnp.asarray(plan.variables[name].values)[state].reshape(
        plan.structure.sites[name].shape
    ) for name, state in zip(plan.globals, codes, strict=True)}


@jit(static_argnums=(0, 1), seldom=ASKED)
def _drawn(plan: Plan, n: int, table: jax.Array, key: jax.Array) -> dict[str, jax.Array]:
    return jax.vmap(lambda key: draw_states(plan, table, key))(jax.random.split(key, n))


MAX_ROOT = 2**24  # entries of a root of a covariance


class _Draws(NamedTuple):
    values: dict[str, np.ndarray]
    tables: PyTree
    stats: dict[str, np.ndarray]
    inside: dict[str, ArrayLike] = {}
    worth: dict[str, float] = {}


@register
class Draws(_Draws, Posterior):
    """Joint draws, by chain.

    Attributes:
        values: site outside rows → (chains, draws, ...).
        tables: log p(discrete sites outside rows | data, parameters) of every draw, (chains, draws,
            *states); None without such sites.
        stats: of a sampler, (chains, draws): log_density, diverging, steps, accept; of others none.
        inside: latent variables of rows that were sampled too, (chains, draws, n, *cells).
        worth: of draws that were resampled by weights, see `Posterior.worth`.
    """

    varies = True

    @property
    def chains(self) -> SiteValues:
        """The draws themselves."""
        return self.values

    @property
    def table(self) -> np.ndarray | None:
        """log p(discrete sites outside rows | data), the mean over all draws."""
        if self.tables is None:
            return None
        flat = np.asarray(self.tables).reshape(-1, *np.shape(self.tables)[2:])
        return np.logaddexp.reduce(flat, axis=0) - np.log(len(flat))

    @property
    def size(self) -> int:
        """The number of draws of all chains."""
        chains, draws = jax.tree.leaves(self.values)[0].shape[:2]
        return chains * draws

    def pick(self, index: np.ndarray) -> tuple[dict[str, jax.Array], jax.Array | None]:
        """Draws by index, over all chains in order: name → (len(index), ...), and their tables."""
        flat = jax.tree.map(lambda leaf: placed(
            np.asarray(leaf).reshape(-1, *np.shape(leaf)[2:])[index]
        ), (self.values, self.tables))
        return flat[0], flat[1]

    def draw(self, plan: Plan, known: Known, n: int, seed: int) -> dict[str, jax.Array]:
        """n of the draws, without replacement if there are as many."""
        return self.pick(self._choose(n, seed))[0]

    def rows(self, n: int, seed: int) -> dict[str, np.ndarray]:
        index = self._choose(n, seed)
        return {name: np.asarray(value).reshape(-1, *np.shape(value)[2:])[index]
                for name, value in self.inside.items()}

    def _choose(self, n: int, seed: int) -> np.ndarray:
        """Indices of n draws, chosen at random."""
        random = np.random.default_rng(seed)
        if n > self.size:
            return random.integers(self.size, size=n)
        return random.permutation(self.size)[:n]

    def averaging_draws(self, plan: Plan, known: Known, n: int) -> tuple[dict[str, jax.Array],
                                                                         jax.Array | None]:
        """At most n draws, evenly from all chains, to average over; the same at every call."""
        return self.pick(
            np.unique(np.linspace(0, self.size - 1, min(n, self.size)).round().astype(int))
        )

    def root(self, plan: Plan, known: Known, names: Collection[str]) -> dict[str, np.ndarray]:
        """Deviations of the draws from their mean, divided by √(number of draws)."""
        flat = {name: np.reshape(self.values[name], (-1, *np.shape(self.values[name])[2:]))
                for name in names if name in self.values}
        return {name: (value - value.mean(0, dtype=float)) / np.sqrt(self.size)
                for name, value in flat.items()}

    def saved(self):
        parts = {"values": self.values, "stats": self.stats, "inside": self.inside,
                 "worth": self.worth}
        arrays = {f"drawn/{kind}/{name}": np.asarray(value) for kind, values in parts.items()
                  for name, value in values.items()}
        return ({"posterior": "Draws"},
                arrays | ({} if self.tables is None else {"drawn/tables": self.tables}))

    @classmethod
    def restored(cls, meta: Json, arrays: SiteValues, plan: Plan):
        arrays = part(arrays, "drawn/")
        draws = cls(part(arrays, "values/"), arrays.get("tables"), part(arrays, "stats/"),
                    part(arrays, "inside/"), part(arrays, "worth/"))
        shapes = {name: plan.structure.sites[name].shape for name in plan.free}
        if any(name not in draws.values or draws.values[name].shape[2:] != shape
               for name, shape in shapes.items()):
            raise ModelError(f"the file contains draws of {listed(sorted(arrays))}, but the model "
                             f"has the parameters {listed(sorted(shapes))}. Pass the model that "
                             f"was fitted, load(path, model)")
        leaves = [*draws.values.values(), *draws.inside.values(), *draws.stats.values(),
                  *[draws.tables] * (draws.tables is not None)]
        counts = {np.shape(value)[:2] for value in leaves}
        if len(counts) != 1 or 0 in (count := counts.pop()) or len(count) != 2 or any(
                map(np.ndim, draws.worth.values())):
            raise ModelError("the file contains different numbers of draws for different sites, or "
                             "several numbers for one diagnostic, so it is damaged. Save the fit "
                             "again")
        return draws


class _Normal(NamedTuple):
    loc: np.ndarray  # (d,)
    scale: np.ndarray  # (d,)
    factor: np.ndarray  # (d, m)


@register
class Normal(_Normal, Posterior):
    """u = loc + scale ε + factor η in unbounded coordinates, ε and η standard normal."""

    varies = True

    def draw(self, plan: Plan, known: Known, n: int, seed: int) -> dict[str, jax.Array]:
        return _draw(plan, self, known, n, random_key(seed))

    def saved(self):
        return ({"posterior": "Normal"},
                {f"drawn/{name}": value for name, value in self._asdict().items()})

    @classmethod
    def restored(cls, meta: Json, arrays: SiteValues, plan: Plan):
        arrays = part(arrays, "drawn/")
        if arrays.keys() != set(cls._fields):
            raise ModelError(f"the file contains the arrays {listed(sorted(arrays))} of a normal "
                             f"distribution, expected {listed(sorted(cls._fields))}. Save the fit "
                             f"again")
        shape = np.shape(arrays["loc"])
        if len(shape) != 1 or np.shape(arrays["scale"]) != shape or (
                np.ndim(arrays["factor"]) != 2 or len(arrays["factor"]) != shape[0]):
            raise ModelError("the arrays of the normal distribution in the file do not fit "
                             "together, because their shapes are "
                             f"{listed(np.shape(arrays[name]) for name in cls._fields)}. Save the "
                             "fit again")
        return cls(**arrays)

    def root(self, plan: Plan, known: Known, names: Collection[str]) -> dict[str, np.ndarray]:
        """Only of parameters without bounds."""
        sites, root = plan.structure.sites, np.asarray(self.factor, float)
        scale = np.asarray(self.scale, float)
        if scale.any() and scale.size**2 <= MAX_ROOT:
            root = np.concatenate([root, np.diag(scale)], 1)
        elif scale.any():
            return {}
        return {name: root[part].T.reshape(-1, *sites[name].shape)
                for name, part in density.coordinate_slices(plan).items()
                if name in names and sites[name].domain.unbounded}

    def marginal(self, plan: Plan, known: Known, name: str) -> dist.Distribution:
        """The marginal of one parameter: normal if it is unbounded, else a normal distribution
        transformed to its support."""
        part, shape = density.coordinate_slices(plan)[name], density.unbounded_shapes(plan)[name]
        loc, factor = jnp.asarray(self.loc[part]), jnp.asarray(self.factor[part])
        covariance = jnp.diag(jnp.asarray(self.scale[part]) ** 2) + factor @ factor.T
        site = plan.structure.sites[name]
        if len(shape) == 1:
            base: dist.Distribution = dist.MultivariateNormal(loc, covariance)
        else:
            deviation = jnp.sqrt(jnp.diagonal(covariance))
            base = dist.Normal(loc.reshape(shape), deviation.reshape(shape))
        if site.domain.unbounded:
            return base
        # raises where the support depends on other parameters
        return dist.TransformedDistribution(base, density.bijection(plan, name, known.given))


@jit(static_argnums=(0, 3), seldom=ASKED)
def _draw(plan: Plan, normal: Normal, known: Known, n: int, key: jax.Array) -> dict[str, jax.Array]:
    def draw_params(key: jax.Array):
        key1, key2 = jax.random.split(key)
        loc = jnp.asarray(normal.loc)
        u = loc + normal.scale * jax.random.normal(key1, loc.shape, loc.dtype)
        u += normal.factor @ jax.random.normal(key2, normal.factor.shape[1:], loc.dtype)
        return density.from_unbounded(plan, u, known)[0]

    return jax.vmap(draw_params)(jax.random.split(key, n))


@jit(static_argnums=0, seldom=ASKED)
def constrained(plan: Plan, known: Known, u: jax.Array) -> dict[str, jax.Array]:
    """Parameters at vectors of unbounded coordinates, (..., d) → name → (..., *shape)."""
    lead = u.shape[:-1]
    flat = jax.vmap(lambda u: density.from_unbounded(plan, u, known)[0])(u.reshape(-1, u.shape[-1]))
    return {name: value.reshape(*lead, *value.shape[1:]) for name, value in flat.items()}


@jit(static_argnums=0, seldom=ASKED)
def unconstrained(plan: Plan, params: Mapping, known: Known) -> jax.Array:
    """Parameters at one point → their vector of unbounded coordinates, (d,)."""
    return density.to_unbounded(plan, params, known)


def mean(values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The means of draws, (chains, draws, ...) → (...)."""
    return {name: np.asarray(value).mean((0, 1), dtype=float).astype(np.asarray(value).dtype)
            for name, value in values.items()}
