"""Tables of models along time: start and transition probabilities, emissions by state; standard
deviations of the components of a series."""

import jax.numpy as jnp
import numpy as np

from probml.interface.showing.estimates import Estimates, Quantity
from probml.interface.showing.summary import Table
from probml.models.frames.covariances import canonical
from probml.models.summaries.mixtures import by_group, groups, scatter
from probml.models.summaries.regressions import coefficients
from probml.numerics.process.libraries import pd

_COMPONENTS = {name: (label, None) for name, label in (
    ("sigma", "irregular"), ("level_scale", "level"), ("trend_scale", "trend"),
    ("season_scale", "seasonal"), ("cycle_scale", "cycle"), ("ar_scale", "autoregression"))}


def chain_tables(estimates: Estimates) -> list[Table]:
    """Start and transition probabilities."""
    k = estimates.values["transition"].shape[-1]
    index = groups(estimates, "z", k, "state")
    tables = []
    if "initial" in estimates:
        tables.append(estimates.across("Start probabilities", index, ["probability"],
                                       estimates.of("initial")))
    if np.ndim(estimates.values["transition"]) == 2:
        tables.append(estimates.across("Transition probabilities", index.rename("from"),
                                       index.rename("to"), estimates.of("transition")))
    return tables


def hidden_markov_tables(estimates: Estimates) -> list[Table]:
    """Tables of hidden_markov: start, transition, emissions by state."""
    settings = estimates.settings
    k, emission = settings["k"], canonical(settings["emission"])
    index, d = groups(estimates, "z", k, "state"), settings["d"]
    variables = estimates.columns("y", d, ("mean", 1), ("rate", 1), ("probs", 1))
    tables = chain_tables(estimates)
    if "mean" in estimates:
        tables.append(by_group(estimates, "Means", variables, index, estimates.of("mean")))
    if "scale" in estimates:
        tables.append(by_group(estimates, "Standard deviations", variables, index,
                               estimates.of("scale")))
    if "precision" in estimates:
        tables += scatter(estimates, variables, index, "precision", emission)
    if "rate" in estimates:
        tables.append(by_group(estimates, "Poisson rates", variables, index, estimates.of("rate")))
    if "probs" in estimates:
        symbols = settings["symbols"]
        rows = (estimates.labels("y", symbols, "symbol") if emission == "categorical"
                else variables)
        heading = ("Emission probabilities" if emission == "categorical"
                   else "Probabilities of 1")
        tables.append(by_group(estimates, heading, rows, index, estimates.of("probs")))
    return tables


def series_tables(estimates: Estimates) -> list[Table]:
    """Tables of structural time series: standard deviations of the components, coefficients of
    regressors."""
    def labels(name: str, label: str, found: Quantity) -> list[str]:
        size = found.value.size
        if size == 2 and name == "trend_scale":
            return ["level", "slope"]
        return [label] if size == 1 else [f"{label} {i + 1}" for i in range(size)]

    tables = estimates.named("Standard deviations of the components", _COMPONENTS, labels)
    return tables + (coefficients(estimates) if "beta" in estimates or not tables else [])


def dynamic_factor_tables(estimates: Estimates) -> list[Table]:
    """Tables of dynamic_factor: loadings, autoregressions, standard deviations of the noise."""
    d, k = estimates.values["loadings"].shape
    factors = pd.Index([f"factor {i + 1}" for i in range(k)])
    series = estimates.columns("y", d, ("loadings", 0))
    order = estimates.values["coefficients"].shape[-1]
    estimates.covered.add("partial")
    return [estimates.across("Loadings", series, factors, estimates.of("loadings")),
            estimates.across("Autoregressive coefficients", factors,
                             [f"lag {i + 1}" for i in range(order)],
                             estimates.of("coefficients")),
            estimates.across("Means and residual sd", series, ["mean", "residual sd"],
                             estimates.function(lambda mean, noise: jnp.stack([mean, noise], -1),
                                                "mean", "sigma"))]
