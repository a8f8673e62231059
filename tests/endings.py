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


# Ten more


@probml.model
def zeros():
    """Counts of nothing: the rate goes to 0."""
    log_rate = sample("log_rate", FLAT)
    with probml.rows():
        sample("y", dist.Poisson(jnp.exp(log_rate)))


@probml.model
def own(member):
    """One observation a parameter: the spread goes to 0."""
    at, spread = sample("at", FLAT.expand([6]).to_event(1)), sample("spread", dist.HalfNormal(9.0))
    with probml.rows():
        sample("y", dist.Normal(at[member], spread))


@probml.model
def product():
    """A ridge that is bent: only a b is told."""
    a, b = sample("a", FLAT), sample("b", FLAT)
    with probml.rows():
        sample("y", dist.Normal(a * b, 1.0))


@probml.model
def spreads():
    """A ridge: only a² + b² is told."""
    a, b = sample("a", dist.HalfNormal(1e3)), sample("b", dist.HalfNormal(1e3))
    with probml.rows():
        sample("y", dist.Normal(0.0, jnp.sqrt(a**2 + b**2)))


@probml.model
def alike():
    """Rows that are all alike: the concentration goes to infinity."""
    mean = sample("mean", dist.LogNormal(0.0, 3.0))
    shape = sample("shape", dist.ImproperUniform(dist.constraints.positive, (), ()))
    with probml.rows():
        sample("y", dist.Gamma(shape, shape / mean))


@probml.model
def degrees():
    """Tails lighter than a normal's: the degrees of freedom go to infinity."""
    free = sample("free", dist.ImproperUniform(dist.constraints.positive, (), ()))
    with probml.rows():
        sample("y", dist.StudentT(free, 0.0, 1.0))


@probml.model
def apart():
    """Two rows far apart under heavy tails: a maximum at each."""
    at = sample("at", dist.Normal(0.0, 100.0))
    with probml.rows():
        sample("y", dist.Cauchy(at, 1.0))


@probml.model
def waves():
    """As many maxima as turns."""
    turn = sample("turn", dist.Normal(0.0, 20.0))
    with probml.rows():
        sample("y", dist.Normal(jnp.cos(turn), 0.1))


@probml.model
def choices(x):
    """Three classes of which one is separated from the others."""
    slope = sample("slope", FLAT.expand([2]).to_event(1))
    with probml.rows():
        sample("y", dist.Categorical(logits=jnp.concatenate(
            [jnp.zeros_like(x[:, None]), x[:, None] * slope], -1)))


@probml.model
def once():
    """A chain of one step: nothing tells how it moves."""
    initial = sample("initial", dist.Dirichlet(jnp.ones(2)))
    with plate("before", 2):
        moves = sample("moves", dist.Dirichlet(jnp.ones(2)))
        rate = sample("rate", dist.Gamma(2.0, 1.0))
    with probml.rows():
        z = sample("z", probml.MarkovChain(initial, moves))
        sample("y", dist.Poisson(rate[z]).to_event(1))


RANDOM = np.random.default_rng(0)
X = np.arange(-4.0, 4.0) + 0.5
LINE = {"x": X, "y": (X > 0).astype(int)}
TWINS = {"x": np.r_[np.repeat(1.0, 4), RANDOM.normal(5.0, 1.0, 8)]}
SAME, NINE = {"x": np.full(8, 3.0)}, {"y": np.full(6, 9.0) + 0.1 * RANDOM.normal(size=6)}
ZERO = {"y": np.zeros(4)}
MIXED = {"x": np.concatenate([RANDOM.normal(m, 1.0, 30) for m in (-4.0, 0.0, 3.0, 8.0, 12.0)])}
NUTS = probml.NUTS(draws=200, warmup=200, chains=2)
ALIKE, LIGHT = {"y": np.full(7, 2.0)}, {"y": np.linspace(-1.0, 1.0, 9)}
FAR, TURNS = {"y": np.array([-20.0, 20.0])}, {"y": np.full(5, 0.3)}
NONE, MEMBERS = {"y": np.zeros(9, int)}, {"y": RANDOM.normal(size=6), "member": np.arange(6)}
THREE = {"x": X, "y": np.array([0, 1, 0, 1, 2, 2, 2, 2])}
TWO = {"x": np.concatenate([RANDOM.normal(m, 0.5, 20) for m in (-5.0, 5.0)])}
SHORT = {"y": RANDOM.poisson(3.0, (12, 1))}


class Ending(NamedTuple):
    """A fit, and what is found about it.

    Args:
        why: what is wrong with it. says: the codes of findings of which one is there, how it ended,
            or a word of its refusal, with | between them.
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
FAR_OFF = ("k-hat|few-effective-draws|long-tail|heavy-tail|wider-pos"
           "terior|approximation-far")
NO_MAXIMUM = "separation|limit|scale-to-zero"
ENDINGS = [
    *_each("no maximum: separated classes, a flat prior", separated(), LINE, {
        probml.MAP(): "separation", probml.MAP(**ML): "separation", probml.Laplace(): "improper|no-mode",
        probml.SVI(steps=300): "improper",
        NUTS: "improper|doubtful"}),
    *_each("no maximum: a component on a row", clusters(), TWINS, {
        probml.EM(**ML): "restarts", probml.MAP(**ML): f"{NO_MAXIMUM}|no-ascent"}),
    *_each("no maximum: rows all alike", constant(), SAME, {
        probml.MAP(**ML): NO_MAXIMUM, probml.EM(**ML): "collapsed"}),
    *_each("a flat direction: only a + b is told", sums(), NINE, {
        probml.MAP(): "not-identified",
        probml.Laplace(): "improper", probml.SVI(steps=300): "improper", NUTS: "improper"}),
    *_each("two modes, ±3", twofold(), NINE, {
        probml.Laplace(): "modes-combined", probml.SVI(steps=300): "several-modes",
        probml.MAP(): "several-optima",
        NUTS: "doubtful"}),
    *_each("tails without a mean", heavy(), ZERO, {
        probml.Laplace(): FAR_OFF, probml.SVI(steps=300): FAR_OFF,
        NUTS: "doubtful|sampled"}),
    *_each("a funnel", funnel(), ZERO, {
        probml.Laplace(): f"weights-pass|{FAR_OFF}",
        probml.SVI(steps=300): f"{FAR_OFF}",
        NUTS: "doubtful|sampled"}),
    *_each("ends of starts differ", clusters(5), MIXED, {
        probml.EM(restarts=20): "restarts"}, slow=True),
    *_each("too few steps", clusters(5), MIXED, {
        probml.EM(max_iterations=3): "max-iterations",
        probml.MAP(steps=2): "max-iterations"}, slow=True),
    *_each("too large steps of a guide", separated(scale=5.0), LINE, {
        probml.SVI(steps=300, optimizer=optax.sgd(1e3)): "collapsed"}),
    *_each("a rate that is too high", separated(scale=5.0), LINE, {
        probml.MAP(optimizer=optax.sgd(30.0), steps=300): "steps-too-large|max-iterations|collapsed"}),
    *_each("no maximum: counts of nothing", zeros(), NONE, {probml.MAP(): NO_MAXIMUM}),
    *_each("no maximum: counts of nothing", zeros(), NONE, {
        probml.Laplace(): "improper",
        probml.SVI(steps=300): "improper|collapsed", NUTS: "improper|doubtful"}, slow=True),
    *_each("no maximum: one observation a parameter", own(), MEMBERS, {
        probml.MAP(): NO_MAXIMUM, probml.Laplace(): f"{NO_MAXIMUM}|no-mode|improper",
        probml.SVI(steps=300): f"improper|{FAR_OFF}",
        NUTS: "improper|doubtful"}, slow=True),
    *_each("a bent ridge: only a times b is told", product(), NINE, {
        probml.MAP(): "not-identified|no-information", probml.Laplace(): f"improper|{FAR_OFF}",
        probml.SVI(steps=300): f"improper|{FAR_OFF}", NUTS: "improper|doubtful"}, slow=True),
    *_each("a ridge of two spreads", spreads(), NINE, {
        probml.MAP(prior=False): "not-identified|no-information",
        probml.Laplace(): f"weights-pass|{FAR_OFF}",
        probml.SVI(steps=300): f"{FAR_OFF}",
        NUTS: "doubtful|sampled"}, slow=True),
    *_each("no maximum: rows alike, a shape", alike(), ALIKE, {
        probml.MAP(): f"{NO_MAXIMUM}|no-ascent",
        probml.Laplace(): f"no mode .maximum. of the posterior|improper|{FAR_OFF}",
        probml.SVI(steps=300): f"improper|{FAR_OFF}",
        NUTS: "improper|doubtful"}, slow=True),
    *_each("no maximum: tails lighter than all", degrees(), LIGHT, {probml.MAP(): NO_MAXIMUM}),
    *_each("no maximum: tails lighter than all", degrees(), LIGHT, {
        probml.Laplace(): f"no mode .maximum. of the posterior|improper|{FAR_OFF}",
        probml.SVI(steps=300): f"improper|{FAR_OFF}",
        NUTS: "improper|doubtful"}, slow=True),
    *_each("two rows far apart, heavy tails", apart(), FAR, {probml.MAP(): "several-optima"}),
    *_each("two rows far apart, heavy tails", apart(), FAR, {
        probml.Laplace(): f"modes-combined|{FAR_OFF}|no-mode",
        probml.SVI(steps=300): f"several-modes|{FAR_OFF}",
        NUTS: "doubtful"}, slow=True),
    *_each("as many maxima as turns", waves(), TURNS, {
        probml.MAP(): "several-optima", probml.Laplace(): f"modes-combined|{FAR_OFF}|no-mode",
        probml.SVI(steps=300): f"several-modes|{FAR_OFF}",
        NUTS: "doubtful"}, slow=True),
    *_each("separated: one class of three", choices(), THREE, {
        probml.MAP(): "separation", probml.Laplace(): "improper",
        probml.SVI(steps=300): "improper|collapsed",
        NUTS: "improper|doubtful"}, slow=True),
    *_each("components without rows", clusters(6), TWO, {
        probml.EM(**ML): "collapsed|restarts",
        NUTS: "doubtful|relabelled"}, slow=True),
    *_each("a chain of one step", once(), SHORT, {
        engine: "no-information" for engine in (probml.MAP(**ML), probml.EM(**ML))}),
    *_each("a chain of one step", once(), SHORT, {
        NUTS: "sampled"}, slow=True),
]


def said(ending: Ending) -> tuple[str, str]:
    """(how it ended, what was found): "converged", "refused" …; the codes of findings, and what was
    refused in words."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            fit = ending.model.fit(ending.data, ending.engine)
        except (probml.Refusal, probml.ModelError) as error:
            return "refused", str(error)
    issued = {str(one.message).rpartition("[")[2].rstrip("]") for one in heard}
    assert {found.code.value for found in fit.warnings} <= issued
    return (fit.outcome.name.lower().replace("_", " "),
            " ".join(found.code.value for found in fit.findings))


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
        if not re.search(ending.says, f"{how} {words}"):
            shown = f"**nothing of it**: {shown}"
        lines.append(f"| {ending.why} | {name} | {how} | {shown.replace('|', chr(92) + '|')} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    place = Path(__file__).parents[1] / "benchmarks" / "endings.md"
    place.write_text(table())
    sys.exit(0)
