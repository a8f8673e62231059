"""Brute-force oracles in plain NumPy: enumerate every joint state; exponential and obvious."""

import itertools

import numpy as np


def enumerate_factors(factors, sizes):
    """The joint log table: the sum of the factors' logs at every joint state.

    Args:
        factors: (log, names) pairs; log has a rows axis of size 1 or n, then one axis per name.
        sizes: name -> number of states; fixes the order of the axes of the result.

    Returns:
        Array (rows, *sizes in the order of `sizes`).
    """
    names = list(sizes)
    rows = max([np.shape(log)[0] for log, _ in factors], default=1)
    joint = np.zeros((rows, *sizes.values()))
    for state in itertools.product(*(range(sizes[name]) for name in names)):
        value = dict(zip(names, state, strict=True))
        for log, scope in factors:
            joint[(slice(None), *state)] += np.asarray(log, float)[
                (slice(None), *(value[name] for name in scope))
            ]
    return joint


def log_sum(log, axis):
    """log sum exp over the axes; -inf where every term is -inf."""
    with np.errstate(divide="ignore", invalid="ignore"):
        top = np.max(log, axis=axis, keepdims=True)
        top = np.where(np.isfinite(top), top, 0.0)
        return np.log(np.sum(np.exp(log - top), axis=axis)) + np.squeeze(top, axis=axis)


def evidence(joint):
    """log sum over all joint states: (rows,)."""
    return log_sum(joint, tuple(range(1, joint.ndim)))


def log_marginal(joint, sizes, keep):
    """log sum over every name that is not in `keep`: (rows, *sizes in the order of `keep`)."""
    names = list(sizes)
    gone = tuple(1 + i for i, name in enumerate(names) if name not in keep)
    left = [name for name in names if name in keep]
    return np.transpose(log_sum(joint, gone), (0, *(1 + left.index(name) for name in keep)))


def posterior(joint, sizes, keep):
    """p(keep | row): (rows, *sizes in the order of `keep`); zeros in an impossible row."""
    log, total = log_marginal(joint, sizes, keep), evidence(joint)
    possible = np.isfinite(total).reshape(-1, *[1] * len(keep))
    total = np.where(np.isfinite(total), total, 0.0).reshape(-1, *[1] * len(keep))
    return np.where(possible, np.exp(log - total), 0.0)


def most_probable(joint, sizes):
    """(log of the maximum (rows,), name -> state (rows,)); the first maximum in the order of
    `sizes`."""
    flat = joint.reshape(joint.shape[0], -1)
    states = np.unravel_index(flat.argmax(1), joint.shape[1:])
    return flat.max(1), dict(zip(sizes, states, strict=True))


def at(joint, sizes, states):
    """The joint log table at one joint state per row: (rows,)."""
    rows = np.arange(joint.shape[0])
    return joint[(rows, *(np.broadcast_to(np.asarray(states[name]), rows.shape) for name in sizes))]
