"""Missing cells (NaN) of what one joint density observes: where nothing else depends on a cell, its
factor integrates to one and is left out,

    ∫ p(y_observed, y_missing | z) dy_missing = p(y_observed | z).

A function that asks which cells are missing is fitted as it is written. Other missing cells are
unknown numbers like the parameters, as the missing value of a series on which the next one depends:
the function is given a vector of them in their places, and observes them.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import biject_to, constraints
from numpyro.distributions.constraints import Constraint
from numpyro.primitives import Messenger

from probml.interface.functions.messages import prepare, trace_isolated
from probml.interface.functions.scan_starts import ScanCall
from probml.interface.functions.states import single, zeros_of
from probml.jaxpr.cells import SEVERAL, cells
from probml.jaxpr.levels import asks_for_nan
from probml.jaxpr.program import jaxpr_of
from probml.language.language import Bound
from probml.numerics.compiling import jit
from probml.numerics.process.making import unchecked
from probml.structure.leaves import leaves_of_distribution
from probml.typing import ArrayLike, Message, SiteValues


def fill_missing(value: np.ndarray) -> np.ndarray:
    """Give missing cells the value of an observed one; their factors are left out."""
    missing = np.isnan(value)
    return np.where(missing, value[~missing][0] if not missing.all() else 0.0, value)


def mask_missing(fn: dist.Distribution, observed: jax.Array) -> dist.Distribution:
    """A distribution without the factors of the cells that are not observed."""
    base, copies = single(fn)
    if base.event_dim:
        observed = observed.all(tuple(range(observed.ndim - base.event_dim, observed.ndim)))
    base = base.mask(observed)
    return base.to_event(copies) if copies else base


class MaskMissing(Messenger):
    """Leaves missing cells out of what is observed, also inside scans.

    Args:
        masks: sites that a handler around the function conditions on, name → which cells are
            observed.
    """

    def __init__(self, masks: SiteValues):
        super().__init__()
        self.masks = masks

    def process_message(self, msg: dict) -> None:
        if (scan := ScanCall.of(msg)) is not None:
            def masked_body(carry: object, x: object) -> Callable:
                with MaskMissing(self.masks):
                    return scan.body(carry, x)

            msg["args"] = scan._replace(body=masked_body)
        if msg["type"] != "sample" or isinstance(msg["fn"], dist.Unit):
            return
        prepare(msg)
        fn = msg["fn"]
        if msg["name"] in self.masks:
            msg["fn"] = mask_missing(fn, jnp.asarray(self.masks[msg["name"]]))
        elif msg["is_observed"] and jnp.issubdtype(jnp.result_type(msg["value"]), jnp.floating):
            missing = jnp.isnan(msg["value"])
            msg["fn"] = mask_missing(fn, ~missing)
            if fn.support.is_discrete:  # codes are whole numbers
                msg["value"] = jnp.where(missing, fn.support.feasible_like(msg["value"]),
                                         msg["value"]).astype(int)


class _Use(NamedTuple):
    """An array of a site that may depend on an argument.

    Attributes:
        event: event axes of an observed value; None: an array of its distribution.
        support: of the distribution.
        cells: of the argument, flat, of which each element is a copy: −1 none, SEVERAL; None: no
            element depends on it.
    """

    site: str
    event: int | None
    support: Constraint
    cells: np.ndarray | None = None


class _Arrays:
    """The arrays of all sites as a function of the values of an argument, or of a given site.

    Attributes:
        uses: what each array is, once the function has run.
    """

    def __init__(self, model: Bound, arguments: SiteValues, given: SiteValues, name: str,
                 **options: Any):
        self.model, self.arguments, self.given, self.name = model, arguments, given, name
        self.options, self.uses = options, list[_Use]()

    def __call__(self, values: jax.Array) -> list[jax.Array]:
        name = self.name
        args = {**self.arguments, **({name: values} if name in self.arguments else {})}
        observed = {**self.given, **({name: values} if name in self.given else {})}
        trace = trace_isolated(lambda: self.model.generative.run({**self.model.bound, **args}, {}),
                               observed, sums=False, **self.options)
        self.uses, results = [], []
        for site in trace.values():
            if site["type"] != "sample":
                continue
            # a truth value, such as a mask by isnan, may depend on them
            leaves = [leaf for leaf in map(jnp.asarray, leaves_of_distribution(site["fn"])[0])
                      if leaf.dtype != bool]
            base = single(site["fn"])[0]
            self.uses.extend([_Use(site["name"], None, base.support)] * len(leaves))
            results += leaves
            if site["is_observed"] and not isinstance(site["fn"], dist.Unit):
                self.uses.append(_Use(site["name"], base.event_dim, base.support))
                results.append(jnp.asarray(site["value"]))
        return results


def _uses(model: Bound, arguments: SiteValues, given: SiteValues, name: str) -> list[_Use]:
    """The arrays of all sites, with the cells of an argument or of a given site of which they are
    made.

    Cost: one abstract run, its program followed cell by cell; nothing is compiled.
    """
    array, arrays = (arguments if name in arguments else given)[name], _Arrays(
        model, arguments, given, name)
    closed = jaxpr_of(arrays)(jax.ShapeDtypeStruct(array.shape, jnp.result_type(array)))
    return [use._replace(cells=cell_map.get(name))
            for use, cell_map in zip(arrays.uses, cells(closed, {0: name}), strict=True)]


def find_use_of_missing(model: Bound, arguments: SiteValues, given: SiteValues,
                        name: str) -> str | None:
    """Why missing cells of an argument, or of a given site, cannot be left out, in words: something
    else depends on them; None: nothing does. A function that cannot be traced is taken to depend on
    them."""
    missing = np.isnan((arguments if name in arguments else given)[name]).ravel()
    try:
        uses = _uses(model, arguments, given, name)
    except Exception as error:
        if name in arguments and _is_masked_by_function(model, arguments, given):
            return None
        first_line = str(error).strip().splitlines()[0]
        return (f"the model function fails without the values of '{name}' ({type(error).__name__}: "
                f"{first_line[:80]})")
    for site, axes, _, where in uses:
        if where is None:
            continue
        is_missing = (where >= 0) & missing[where]
        if (where == SEVERAL).any() or axes is None and is_missing.any():
            return f"site '{site}' depends on the missing values of '{name}'"
        if axes and _is_in_part(is_missing, axes):
            return (f"the observations of '{site}' are vectors, which must be observed "
                    f"completely or be missing completely")
    return None


def _is_in_part(is_missing: ArrayLike, axes: int) -> bool:
    """Whether some, and not all, cells of a vector are missing; its `axes` are the last."""
    flags = np.asarray(is_missing)
    vectors = flags.reshape(*flags.shape[: flags.ndim - axes], -1)
    return bool((vectors.any(-1) & ~vectors.all(-1)).any())


SUPPORTS = {"real": constraints.real, "positive": constraints.positive,
            "unit interval": constraints.unit_interval}


def handles_missing(model: Bound, arguments: SiteValues, name: str) -> bool:
    """Whether the function itself says what becomes of the missing cells of an argument: it asks
    which these are, as by jnp.isnan or jnp.nan_to_num, or masks them where they are observed, as by
    a comparison, which is false for NaN. It is fitted as it is written if then no distribution is
    NaN, and no vector is observed in part."""
    array = arguments[name]
    try:
        closed = jaxpr_of(_Arrays(model, arguments, {}, name))(
            jax.ShapeDtypeStruct(array.shape, jnp.result_type(array)))
        sites = _run_with_missing(model, arguments, {})
    except Exception:  # whatever a user's function raises
        return False
    return (asks_for_nan(closed) or _are_masked(sites)) and not any(
        map(_has_nan, _leaves(sites))) and not any(
        _is_in_part(jnp.isnan(site["value"]), axes) for site in sites
        if (axes := single(site["fn"])[0].event_dim) and site["is_observed"])


def _are_masked(sites: list[Message]) -> bool:
    """Whether the sites that observe missing cells leave them out of their densities by a mask."""
    observing = [site for site in sites if site["is_observed"] and _has_nan(site["value"])]
    for site in observing:
        base, _ = single(site["fn"])
        missing = jnp.isnan(site["value"]).any(tuple(range(-base.event_dim, 0)))
        if not isinstance(base, dist.MaskedDistribution) or (missing & base._mask).any():
            return False
    return bool(observing)


MAX_CHECKED_CELLS = 500  # missing ones, whose dependents are looked at


def support_of_missing(model: Bound, arguments: SiteValues, name: str) -> str | None:
    """The name in SUPPORTS of the support of the missing cells of an argument, if the densities of
    the sites are a joint density of them.

    Returns:
        None: not all are observed as they are, or they are not continuous, or have other bounds, or
            something depends on them that does not follow (`_only_later_sites_depend`).
    """
    missing = np.isnan(arguments[name])
    try:
        uses = _uses(model, arguments, {}, name)
        supports, places = [], dict[int, tuple[int, int]]()
        sites = list(dict.fromkeys(use.site for use in uses))
        for use in uses:
            if use.event is not None and use.cells is not None:
                hits = [(element, cell) for element, cell in enumerate(use.cells.ravel().tolist())
                        if cell >= 0 and missing.flat[cell]]
                support = use.support
                while isinstance(support, constraints.independent):
                    support = support.base_constraint
                supports += [support] * bool(hits)
                places = {cell: (sites.index(use.site), element) for element, cell in hits} | places
        word = next((word for word, known in SUPPORTS.items()
                     if all(support is known for support in supports)), None)
        is_joint = len(places) == missing.sum() and _only_later_sites_depend(
            _Arrays(model, arguments, {}, name, blank=_inside_of_support), arguments[name], sites,
            places)
    except Exception:  # whatever a user's function raises
        return None
    return word if is_joint else None


def _inside_of_support(fn: dist.Distribution) -> jax.Array:
    """A value at which derivatives are not zero by chance."""
    if fn.support.is_discrete:
        return zeros_of(fn)
    transform = biject_to(fn.support)
    shape = transform.inverse_shape(fn.shape())
    return transform(jnp.linspace(0.3, 0.9, math.prod(shape)).reshape(shape))


def _only_later_sites_depend(arrays: _Arrays, value: np.ndarray, sites: list[str],
                             places: Mapping[int, tuple[int, int]]) -> bool:
    """Whether distributions depend on a missing cell only at later sites than the one that observes
    it, or in later elements of that site; by derivatives. Other densities, such as that of y given
    the mean of y, multiply to no joint density.

    Args:
        places: cell → the number of its site, its element there.
    """
    missing = np.array(sorted(places))[:MAX_CHECKED_CELLS]

    def floats(numbers: jax.Array) -> list[jax.Array]:
        filled = jnp.nan_to_num(jnp.asarray(value, float), nan=0.5).ravel().at[missing].set(numbers)
        return [array.astype(float) for array in arrays(filled.reshape(value.shape))]

    slopes = jit(jax.jacfwd(floats))(jnp.linspace(0.3, 0.7, len(missing)))
    shapes = {use.site: slope.shape[:-1] for use, slope in zip(arrays.uses, slopes, strict=True)
              if use.event is not None}
    for use, slope in zip(arrays.uses, slopes, strict=True):
        for cell, depends in zip(missing.tolist(), np.moveaxis(np.asarray(slope), -1, 0) != 0,
                                 strict=True):
            number, element = places[cell]
            own = sites.index(use.site)
            if use.event is None and depends.any() and own <= number and (
                    own < number
                    or np.flatnonzero(np.broadcast_to(depends, shapes[use.site]))[0] <= element):
                return False
    return True


def sample_missing(name: str, value: ArrayLike, missing: np.ndarray,
                   support: str) -> jax.Array:
    """An argument whose missing cells are a latent vector: its density is that of the sites which
    observe it."""
    numbers = numpyro.sample(f"{name} (missing)", dist.ImproperUniform(
        SUPPORTS[support], (), (int(missing.sum()),)))
    return jnp.asarray(value).at[np.nonzero(missing)].set(numbers)


def _is_masked_by_function(model: Bound, arguments: SiteValues, given: SiteValues) -> bool:
    """Whether the function leaves missing cells out itself, as by a mask of NumPy's: run with these
    numbers, no distribution and no observed value has a NaN.
    """
    try:
        sites = _run_with_missing(model, arguments, given)
    except Exception:
        return False
    return not any(map(_has_nan, [*_leaves(sites), *(site["value"] for site in sites)]))


def _run_with_missing(model: Bound, arguments: SiteValues, given: SiteValues) -> list[Message]:
    """The sites of a run with these numbers, computed, at values at which no density need be NaN.
    """
    with unchecked():
        trace = trace_isolated(lambda: model.generative.run({**model.bound, **arguments}, {}),
                               given, sums=False,
                               blank=lambda fn: fn.support.feasible_like(jnp.zeros(fn.shape())))
    return [site for site in trace.values() if site["type"] == "sample"]


def _leaves(sites: list[Message]) -> list[jax.Array]:
    return [leaf for site in sites for leaf in leaves_of_distribution(site["fn"])[0]]


def _has_nan(array: jax.Array) -> bool:
    return bool(jnp.issubdtype(jnp.result_type(array), jnp.floating) and jnp.isnan(array).any())
