"""Where a user could wait for minutes or memory could end: large networks, wide tables, many levels.

Each case runs in a process of its own with a limit of seconds and of memory; its row has the seconds
of processor, the peak of memory, and the answer, a refusal, or that a limit was met. `NETWORKS=folder`
names BIF files, such as those of pgmpy's examples (pgmpy/utils/example_models); where `PEERS` or this
Python has pyAgrum, marginals are compared with its. `--only WORD` takes the cases that have the word.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from importlib import resources
from pathlib import Path

import numpy as np

SECONDS, MEMORY = int(os.environ.get("LIMIT", 120)), 6 * 2**30
HEAD = ("case", "processor, s", "wall, s", "peak, MB", "result")

MARGINALS = """
import gzip, json, sys
import pyagrum
path = sys.argv[1]
text = gzip.open(path, "rt").read() if path.endswith(".gz") else open(path).read()
open(sys.argv[2], "w").write(text)
net = pyagrum.loadBN(sys.argv[2])
engine = pyagrum.LazyPropagation(net)
found = {}
for name in json.loads(sys.argv[3]):
    engine.setTargets({name})
    variable = net.variable(name)
    labels = [variable.label(i) for i in range(variable.domainSize())]
    found[name] = dict(zip(labels, engine.posterior(name).tolist()))
print(json.dumps(found))
"""


def network(path: str, every: bool) -> str:
    """Three marginals of a network, of the nodes with the most ancestors, or those of all nodes."""
    import networkx as nx

    from probml.models import read_bif

    fit = read_bif(path)
    graph = fit.model.graph
    asked = sorted(graph, key=lambda node: len(nx.ancestors(graph, node)))[-3:]
    if every:
        found = fit.predict_proba({asked[0]: [None]}, list(graph))
        return f"{len(graph)} nodes, sums to one within {_off(found):.0e}"
    found = {}
    for name in asked:
        other = next(node for node in graph if node != name)
        found |= fit.predict_proba({other: [None]}, [name])
    theirs = _peer(path, asked)
    if theirs is None:
        return f"{len(graph)} nodes, sums to one within {_off(found):.0e}; peer not installed"
    worst = max(abs(found[name][0][fit.labels(name).index(label)] - value)
                for name in asked for label, value in theirs[name].items())
    return f"{len(graph)} nodes, pyAgrum's within {worst:.0e}"


def _off(found: dict) -> float:
    return max(abs(float(table[0].sum()) - 1) for table in found.values())


def _peer(path: str, names: list[str]) -> dict | None:
    import tempfile

    with tempfile.NamedTemporaryFile(suffix=".bif") as copy:
        done = subprocess.run([os.environ.get("PEERS", sys.executable), "-c", MARGINALS, path,
                               copy.name, json.dumps(names)], capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else None


def naive_bayes(columns: int, kind: str = "normal") -> str:
    """Two classes that differ in a hundredth of the columns."""
    from probml.models import NaiveBayes

    random = np.random.default_rng(0)
    y = np.arange(200) % 2
    x = random.normal(size=(200, columns))
    x[:, : max(columns // 100, 1)] += y[:, None]
    fit = NaiveBayes().fit(x[:100], y[:100])
    return f"accuracy {np.mean(fit.predict(x[100:]) == y[100:]):.2f}"


def wide(columns: int, estimator: str, rows: int = 300, missing: float = 0.0) -> str:
    import probml.models as models

    random = np.random.default_rng(0)
    z = random.normal(size=(rows, 3))
    x = z @ random.normal(size=(3, columns)) + random.normal(size=(rows, columns))
    y = z[:, 0] > 0
    x[random.random(x.shape) < missing] = np.nan
    if "discriminant" in estimator:
        kinds = {"discriminant": models.GaussianDiscriminant,
                 "mixture discriminant": models.MixtureDiscriminant}
        fit = kinds[estimator]().fit(x[:-200], y[:-200])
        return f"accuracy {np.mean(fit.predict(x[-200:]) == y[-200:]):.2f}"
    if estimator not in ("logistic", "boosted"):
        kinds = {"PCA": models.ProbabilisticPCA, "factor analysis": models.FactorAnalysis}
        fit = kinds[estimator](3).fit(x)
        return f"noise {np.mean(fit.noise_variance_):.3f}, true 1"
    fit = (models.LogisticRegression() if estimator == "logistic" else
           models.Boosted("bernoulli")).fit(x[:200], y[:200])
    return f"accuracy {np.mean((fit.predict(x[200:]) > 0.5) == y[200:]):.2f}"


def crossed(rows: int, ones: int, twos: int) -> str:
    """A linear mixed model with two crossed groupings."""
    from mixed_cases import crossed as model

    fit = model(rows, ones, twos)()
    return f"sd {np.round(fit.params['spread'], 2)}, true (2, 1)"


def grouped_counts(rows: int, groups: int) -> str:
    """Poisson regression with a random intercept, by the engine that the default chooses."""
    import jax.numpy as jnp
    import numpyro.distributions as dist
    from numpyro import plate, sample

    import probml

    @probml.model
    def counts(group, x):
        level, slope = sample("level", dist.Normal(0, 5)), sample("slope", dist.Normal(0, 2))
        sd = sample("sd", dist.HalfNormal(2))
        with plate("groups", groups):
            own = sample("own", dist.Normal(0, sd))
        with probml.rows():
            sample("y", dist.Poisson(jnp.exp(level + slope * x + own[group])))

    random = np.random.default_rng(0)
    group, x = random.integers(0, groups, rows), random.normal(size=rows)
    y = random.poisson(np.exp(0.5 + 0.3 * x + 0.7 * random.normal(size=groups)[group]))
    found = counts().fit({"group": group, "x": x, "y": y}).params
    return f"sd {found['sd']:.3f}, true 0.7; slope {found['slope']:.3f}, true 0.3"


def structural(**settings) -> str:
    """114 steps of a second-order autoregression with seasons."""
    from probml.models import StructuralTimeSeries

    random, y = np.random.default_rng(0), np.zeros(114)
    for i in range(2, 114):
        y[i] = 1.2 * y[i - 1] - 0.5 * y[i - 2] + random.normal()
    y += 5 + np.sin(np.arange(114) * 2 * np.pi / 11)
    fit = StructuralTimeSeries(**settings).fit(y)
    return f"log-likelihood {fit.loglik_:.2f}"


def gaussian_process(rows: int) -> str:
    from probml.models import GaussianProcess

    random = np.random.default_rng(0)
    x = random.uniform(0, 10, (rows, 2))
    y = np.sin(x[:, 0]) + 0.1 * random.normal(size=rows)
    fit = GaussianProcess().fit(x, y)
    return f"rmse {np.sqrt(np.mean((fit.predict(x) - np.sin(x[:, 0])) ** 2)):.3f}"


def double_column(rows: int) -> str:
    """Restricted maximum likelihood with a column that is there twice."""
    import pandas as pd

    from probml.models import MixedModel

    random = np.random.default_rng(0)
    x, g = random.normal(size=rows), np.arange(rows) % 50
    MixedModel({"g": ["1"]}).fit(pd.DataFrame({"x": x, "twice": x, "g": g}),
                                 x + random.normal(size=50)[g] + random.normal(size=rows))
    return "not refused"


def moved_states(rows: int) -> str:
    """A hidden Markov model of two states whose transitions depend on a covariate."""
    import jax
    import jax.numpy as jnp
    import numpyro.distributions as dist
    from numpyro import sample

    import probml

    @probml.model
    def moved(x):
        slope = sample("slope", dist.Normal(0.0, 3.0).expand([2]).to_event(1))
        with probml.rows():
            up = jax.nn.sigmoid(slope * x[..., None])
            z = sample("z", probml.MarkovChain(jnp.ones(2) / 2, jnp.stack([1 - up, up], -1),
                                               inhomogeneous=True))
            sample("y", dist.Normal(jnp.array([-2.0, 2.0])[z], 1.0).to_event(1))

    x = np.random.default_rng(0).normal(size=(rows, 60))
    y = moved().at({"slope": np.array([2.0, -1.0])}).simulate(x=x, seed=5)["y"]
    return f"slopes {np.round(moved().fit({'x': x, 'y': y}).params['slope'], 1)}, true (2, -1)"


def lines(rows: int, columns: int) -> str:
    """A mixture of three Poisson regressions, by the engine that the default chooses."""
    import jax.numpy as jnp
    import numpyro.distributions as dist
    from numpyro import sample

    import probml

    @probml.model
    def mixture(x):
        weights = sample("weights", dist.Dirichlet(jnp.ones(3)))
        slopes = sample("slopes", dist.Normal(0.0, 2.0).expand([3, columns]).to_event(2))
        with probml.rows():
            z = sample("z", dist.Categorical(weights))
            sample("y", dist.Poisson(jnp.exp(jnp.clip((slopes[z] * x).sum(-1), -20, 20))))

    random = np.random.default_rng(0)
    x, z = random.normal(size=(rows, columns)), random.integers(3, size=rows)
    slopes = 0.6 * random.normal(size=(3, columns))
    y = random.poisson(np.exp((slopes[z] * x).sum(1)))
    return mixture().fit({"x": x, "y": y}).status[:60]


def items(people: int, questions: int) -> str:
    from probml.models import ItemResponse

    random = np.random.default_rng(0)
    ability, hard = random.normal(size=(people, 1)), random.normal(size=questions)
    y = random.random((people, questions)) < 1 / (1 + np.exp(hard - ability))
    fit = ItemResponse().fit(y.astype(int))
    return f"difficulties correlate {np.corrcoef(fit.difficulty_, hard)[0, 1]:.3f}"


def topics(documents: int) -> str:
    from probml.models import TopicModel

    random = np.random.default_rng(0)
    words = random.dirichlet(np.full(500, 0.05), 5)
    mix = random.dirichlet(np.full(5, 0.2), documents)
    counts = np.stack([random.multinomial(100, p) for p in mix @ words])
    fit = TopicModel(5).fit(counts)
    return f"{type(fit).__name__} of {counts.shape}"


def symbols(steps: int) -> str:
    """A hidden Markov model of codes of which nearly each occurs once."""
    from probml.models import HiddenMarkov

    codes = np.random.default_rng(0).integers(0, 10**6, size=steps)
    fit = HiddenMarkov(2, emission="categorical", n_init=1).fit(codes)
    return f"{len(np.unique(codes)):,} symbols, {fit.n_iter_} iterations"


def row_draws(rows: int, count: int) -> str:
    """Draws of one latent number a row under counts, a fifth of them missing, and of the parameters."""
    import jax.numpy as jnp
    import numpyro.distributions as dist
    from numpyro import sample

    import probml

    @probml.model
    def counts():
        level = sample("level", dist.Normal(0, 1))
        sd = sample("sd", dist.HalfNormal(1))
        with probml.rows():
            z = sample("z", dist.Normal(0, 1))
            sample("y", dist.Poisson(jnp.exp(level + sd * z)[..., None] * jnp.ones(4)).to_event(1))

    random = np.random.default_rng(0)
    y = random.poisson(np.exp(0.5 + 0.7 * random.normal(size=(rows, 1))), (rows, 4)).astype(float)
    fit = counts().fit({"y": np.where(random.random(y.shape) < 0.2, np.nan, y)}, probml.Laplace())
    start = time.process_time()
    sd = fit.draws(count)["z"].std(0).mean()
    spent = time.process_time() - start
    return f"{1e6 * spent / count / rows:.0f} µs of processor a draw of a row; mean sd {sd:.2f}"


def one_row(name: str) -> str:
    """p50 and p99 of a request of one row, then batches of changing size."""
    import probml.models as models

    random = np.random.default_rng(0)
    x = random.normal(size=(300, 4)) + 3 * (np.arange(300) % 3)[:, None]
    y = np.arange(300) % 3
    made = {"GaussianMixture": lambda: models.GaussianMixture(3),
            "ProbabilisticPCA": lambda: models.ProbabilisticPCA(2), "FactorAnalysis": lambda: models.FactorAnalysis(2)}
    estimator = made.get(name, getattr(models, name))()
    estimator.fit(x, x[:, 0] + y if name == "BayesianLinearRegression" else y)
    ask = getattr(estimator, "predict", None) or estimator.transform
    for size in (1, 2):
        ask(x[:size])
    spent = []
    for i in range(300):
        start = time.perf_counter()
        ask(x[i : i + 1])
        spent.append(1e3 * (time.perf_counter() - start))
    begin = time.perf_counter()
    for size in range(3, 64):
        ask(x[:size])
    batches = 1e3 * (time.perf_counter() - begin) / 61
    return (f"p50 {np.percentile(spent, 50):.2f} ms, p99 {np.percentile(spent, 99):.2f} ms; batches "
            f"of 3 to 63 rows {batches:.2f} ms each")


def cases(quick: bool) -> dict:
    """Name → (function, arguments)."""
    folder = os.environ.get("NETWORKS")
    files = (sorted(str(path) for path in Path(folder).glob("*.bif*")) if folder
             else [str(resources.files("probml.data") / "alarm.bif")])
    out = {}
    for path in files:
        stem = Path(path).name.split(".")[0]
        out[f"network {stem}, three marginals"] = (network, [path, False])
        out[f"network {stem}, all marginals"] = (network, [path, True])
    some = 10 if quick else 1
    for columns in (10_000 // some, 100_000 // some):
        out[f"naive Bayes of {columns:,} columns"] = (naive_bayes, [columns])
    for name in ("PCA", "logistic"):
        out[f"{name} of {10_000 // some:,} columns"] = (wide, [10_000 // some, name])
    for name in ("PCA", "factor analysis"):
        out[f"{name} of 1,000 rows × {10_000 // some:,} columns"] = (
            wide, [10_000 // some, name, 1_000])
    out[f"PCA of {10_000 // some:,} columns, a twentieth missing"] = (
        wide, [10_000 // some, "PCA", 300, 0.05])
    for rows, ones, twos in ((73_421, 2_972, 1_128), (10**6, 10**5, 10**3)):
        out[f"crossed effects, {rows // some:,} rows, {ones // some:,} + {twos // some:,} levels"] = (
            crossed, [rows // some, ones // some, twos // some])
    out["structural time series, AR(11), 114 steps"] = (structural, {"trend": "still", "order": 11})
    out["structural time series, seasonal of eleven"] = (structural, {"seasonal": 11})
    for rows in (1_001, 2_000, 5_000 // some, 20_000 // some, 50_000 // some):
        out[f"Gaussian process of {rows:,} rows"] = (gaussian_process, [rows])
    out["restricted likelihood of a column that is there twice"] = (double_column, [2_000])
    out["hidden Markov model, transitions by a covariate"] = (moved_states, [40])
    out[f"mixture of regressions, {50_000 // some:,} × 10"] = (lines, [50_000 // some, 10])
    out["normal classes of 1,000 columns"] = (wide, [1_000, "discriminant"])
    for columns in (1_000 // some, 10_000 // some):
        out[f"mixture discriminant of 1,000 rows × {columns:,} columns"] = (
            wide, [columns, "mixture discriminant", 1_000])
    out[f"boosted trees of {10_000 // some:,} columns"] = (wide, [10_000 // some, "boosted"])
    for rows in (10**4, 10**6, 10**7):
        out[f"counts of 1,000 groups, {rows // some:,} rows"] = (grouped_counts,
                                                                [rows // some, 1_000])
    out[f"item response, {50_000 // some:,} × 100"] = (items, [50_000 // some, 100])
    out[f"hidden Markov model of {20_000 // some:,} codes below 10^6"] = (symbols, [20_000 // some])
    out[f"topics of {10_000 // some:,} documents"] = (topics, [10_000 // some])
    out[f"{4_000 // some:,} draws of a number of each of 60 rows"] = (row_draws, [60, 4_000 // some])
    for name in ("GaussianMixture", "NaiveBayes", "LogisticRegression", "BayesianLinearRegression", "ProbabilisticPCA",
                 "FactorAnalysis"):
        out[f"one row a request, {name}"] = (one_row, [name])
    return out


def alone(name: str, quick: bool) -> None:
    """One case, in this process."""
    from probml import DataError, ModelError

    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    function, arguments = cases(quick)[name]
    start = time.perf_counter()
    try:
        found = function(**arguments) if isinstance(arguments, dict) else function(*arguments)
    except (DataError, ModelError) as error:
        found = f"refused: {error}"
    except MemoryError:
        found = f"memory above {MEMORY / 2**30:.0f} GB"
    wall, used = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps([name, f"{used.ru_utime + used.ru_stime:.1f}", f"{wall:.1f}",
                      f"{used.ru_maxrss / 1024:.0f}", found]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("case")
    parser.add_argument("precision")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="+", default=[])
    parser.add_argument("--alone")
    chosen = parser.parse_args()
    if chosen.alone:
        return alone(chosen.alone, chosen.quick)
    print(json.dumps({"case": "cliffs", "note": "", "head": HEAD}), flush=True)
    for name in cases(chosen.quick):
        if chosen.only and not any(word in name for word in chosen.only):
            continue
        command = [sys.executable, __file__, "cliffs", chosen.precision, "--alone", name]
        try:
            done = subprocess.run([*command, *["--quick"] * chosen.quick], capture_output=True,
                                  text=True, timeout=SECONDS)
            cells = (json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else
                     [name, "", "", "", f"FAILED: {(done.stderr.splitlines() or ['killed'])[-1]}"])
        except subprocess.TimeoutExpired:
            cells = [name, "", f"> {SECONDS}", "", "no answer"]
        print(json.dumps({"case": name, "note": cells[-1], "cells": cells}), flush=True)
    return None


CASES = {"cliffs": main}


if __name__ == "__main__":
    main()
