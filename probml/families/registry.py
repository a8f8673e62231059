"""The registry of NumPyro distributions, by type.

It is filled from the folders `likelihoods/` and `forms/`, whose files end with their `ENTRIES`. A
family of your own is one file anywhere, that ends with `register(Entry(...))` and is imported
before the model is traced (tests/extensions/von_mises.py).
"""

import copy
import importlib
import pkgutil

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.typing import ArrayLike
from numpyro.distributions import biject_to, constraints
from numpyro.distributions.transforms import (
    AffineTransform,
    ComposeTransform,
    ExpTransform,
    IdentityTransform,
    Transform,
)

from probml.errors import ModelError, present
from probml.families import domains
from probml.families.densities import censored
from probml.families.likelihood import NOTHING, Entry
from probml.families.location_scale import LocationScale

FOLDERS = ("probml.families.forms", "probml.families.likelihoods")
_found: dict[type, Entry] = {}


def register(entry: Entry) -> Entry:
    """Make a distribution known, for every model that is traced from now on. An entry that states
    no role, but accurate formulas alone, makes room for one that does.

    Raises:
        ModelError: one of its types is known already, by another entry.
    """
    for known in (kind for kind in entry.types if kind in _found):
        roles = type(_found[known].likelihood), type(_found[known].prior)
        if roles not in ((type(None), type(None)), (type(entry.likelihood), type(entry.prior))):
            raise ModelError(f"families.register: the distribution {known.__name__} is already "
                             "registered, with another likelihood or conjugate prior. Register a "
                             f"subclass, class My{known.__name__}({known.__name__}), and use the "
                             "subclass in the model")
    for kind in entry.domains:
        domains.add(kind)
    _found.update(dict.fromkeys(entry.types, entry))
    if entry.log_prob is not None:
        for kind in entry.types:
            censored.add(kind, entry.log_prob)
    return entry


def entry(distribution: object) -> Entry:
    """The entry of a base distribution."""
    known = _found.get(type(distribution), NOTHING)
    return TRANSFORMED if known is NOTHING and _located(distribution) else known


def _located(transformed: object) -> bool:
    """Whether it is a location-scale family in unbounded coordinates: affine transforms of one,
    followed at most by the bijection of its support."""
    if not isinstance(transformed, dist.TransformedDistribution):
        return False
    base, steps = _base(transformed.base_dist), transformed.transforms
    if type(steps[-1]) is type(biject_to(transformed.support)):
        steps = steps[:-1]
    return (isinstance(base.support, type(constraints.real))
            and entry(base).location_scale is not None
            and all(isinstance(step, AffineTransform) for step in steps))


def _base(distribution: object) -> dist.Distribution:
    return _base(distribution.base_dist) if isinstance(
        distribution, dist.Independent | dist.ExpandedDistribution) else distribution


def _location_scale(transformed: dist.Distribution) -> LocationScale:
    """See location_scale.py; the support's own map, which comes last, is no affine one."""
    base = _base(transformed.base_dist)
    moments = entry(base).location_scale
    loc, scale = (jnp.broadcast_to(leaf, transformed.base_dist.shape())
                  for leaf in present(moments)(base))
    for step in transformed.transforms:
        if isinstance(step, AffineTransform):
            loc, scale = step.loc + step.scale * loc, jnp.abs(step.scale) * scale
    return loc, scale


TRANSFORMED = Entry(location_scale=_location_scale)


SYMMETRIC = dist.Cauchy, dist.Laplace, dist.Logistic, dist.Normal, dist.StudentT


def plain(distribution: dist.Distribution) -> dist.Distribution:
    """The Normal, LogNormal or other member of a symmetric location-scale family that a
    TransformedDistribution equals; another distribution as it is."""
    if type(distribution) is not dist.TransformedDistribution:
        return distribution
    inner, steps = distribution.base_dist, _single_steps(distribution.transforms)
    base = _base(inner)
    is_log = bool(steps) and type(steps[-1]) is ExpTransform and type(base) is dist.Normal
    affine = steps[:-1] if is_log else steps
    if type(base) not in SYMMETRIC or not all(
            type(step) is AffineTransform and isinstance(step.domain, type(constraints.real))
            for step in affine):
        return distribution
    loc, scale = base.loc, base.scale
    for step in affine:  # without + 0, · 1 and abs, an argument that is a site is read as that
        size = jnp.sqrt(jnp.square(step.scale))  # which is read as itself where it is positive
        loc = step.loc if _always(loc, 0) else step.loc + step.scale * loc
        scale = size if _always(scale, 1) else size * scale
    args = ([base.df] if isinstance(base, dist.StudentT) else []) + [loc, scale]
    # of a step of a scan, NumPyro repeats the transforms alone
    shape = jnp.broadcast_shapes(inner.shape(), *map(jnp.shape, args))
    return (dist.LogNormal if is_log else type(base))(*args).expand(shape).to_event(inner.event_dim)


def _single_steps(transforms: list[Transform]) -> list[Transform]:
    """Transforms one after the other, without those that change nothing."""
    return [step for one in transforms if not isinstance(one, IdentityTransform) for step in (
        _single_steps(one.parts) if isinstance(one, ComposeTransform) else [one])]


def _always(value: ArrayLike, number: int) -> bool:
    """Whether all elements are known to be that number."""
    return not isinstance(value, jax.core.Tracer) and bool(np.all(np.asarray(value) == number))


def sharp(distribution: dist.Distribution) -> dist.Distribution:
    """An equal distribution, whatever it is wrapped in, where NumPyro's draws lose precision or
    fail."""
    if isinstance(distribution, dist.Independent):
        return sharp(distribution.base_dist).to_event(distribution.reinterpreted_batch_ndims)
    if isinstance(distribution, dist.ExpandedDistribution):
        return sharp(distribution.base_dist).expand(distribution.batch_shape)
    sharpen, distribution = entry(distribution).sharp, typed(distribution)
    return distribution if sharpen is None else sharpen(distribution)


def typed(distribution: dist.Distribution) -> dist.Distribution:
    """An equal distribution with every argument, also of its components, in the type of its
    constraint: floats of a program as integers, which NumPyro needs to draw counts; integers of a
    user as floats, which JAX needs to differentiate, as in Kumaraswamy(2, 3)."""

    def to_type(name: str, value: ArrayLike) -> ArrayLike:
        if isinstance(value, dist.Distribution):
            return sharp(value) if value.is_discrete else typed(value)
        if type(value) in (list, tuple):
            return type(value)(to_type("", part) for part in value)
        constraint = distribution.arg_constraints.get(name)
        if constraint is None or not isinstance(value, int | np.ndarray | jax.Array):
            return value
        kind, discrete = jnp.result_type(value), constraint.is_discrete
        if discrete and jnp.issubdtype(kind, jnp.floating):
            return jnp.round(value).astype(int)
        if not discrete and jnp.issubdtype(kind, jnp.integer):
            return jnp.asarray(value, float)
        return value

    out = copy.copy(distribution)
    vars(out).update({name: to_type(name, value) for name, value in vars(distribution).items()})
    return out


def entries() -> tuple[Entry, ...]:
    """All entries, each once."""
    return tuple({id(found): found for found in _found.values()}.values())


for _folder in FOLDERS:
    for _module in pkgutil.iter_modules(importlib.import_module(_folder).__path__):
        for _entry in getattr(importlib.import_module(f"{_folder}.{_module.name}"), "ENTRIES", ()):
            register(_entry)
