"""The model library: generative functions, one file per family of models, written with the public
names of probml only, and their scikit-learn estimators.

Each is loaded when it is first named: JAX and scikit-learn are slow to import, and scikit-learn,
which the estimators need, may be absent.
`from probml.models import pictures` draws fitted models.
"""

from typing import TYPE_CHECKING

from probml.errors import meant as _meant
from probml.numerics.process.libraries import lazy as _late

if TYPE_CHECKING:  # for editors
    from probml.models.bayesian_networks.adjustment import (
        adjustment_sets,  # noqa: F401
        backdoor,  # noqa: F401
    )
    from probml.models.bayesian_networks.bayesian_network import (
        bayesian_network as bayesian_network,
    )
    from probml.models.bayesian_networks.bif import (
        read_bif,  # noqa: F401
        write_bif,  # noqa: F401
    )
    from probml.models.bayesian_networks.independence import conditional_dependence  # noqa: F401
    from probml.models.bayesian_networks.learn_pattern import (
        learn_pattern,  # noqa: F401
        member_of,  # noqa: F401
        pattern_of,  # noqa: F401
    )
    from probml.models.bayesian_networks.learn_structure import (
        learn_structure,  # noqa: F401
        structure_score,  # noqa: F401
    )
    from probml.models.bayesian_networks.orders import edge_probabilities  # noqa: F401
    from probml.models.chains.casino import dishonest_casino as dishonest_casino
    from probml.models.chains.dynamic_factor import dynamic_factor as dynamic_factor
    from probml.models.chains.dynamic_factor_estimator import DynamicFactor  # noqa: F401
    from probml.models.chains.hidden_markov import hidden_markov as hidden_markov
    from probml.models.chains.hidden_markov import markov_chain as markov_chain
    from probml.models.chains.hidden_markov_estimator import HiddenMarkov  # noqa: F401
    from probml.models.chains.structural import autoregressive_part as autoregressive_part
    from probml.models.chains.structural import cycle_part as cycle_part
    from probml.models.chains.structural import level_part as level_part
    from probml.models.chains.structural import local_level as local_level
    from probml.models.chains.structural import local_trend as local_trend
    from probml.models.chains.structural import seasonal as seasonal
    from probml.models.chains.structural import seasonal_part as seasonal_part
    from probml.models.chains.structural import structural_time_series as structural_time_series
    from probml.models.chains.structural import trend_part as trend_part
    from probml.models.chains.structural_estimator import StructuralTimeSeries  # noqa: F401
    from probml.models.classifiers.discriminant_estimators import (
        FisherDiscriminant,  # noqa: F401
        GaussianDiscriminant,  # noqa: F401
        MixtureDiscriminant,  # noqa: F401
    )
    from probml.models.classifiers.least_squares_estimator import (
        LeastSquaresClassifier,  # noqa: F401
    )
    from probml.models.classifiers.linear_classification import (
        linear_support_vector_machine as linear_support_vector_machine,
    )
    from probml.models.classifiers.linear_svm_estimator import LinearSVM  # noqa: F401
    from probml.models.classifiers.logistic_estimator import LogisticRegression  # noqa: F401
    from probml.models.classifiers.naive_bayes_estimator import NaiveBayes  # noqa: F401
    from probml.models.classifiers.ordinal_regression import (
        ordinal_regression as ordinal_regression,
    )
    from probml.models.classifiers.ordinal_regression_estimator import (
        OrdinalRegression,  # noqa: F401
    )
    from probml.models.classifiers.perceptron import perceptron as perceptron
    from probml.models.classifiers.perceptron_estimator import Perceptron  # noqa: F401
    from probml.models.experts.experts import (
        hierarchical_mixture_of_experts as hierarchical_mixture_of_experts,
    )
    from probml.models.experts.experts import mixture_of_experts as mixture_of_experts
    from probml.models.experts.experts_estimator import (
        MixtureOfExperts,  # noqa: F401
        MixtureOfExpertsClassifier,  # noqa: F401
    )
    from probml.models.hypotheses.rules import association_rules  # noqa: F401
    from probml.models.hypotheses.samples import two_samples  # noqa: F401
    from probml.models.hypotheses.screening import screen  # noqa: F401
    from probml.models.hypotheses.tables import dependence  # noqa: F401
    from probml.models.kernels.gaussian_process import gaussian_process as gaussian_process
    from probml.models.kernels.gaussian_process_estimator import GaussianProcess  # noqa: F401
    from probml.models.kernels.kernel_density import kernel_density as kernel_density
    from probml.models.kernels.kernel_density import parzen_classifier as parzen_classifier
    from probml.models.kernels.kernel_density_estimators import (
        KernelDensity,  # noqa: F401
        ParzenClassifier,  # noqa: F401
    )
    from probml.models.kernels.neighbours_estimator import NearestNeighbours  # noqa: F401
    from probml.models.kernels.support_vector_estimators import (
        SupportVectorMachine,  # noqa: F401
        SupportVectorRegression,  # noqa: F401
    )
    from probml.models.kernels.support_vectors import (
        support_vector_machine as support_vector_machine,
    )
    from probml.models.kernels.support_vectors import (
        support_vector_regression as support_vector_regression,
    )
    from probml.models.latent_factors.count_factors_estimator import PoissonFactors  # noqa: F401
    from probml.models.latent_factors.factor_analysers import (
        mixture_of_factor_analysers as mixture_of_factor_analysers,
    )
    from probml.models.latent_factors.factor_analysis import factor_analysis as factor_analysis
    from probml.models.latent_factors.factor_analysis import probabilistic_pca as probabilistic_pca
    from probml.models.latent_factors.factor_analysis_estimators import (
        FactorAnalysis,  # noqa: F401
        ProbabilisticPCA,  # noqa: F401
    )
    from probml.models.latent_factors.item_response import item_response as item_response
    from probml.models.latent_factors.item_response_estimator import ItemResponse  # noqa: F401
    from probml.models.latent_factors.scaling import (
        classical_scaling,  # noqa: F401
        multidimensional_scaling,  # noqa: F401
    )
    from probml.models.latent_factors.scaling_estimator import MultidimensionalScaling  # noqa: F401
    from probml.models.latent_factors.sparse_coding_estimator import SparseCoding  # noqa: F401
    from probml.models.mixed_models.formulas import formula  # noqa: F401
    from probml.models.mixed_models.meta_analysis import meta_analysis as meta_analysis
    from probml.models.mixed_models.meta_analysis_estimator import MetaAnalysis  # noqa: F401
    from probml.models.mixed_models.mixed_model import mixed_model as mixed_model
    from probml.models.mixed_models.mixed_model_estimator import MixedModel  # noqa: F401
    from probml.models.mixtures.column_estimators import (
        LatentClass,  # noqa: F401
        MixedMixture,  # noqa: F401
        PoissonMixture,  # noqa: F401
    )
    from probml.models.mixtures.counting import how_many  # noqa: F401
    from probml.models.mixtures.gaussian_estimator import GaussianMixture  # noqa: F401
    from probml.models.mixtures.gaussian_mixture import gaussian_mixture as gaussian_mixture
    from probml.models.mixtures.mixture_of_mixtures import (
        mixture_of_mixtures as mixture_of_mixtures,
    )
    from probml.models.mixtures.naive_bayes import naive_bayes as naive_bayes
    from probml.models.mixtures.prototype_estimators import (
        FuzzyCMeans,  # noqa: F401
        KMedoids,  # noqa: F401
    )
    from probml.models.mixtures.topics import latent_dirichlet as latent_dirichlet
    from probml.models.mixtures.topics_estimator import TopicModel  # noqa: F401
    from probml.models.neural_networks.neural_network import neural_network as neural_network
    from probml.models.neural_networks.neural_network_estimators import (
        NeuralNetworkClassifier,  # noqa: F401
        NeuralNetworkRegressor,  # noqa: F401
    )
    from probml.models.regression.bayesian_regression_estimator import (
        BayesianLinearRegression,  # noqa: F401
    )
    from probml.models.regression.generalized_linear import generalized_linear as generalized_linear
    from probml.models.regression.generalized_linear import (
        logistic_regression as logistic_regression,
    )
    from probml.models.regression.generalized_linear import robust_regression as robust_regression
    from probml.models.regression.generalized_linear import softmax_regression as softmax_regression
    from probml.models.regression.generalized_linear_estimators import (
        GeneralizedLinearModel,  # noqa: F401
        RobustRegression,  # noqa: F401
    )
    from probml.models.regression.linear_regression import (
        heteroscedastic_regression as heteroscedastic_regression,
    )
    from probml.models.regression.linear_regression import lasso as lasso
    from probml.models.regression.linear_regression import linear_regression as linear_regression
    from probml.models.regression.linear_regression import polynomial as polynomial
    from probml.models.regression.linear_regression import ridge as ridge
    from probml.models.regression.results import likelihood_ratio_test  # noqa: F401
    from probml.models.regression.smoothing import bspline_basis as bspline_basis
    from probml.models.regression.smoothing import smoothing as smoothing
    from probml.models.regression.smoothing_estimator import SmoothingSpline  # noqa: F401
    from probml.models.regression.survival_regression import (
        survival_regression as survival_regression,
    )
    from probml.models.regression.survival_regression_estimator import (
        SurvivalRegression,  # noqa: F401
    )
    from probml.models.trees.boosting_estimator import Boosted  # noqa: F401
    from probml.models.trees.evidence_tree_estimator import EvidenceTree  # noqa: F401
    from probml.models.trees.sampled_tree_estimator import SampledTree  # noqa: F401

_LATE = {
    "bayesian_network": "bayesian_networks.bayesian_network",
    "dishonest_casino": "chains.casino",
    "dynamic_factor": "chains.dynamic_factor",
    "hidden_markov": "chains.hidden_markov",
    "markov_chain": "chains.hidden_markov",
    "local_level": "chains.structural",
    "local_trend": "chains.structural",
    "seasonal": "chains.structural",
    "structural_time_series": "chains.structural",
    "autoregressive_part": "chains.structural",
    "cycle_part": "chains.structural",
    "level_part": "chains.structural",
    "seasonal_part": "chains.structural",
    "trend_part": "chains.structural",
    "linear_support_vector_machine": "classifiers.linear_classification",
    "perceptron": "classifiers.perceptron",
    "hierarchical_mixture_of_experts": "experts.experts",
    "mixture_of_experts": "experts.experts",
    "gaussian_process": "kernels.gaussian_process",
    "kernel_density": "kernels.kernel_density",
    "parzen_classifier": "kernels.kernel_density",
    "support_vector_machine": "kernels.support_vectors",
    "support_vector_regression": "kernels.support_vectors",
    "mixture_of_factor_analysers": "latent_factors.factor_analysers",
    "factor_analysis": "latent_factors.factor_analysis",
    "probabilistic_pca": "latent_factors.factor_analysis",
    "item_response": "latent_factors.item_response",
    "gaussian_mixture": "mixtures.gaussian_mixture",
    "mixture_of_mixtures": "mixtures.mixture_of_mixtures",
    "naive_bayes": "mixtures.naive_bayes",
    "latent_dirichlet": "mixtures.topics",
    "neural_network": "neural_networks.neural_network",
    "generalized_linear": "regression.generalized_linear",
    "logistic_regression": "regression.generalized_linear",
    "softmax_regression": "regression.generalized_linear",
    "heteroscedastic_regression": "regression.linear_regression",
    "lasso": "regression.linear_regression",
    "linear_regression": "regression.linear_regression",
    "polynomial": "regression.linear_regression",
    "ridge": "regression.linear_regression",
    "mixed_model": "mixed_models.mixed_model",
    "robust_regression": "regression.generalized_linear",
    "bspline_basis": "regression.smoothing",
    "smoothing": "regression.smoothing",
    "adjustment_sets": "bayesian_networks.adjustment",
    "backdoor": "bayesian_networks.adjustment",
    "conditional_dependence": "bayesian_networks.independence",
    "edge_probabilities": "bayesian_networks.orders",
    "learn_pattern": "bayesian_networks.learn_pattern",
    "learn_structure": "bayesian_networks.learn_structure",
    "member_of": "bayesian_networks.learn_pattern",
    "pattern_of": "bayesian_networks.learn_pattern",
    "structure_score": "bayesian_networks.learn_structure",
    "read_bif": "bayesian_networks.bif",
    "write_bif": "bayesian_networks.bif",
    "association_rules": "hypotheses.rules",
    "dependence": "hypotheses.tables",
    "screen": "hypotheses.screening",
    "two_samples": "hypotheses.samples",
    "how_many": "mixtures.counting",
    "FuzzyCMeans": "mixtures.prototype_estimators",
    "KMedoids": "mixtures.prototype_estimators",
    "GaussianMixture": "mixtures.gaussian_estimator",
    "TopicModel": "mixtures.topics_estimator",
    "LatentClass": "mixtures.column_estimators",
    "MixedMixture": "mixtures.column_estimators",
    "PoissonMixture": "mixtures.column_estimators",
    "GaussianDiscriminant": "classifiers.discriminant_estimators",
    "MixtureDiscriminant": "classifiers.discriminant_estimators",
    "NaiveBayes": "classifiers.naive_bayes_estimator",
    "MixtureOfExperts": "experts.experts_estimator",
    "MixtureOfExpertsClassifier": "experts.experts_estimator",
    "FactorAnalysis": "latent_factors.factor_analysis_estimators",
    "ProbabilisticPCA": "latent_factors.factor_analysis_estimators",
    "PoissonFactors": "latent_factors.count_factors_estimator",
    "MultidimensionalScaling": "latent_factors.scaling_estimator",
    "SparseCoding": "latent_factors.sparse_coding_estimator",
    "classical_scaling": "latent_factors.scaling",
    "multidimensional_scaling": "latent_factors.scaling",
    "ItemResponse": "latent_factors.item_response_estimator",
    "DynamicFactor": "chains.dynamic_factor_estimator",
    "HiddenMarkov": "chains.hidden_markov_estimator",
    "StructuralTimeSeries": "chains.structural_estimator",
    "GaussianProcess": "kernels.gaussian_process_estimator",
    "KernelDensity": "kernels.kernel_density_estimators",
    "NearestNeighbours": "kernels.neighbours_estimator",
    "ParzenClassifier": "kernels.kernel_density_estimators",
    "GeneralizedLinearModel": "regression.generalized_linear_estimators",
    "RobustRegression": "regression.generalized_linear_estimators",
    "FisherDiscriminant": "classifiers.discriminant_estimators",
    "LeastSquaresClassifier": "classifiers.least_squares_estimator",
    "LinearSVM": "classifiers.linear_svm_estimator",
    "LogisticRegression": "classifiers.logistic_estimator",
    "NeuralNetworkClassifier": "neural_networks.neural_network_estimators",
    "NeuralNetworkRegressor": "neural_networks.neural_network_estimators",
    "Perceptron": "classifiers.perceptron_estimator",
    "MetaAnalysis": "mixed_models.meta_analysis_estimator",
    "MixedModel": "mixed_models.mixed_model_estimator",
    "meta_analysis": "mixed_models.meta_analysis",
    "ordinal_regression": "classifiers.ordinal_regression",
    "survival_regression": "regression.survival_regression",
    "OrdinalRegression": "classifiers.ordinal_regression_estimator",
    "SurvivalRegression": "regression.survival_regression_estimator",
    "likelihood_ratio_test": "regression.results",
    "formula": "mixed_models.formulas",
    "BayesianLinearRegression": "regression.bayesian_regression_estimator",
    "SmoothingSpline": "regression.smoothing_estimator",
    "Boosted": "trees.boosting_estimator",
    "EvidenceTree": "trees.evidence_tree_estimator",
    "SampledTree": "trees.sampled_tree_estimator",
    "SupportVectorMachine": "kernels.support_vector_estimators",
    "SupportVectorRegression": "kernels.support_vector_estimators",
}
_ELSEWHERE = {  # what other libraries call it → what does it here
    "KMeans": "GaussianMixture(k, covariance_type='tied spherical')",
    "BayesianGaussianMixture": "GaussianMixture(k, engine=probml.VB())",
    "GaussianNB": "NaiveBayes", "MultinomialNB": "NaiveBayes", "BernoulliNB": "NaiveBayes",
    "CategoricalNB": "NaiveBayes", "LinearDiscriminantAnalysis": "GaussianDiscriminant",
    "QuadraticDiscriminantAnalysis": "GaussianDiscriminant", "PCA": "ProbabilisticPCA",
    "NMF": "PoissonFactors", "LatentDirichletAllocation": "TopicModel", "LDA": "TopicModel",
    "LinearRegression": "BayesianLinearRegression", "BayesianRidge": "BayesianLinearRegression",
    "Ridge": "BayesianLinearRegression", "Lasso": "lasso, a function",
    "SVC": "SupportVectorMachine", "SVR": "SupportVectorRegression", "LinearSVC": "LinearSVM",
    "GaussianProcessRegressor": "GaussianProcess", "KNeighborsClassifier": "NearestNeighbours",
    "MLPClassifier": "NeuralNetworkClassifier", "MLPRegressor": "NeuralNetworkRegressor",
    "RandomForestClassifier": "EvidenceTree, or Boosted", "RandomForestRegressor": "Boosted",
    "DecisionTreeClassifier": "EvidenceTree", "GradientBoostingClassifier": "Boosted",
    "GradientBoostingRegressor": "Boosted", "GaussianHMM": "HiddenMarkov",
    "CategoricalHMM": "HiddenMarkov(k, emission='categorical')",
    "PoissonHMM": "HiddenMarkov(k, emission='poisson')", "GMMHMM": "HiddenMarkov",
    "UnobservedComponents": "StructuralTimeSeries", "StructTS": "StructuralTimeSeries",
    "lm": "BayesianLinearRegression, with formula(text, table)",
    "glm": "GeneralizedLinearModel, with formula(text, table)", "GLM": "GeneralizedLinearModel",
    "OLS": "BayesianLinearRegression", "lmer": "MixedModel, with formula(text, table)",
    "glmer": "MixedModel(family=), with formula(text, table)", "MixedLM": "MixedModel",
    "stan_glm": "GeneralizedLinearModel(engine='bayes')",
    "brm": "formula(text, table, family, engine='bayes')", "rma": "MetaAnalysis",
    "polr": "OrdinalRegression", "OrderedModel": "OrdinalRegression",
    "survreg": "SurvivalRegression",
    "stan_lmer": "MixedModel(engine='bayes')", "stan_glmer": "MixedModel(family=, engine='bayes')",
    "BayesianNetwork": "bayesian_network", "DiscreteBayesianNetwork": "bayesian_network",
    "anova": "likelihood_ratio_test", "lrtest": "likelihood_ratio_test",
    "BIFReader": "read_bif", "BIFWriter": "write_bif", "HillClimbSearch": "learn_structure",
}
__all__ = [*_LATE]


def _hint(name: str) -> str:
    return _meant(name, __all__, _ELSEWHERE) or (f"; dir(probml.models) lists its {len(__all__)} "
                                                 f"names")


__getattr__, __dir__ = _late("probml.models", _LATE, ("pictures",), _hint)
