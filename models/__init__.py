"""The zoo: one file per family of models, written with the public names of probml only, and their scikit-learn faces.

The faces stand on scikit-learn, which is slow to import and may be absent: they, and what reads files or searches graphs, are
loaded when they are first named.
`from probml.models import pictures` draws what was fitted.
"""

import importlib
from typing import TYPE_CHECKING

from probml.models.bayesian_network import bayesian_network as bayesian_network
from probml.models.casino import dishonest_casino as dishonest_casino
from probml.models.experts import hierarchical_mixture_of_experts as hierarchical_mixture_of_experts
from probml.models.experts import mixture_of_experts as mixture_of_experts
from probml.models.factor_analysis import factor_analysis as factor_analysis
from probml.models.factor_analysis import probabilistic_pca as probabilistic_pca
from probml.models.gaussian_mixture import gaussian_mixture as gaussian_mixture
from probml.models.generalized_linear import generalized_linear as generalized_linear
from probml.models.generalized_linear import logistic_regression as logistic_regression
from probml.models.generalized_linear import softmax_regression as softmax_regression
from probml.models.hidden_markov import hidden_markov as hidden_markov
from probml.models.hidden_markov import markov_chain as markov_chain
from probml.models.kernel_density import kernel_density as kernel_density
from probml.models.kernel_density import parzen_classifier as parzen_classifier
from probml.models.learn_structure import learn_structure as learn_structure
from probml.models.learn_structure import structure_score as structure_score
from probml.models.linear_classification import linear_support_vector_machine as linear_support_vector_machine
from probml.models.linear_regression import heteroscedastic_regression as heteroscedastic_regression
from probml.models.linear_regression import lasso as lasso
from probml.models.linear_regression import linear_regression as linear_regression
from probml.models.linear_regression import polynomial as polynomial
from probml.models.linear_regression import ridge as ridge
from probml.models.mixture_of_mixtures import mixture_of_mixtures as mixture_of_mixtures
from probml.models.naive_bayes import naive_bayes as naive_bayes
from probml.models.neural_network import neural_network as neural_network
from probml.models.perceptron import perceptron as perceptron
from probml.models.robust_regression import robust_regression as robust_regression
from probml.models.smoothing import bspline_basis as bspline_basis
from probml.models.smoothing import smoothing as smoothing
from probml.models.support_vectors import support_vector_machine as support_vector_machine
from probml.models.support_vectors import support_vector_regression as support_vector_regression

if TYPE_CHECKING:  # for editors
    from probml.models.bif import read_bif, write_bif  # noqa: F401
    from probml.models.classifier_faces import GaussianDiscriminant, MixtureDiscriminant, NaiveBayes  # noqa: F401
    from probml.models.experts_face import MixtureOfExperts, MixtureOfExpertsClassifier  # noqa: F401
    from probml.models.factor_analysis_faces import FactorAnalysis, ProbabilisticPCA  # noqa: F401
    from probml.models.generalized_linear_faces import GeneralizedLinearModel, RobustRegression  # noqa: F401
    from probml.models.hidden_markov_face import HiddenMarkov  # noqa: F401
    from probml.models.kernel_density_faces import KernelDensity, ParzenClassifier  # noqa: F401
    from probml.models.linear_classifier_faces import (  # noqa: F401
        FisherDiscriminant,
        LeastSquaresClassifier,
        LinearSVM,
        LogisticRegression,
    )
    from probml.models.mixture_faces import GaussianMixture, LatentClass, MixedMixture, PoissonMixture  # noqa: F401
    from probml.models.neural_network_faces import NeuralNetworkClassifier, NeuralNetworkRegressor  # noqa: F401
    from probml.models.perceptron_face import Perceptron  # noqa: F401
    from probml.models.regression_faces import BayesianLinearRegression, SmoothingSpline  # noqa: F401
    from probml.models.support_vector_faces import SupportVectorMachine, SupportVectorRegression  # noqa: F401

_LATE = {
    "read_bif": "bif",
    "write_bif": "bif",
    "GaussianMixture": "mixture_faces",
    "LatentClass": "mixture_faces",
    "MixedMixture": "mixture_faces",
    "PoissonMixture": "mixture_faces",
    "GaussianDiscriminant": "classifier_faces",
    "MixtureDiscriminant": "classifier_faces",
    "NaiveBayes": "classifier_faces",
    "MixtureOfExperts": "experts_face",
    "MixtureOfExpertsClassifier": "experts_face",
    "FactorAnalysis": "factor_analysis_faces",
    "ProbabilisticPCA": "factor_analysis_faces",
    "HiddenMarkov": "hidden_markov_face",
    "KernelDensity": "kernel_density_faces",
    "ParzenClassifier": "kernel_density_faces",
    "GeneralizedLinearModel": "generalized_linear_faces",
    "RobustRegression": "generalized_linear_faces",
    "FisherDiscriminant": "linear_classifier_faces",
    "LeastSquaresClassifier": "linear_classifier_faces",
    "LinearSVM": "linear_classifier_faces",
    "LogisticRegression": "linear_classifier_faces",
    "NeuralNetworkClassifier": "neural_network_faces",
    "NeuralNetworkRegressor": "neural_network_faces",
    "Perceptron": "perceptron_face",
    "BayesianLinearRegression": "regression_faces",
    "SmoothingSpline": "regression_faces",
    "SupportVectorMachine": "support_vector_faces",
    "SupportVectorRegression": "support_vector_faces",
}
__all__ = [
    "bayesian_network",
    "bspline_basis",
    "dishonest_casino",
    "factor_analysis",
    "gaussian_mixture",
    "generalized_linear",
    "heteroscedastic_regression",
    "hierarchical_mixture_of_experts",
    "hidden_markov",
    "kernel_density",
    "lasso",
    "learn_structure",
    "linear_regression",
    "linear_support_vector_machine",
    "logistic_regression",
    "markov_chain",
    "mixture_of_experts",
    "mixture_of_mixtures",
    "naive_bayes",
    "neural_network",
    "perceptron",
    "parzen_classifier",
    "polynomial",
    "probabilistic_pca",
    "ridge",
    "robust_regression",
    "smoothing",
    "softmax_regression",
    "structure_score",
    "support_vector_machine",
    "support_vector_regression",
    *_LATE,
]


def __getattr__(name: str):
    if name not in _LATE:
        raise AttributeError(f"module 'probml.models' has no attribute '{name}'; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(f"probml.models.{_LATE[name]}"), name)


def __dir__():
    return sorted({*globals(), *__all__})
