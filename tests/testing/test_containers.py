"""The same numbers in every container have the same answers: a few estimators of containers.py, which takes all."""

import jax
import pytest

pytest.importorskip("sklearn")
from containers import faults


@pytest.mark.parametrize("estimator", ["ParzenClassifier", "NearestNeighbours", "SupportVectorRegression"])
def test_containers_and_orders_of_columns_change_no_answer(estimator):
    with jax.enable_x64(False):
        assert not faults(estimator)
