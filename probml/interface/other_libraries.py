"""What methods and attributes of other libraries are called here."""

from collections.abc import Mapping
from typing import Any

from probml.errors import meant

# names in other libraries → what to use here
OF_FITS = {
    "sample": "draws(n) for draws of the parameters, or simulate(n) for new rows",
    "get_samples": "draws(n)",
    "trace": "to_arviz()", "idata": "to_arviz()", "to_inferencedata": "to_arviz()",
    "print_summary": "summary()", "coef_": "params", "coef": "params, or summary()",
    "coefficients": "params, or summary()", "fitted": "predict(data)",
    "sample_posterior_predictive": "simulate(...)", "predictive": "simulate(...)",
    "transform": "predict_proba(data), or conditional(data, site)",
    "responsibilities": "predict_proba(data)", "loo": "probml.compare({name: fit}, data)",
    "waic": "probml.compare({name: fit}, data)", "aic": "probml.compare({name: fit}, data)",
    "bic": "probml.compare({name: fit}, data)", "logp": "log_joint(data)",
    "query": "predict_proba(data, site), joint(data, sites)", "map_query": "decode(data)",
    "plot": "report(path), to_arviz() for the pictures of ArviZ, or probml.models.pictures",
}
OF_MODELS = {
    "sample": "fit(data, probml.NUTS()) for the posterior, or simulate(rows) for the prior",
    "sample_prior_predictive": "simulate(rows, parameters=True)",
    "find_MAP": "fit(data, probml.MAP())", "run": "fit(data, engine)",
    "optimize": "fit(data, probml.MAP())", "variational": "fit(data, probml.SVI())",
    "logp": "log_density(data, params)", "log_prob": "fit(data).log_prob(rows), or log_density",
    "predict": "fit(data).predict(rows)", "predict_proba": "fit(data).predict_proba(rows)",
    "check_density": "check(rows=100), or compare log_density(data, params) with "
                     "numpyro.infer.util.log_density",
    "to_graphviz": "draw()", "render": "draw()", "plot": "draw()",
}


def missing_attribute(owner: Any, name: str, elsewhere: Mapping[str, str]) -> AttributeError:
    """The error for an attribute that an object does not have, with the nearest names. A property
    of its class that raised AttributeError raises it again."""
    if hasattr(type(owner), name):
        object.__getattribute__(owner, name)
    known = [attribute for attribute in dir(type(owner)) if not attribute.startswith("_")]
    hint = "" if name.startswith("_") else meant(name, known, elsewhere)
    return AttributeError(f"'{type(owner).__name__}' object has no attribute '{name}'{hint}")
