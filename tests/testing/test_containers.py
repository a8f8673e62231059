"""The same numbers in every container have the same answers: a few faces of containers.py, which takes all."""

import jax
import pytest

pytest.importorskip("sklearn")
from containers import faults


@pytest.mark.parametrize("face", ["ParzenClassifier", "NearestNeighbours", "SupportVectorRegression"])
def test_containers_and_orders_of_columns_change_no_answer(face):
    with jax.enable_x64(False):
        assert not faults(face)
