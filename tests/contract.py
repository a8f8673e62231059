"""scikit-learn's contract for estimators, check by check."""

from collections.abc import Callable, Mapping

import pytest

pytest.importorskip("sklearn")
from sklearn.base import is_classifier  # noqa: E402
from sklearn.utils.estimator_checks import parametrize_with_checks  # noqa: E402

DENSE = "check_sample_weight_equivalence_on_dense_data"
SPARSE = "check_sample_weight_equivalence_on_sparse_data"
# tests/testing/containers.py asks whether sparse rows have the answers of dense ones
FOR_CLASSIFIERS = dict.fromkeys(
    ("check_estimator_sparse_array", "check_estimator_sparse_matrix"),
    "the check asks whatever has predict_proba, mixtures as well, for the tags of a classifier")


def contract(*estimators, expected: Mapping[str, Mapping[str, str]] | None = None) -> Callable:
    """A decorator: the test is asked every check for every estimator. What the small random tables of
    the checks are warned about is not what they are about.

    Args:
        expected: name of an estimator → name of a check that fails → why. The check of weights that fails
            on a dense table fails on a sparse one of the same numbers, too.
    """
    def fails(estimator) -> dict[str, str]:
        own = (expected or {}).get(type(estimator).__name__, {})
        mixture = hasattr(estimator, "predict_proba") and not is_classifier(estimator)
        return {**own, **({SPARSE: own[DENSE]} if DENSE in own else {}),
                **(FOR_CLASSIFIERS if mixture else {})}

    checks = parametrize_with_checks(list(estimators), expected_failed_checks=fails)
    return lambda test: pytest.mark.filterwarnings("ignore::UserWarning")(checks(test))
