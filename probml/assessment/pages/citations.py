"""The works that a model and an engine stand on, so that who uses them can name them."""

import re
import sys

from probml.engines.engine import Engine
from probml.errors import ModelError
from probml.language.language import Bound
from probml.structure.structure import Structure
from probml.structure.trace import trace
from probml.typing import FitOrEstimator

SOFTWARE = (
    "Bradbury, Frostig, Hawkins et al. (2018), JAX: composable transformations of Python+NumPy "
    "programs",
    "Phan, Pradhan & Jankowiak (2019), Composable effects for flexible and accelerated "
    "probabilistic programming in NumPyro",
)
EM = ("Dempster, Laird & Rubin (1977), Maximum likelihood from incomplete data via the EM "
      "algorithm",
      "Varadhan & Roland (2008), Simple and globally convergent methods for accelerating the "
      "convergence of any EM algorithm")
ENGINES = {  # the name of an engine's class → its works
    "Exact": ("Bernardo & Smith (1994), Bayesian Theory, chapter 5",),
    "EmpiricalBayes": ("MacKay (1992), Bayesian interpolation",),
    "EM": EM,
    "MAP": ("Nocedal & Wright (2006), Numerical Optimization",),
    "NUTS": ("Hoffman & Gelman (2014), The No-U-Turn sampler",
             "Vehtari, Gelman, Simpson, Carpenter & Bürkner (2021), Rank-normalization, folding, "
             "and localization: an improved R-hat"),
    "Laplace": ("Tierney & Kadane (1986), Accurate approximations for posterior moments and "
                "marginal densities",
                "Vehtari, Simpson, Gelman, Yao & Gabry (2024), Pareto smoothed importance "
                "sampling"),
    "SVI": ("Hoffman, Blei, Wang & Paisley (2013), Stochastic variational inference",
            "Kucukelbir, Tran, Ranganath, Gelman & Blei (2017), Automatic differentiation "
            "variational inference"),
    "VB": ("Attias (1999), Inferring parameters and structure of latent variable models by "
           "variational Bayes",
           "Winn & Bishop (2005), Variational message passing"),
}
SEVERAL = ("Koller & Friedman (2009), Probabilistic Graphical Models, chapters 9 and 10",)
CHAINS = ("Rabiner (1989), A tutorial on hidden Markov models and selected applications",)
NUMBERS = ("Kalman (1960), A new approach to linear filtering and prediction problems",
           "Shumway & Stoffer (1982), An approach to time series smoothing and forecasting using "
           "the EM algorithm")
SOURCE = re.compile(r"Sources?:\s*(.+?)(?:\n\s*\n|\Z)", re.DOTALL)


def cite(model: Bound | FitOrEstimator, engine: Engine | str | None = None,
         show: bool = True) -> list[str]:
    """The references to cite for a model and its inference: those of the model, of the methods that
    it needs, of the engine, and of the libraries.

    Args:
        model: a Model, a Fit (whose engine is taken), or an estimator that was fitted.
        engine: an engine, or its name.
        show: print them, too.

    Returns:
        The references, a line each; without one twice.
    """
    model = getattr(model, "fit_", model)
    if not isinstance(model, Bound) and not isinstance(getattr(model, "model", None), Bound):
        raise ModelError(f"cite({model!r:.200}): expected a Model, a Fit or a fitted estimator")
    if engine is None and hasattr(model, "engine"):
        engine = model.engine
    bound = model if isinstance(model, Bound) else model.model
    name = engine if isinstance(engine, str) else type(engine).__name__
    references = [*_docstring_sources(bound), *_needed(_structure(model, bound)),
                  *ENGINES.get(name.partition("(")[0], getattr(engine, "sources", ())), *SOFTWARE]
    references = list(dict.fromkeys(references))
    if show is True:
        print("\n".join(references))
    return references


def _structure(model: Bound | FitOrEstimator, bound: Bound) -> Structure | None:
    try:
        return trace(bound) if isinstance(model, Bound) else model.structure
    except Exception:  # of a function that is read by its data
        return None


def _docstring_sources(model: Bound) -> list[str]:
    """What the docstrings of a model's function and of its module give as their sources."""
    function = model.generative
    module = sys.modules.get(function.__module__)
    texts = (function.__doc__ or "", getattr(module, "__doc__", None) or "")
    sources = [match.group(1) for text in texts for match in SOURCE.finditer(text)]
    return [" ".join(part.split()).rstrip(".") for text in sources for part in text.split(";")]


def _needed(structure: Structure | None) -> tuple[str, ...]:
    if structure is None:
        return ()
    chains = CHAINS if structure.markov else ()
    numbers = NUMBERS if len(structure.chains) > len(structure.markov) else ()
    return (*chains, *numbers, *(SEVERAL if structure.network else ()))
