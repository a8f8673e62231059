"""A plugin of pytest under which the tests of scikit-learn and hmmlearn meet our classes: by the
names of the peers' classes stand ours, which take the peers' parameters by their names.

A parameter that ours do not have is a TypeError of the constructor where a test gives it.
"""

import importlib
import inspect
import os

import jax
import numpy as np

if os.environ.get("JAX_ENABLE_X64"):
    jax.config.update("jax_enable_x64", True)

from probml import models  # noqa: E402

# what does not change the model that is fitted: only how the peer computes it, or prints
IDLE = {"algorithm", "solver", "verbose", "verbose_interval", "n_jobs", "copy", "store_covariance",
        "force_alpha", "leaf_size", "atol", "rtol", "breadth_first", "implementation", "svd_method",
        "iterated_power", "min_covar"}
SMALL = {"reg_covar": 1e-6}  # parameter → up to which value it changes nothing that is tested


def swapped(ours: type, peer: type, settings: dict, names: dict, values: dict | None = None,
            attributes: dict | None = None) -> type:
    """Our class by the peer's constructor.

    Args:
        settings: parameters of ours that make the model the peer's.
        names: parameter of the peer → ours.
        values: parameter of the peer → what its value is here.
        attributes: attribute of the peer → ours.
    """
    theirs = inspect.signature(peer).parameters
    order = list(theirs)
    own = list(inspect.signature(ours).parameters)
    values, attributes = values or {}, attributes or {}

    def __init__(self, *args, **given):
        given = {**dict(zip(order, args, strict=False)), **given}
        found = dict(settings)
        for name, value in given.items():
            if name in names:
                found[names[name]] = values.get(name, lambda same: same)(value)
            elif name in own:
                found[name] = value
            elif not (name in IDLE or _usual(value, theirs[name].default)
                      or name in SMALL and value <= SMALL[name]):
                raise TypeError(f"no parameter {name}= here")
        ours.__init__(self, **found)

    def get_params(self, deep=True):
        return {name: getattr(self, name) for name in own}

    def __getattr__(self, name):
        if name in attributes:
            return attributes[name](self)
        raise AttributeError(f"{peer.__name__}: no attribute {name} here")

    def __setattr__(self, name, value):
        ours.__setattr__(self, names.get(name, name), value)

    body = {"__init__": __init__, "get_params": get_params, "__getattr__": __getattr__,
            "__setattr__": __setattr__,
            "_get_param_names": classmethod(lambda cls: sorted(own)), "__module__": __name__}
    found = globals()[peer.__name__] = type(peer.__name__, (ours,), body)  # for pickle
    return found


def _usual(value, default) -> bool:
    """Whether a value is the peer's default."""
    return value is default or type(value) is type(default) and not hasattr(
        value, "shape") and value == default


def install() -> None:
    """Put ours in the peers' modules."""
    chains = {"n_components": "n_states", "n_iter": "max_iter"}
    likelihood = {"prior": False}
    one = {"prior": False, "n_states": 1}
    bayes = {"class_prior": "priors"}
    swaps = {  # module → class → ours, its settings, names of parameters, values of these
        "sklearn.mixture": {"GaussianMixture": ("GaussianMixture", {**likelihood, "n_init": 1})},
        "sklearn.naive_bayes": {
            "GaussianNB": ("NaiveBayes", {"kinds": "normal", **likelihood}),
            "MultinomialNB": ("NaiveBayes", {"kinds": "multinomial"}, bayes),
            "BernoulliNB": ("NaiveBayes", {"kinds": "bernoulli"}, bayes),
            "CategoricalNB": ("NaiveBayes", {"categorical": "all"}, bayes),
        },
        "sklearn.discriminant_analysis": {
            "LinearDiscriminantAnalysis": ("FisherDiscriminant", {}),
            "QuadraticDiscriminantAnalysis": ("GaussianDiscriminant", likelihood),
        },
        "sklearn.linear_model": {"LogisticRegression": ("LogisticRegression", {})},
        "sklearn.linear_model._logistic": {"LogisticRegression": ("LogisticRegression", {})},
        "sklearn.decomposition": {"FactorAnalysis": ("FactorAnalysis", likelihood)},
        "sklearn.neighbors": {"KernelDensity": ("KernelDensity", {"bandwidth": 1.0})},
        "hmmlearn.hmm": {
            "GaussianHMM": ("HiddenMarkov", one, {**chains, "covariance_type": "emission"},
                            {"covariance_type": lambda word: "normal" if word == "diag" else word}),
            "CategoricalHMM": ("HiddenMarkov", {**one, "emission": "categorical"},
                               {**chains, "n_features": "n_symbols"}),
            "PoissonHMM": ("HiddenMarkov", {**one, "emission": "poisson"}, chains),
        },
    }
    attributes = {
        "FactorAnalysis": {"loglike_": lambda estimator: estimator.lower_bounds_ * estimator.total_weight_},
        "CategoricalNB": {"class_log_prior_": lambda estimator: np.log(estimator.class_prior_)},
        "MultinomialNB": {"class_log_prior_": lambda estimator: np.log(estimator.class_prior_)},
        "BernoulliNB": {"class_log_prior_": lambda estimator: np.log(estimator.class_prior_)},
    }
    for module, classes in swaps.items():
        try:
            home = importlib.import_module(module)
        except ModuleNotFoundError:
            continue
        for name, (ours, settings, *more) in classes.items():
            names, values = (*more, {}, {})[:2]
            setattr(home, name, swapped(getattr(models, ours), getattr(home, name), settings, names,
                                        values, attributes.get(name)))


install()
