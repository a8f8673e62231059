"""Fits that have no good end, and what each engine says of them. `python tests/endings.py` writes
the table benchmarks/endings.md; tests/engines/test_endings.py holds the quick ones to it."""

import re
import sys
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import optax
from numpyro import plate, sample

import probml

FLAT = dist.ImproperUniform(dist.constraints.real, (), ())


@probml.model
def separated(x, scale: float | None = None):
    own = FLAT if scale is None else dist.Normal(0.0, scale)
    slope = sample("slope", own)
    with probml.rows():
        sample("y", dist.Bernoulli(logits=slope * x))


@probml.model
def clusters(k: int = 3):
    weights = sample("weights", dist.Dirichlet(jnp.ones(k)))
    with plate("component", k):
        mean = sample("mean", dist.Normal(0.0, 10.0))
        scale = sample("scale", dist.LogNormal(0.0, 1.0))
    with probml.rows():
        z = sample("z", dist.Categorical(weights))
        sample("x", dist.Normal(mean[z], scale[z]))


@probml.model
def constant():
    mean, scale = sample("mean", dist.Normal(0.0, 10.0)), sample("scale", dist.HalfNormal(10.0))
    with probml.rows():
        sample("x", dist.StudentT(5.0, mean, scale))


@probml.model
def sums():
    a, b = sample("a", FLAT), sample("b", FLAT)
    with probml.rows():
        sample("y", dist.StudentT(5.0, a + b, 1.0))


@probml.model
def twofold():
    root = sample("root", dist.Normal(0.0, 3.0))
    with probml.rows():
        sample("y", dist.Normal(root**2, 1.0))


@probml.model
def heavy():
    at = sample("at", dist.StudentT(1.2, 0.0, 1.0).expand([3]).to_event(1))
    with probml.rows():
        sample("y", dist.Normal(at.sum(), 100.0))


@probml.model
def funnel():
    log_scale = sample("log_scale", dist.Normal(0.0, 3.0))
    with plate("group", 9):
        effect = sample("effect", dist.StudentT(9.0, 0.0, jnp.exp(log_scale / 2)))
    with probml.rows():
        sample("y", dist.Normal(effect.sum(), 10.0))


RANDOM = np.random.default_rng(0)
X = np.arange(-4.0, 4.0) + 0.5
LINE = {"x": X, "y": (X > 0).astype(int)}
TWINS = {"x": np.r_[np.repeat(1.0, 4), RANDOM.normal(5.0, 1.0, 8)]}
SAME, NINE = {"x": np.full(8, 3.0)}, {"y": np.full(6, 9.0) + 0.1 * RANDOM.normal(size=6)}
ZERO = {"y": np.zeros(4)}
MIXED = {"x": np.concatenate([RANDOM.normal(m, 1.0, 30) for m in (-4.0, 0.0, 3.0, 8.0, 12.0)])}
NUTS = probml.NUTS(draws=200, warmup=200, chains=2)


class Ending(NamedTuple):
    """A fit, and what it says: words of its status, its warning or its refusal.

    Args:
        why: what is wrong with it. says: a regular expression that is found in what is said.
    """

    why: str
    model: Any
    data: dict
    engine: Any
    says: str
    quick: bool = True


def _each(why: str, model: Any, data: dict, said: dict[Any, str], slow: bool = False) -> list:
    return [Ending(why, model, data, engine, says,
                   not slow and not isinstance(engine, probml.NUTS | probml.SVI))
            for engine, says in said.items()]


ML = {"prior": False}
ENDINGS = [
    *_each("no maximum: separated classes, a flat prior", separated(), LINE, {
        probml.MAP(): "diverge", probml.MAP(**ML): "diverge", probml.Laplace(): "rises for ever",
        probml.SVI(steps=300): "improper",
        NUTS: "improper|not to be trusted"}),
    *_each("no maximum: a component on a row", clusters(), TWINS, {
        probml.EM(**ML): "collapsed and were discarded", probml.MAP(**ML): "no maximum|unbounded"}),
    *_each("no maximum: rows all alike", constant(), SAME, {
        probml.MAP(**ML): "no maximum", probml.EM(**ML): "collapsed"}),
    *_each("a flat direction: only a + b is told", sums(), NINE, {
        probml.MAP(): r"do not tell the direction .*a.* b|do not tell the direction .*b.* a",
        probml.Laplace(): "improper", probml.SVI(steps=300): "improper", NUTS: "improper"}),
    *_each("two modes, ±3", twofold(), NINE, {
        probml.Laplace(): "one of several modes", probml.SVI(steps=300): "one of several modes",
        probml.MAP(): "one of several maxima",
        NUTS: "not to be trusted"}),
    *_each("tails without a mean", heavy(), ZERO, {
        probml.Laplace(): "not to be relied on", probml.SVI(steps=300): "not to be relied on",
        NUTS: "not to be trusted|sampled"}),
    *_each("a funnel", funnel(), ZERO, {
        probml.MAP(): "joint|hierarch", probml.Laplace(): "no mode|not to be relied on",
        probml.SVI(steps=300): "not to be relied on|has not arrived",
        NUTS: "not to be trusted|sampled"}),
    *_each("ends of starts differ", clusters(5), MIXED, {
        probml.EM(restarts=20): r"the next is .* nats below"}, slow=True),
    *_each("too few steps", clusters(5), MIXED, {
        probml.EM(max_iterations=3): "iteration limit",
        probml.MAP(steps=2): "iteration limit"}, slow=True),
    *_each("too few steps of a guide", separated(scale=5.0), LINE, {
        probml.SVI(steps=5, optimizer=optax.sgd(1e-9)): "has not arrived",
        probml.SVI(steps=300, optimizer=optax.sgd(1e3)): "collapsed"}),
    *_each("a rate that is too high", separated(scale=5.0), LINE, {
        probml.MAP(optimizer=optax.sgd(30.0), steps=300): "wander|limit|collapsed"}),
]


def said(ending: Ending) -> tuple[str, str]:
    """(how it ended, what is said): status and warnings, or the refusal."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            fit = ending.model.fit(ending.data, ending.engine)
        except (probml.Refusal, probml.ModelError) as error:
            return "refused", str(error)
    ended = fit.outcome.name.lower().replace("_", " ")
    others = [str(one.message) for one in heard if fit.status not in str(one.message)]
    return ended + (", a warning" if heard else ""), "; ".join([fit.status, *others])


def table() -> str:
    """All of them as Markdown."""
    lines = ["# What is said of fits without a good end", "",
             "Made by `python tests/endings.py`; `tests/engines/test_endings.py` holds it.", "",
             "| what is wrong | engine | ended | what is said |", "|---|---|---|---|"]
    for ending in ENDINGS:
        how, words = said(ending)
        print(ending.why, type(ending.engine).__name__, how, words, sep=" | ", flush=True)
        shown = words if len(words) < 300 else words[:300].rpartition(" ")[0] + " …"
        name = repr(ending.engine).partition("(")[0]
        if not re.search(ending.says, words):
            shown = f"**nothing of it**: {shown}"
        lines.append(f"| {ending.why} | {name} | {how} | {shown.replace('|', chr(92) + '|')} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    place = Path(__file__).parents[1] / "benchmarks" / "endings.md"
    place.write_text(table())
    sys.exit(0)
