"""Gaussian chains: Kalman smoothing, and an iteration of EM of all matrices (Shumway & Stoffer
1982), of one long sequence and of many, against statsmodels where it is installed, in the same
process and in turns.

statsmodels smooths sequence by sequence and stops updating covariances where they have settled; it
has no EM of such models, whose E-step is that smoother.
"""

import contextlib
import statistics
import warnings

import numpy as np

from common_cases import clock, race, row, tell

D = 4


def system():
    random = np.random.default_rng(0)
    return {"turn": 0.9 * np.linalg.qr(random.normal(size=(D, D)))[0], "push": 0.3 * np.eye(D),
            "load": random.normal(size=(D, D)), "noise": np.full(D, 0.5)}


def model():
    import jax.numpy as jnp
    import numpyro.distributions as dist
    from numpyro import sample

    import probml

    def flat(name, constraint, *shape):
        return sample(name, dist.ImproperUniform(constraint, (), shape))

    @probml.model
    def linear():
        turn = flat("turn", dist.constraints.real_matrix, D, D)
        push = flat("push", dist.constraints.positive_definite, D, D)
        load = flat("load", dist.constraints.real_matrix, D, D)
        noise = flat("noise", dist.constraints.positive, D)
        with probml.rows():
            z = sample("z", probml.GaussianChain(jnp.zeros(D), jnp.eye(D), turn, push))
            sample("y", dist.Normal(z @ load.T, noise).to_event(2))

    return linear()


def peer(p, y):
    """A call that smooths every sequence, and returns the first's states; None: not installed."""
    with contextlib.suppress(ImportError):
        from statsmodels.tsa.statespace.kalman_smoother import KalmanSmoother

        def smooth():
            first = None
            for series in y:
                own = KalmanSmoother(k_endog=D, k_states=D, k_posdef=D)
                own.bind(np.asfortranarray(series.T))
                own["design"], own["obs_cov"] = p["load"], np.diag(p["noise"] ** 2)
                own["transition"], own["selection"] = p["turn"], np.eye(D)
                own["state_cov"] = p["push"]
                own.initialize_known(np.zeros(D), np.eye(D))
                found = own.smooth().smoothed_state.T
                first = found if first is None else first
            return first

        return smooth
    return None


def iteration(linear, p, y, more):
    """Seconds of an iteration of EM: of a long fit less a short one, divided."""
    import probml

    def learn(count):
        engine = probml.EM(max_iterations=count, prior=False, accelerate=False, tolerance=0.0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return linear.fit({"y": y}, engine, start=p)

    learn(1), learn(more)
    times = [[clock(lambda count=count: learn(count))[0] for count in (1, more)] for _ in range(3)]
    return statistics.median((long - short) / (more - 1) for short, long in times)


def kalman(dtype, quick):
    """1 × 100,000 × 4 and 1,000 × 200 × 4; wanted: three times the faster peer."""
    p, linear = system(), model()
    for n, steps in ((1, 20_000), (100, 200)) if quick else ((1, 100_000), (1_000, 200)):
        y = np.asarray(linear.at(p).simulate(n, steps=steps)["y"], dtype)
        fit, title = linear.at(p), f"{n:,} × {steps:,} × {D} states, {np.dtype(dtype).name}"
        cold, warm, other, ours, theirs = race(
            lambda fit=fit, y=y: np.asarray(fit.conditional({"y": y}, "z").mean),
            peer(p, y.astype(float)))
        gap = None if theirs is None else float(np.abs(ours[0] - theirs).max())
        yield row(f"Kalman smoothing, {title}, peer statsmodels", cold, warm, other, None, None,
                  "not installed" if gap is None else f"states differ by {gap:.1g}")
        yield row(f"one iteration of EM, {title}, peer's smoother", None,
                  iteration(linear, p, y, 6), other)


CASES = {"kalman": kalman}


if __name__ == "__main__":
    tell(CASES)
