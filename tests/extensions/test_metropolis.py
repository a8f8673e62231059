"""A sampler of a user's own, in one file: random-walk Metropolis (Metropolis et al. 1953)."""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import sample

import probml
from probml.extend import (
    Draws,
    Engine,
    Outcome,
    Problem,
    Refusal,
    Status,
    check_settings,
    from_unbounded,
    jit,
    log_posterior,
    starts,
    to_unbounded,
)


@dataclass(frozen=True)
class Metropolis(Engine):
    """Draws of the posterior by proposals at a normal distance in unbounded coordinates.

    Args:
        draws: after as many again that are dropped.
        width: standard deviation of a proposal in each coordinate.
    """

    draws: int = 2000
    width: float = 0.1

    sources: ClassVar[tuple[str, ...]] = ("Metropolis et al. (1953), Equation of state calculations",)

    def __post_init__(self):
        check_settings(self, positive=("draws", "width"))

    def refuse(self, problem: Problem) -> None:
        if problem.plan.effects:
            raise Refusal(f"Metropolis cannot fit {problem}: '{problem.plan.effects[0]}', effects "
                          f"of groups, are integrated out", ("NUTS",))

    def run(self, problem: Problem) -> Outcome:
        plan, known = problem.plan, problem.known
        first = starts(problem.data, plan, known, problem.weights, 1, problem.seed, problem.start,
                       True)
        begin = to_unbounded(plan, {name: value[0] for name, value in first.params.items()}, known)
        values, heights = _chain(plan, begin, known, problem.rows, jax.random.key(problem.seed),
                                 self.draws, self.width)
        values = {name: np.asarray(value)[None] for name, value in values.items()}
        mean = {name: value.mean((0, 1)) for name, value in values.items()}
        return Outcome(mean, np.asarray(heights), Status.CONVERGED, self.draws,
                       posterior=Draws(values, None, {}))


def _walk(plan, begin, known, rows, key, draws, width):
    density = log_posterior(plan, known, rows)

    def step(state, key):
        u, height = state
        noise, luck = jax.random.split(key)
        there = u + width * jax.random.normal(noise, u.shape)
        value = density(there)[0]
        taken = jnp.log(jax.random.uniform(luck)) < value - height
        state = jnp.where(taken, there, u), jnp.where(taken, value, height)
        return state, state

    keys = jax.random.split(key, 2 * draws)
    points, heights = jax.lax.scan(step, (begin, density(begin)[0]), keys)[1]
    return jax.vmap(lambda u: from_unbounded(plan, u, known)[0])(points[draws:]), heights[draws:]


_chain = jit(_walk, static_argnames=("plan", "draws"))


@probml.model
def coin():
    share = sample("share", dist.Beta(2.0, 2.0))
    with probml.rows():
        sample("toss", dist.Bernoulli(share))


def test_a_sampler_from_outside_draws_the_posterior():
    """Beta(2 + 9, 2 + 3)."""
    data = {"toss": np.repeat([1, 0], [9, 3])}
    fit = coin().fit(data, Metropolis(draws=20_000, width=0.8))
    drawn = fit.draws(20_000)["share"]
    assert drawn.mean() == pytest.approx(11 / 16, abs=0.01)
    assert drawn.std() == pytest.approx(np.sqrt(11 * 5 / 16**2 / 17), rel=0.05)
    assert "share" in str(fit.summary())
    assert "Metropolis" in str(coin().explain(data, engines=[Metropolis()]))
    assert Metropolis.sources[0] in probml.cite(coin(), Metropolis(), show=False)
