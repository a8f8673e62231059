"""Binomial likelihood: successes among total_count trials, T(x) = (x, n − x); n is known, and may
differ from row to row."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import lax

from probml.families import log_linear
from probml.families.densities import count_draws
from probml.families.forms.beta import BETA
from probml.families.likelihood import Arguments, Entry, Likelihood
from probml.families.log_linear import log_factorial
from probml.numerics.logs import log_of, weighted_log


def _choose(n: jax.Array, x: jax.Array):
    return log_factorial(n) - log_factorial(x) - log_factorial(n - x)


class Binomial(Likelihood):
    """log p(x) = x log p + (n − x) log(1 − p) + log C(n, x), p = probs = logistic(logits), n =
    total_count."""

    name = "Binomial"
    argument_event = {"probs": 0, "logits": 0, "total_count": 0}
    canonical = {"probs": (BETA, ()), "logits": (BETA, (("logistic", 1.0),))}
    limit = "total_count"  # the largest value
    mean_of = ("probs",)
    held = ("total",)

    def natural(self, arguments: Arguments, centre: jax.Array | float):
        given = log_linear.floats(arguments)
        n = given["total_count"]
        if "logits" in given:
            return {"hit": jax.nn.log_sigmoid(given["logits"]),
                    "miss": jax.nn.log_sigmoid(-given["logits"]), "total": n}
        return {"hit": log_of(given["probs"]), "miss": log_of(1 - given["probs"]), "total": n}

    def log_density(self, natural: Arguments, x: jax.Array, seen: jax.Array | None):
        hit, miss, n = natural["hit"], natural["miss"], lax.stop_gradient(natural["total"])
        # (b, 1, c) against (p, c): n may differ between states, so no product
        x = x.astype(hit.dtype)[:, None]
        inside = (x >= 0) & (x <= n)
        x = jnp.where(inside, x, 0.0)
        log = weighted_log(x, hit) + weighted_log(n - x, miss) + _choose(n, x)
        log = jnp.where(inside, log, -jnp.inf)
        return log_linear.masked(log, None if seen is None else seen[:, None]).sum(-1)

    def predictive(self, arguments: Arguments, x: jax.Array, seen: jax.Array | None):
        """p ~ Beta(a, b): beta-binomial, C(n, x) B(a + x, b + n − x) / B(a, b)."""
        n = log_linear.floats(arguments)["total_count"]
        return log_linear.masked(_beta_binomial(arguments["a"], arguments["b"], n, x), seen)


    def direct(self, arguments: Arguments, x: jax.Array, seen: jax.Array | None):
        """Log densities of cells, each with arguments of its own."""
        given = log_linear.floats(arguments)
        if "logits" in given:
            log_p = [jax.nn.log_sigmoid(sign * given["logits"]) for sign in (1, -1)]
            p = [jax.nn.sigmoid(sign * given["logits"]) for sign in (1, -1)]
        else:
            p = [given["probs"], 1 - given["probs"]]
            log_p = [log_of(each) for each in p]
        n = given["total_count"]
        shape = jnp.broadcast_shapes(n.shape, p[0].shape, jnp.shape(x))
        both_p, both_log_p = (_side_by_side(pair, shape) for pair in (p, log_p))
        mean = _side_by_side((n, n), shape) * both_p
        log_mean = _side_by_side([log_of(n)] * 2, shape) + both_log_p

        def log_of_both(*counts: jax.Array):
            hit, miss = jnp.split(log_linear.log_poisson(_side_by_side(counts, shape), mean,
                                                         log_mean), 2, -1)
            return (hit + miss).reshape(shape) - log_linear.log_poisson(n, n)

        log = _of_counts(n, x, log_of_both)
        return log_linear.masked(log, seen)


def _side_by_side(parts: Sequence[jax.Array], shape: tuple[int, ...]):
    """Numbers of successes and of failures, each broadcast to a shape, along its last axis, that of
    cells: XLA vectorizes along the last axis, for which one of two numbers is too short."""
    return jnp.concatenate([jnp.broadcast_to(part, shape or (1,)) for part in parts], -1)


def _of_counts(n: jax.Array, x: jax.Array, log_of_both: Callable):
    """log p of successes x among n, −∞ where there are none such, by that of x and n − x."""
    x = jnp.asarray(x, n.dtype)
    inside = (x >= 0) & (x <= n)
    x = jnp.where(inside, x, 0.0)
    return jnp.where(inside, log_of_both(x, n - x), -jnp.inf)


def _beta_binomial(a: jax.Array, b: jax.Array, n: jax.Array, x: jax.Array):
    alphas = jnp.stack(jnp.broadcast_arrays(a, b), -1)
    return _of_counts(n, x, lambda *counts: log_linear.log_dirichlet_multinomial(
        jnp.stack(jnp.broadcast_arrays(*counts), -1), alphas))


def of_trials(distribution: dist.Distribution, value: jax.Array):
    """log p of successes among total_count trials."""
    kind = Binomial()
    return kind.direct({name: jnp.asarray(part) for name, part in
                        kind.arguments(distribution).items()}, value, None)


def of_clumped_trials(distribution: dist.Distribution, value: jax.Array):
    """log p under a BetaBinomial: of differences of log Γ at 10⁶ float32 leaves a nat."""
    a, b, n = (jnp.asarray(part, jnp.result_type(float)) for part in (
        distribution.concentration1, distribution.concentration0, distribution.total_count))
    return _beta_binomial(a, b, n, value)


ENTRIES = (Entry((dist.BinomialProbs, dist.BinomialLogits), Binomial(), log_prob=of_trials,
                 sharp=count_draws.of_binomial),
           Entry((dist.BetaBinomial,), log_prob=of_clumped_trials,
                 sharp=count_draws.of_beta_binomial))
