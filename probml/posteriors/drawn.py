"""Posteriors by draws, or as a normal distribution in unbounded coordinates."""

import functools
from collections.abc import Collection, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.typing import ArrayLike

from probml.device.rows import Known
from probml.errors import ModelError
from probml.evidence import density
from probml.numerics.compile_effort import ASKED
from probml.numerics.compiling import jit
from probml.numerics.transfer import placed, placed_all, random_key
from probml.plan.plan import Plan
from probml.posteriors.posterior import Posterior, part, register
from probml.typing import Json, PyTree, SiteValues

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
        at = self._choose(n, seed)
        return {name: np.asarray(value).reshape(-1, *np.shape(value)[2:])[at]
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
        arrays = {f"values/{name}": value for name, value in self.values.items()}
        arrays |= {f"stats/{name}": value for name, value in self.stats.items()}
        arrays |= {f"inside/{name}": value for name, value in self.inside.items()}
        arrays |= {f"worth/{name}": np.asarray(value) for name, value in self.worth.items()}
        arrays |= {} if self.tables is None else {"tables": self.tables}
        return ({"posterior": "Draws"},
                {f"drawn/{name}": value for name, value in arrays.items()})

    @classmethod
    def restored(cls, meta: Json, arrays: SiteValues, plan: Plan):
        arrays = part(arrays, "drawn/")
        found = cls(part(arrays, "values/"), arrays.get("tables"), part(arrays, "stats/"),
                    part(arrays, "inside/"), part(arrays, "worth/"))
        wanted = {name: plan.structure.sites[name].shape for name in plan.free}
        if any(name not in found.values or found.values[name].shape[2:] != shape
               for name, shape in wanted.items()):
            raise ModelError(f"expected draws of {sorted(wanted)}, got draws of {sorted(arrays)}")
        every = [*found.values.values(), *found.inside.values(), *found.stats.values(),
                 *[found.tables] * (found.tables is not None)]
        counts = {np.shape(value)[:2] for value in every}
        if len(counts) != 1 or 0 in (count := counts.pop()) or len(count) != 2:
            raise ModelError("expected the same number of draws of all sites, got different "
                             "numbers")
        return found


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
        known = Known(placed_all(part(arrays, "given/")), {}, {})
        arrays = part(arrays, "drawn/")
        if arrays.keys() != set(cls._fields):
            raise ModelError(f"expected the arrays {sorted(cls._fields)} of a normal distribution, "
                             f"got {sorted(arrays)}")
        shape = np.shape(arrays["loc"])
        if len(shape) != 1 or np.shape(arrays["scale"]) != shape or (
                np.ndim(arrays["factor"]) != 2 or len(arrays["factor"]) != shape[0]):
            raise ModelError(f"the arrays of a normal distribution do not fit together, with the "
                             f"shapes {[np.shape(arrays[name]) for name in cls._fields]}")
        found = cls(**arrays)
        return found if not meta.get("former") else found._sorted(plan, known, meta["former"])

    def _sorted(self, plan: Plan, known: Known, former: Mapping[str, str]) -> "Normal":
        """The distribution with its coordinates in the order of former names, old → new."""
        old = {new: old for old, new in former.items()}
        sizes = {name: part.stop - part.start for name, part in self._parts(plan).items()}
        names = sorted(sizes, key=lambda name: old.get(name, name))
        places = np.split(np.arange(len(self.loc)), np.cumsum([sizes[name] for name in names])[:-1])
        at = dict(zip(names, places, strict=True))
        order = np.concatenate([at[name] for name in sorted(sizes)])
        return Normal(*(np.asarray(leaf)[order] for leaf in self))

    def _parts(self, plan: Plan) -> dict[str, slice]:
        """Parameter → its coordinates."""
        shapes = sorted(density.shapes(plan).items())
        ends = np.cumsum([0, *(int(np.prod(shape)) for _, shape in shapes)])
        return {name: slice(*ends[i : i + 2]) for i, (name, _) in enumerate(shapes)}

    def root(self, plan: Plan, known: Known, names: Collection[str]) -> dict[str, np.ndarray]:
        """Only of parameters without bounds."""
        sites, whole = plan.structure.sites, np.asarray(self.factor, float)
        scale = np.asarray(self.scale, float)
        if scale.any() and scale.size**2 <= MAX_ROOT:
            whole = np.concatenate([whole, np.diag(scale)], 1)
        elif scale.any():
            return {}
        return {name: whole[part].T.reshape(-1, *sites[name].shape)
                for name, part in self._parts(plan).items()
                if name in names and sites[name].domain.unbounded}

    def marginal(self, plan: Plan, known: Known, name: str) -> dist.Distribution:
        """The marginal of one parameter: normal if it is unbounded, else a normal distribution
        transformed to its support."""
        part, shape = self._parts(plan)[name], density.shapes(plan)[name]
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


@functools.partial(jit, static_argnums=(0, 3), seldom=ASKED)
def _draw(plan: Plan, normal: Normal, known: Known, n: int, key: jax.Array) -> dict[str, jax.Array]:
    def draw_params(key: jax.Array):
        first, second = jax.random.split(key)
        loc = jnp.asarray(normal.loc)
        u = loc + normal.scale * jax.random.normal(first, loc.shape, loc.dtype)
        u += normal.factor @ jax.random.normal(second, normal.factor.shape[1:], loc.dtype)
        return density.unflat(plan, u, known)[0]

    return jax.vmap(draw_params)(jax.random.split(key, n))


@functools.partial(jit, static_argnums=0, seldom=ASKED)
def constrained(plan: Plan, known: Known, u: jax.Array) -> dict[str, jax.Array]:
    """Parameters at vectors of unbounded coordinates, (..., d) → name → (..., *shape)."""
    lead = u.shape[:-1]
    out = jax.vmap(lambda u: density.unflat(plan, u, known)[0])(u.reshape(-1, u.shape[-1]))
    return {name: value.reshape(*lead, *value.shape[1:]) for name, value in out.items()}


def mean(values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The means of draws, (chains, draws, ...) → (...)."""
    return {name: np.asarray(value).mean((0, 1), dtype=float).astype(np.asarray(value).dtype)
            for name, value in values.items()}
