"""Discriminative models against scikit-learn: logistic and softmax regression, the kernel machine; experts, which have no peer.

Peer and project take turns in one process on the same data; both end with their defaults, and the note tells how far the peer's
objective, −log likelihood + |β|²/2 in nats, is above ours at that point (below: a minus).
"""

import numpy as np

from common_cases import clock, floor, race, row, tell


def objective(x, y, coef, intercept):
    """−log likelihood + |β|²/2, in nats."""
    logits = x @ np.atleast_2d(coef).T + intercept
    if logits.shape[1] == 1:
        loss = np.logaddexp(0, np.where(y > 0, -logits[:, 0], logits[:, 0])).sum()
    else:
        loss = (np.logaddexp.reduce(logits, axis=1) - logits[np.arange(len(y)), y]).sum()
    return float(loss + 0.5 * (np.asarray(coef) ** 2).sum())


def _against(case, x, y, project, peers):
    """A row for each solver of the peer."""
    for i, (name, call) in enumerate(peers.items()):
        cold, warm, peer, ours, theirs = race(project, call)
        over = objective(x, y, theirs.coef_, theirs.intercept_) - objective(x, y, ours.coef_, ours.intercept_)
        passes = 2 * np.max(ours.n_iter_)  # there and back, each time
        yield row(f"{case} against {name}", None if i else cold, warm, peer, floor=floor(passes * x.size, dtype=x.dtype),
                  note=f"objective {over:+.3g} nats; {ours.n_iter_} steps")


def million(dtype, quick):
    """Logistic regression, 1,000,000 × 50."""
    from sklearn.linear_model import LogisticRegression as Peer

    from probml.models import LogisticRegression

    random, n = np.random.default_rng(0), 20_000 if quick else 1_000_000
    x = random.normal(size=(n, 50)).astype(dtype)
    y = (random.random(n) < 1 / (1 + np.exp(-x @ (0.3 * random.normal(size=50))))).astype(int)
    peers = {s: lambda s=s: Peer(solver=s).fit(x, y) for s in ("lbfgs", "newton-cholesky")}
    yield from _against(f"logistic {n:,} × 50, estimator", x, y, lambda: LogisticRegression().fit(x, y), peers)


def digits(dtype, quick):
    """Softmax regression of 1,797 digits, 64 columns as they are."""
    from sklearn.datasets import load_digits
    from sklearn.linear_model import LogisticRegression as Peer

    from probml.models import LogisticRegression

    x, y = load_digits(return_X_y=True)
    x = x.astype(dtype)
    peers = {s: lambda s=s: Peer(solver=s, max_iter=10_000).fit(x, y) for s in ("lbfgs", "newton-cg")}
    peers["lbfgs, tol 1e-6"] = lambda: Peer(tol=1e-6, max_iter=10_000).fit(x, y)
    yield from _against("softmax on digits, estimator", x, y, lambda: LogisticRegression().fit(x, y), peers)


def machine(dtype, quick):
    """The kernel machine on two interleaved classes."""
    from sklearn.datasets import make_moons
    from sklearn.svm import SVC

    from probml.models import SupportVectorMachine

    for n in (300,) if quick else (500, 2_000, 5_000):
        x, y = make_moons(n, noise=0.3, random_state=0)
        project, other = lambda x=x, y=y: SupportVectorMachine().fit(x, y), lambda x=x, y=y: SVC(cache_size=2000).fit(x, y)
        cold, warm, peer, ours, theirs = race(project, other)
        apart = np.abs(ours.decision_function(x) - theirs.decision_function(x)).max()
        yield row(f"rbf machine, {n:,} rows", cold, warm, peer, note=f"decision values within {apart:.1g} at the default tolerances")


def experts(dtype, quick):
    """A mixture of two experts; no peer."""
    from probml.models import MixtureOfExperts

    random, n = np.random.default_rng(0), 2_000 if quick else 100_000
    x = random.normal(size=(n, 5))
    y = np.where(x[:, 0] + 0.3 * random.normal(size=n) > 0, x @ np.arange(5), -x @ np.ones(5)) + random.normal(size=n)
    cold, _ = clock(lambda: MixtureOfExperts(2, n_init=1, random_state=0).fit(x, y))
    warm, estimator = clock(lambda: MixtureOfExperts(2, n_init=1, random_state=0).fit(x, y))
    yield row(f"two experts, {n:,} × 5, by EM", cold, warm, note=f"{estimator.n_iter_} evaluations, {warm / estimator.n_iter_ * 1e3:.3g} ms each")


def squares(dtype, quick):
    """A linear regression, whose rows are passed over twice for any number of gradients; no peer."""
    import probml
    from functions import line

    random, n = np.random.default_rng(0), 20_000 if quick else 1_000_000
    x = random.normal(size=(n, 20)).astype(dtype)
    data = {"x": x, "y": x @ random.normal(size=20) + 1 + random.normal(size=n)}
    for engine in (probml.MAP(), probml.NUTS(draws=500, warmup=500, chains=2)):
        cold, _ = clock(lambda engine=engine: line().fit(data, engine))
        warm, fit = clock(lambda engine=engine: line().fit(data, engine))
        yield row(f"linear regression, {n:,} × 20, by {type(engine).__name__}", cold, warm, floor=floor(2 * x.size, dtype=dtype),
                  note=f"scale {float(fit.params['scale']):.4f}")


CASES = {"squares": squares, "million": million, "digits": digits, "machine": machine, "experts": experts}

if __name__ == "__main__":
    tell(CASES)
