"""Which coordinates the sampler is given: those in which a normal is round, as far as the density is
like one."""

from types import SimpleNamespace

import numpy as np
import pytest

from probml.engines import nuts
from probml.numerics.curvature import MAX_DENSE_COORDINATES, Frame, Starts


def _begun(correlation, unlike, d=2):
    """At the mode of a normal of equal correlations; the density differs by so many nats."""
    hessian = np.linalg.inv((1 - correlation) * np.eye(d) + correlation)
    unit = 1 / np.sqrt(np.diag(hessian))
    curvature, axes = np.linalg.eigh(hessian * unit[:, None] * unit)
    root = unit[:, None] * ((axes / np.sqrt(curvature)) @ axes.T)
    z = np.random.default_rng(0).standard_normal((32, d))
    value = -0.5 * (z**2).sum(1) + unlike * np.random.default_rng(1).standard_normal(32)
    frame = Frame(np.zeros(d), root, curvature, unit[:, None] * axes)
    return SimpleNamespace(frame=frame, starts=Starts(z @ root.T, value, 0 * z))


def _crossed(frame):
    return frame.root.ndim == 2 and not np.allclose(frame.root, np.diag(np.diag(frame.root)))


@pytest.mark.parametrize("correlation, unlike, d, crossed", [
    (0.8, 0.1, 2, True),  # it is worth a third of the gradients, and costs none
    (0.8, 3.0, 2, False),  # far from normal: what couples here may not couple elsewhere
    (0.95, 3.0, 2, True),  # but it is narrow
    (0.95, 30.0, 2, False),  # nothing like a normal
    (0.1, 0.1, MAX_DENSE_COORDINATES + 1, False),  # a matrix of many costs more than it gives
])
def test_coordinates_cross_where_that_serves_everywhere_or_must_be(correlation, unlike, d, crossed):
    begun = _begun(correlation, unlike, d)
    assert nuts.difference_from_normal(begun) == pytest.approx(unlike, rel=0.3)
    frame = nuts.choose_frame(begun)
    assert _crossed(frame) == crossed
    assert frame.root.ndim == (2 if d <= MAX_DENSE_COORDINATES else 1)  # by shapes alone: one program


def test_what_is_no_mode_has_a_unit_a_coordinate():
    begun = _begun(0.95, 0.0)
    begun.frame = begun.frame._replace(curvature=np.array([-0.1, 1.0]))
    assert nuts.difference_from_normal(begun) == np.inf and not _crossed(nuts.choose_frame(begun))
