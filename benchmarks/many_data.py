"""The rows of the table of many rows: (what all sides are given, counts), made anew from a seed."""

from importlib import resources

import numpy as np


def bayes_rows(kind, n=1_000_000, d=30, k=5, states=4):
    random = np.random.default_rng(0)
    y = random.integers(k, size=n)
    x = 0.3 * random.normal(size=(k, d))[y] + random.normal(size=(n, d))
    if kind == "categorical":
        x = (x[..., None] > np.array([-1.0, 0.0, 1.0])).sum(-1)
    return {"x": x, "y": y}, {"k": k, "states": states}


def logits(n=1_000_000, d=50):
    random = np.random.default_rng(0)
    x = random.normal(size=(n, d))
    y = (random.random(n) < 1 / (1 + np.exp(-x @ (0.3 * random.normal(size=d))))).astype(int)
    return {"x": x, "y": y}, {}


def digits():
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    return {"x": x, "y": y}, {}


def lines(n=1_000_000, d=20):
    random = np.random.default_rng(0)
    x = random.normal(size=(n, d))
    return {"x": x, "y": x @ random.normal(size=d) + 1 + random.normal(size=n)}, {"draws": 500}


def expert_rows(n=100_000, d=10, k=4):
    """Planes of their own on the sides of two hyperplanes."""
    random = np.random.default_rng(0)
    x = random.normal(size=(n, d))
    side = 2 * (x[:, 0] > 0) + (x[:, 1] > 0)
    slopes = random.normal(size=(k, d))
    y = (x * slopes[side]).sum(1) + side + 0.5 * random.normal(size=n)
    return {"x": x, "y": y}, {"k": k, "iterations": 6}


def moons(n=5_000):
    from sklearn.datasets import make_moons

    x, y = make_moons(n, noise=0.3, random_state=0)
    return {"x": x, "y": y}, {}


def alarm_rows(unseen, seed, n=10_000):
    """A table of alarm's nodes with cells unseen: empty, or marked by ? in its first rows, which are
    those that a peer gets."""
    from network_cases import alarm

    _, rows = alarm(n, unseen, seed)
    few = min(n, 200 if unseen == 0.5 else 1_000)
    return {"table": rows, "marked": rows[:few].fillna("?"),
            "network": str(resources.files("probml.data") / "alarm.bif")}, {"n": n, "few": few}
