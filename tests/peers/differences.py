"""Tests of the peers that fail on our classes, each with its reason: module → reason → names. A bare
name is a test whose parameters all fail, with [...] it is one of them."""

# module → tests that are left out, of what has no counterpart here, as `pytest -k` writes it
OTHERS = {
    "sklearn.linear_model.tests.test_logistic":
        "not cv and not CV and not array_api and not liblinear and not sag and not warm_start "
        "and not elastic and not l1 and not penalty and not callback",
}
# the versions whose tests these are
VERSIONS = {"sklearn": "1.9", "hmmlearn": "0.3"}
DIFFERENCES: dict[str, dict[str, list[str]]] = {
    "hmmlearn.tests.test_categorical_hmm": {
        "fits of n_iter=1 do not go on from each other: every fit begins anew, whatever init_params": [
            "TestCategoricalHMM::test_n_features",
            "TestCategoricalHMM::test_fit[scaling]",
            "TestCategoricalHMM::test_fit[log]",
            "TestCategoricalHMM::test_fit_emissionprob[scaling]",
            "TestCategoricalHMM::test_fit_emissionprob[log]",
        ],
        "a private method or attribute of the peer": [
            "TestCategoricalHMM::test_fit_with_init",
            "TestCategoricalHMM::test__check_and_set_categorical_n_features",
        ],
    },
    "hmmlearn.tests.test_gaussian_hmm": {
        "no parameters init_params, params: means_, covars_ and others that are set are kept": [
            "TestGaussianHMMWithSphericalCovars::test_score_samples_and_decode",
            "TestGaussianHMMWithSphericalCovars::test_criterion",
            "TestGaussianHMMWithSphericalCovars::test_fit_too_little_data",
            "TestGaussianHMMWithSphericalCovars::test_fit_with_priors",
            "TestGaussianHMMWithDiagonalCovars::test_score_samples_and_decode",
            "TestGaussianHMMWithDiagonalCovars::test_criterion",
            "TestGaussianHMMWithDiagonalCovars::test_fit_too_little_data",
            "TestGaussianHMMWithDiagonalCovars::test_fit_with_priors",
            "TestGaussianHMMWithTiedCovars::test_score_samples_and_decode",
            "TestGaussianHMMWithTiedCovars::test_criterion",
            "TestGaussianHMMWithTiedCovars::test_fit_too_little_data",
            "TestGaussianHMMWithTiedCovars::test_fit_with_priors",
            "TestGaussianHMMWithFullCovars::test_score_samples_and_decode",
            "TestGaussianHMMWithFullCovars::test_criterion",
            "TestGaussianHMMWithFullCovars::test_fit_too_little_data",
            "TestGaussianHMMWithFullCovars::test_fit_with_priors",
            "TestGaussianHMMWithSphericalCovars::test_underflow_from_scaling",
            "TestGaussianHMMWithDiagonalCovars::test_covar_is_writeable",
            "TestGaussianHMMWithDiagonalCovars::test_fit_left_right",
        ],
        "no parameter init_params, so no warning that what was set is overwritten": [
            "TestGaussianHMMWithSphericalCovars::test_fit_ignored_init_warns",
            "TestGaussianHMMWithDiagonalCovars::test_fit_ignored_init_warns",
            "TestGaussianHMMWithTiedCovars::test_fit_ignored_init_warns",
            "TestGaussianHMMWithFullCovars::test_fit_ignored_init_warns",
        ],
        "a column without variance is refused under prior=False: there is no min_covar": [
            "TestGaussianHMMWithDiagonalCovars::test_fit_zero_variance",
            "TestGaussianHMMWithTiedCovars::test_fit_zero_variance",
            "TestGaussianHMMWithFullCovars::test_fit_zero_variance",
        ],
        "covars_ of spherical states is one number a state, not (states, 1, 1, 1)": [
            "TestGaussianHMMWithSphericalCovars::test_issue_385",
        ],
    },
    "hmmlearn.tests.test_poisson_hmm": {
        "fits of n_iter=1 do not go on from each other: every fit begins anew, whatever init_params": [
            "TestPoissonHMM::test_fit",
            "TestPoissonHMM::test_fit_lambdas",
        ],
        "a private method or attribute of the peer": [
            "TestPoissonHMM::test_fit_with_init",
        ],
    },
    "sklearn.decomposition.tests.test_factor_analysis": {
        "one test of all: noise_variance_init= and n_components=0 are not here": [
            "test_factor_analysis",
        ],
    },
    "sklearn.linear_model.tests.test_logistic": {
        "no parameter of this name, or a value that is refused by another message": [
            "test_check_solver_option[LogisticRegression]", "test_consistency_path[42]",
            "test_zero_max_iter", "test_lr_scoring_warns",
            "test_logisticregression_warns_with_n_jobs",
        ],
        "one optimiser: warnings of convergence do not name a solver; three iterations may suffice": [
            "test_max_iter", "test_newton_cholesky_fallback_to_lbfgs",
        ],
        "n_iter_ is one number, not an array": ["test_n_iter"],
        "coefficients have the precision of JAX, not that of X": ["test_dtype_match"],
        "a private method of the peer, or its class for cross-validation, which uses ours": [
            "test_sparsify", "test_logreg_predict_proba_multinomial[42]",
            "test_multinomial_logistic_regression_string_inputs",
            "test_logistic_regression_solvers_multiclass",
        ],
    },
    "sklearn.mixture.tests.test_gaussian_mixture": {
        "no parameter reg_covar": [
            "test_gaussian_mixture_attributes",
        ],
        "the same is refused, in other words": [
            "test_check_weights",
            "test_check_means",
            "test_check_precisions",
            "test_gaussian_mixture_fit_convergence_warning",
            "test_regularisation",
            "test_sample",
        ],
        "a private method or attribute of the peer": [
            "test_gaussian_mixture_n_parameters",
            "test_gaussian_mixture_aic_bic",
            "test_gaussian_mixture_precisions_init",
            "test_gaussian_mixture_all_init_does_not_estimate_gaussian_parameters",
        ],
        "no parameter warm_start": [
            "test_warm_start",
            "test_convergence_detected_with_warm_start",
            "test_monotonic_likelihood",
        ],
        "max_iter=1 of other starts: values before convergence do not compare": [
            "test_init",
        ],
        "a component that collapses is refused under prior=False: there is no reg_covar": [
            "test_gaussian_mixture_setting_best_params",
        ],
        "no parameter init_params": [
            "test_init_means_not_duplicated[42-random]",
            "test_init_means_not_duplicated[42-random_from_data]",
            "test_init_means_not_duplicated[42-k-means++]",
            "test_means_for_all_inits[42-float64-random]",
            "test_means_for_all_inits[42-float64-random_from_data]",
            "test_means_for_all_inits[42-float64-k-means++]",
        ],
        "max_iter is at least 1": [
            "test_init_means_not_duplicated[42-kmeans]",
            "test_max_iter_zero",
        ],
        "the number of iterations is that of accelerated EM": [
            "test_gaussian_mixture_precisions_init_diag",
        ],
    },
    "sklearn.neighbors.tests.test_kde": {
        "the kernel is Gaussian": [
            "test_kernel_density[0.01-tophat]",
            "test_kernel_density[0.01-epanechnikov]",
            "test_kernel_density[0.01-exponential]",
            "test_kernel_density[0.01-linear]",
            "test_kernel_density[0.01-cosine]",
            "test_kernel_density[0.1-tophat]",
            "test_kernel_density[0.1-epanechnikov]",
            "test_kernel_density[0.1-exponential]",
            "test_kernel_density[0.1-linear]",
            "test_kernel_density[0.1-cosine]",
            "test_kernel_density[1-tophat]",
            "test_kernel_density[1-epanechnikov]",
            "test_kernel_density[1-exponential]",
            "test_kernel_density[1-linear]",
            "test_kernel_density[1-cosine]",
            "test_kernel_density[scott-tophat]",
            "test_kernel_density[scott-epanechnikov]",
            "test_kernel_density[scott-exponential]",
            "test_kernel_density[scott-linear]",
            "test_kernel_density[scott-cosine]",
            "test_kernel_density[silverman-tophat]",
            "test_kernel_density[silverman-epanechnikov]",
            "test_kernel_density[silverman-exponential]",
            "test_kernel_density[silverman-linear]",
            "test_kernel_density[silverman-cosine]",
            "test_kernel_density_sampling",
        ],
        "score is the mean of score_samples, not the sum": [
            "test_kernel_density[1-gaussian]",
        ],
        "bandwidths of rules are in standard deviations of each column": [
            "test_kernel_density[scott-gaussian]",
            "test_kernel_density[silverman-gaussian]",
            "test_bandwidth[scott]",
            "test_bandwidth[silverman]",
        ],
        "no parameter metric": [
            "test_kde_algorithm_metric_choice[minkowski-auto]",
            "test_kde_algorithm_metric_choice[minkowski-ball_tree]",
            "test_kde_algorithm_metric_choice[minkowski-kd_tree]",
            "test_kde_algorithm_metric_choice[manhattan-auto]",
            "test_kde_algorithm_metric_choice[manhattan-ball_tree]",
            "test_kde_algorithm_metric_choice[manhattan-kd_tree]",
            "test_kde_algorithm_metric_choice[chebyshev-auto]",
            "test_kde_algorithm_metric_choice[chebyshev-ball_tree]",
            "test_kde_algorithm_metric_choice[chebyshev-kd_tree]",
            "test_kde_algorithm_metric_choice[haversine-auto]",
            "test_kde_algorithm_metric_choice[haversine-ball_tree]",
            "test_kde_algorithm_metric_choice[haversine-kd_tree]",
            "test_kde_sample_weights",
        ],
    },
    "sklearn.tests.test_discriminant_analysis": {
        "no parameter shrinkage": [
            "test_lda_predict",
            "test_lda_shrinkage",
            "test_lda_ledoitwolf",
            "test_lda_dtype_match[float64-float64]",
            "test_lda_dtype_match[int32-float64]",
            "test_lda_dtype_match[int64-float64]",
            "test_lda_numeric_consistency_float32_float64",
            "test_qda_covariance_estimator",
            "test_qda_ledoitwolf",
            "test_qda_shrinkage_performance",
        ],
        "the same is refused, in other words": [
            "test_lda_priors",
            "test_lda_dimension_warning",
            "test_raises_value_error_on_one_sample_per_class",
        ],
        "there is one solver, which can always transform": [
            "test_lda_transform",
        ],
        "covariance_ is always there": [
            "test_lda_store_covariance",
            "test_qda_store_covariance",
        ],
        "answers are float64 under JAX_ENABLE_X64": [
            "test_lda_dtype_match[float32-float32]",
        ],
        "no attribute rotations_": [
            "test_qda_coefs",
        ],
        "maximum likelihood of a constant column is refused, not smoothed (var_smoothing, reg_param): keep prior=True": [
            "test_qda_regularization",
        ],
    },
    "sklearn.tests.test_naive_bayes": {
        "the same is refused, in other words": [
            "test_gnb",
            "test_gnb_neg_priors",
            "test_gnb_wrong_nb_priors",
            "test_gnb_prior_greater_one",
            "test_discretenb_provide_prior[BernoulliNB]",
            "test_discretenb_provide_prior[CategoricalNB]",
            "test_discretenb_provide_prior[MultinomialNB]",
            "test_mnnb",
        ],
        "the first partial_fit learns the classes from its y": [
            "test_NB_partial_fit_no_first_classes[42-BernoulliNB]",
            "test_NB_partial_fit_no_first_classes[42-GaussianNB]",
            "test_NB_partial_fit_no_first_classes[42-CategoricalNB]",
            "test_NB_partial_fit_no_first_classes[42-MultinomialNB]",
        ],
        "a class of prior probability 0 is refused": [
            "test_gnb_priors_sum_isclose",
        ],
        "a private method or attribute of the peer": [
            "test_gnb_check_update_with_no_data",
            "test_check_alpha",
        ],
        "maximum likelihood of a constant column is refused, not smoothed (var_smoothing, reg_param): keep prior=True": [
            "test_gnb_partial_fit",
            "test_predict_joint_proba[42-GaussianNB]",
            "test_check_accuracy_on_digits",
        ],
        "numbers are not made binary: 0 and 1 are what a Bernoulli column takes": [
            "test_discretenb_prior[42-BernoulliNB]",
            "test_discretenb_predict_proba",
            "test_discretenb_provide_prior_with_partial_fit[BernoulliNB]",
            "test_predict_joint_proba[42-BernoulliNB]",
        ],
        "no attribute feature_count_": [
            "test_discretenb_partial_fit[BernoulliNB]",
            "test_discretenb_partial_fit[MultinomialNB]",
            "test_bnb_feature_log_prob",
        ],
        "no attribute category_count_": [
            "test_discretenb_partial_fit[CategoricalNB]",
        ],
        "no parameter fit_prior": [
            "test_discretenb_uniform_prior[BernoulliNB]",
            "test_discretenb_uniform_prior[CategoricalNB]",
            "test_discretenb_uniform_prior[MultinomialNB]",
            "test_categoricalnb",
            "test_categoricalnb_with_min_categories",
            "test_categoricalnb_min_categories_errors",
        ],
        "a category that was not in the training data is refused: unknown='prior'": [
            "test_discretenb_provide_prior_with_partial_fit[CategoricalNB]",
            "test_discretenb_sample_weight_multiclass[CategoricalNB]",
        ],
        "fractions are no counts": [
            "test_discretenb_provide_prior_with_partial_fit[MultinomialNB]",
        ],
        "shares of classes are posterior means, of one more row of each class": [
            "test_bnb",
        ],
        "alpha is above 0, no warning is needed": [
            "test_alpha",
        ],
        "alpha is one number": [
            "test_alpha_vector",
        ],
    },
}
