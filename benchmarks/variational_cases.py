"""Variational Bayes: the mixture of scikit-learn's BayesianGaussianMixture, same priors, as many
iterations, in the same process and in turns.

Their start is by responsibilities, ours by parameters: iterations are compared, not where they lead
so early; `tests/engines/test_vb.py` holds both to one fixed point.
"""

import warnings

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro import plate, sample

import probml
from common_cases import clusters, race, row, tell

ITERATIONS = 20


@probml.model
def bayesian_mixture(k: int, d: int):
    weights = sample("weights", dist.Dirichlet(jnp.full(k, 1 / k)))
    with plate("component", k):
        precision = sample("precision", dist.Wishart(1.0 * d, rate_matrix=jnp.eye(d)))
        mean = sample("mean", dist.MultivariateNormal(jnp.zeros(d), precision_matrix=precision))
    with probml.rows():
        z = sample("z", dist.Categorical(weights))
        sample("x", dist.MultivariateNormal(mean[z], precision_matrix=precision[z]))


def variational(dtype, quick):
    """20 iterations of VB of a full-covariance mixture."""
    from sklearn.mixture import BayesianGaussianMixture

    for n, d, k in ((10_000, 8, 8),) if quick else ((10_000, 8, 8), (100_000, 16, 16)):
        x = clusters(n, d, k, dtype)
        start = {"weights": np.full(k, 1 / k), "mean": x[:k].astype(float),
                 "precision": np.tile(np.eye(d), (k, 1, 1))}
        engine = probml.VB(max_iterations=ITERATIONS, tolerance=0, restarts=1)
        peer = BayesianGaussianMixture(
            n_components=k, weight_concentration_prior_type="dirichlet_distribution",
            weight_concentration_prior=1 / k, mean_precision_prior=1.0, mean_prior=np.zeros(d),
            degrees_of_freedom_prior=float(d), covariance_prior=np.eye(d), reg_covar=0, tol=0,
            max_iter=ITERATIONS, init_params="random", random_state=0)

        def ours(x=x, engine=engine, start=start, k=k, d=d):
            return bayesian_mixture(k=k, d=d).fit({"x": x}, engine, start=start)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # neither has converged
            cold, warm, theirs, fit, _ = race(ours, lambda peer=peer, x=x: peer.fit(x))
        yield row(f"VB of a mixture {n:,} × {d}, k = {k}, {ITERATIONS} iterations, "
                  f"{np.dtype(dtype).name}", cold, warm, theirs, fit.bound / n,
                  note=f"quality: the bound a row; {fit.iterations} iterations")


CASES = {"variational": variational}

if __name__ == "__main__":
    tell(CASES)
