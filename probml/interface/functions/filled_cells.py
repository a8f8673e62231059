"""Missing cells of what one joint density observes, filled. They were left out because nothing else
depends on them (missing_cells.py). So given the latent sites and the observed cells each has the
distribution of its own site,

    p(y_missing | y_observed) = ∫ p(y_missing | z, y_observed) p(z | y_observed) dz,

the average over draws of the latent sites, of steps that are integrated out, too. Cells on which
others depend are latent themselves.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from probml.dataset.dataset import Data
from probml.errors import Refusal
from probml.families import finite, registry
from probml.interface.functions.given.values import as_given
from probml.interface.functions.states import single
from probml.language.language import Bound
from probml.numerics.compiling import jit
from probml.numerics.transfer import Use, derive_key, placed_all, random_key, split_key
from probml.queries import step_posteriors
from probml.queries.fitted import Fitted
from probml.typing import ArrayLike

DRAWS = 1000  # of the latent sites, over which a mean is taken


def impute_joint(fit: Fitted, data: Data, plug_in: bool) -> dict[str, np.ndarray]:
    """Site → its observed cells, and the missing ones by their most probable state where these have
    a finite list, else by their means."""
    filled = {}
    for name, (observed, centers, low, _) in _cells(fit, data, "impute(data)", DRAWS, 0,
                                                    plug_in).items():
        center = centers.mean(0)
        if center.ndim > observed.ndim:
            center = low[0] + center.argmax(-1)
        missing = np.isnan(observed)
        if not np.isfinite(np.broadcast_to(center, observed.shape)[missing]).all():
            raise Refusal(f"impute(data): the missing cells of '{name}' have no finite mean. Draw "
                          "them, fit.simulate(given=data)")
        filled[name] = np.where(missing, center, observed)
    return filled


def complete_joint(fit: Fitted, data: Data, seed: int, plug_in: bool) -> dict[str, np.ndarray]:
    """Site → its observed cells, and one joint draw of the missing ones."""
    return {name: np.where(np.isnan(observed), draws[0], observed)
            for name, (observed, _, _, draws) in _cells(fit, data, "simulate(given=data)", 1, seed,
                                                        plug_in).items()}


def _cells(fit: Fitted, data: Data, verb: str, n: int, seed: int,
           plug_in: bool) -> dict[str, tuple[np.ndarray, ...]]:
    """Site → its value, missing cells NaN; and of its distribution at n draws of the latent sites
    what `_center` says, and a draw, (n, ...).

    Raises:
        Refusal: these are not the fitted data; a latent discrete site has no draws; the function
            replaces missing values.
    """
    reading, inputs = fit.model.generative, data.inputs_of_one_row
    if fit.data is None or not all(
            np.array_equal(value, fit.data.inputs_of_one_row[name],
                           equal_nan=np.asarray(value).dtype.kind == "f")
            for name, value in inputs.items()):
        raise Refusal(f"{verb}: model '{fit.model.name}' has no plate of independent rows, because "
                      f"{reading.reason}, so its latent variables are those of the fitted data. "
                      f"Fit these data, and ask that fit: model.fit(data).{verb}")
    known = reading.observed(fit.model.bound, inputs)
    observed = {name: site.value.astype(float) for name, site in known.items()
                if not site.computed}
    arguments = [*inputs.values(), *map(as_given, fit.model.bound.values())]
    if sum(map(_missing, arguments)) > sum(_missing(site.value) for site in known.values()):
        raise Refusal(f"{verb}: the function of model '{fit.model.name}' replaces missing values "
                      "itself, so it is not known which observed cells are missing. Observe the "
                      "values as they are, obs=y, without jnp.nan_to_num or jnp.where")
    sites = {name: site for name, site in fit.structure.sites.items() if not site.factor}
    if plug_in or fit.certain:
        draws = {name: np.repeat(np.asarray(value)[None], n, 0)
                 for name, value in fit.point.items()}
    else:
        draws = fit._draws(n, seed)
    steps = step_posteriors.draw_steps(fit, draws, n, seed)
    values = {name: sites[name].valued(jnp.asarray(value)) for name, value in draws.items()
              if name in sites} | steps
    found = _evaluate(fit.model, placed_all(dict(inputs)),
                      (placed_all(values), split_key(derive_key(random_key(seed), Use.NOISE), n)))
    if not found:
        raise Refusal(f"{verb}: a discrete site of model '{fit.model.name}' is summed out, so it "
                      "has no draws, and the missing cells depend on it. Ask for the probabilities "
                      "of its states, predict_proba(data, site)")
    return {name: (value, *map(np.asarray, found[name])) for name, value in observed.items()}


def _missing(value: object) -> int:
    """The number of NaN in an array."""
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        return int(np.isnan(value).sum())
    return 0


@jit(static_argnums=0, draws=2)
def _evaluate(model: Bound, inputs: dict, at: tuple) -> dict:
    def of(values: dict, key: jax.Array) -> dict:
        trace = model.generative.observed_at(model.bound, inputs, values)
        cells = {}
        for (name, site), key_of in zip(trace.items(), jax.random.split(key, len(trace) + 1),
                                        strict=False):
            center, low = _center(site["fn"])
            draw, value = registry.sharp(_unmasked(site["fn"])).sample(key_of), site["value"]
            if name not in model.generative.observed_cells and not site["fn"].support.is_discrete:
                center, draw = (jnp.where(jnp.isnan(value), cell, value) for cell in (center, draw))
            cells[name] = center, low, draw
        return cells

    return jax.lax.map(lambda pair: of(*pair), at)


def _center(fn: dist.Distribution) -> tuple[jax.Array, ArrayLike]:
    """The probabilities of all states of each cell, (..., states), and the first state; where these
    are no finite list that is known, the means."""
    base = _unmasked(fn)
    ends = finite.integer_range(base)
    states = None
    if ends is not None and not any(isinstance(end, jax.core.Tracer) for end in ends):
        states = finite.listed(*map(np.asarray, ends))
    if states is None:
        return base.mean, 0
    return jnp.exp(finite.log_masses(base, *states, base.batch_shape)), states[0]


def _unmasked(fn: dist.Distribution) -> dist.Distribution:
    """The distribution of each cell, of the shape of the value."""
    base, _ = single(fn)
    while isinstance(base, dist.MaskedDistribution):
        base, _ = single(base.base_dist)
    return base
