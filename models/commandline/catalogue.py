"""The names that the command line knows, as text: what its help needs, and no model is imported
for."""

from typing import NamedTuple


class Kind(NamedTuple):
    """A model of the library.

    Attributes:
        takes: the options beside the table: target, formula, sizes, engine.
        what: what it does, in a few words.
    """

    takes: tuple[str, ...]
    what: str


MODELS: dict[str, Kind] = {
    "naive_bayes": Kind(("target", "engine"), "predict a class from columns of any kind"),
    "mixture": Kind(("sizes", "engine"), "clusters of rows with columns of any kind"),
    "latent_class": Kind(("sizes", "engine"), "classes of rows with categorical columns"),
    "factor": Kind(("sizes", "engine"), "factor analysis of numeric columns"),
    "network": Kind(("engine",), "a Bayesian network, its graph learned from the table"),
    "hmm": Kind(("sizes", "engine"), "a hidden Markov model, one row per step"),
    "regression": Kind(("target", "engine"), "linear regression of a number, logistic of a class"),
    "glm": Kind(("target", "formula", "engine"), "a generalized linear model"),
    "mixed": Kind(("formula", "engine"), "a mixed model, fixed and random effects"),
    "meta": Kind(("target", "engine"), "meta-analysis of estimates with standard errors"),
    "series": Kind(("target", "engine"), "trend and seasons of a time series"),
}
SEQUENCES = ("hmm", "series")  # a row is a step
OWN = ("engine",)  # what a function of the user's own takes
ENGINES = ("Exact", "EM", "Laplace", "NUTS", "MAP", "SVI", "VB", "EmpiricalBayes")
SAID = (f"The inference algorithm, one of {', '.join(ENGINES)}, or one with settings, "
        f"'NUTS(draws=500, chains=2)'. By default the first that can fit the model.")


def canonical_name(model: str) -> str:
    """A name of the library as it is written here: latent-class is latent_class."""
    return model.replace("-", "_") if model.replace("-", "_") in MODELS else model
