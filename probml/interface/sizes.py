"""One model with several numbers of states, fitted side by side."""

from collections.abc import Mapping

from probml.dataset.frames import columns_of
from probml.engines import EM, VB
from probml.fits import fitting
from probml.interface.fit import Fit
from probml.language.language import Bound


def grid(models: Mapping[int, Bound], data: object, site: str, engine: EM | VB, *,
         weights: object = None, seed: int = 0, where: object = None) -> dict[int, Fit]:
    """Fit one model with several numbers of states of a hidden site, all restarts of all sizes in
    one program.

    A smaller model is the largest one whose states beyond its size are impossible. Of EM that holds
    where their weights then vanish: under maximum likelihood, or a Dirichlet prior of concentration
    1; VB takes the prior that the smaller model states.

    Args:
        models: states of `site` → the model with so many; parameters lead with the axis of the
            states, or do not have it.
        where: see Model.fit; of few rows the restarts are cut over devices.

    Returns:
        states → Fit, the best of the engine's restarts each.

    Raises: as Model.fit, of the largest model; of VB a Refusal where states have other priors of
        their probabilities than Dirichlets.
    Cost: every iteration is one of the largest model for each restart of each size.
    """
    found = fitting.infer_sizes(models, data, site, engine, weights, seed, where)
    columns = columns_of(data)
    return {size: Fit.of(models[size], of, columns, seed) for size, of in found.items()}
