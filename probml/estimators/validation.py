"""The checks of scikit-learn on which the faces stand."""


try:
    from sklearn.base import (
        BaseEstimator,
        ClassifierMixin,
        ClassNamePrefixFeaturesOutMixin,
        DensityMixin,
        RegressorMixin,
        TransformerMixin,
    )
    from sklearn.utils import (
        assert_all_finite,
        check_random_state,
        column_or_1d,
        compute_class_weight,
    )
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import _check_sample_weight as check_sample_weight
    from sklearn.utils.validation import (
        check_array,
        check_consistent_length,
        check_is_fitted,
        validate_data,
    )
except ModuleNotFoundError as error:
    raise ImportError(f"the faces of probml.models stand on scikit-learn ({error}): pip install "
                      f"probml[sklearn]") from error

__all__ = [
    "BaseEstimator",
    "ClassNamePrefixFeaturesOutMixin",
    "ClassifierMixin",
    "DensityMixin",
    "RegressorMixin",
    "TransformerMixin",
    "assert_all_finite",
    "check_array",
    "check_classification_targets",
    "check_consistent_length",
    "check_is_fitted",
    "check_random_state",
    "check_sample_weight",
    "column_or_1d",
    "compute_class_weight",
    "validate_data",
]
