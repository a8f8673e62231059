"""Variational Bayes of state-space models, held to updates written by hand."""

import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import sample
from scipy.special import digamma

import probml
from mean_field_by_hand import LOG_TWO_PI, gamma_gap, normal_gap, vb


@probml.model
def state_space(d: int = 3):
    transition = sample("transition", dist.Normal(0.0, 1.0).expand([2, 2]).to_event(2))
    loadings = sample("loadings", dist.Normal(0.0, 1.0).expand([d, 2]).to_event(2))
    precision = sample("precision", dist.Gamma(2.0, 1.0).expand([d]).to_event(1))
    with probml.rows():
        s = sample("s", probml.GaussianChain(np.zeros(2), np.eye(2), transition, np.eye(2)))
        sample("y", dist.Normal(s @ loadings.T, precision**-0.5).to_event(2))


def wandering(n=3, steps=7, holes=0.0, seed=1):
    random = np.random.default_rng(seed)
    A, C = np.array([[0.8, 0.3], [-0.3, 0.7]]), random.normal(size=(3, 2))
    s = random.normal(size=(n, steps, 2))
    for t in range(1, steps):
        s[:, t] += s[:, t - 1] @ A.T
    y = s @ C.T + 0.5 * random.normal(size=(n, steps, 3))
    return np.where(random.random(y.shape) < holes, np.nan, y)


STATES = {"transition": np.array([[0.5, 0.1], [0.0, 0.4]]), "precision": np.ones(3),
          "loadings": np.array([[1.0, 0.1], [-0.4, 0.9], [0.3, 0.5]])}


def states_by_hand(y, transition, loadings, precision, iterations):
    """VB of `state_space` (Beal 2003, chapter 5), the states of a sequence as one normal vector:
    the bounds, and q."""
    seen, y = ~np.isnan(y), np.nan_to_num(y)
    (_, steps, d), one = y.shape, np.ones(2)
    A, C, t, log = transition, loadings, precision, np.log(precision)
    wideA, wideC, bounds = np.zeros((2, 2, 2)), np.zeros((d, 2, 2)), []
    a = rate = PA = PC = last = None
    for i in range(iterations + 1):
        AA = A.T @ A + wideA.sum(0)  # E[AᵀA]
        CC = C[:, :, None] * C[:, None, :] + wideC
        evidence, ss, moved, before = 0.0, np.zeros((d, 2, 2)), np.zeros((2, 2)), np.zeros((2, 2))
        across = np.zeros((d, 2))
        for x, m in zip(y, seen, strict=True):
            K, h = np.eye(2 * steps), np.zeros(2 * steps)
            for k in range(steps):
                at = slice(2 * k, 2 * k + 2)
                K[at, at] += np.einsum("j,jab->ab", m[k] * t, CC)
                h[at] += (m[k] * t * x[k]) @ C
                if k + 1 < steps:
                    to = slice(2 * k + 2, 2 * k + 4)
                    K[at, at] += AA
                    K[to, at] -= A
                    K[at, to] -= A.T
            cov = np.linalg.inv(K)
            mean = cov @ h
            evidence += 0.5 * h @ mean - 0.5 * np.linalg.slogdet(K)[1] + (
                m * (0.5 * (log - LOG_TWO_PI) - 0.5 * t * x**2)).sum()
            square = cov + np.outer(mean, mean)
            for k in range(steps):
                at = slice(2 * k, 2 * k + 2)
                ss += m[k][:, None, None] * square[at, at]
                across += (m[k] * x[k])[:, None] * mean[at]
                if k + 1 < steps:
                    before += square[at, at]
                    moved += square[2 * k + 2 : 2 * k + 4, at]
        if i:
            bounds.append(evidence - gamma_gap(a, rate, 2.0, 1.0)
                          - sum(normal_gap(C[j], PC[j], one) for j in range(d))
                          - sum(normal_gap(A[j], PA, one) for j in range(2)))
        last = A, C, a, rate
        PA, PC = np.eye(2) + before, np.eye(2) + t[:, None, None] * ss
        A = np.linalg.solve(PA, moved.T).T
        C = np.stack([np.linalg.solve(PC[j], t[j] * across[j]) for j in range(d)])
        wideA = np.stack([np.linalg.inv(PA)] * 2)
        spread = np.linalg.inv(PC)
        CC = C[:, :, None] * C[:, None, :] + (spread if i else 0.0)
        away = (seen * y**2).sum((0, 1)) - 2 * (C * across).sum(1) + (CC * ss).sum((1, 2))
        wideC = spread
        a, rate = 2.0 + seen.sum((0, 1)) / 2, 1.0 + away / 2
        t, log = a / rate, digamma(a) - np.log(rate)
    return np.array(bounds), *last


@pytest.mark.parametrize("holes", [0.0, pytest.param(0.2, marks=pytest.mark.slow)],
                         ids=["whole", "with holes"])
def test_a_state_space_model_takes_the_steps_that_were_written_by_hand(holes):
    y = wandering(holes=holes)
    with pytest.warns(probml.ConvergenceWarning, match="iteration limit"):
        fit = state_space().fit({"y": y}, vb(max_iterations=8), start=STATES)
    bounds, A, C, a, rate = states_by_hand(y, **STATES, iterations=len(fit.history))
    np.testing.assert_allclose(fit.history, bounds, rtol=1e-9)
    np.testing.assert_allclose(fit.params["transition"], A, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(fit.params["loadings"], C, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(fit.posterior("precision").rate, rate, rtol=1e-8)
    assert (np.diff(fit.history) > -1e-8).all()
