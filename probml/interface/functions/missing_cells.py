"""Missing cells (NaN) of what one joint density observes: where nothing else depends on a cell, its
factor integrates to one and is left out,

    ∫ p(y_observed, y_missing | z) dy_missing = p(y_observed | z).
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.primitives import Messenger

from probml.interface.functions.messages import prepare, trace_isolated
from probml.interface.functions.scan_starts import ScanCall
from probml.interface.functions.states import single
from probml.jaxpr.cells import SEVERAL, cells
from probml.jaxpr.program import jaxpr_of
from probml.language.language import Bound
from probml.numerics.process.making import unchecked
from probml.structure.leaves import leaves_of_distribution
from probml.typing import SiteValues


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


def find_use_of_missing(model: Bound, arguments: SiteValues, given: SiteValues,
                        name: str) -> str | None:
    """Why missing cells of an argument, or of a given site, cannot be left out, in words: something
    else depends on them; None: nothing does. A function that cannot be traced is taken to depend on
    them.

    Cost: one abstract run, its program followed cell by cell; nothing is compiled.
    """
    array = (arguments if name in arguments else given)[name]
    missing = np.isnan(array).ravel()
    owners: list[tuple[str, int | None]] = []  # site, and the event axes of an observed value

    def leaves_and_values(values: jax.Array) -> list[jax.Array]:
        args = {**arguments, name: values} if name in arguments else dict(arguments)
        observed = {**given, name: values} if name in given else dict(given)
        trace = trace_isolated(lambda: model.generative.run({**model.bound, **args}, {}), observed,
                               sums=False)
        owners.clear()
        results = []
        for site in trace.values():
            if site["type"] != "sample":
                continue
            # a truth value, such as a mask by isnan, may depend on them
            leaves = [leaf for leaf in map(jnp.asarray, leaves_of_distribution(site["fn"])[0])
                      if leaf.dtype != bool]
            owners.extend([(site["name"], None)] * len(leaves))
            results += leaves
            if site["is_observed"] and not isinstance(site["fn"], dist.Unit):
                owners.append((site["name"], single(site["fn"])[0].event_dim))
                results.append(jnp.asarray(site["value"]))
        return results

    try:
        closed = jaxpr_of(leaves_and_values)(
            jax.ShapeDtypeStruct(array.shape, jnp.result_type(array)))
    except Exception as error:
        if name in arguments and _is_masked_by_function(model, arguments, given):
            return None
        first_line = str(error).strip().splitlines()[0]
        return (f"the model function fails without the values of '{name}' ({type(error).__name__}: "
                f"{first_line[:80]})")
    for (owner, axes), cell_map in zip(owners, cells(closed, {0: name}), strict=True):
        where = cell_map.get(name)
        if where is None:
            continue
        is_missing = (where >= 0) & missing[where]
        if (where == SEVERAL).any() or axes is None and is_missing.any():
            return f"site '{owner}' depends on the missing values of '{name}'"
        if axes:
            part = is_missing.reshape(*is_missing.shape[: is_missing.ndim - axes], -1)
            if (part.any(-1) & ~part.all(-1)).any():
                return (f"the observations of '{owner}' are vectors, which must be observed "
                        f"completely or be missing completely")
    return None


def _is_masked_by_function(model: Bound, arguments: SiteValues,
                           given: SiteValues) -> bool:
    """Whether the function leaves missing cells out itself, as by a mask of NumPy's: run with these
    numbers, no distribution and no observed value has a NaN.

    Cost: one run of the function, computed.
    """
    try:
        with unchecked():  # at values at which no density need be NaN
            trace = trace_isolated(lambda: model.generative.run({**model.bound, **arguments}, {}),
                                   given, sums=False,
                                   blank=lambda fn: fn.support.feasible_like(jnp.zeros(fn.shape())))
    except Exception:
        return False
    arrays = [leaf for site in trace.values() if site["type"] == "sample"
              for leaf in (*leaves_of_distribution(site["fn"])[0], site["value"])]
    return not any(bool(jnp.isnan(leaf).any()) for leaf in map(jnp.asarray, arrays)
                   if jnp.issubdtype(leaf.dtype, jnp.floating))
