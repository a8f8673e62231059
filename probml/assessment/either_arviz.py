"""ArviZ of either generation: 0.2x has its own InferenceData and statistics; 1.x uses xarray's
DataTree, and the packages arviz_base and arviz_stats.

Also its groups `prior` and `prior_predictive`: draws of the sites outside rows, and rows simulated
with each.
"""

import importlib
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from probml.assessment.dimensions import Dimensions
from probml.assessment.simulated import from_prior
from probml.dataset import dataset
from probml.errors import ModelError
from probml.queries.fitted import Fitted
from probml.typing import PyTree


def groups(fit: Fitted, data: dataset.Data, names: Dimensions, count: int, outside: Iterable[str],
           seen: Iterable[str], group: Callable) -> dict[str, PyTree]:
    """Both groups, of `count` draws in one chain, seed 0.

    Args:
        outside: sites outside rows of the posterior. seen: those of the rows that were observed.
        group: (name → array, dims of a name) → the group.

    Raises:
        Refusal: a loss, a prior that weighs by a factor or is improper: none can be drawn from.
    """
    structure, seen = data.structure, tuple(seen)
    sites = structure.sites
    own = (*(name for name in outside if name in sites and not sites[name].rows),
           *(name for name, site in structure.deterministics.items() if not site.rows))
    given = {name: value for name, value in {**fit.given, **data.table.values}.items()
             if name in sites}
    drawn = from_prior(structure, data, (*own, *seen), given, int(count), 0, "to_arviz(prior=...)")
    chain = {name: value[None] for name, value in drawn.items()}
    return {"prior": group({name: chain[name] for name in own}, names.of_parameter),
            "prior_predictive": group({name: chain[name] for name in seen}, names.of_row_site)}


class LeftOut(NamedTuple):
    """Leave-one-out by Pareto-smoothed importance sampling, in nats (Vehtari, Gelman & Gabry
    2017)."""

    elpd: float
    se: float
    p: float  # effective parameters
    terms: np.ndarray  # (n,) of elpd
    k: np.ndarray  # (n,) Pareto's shape of each row
    good: float  # above which a row's k says that its term cannot be relied on


def require_arviz() -> None:
    """Refuse before anything is computed.

    Raises:
        ModelError: no ArviZ is installed.
    """
    if _legacy_arviz() is None:
        _part("arviz_base")


def container(groups: Mapping[str, PyTree]) -> Any:
    """Groups, name → xarray.Dataset, in what the ArviZ that is installed calls its own: of 0.2x an
    InferenceData, of 1.x a DataTree. Where both are, 0.2x's.

    Raises:
        ModelError: neither is installed.
    """
    arviz = _legacy_arviz()
    if arviz is not None:
        return arviz.InferenceData(**groups)
    _part("arviz_base")
    from xarray import DataTree

    return DataTree.from_dict(dict(groups))


def leave_one_out(draws: Mapping[str, np.ndarray], logs: np.ndarray) -> LeftOut:
    """
    Args:
        draws: site → (chains, draws, ...), by whose autocorrelation the weights are smoothed.
        logs: log p(row | parameters) of every draw, (chains, draws, n).

    Raises:
        ModelError: no ArviZ is installed.
    """
    arviz = _legacy_arviz()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of bad k, whose number is reported
        if arviz is not None:
            result = arviz.loo(arviz.from_dict(posterior=dict(draws), log_likelihood={"row": logs}),
                               pointwise=True)
            elpd, p, terms = result["elpd_loo"], result["p_loo"], result["loo_i"]
        else:
            stats, base = _part("arviz_stats"), _part("arviz_base")
            result = stats.loo(base.from_dict({"posterior": dict(draws),
                                               "log_likelihood": {"row": logs}}), pointwise=True)
            elpd, p, terms = result.elpd, result.p, result.elpd_i
    return LeftOut(float(elpd), float(result["se"]), float(p), np.asarray(terms, float),
                   np.asarray(result["pareto_k"], float), float(result["good_k"]))


def _legacy_arviz() -> Any | None:
    """arviz 0.2x, its announcements left out; None where it is absent or of another generation."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            arviz = importlib.import_module("arviz")
    except ImportError as error:
        if error.name != "arviz":  # it is there, and something below it is not
            raise ModelError(f"arviz is installed but cannot be imported ({error}). Install it "
                             f"again: pip install --force-reinstall arviz") from error
        return None
    return arviz if arviz.__version__.startswith("0.") else None


def _part(name: str) -> Any:
    """A package of ArviZ 1.x.

    Raises:
        ModelError: it is not installed.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module(name)
    except ImportError as error:
        raise ModelError(f"to_arviz() needs arviz, which cannot be imported ({error}). Install it "
                         f"with pip install 'probml[arviz]', or install "
                         f"'arviz-stats[xarray]'") from None
