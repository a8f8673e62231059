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

    A smaller model is computed as the largest one, with probability 0 for the states beyond its
    size. With EM that is the smaller model under maximum likelihood, or a Dirichlet prior of
    concentration 1; VB uses the prior of the smaller model.

    Args:
        models: number of states of `site` → the model with so many; the axis of the states is the
            first of a parameter, or it has none.
        where: see Model.fit; with few rows the restarts are distributed over the devices.

    Returns:
        number of states → Fit, the best of the engine's restarts.

    Raises: as Model.fit, of the largest model; of VB a Refusal where the prior of the state
        probabilities is no Dirichlet.
    Cost: every iteration is one of the largest model for each restart of each size.
    """
    results = fitting.infer_sizes(models, data, site, engine, weights, seed, where)
    columns = columns_of(data)
    return {size: Fit.of(models[size], result, columns, seed) for size, result in results.items()}
