"""Integrals and sums by NumPy and SciPy alone, of which the cases of this folder make their oracles."""

import itertools

import numpy as np
import scipy.stats as st

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(80)
WEIGHTS = WEIGHTS / WEIGHTS.sum()


def close(got, wanted, what="", rtol=2e-3, atol=2e-3):
    """An AssertionError that says what differs."""
    got, wanted = np.asarray(got, float), np.asarray(wanted, float)
    assert got.shape == wanted.shape, f"{what}: shape {got.shape}, expected {wanted.shape}"
    np.testing.assert_allclose(got, wanted, rtol=rtol, atol=atol, err_msg=what)


def normal_mean(f, m=0.0, s=1.0):
    """E f(u), u ~ N(m, s²)."""
    return float(np.sum(WEIGHTS * f(m + s * NODES)))


def grid_mean(log_density, f, low, high, n=40001):
    """(E f(u), log of the integral) under an unnormalised log density on [low, high]."""
    u = np.linspace(low, high, n)
    log = log_density(u)
    top = log.max()
    p = np.exp(log - top)
    return np.trapezoid(p * f(u), u) / np.trapezoid(p, u), top + np.log(np.trapezoid(p, u))


def joint_states(*sizes):
    return list(itertools.product(*(range(k) for k in sizes)))


def paths(k, steps):
    return np.array(list(itertools.product(range(k), repeat=steps)))


def chain_log(path, initial, transition):
    return np.log(initial[path[0]]) + sum(np.log(transition[a, b]) for a, b in zip(path, path[1:],
                                                                                   strict=False))


def chain_sum(log_emission, initial, transition):
    """(log evidence, p(state_t)) by all paths; log_emission (steps, k)."""
    steps, k = log_emission.shape
    every = paths(k, steps)
    log = np.array([chain_log(p, initial, transition) + log_emission[np.arange(steps), p].sum()
                    for p in every])
    top = log.max()
    w = np.exp(log - top)
    gamma = np.stack([[w[every[:, t] == s].sum() for s in range(k)] for t in range(steps)])
    return top + np.log(w.sum()), gamma / w.sum(), every[log.argmax()]


def given_others(mean, cov, y, at):
    """Conditional mean and variance of the normal numbers `at` given those of y that are there."""
    mean, cov, y = np.asarray(mean, float), np.asarray(cov, float), np.asarray(y, float)
    there = ~np.isnan(y)
    gain = cov[np.ix_(at, there)] @ np.linalg.inv(cov[np.ix_(there, there)])
    return (mean[at] + gain @ (y[there] - mean[there]),
            cov[np.ix_(at, at)] - gain @ cov[np.ix_(there, at)])


def mixture_quantile(q, weights, cdfs, low, high):
    """The number of which a mixture has probability q below."""
    for _ in range(200):
        middle = (low + high) / 2
        if sum(w * c(middle) for w, c in zip(weights, cdfs, strict=True)) < q:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def log_sum(*logs):
    return np.logaddexp.reduce(np.stack(logs), 0)


norm = st.norm
