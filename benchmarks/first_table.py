"""The first answer: `first`. One table: each job with nothing kept on disk, with what another
process kept there, and on another shape in a process that has answered one; what importing,
reading the structure, tracing, lowering, compiling and running take of it; how many programs were
compiled; and the peer's time.

Each figure is the median of FIVE fresh processes, by the clock (`--quick`: of one, and two jobs): so
nothing else should run. `import` is what the script imports, JAX, NumPyro and pandas among it; the
others are of the answer; Python's own bytecode is there, as a user has it from his second start
on. `run` is what the same takes once more, on other data of that shape;
`structure` what is left: structure, plan, starts, checks, digests, files. The peers of chains and
networks are in the Python that PEERS names, all others in the environment.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from common_cases import tell

FIVE = 5
QUICK = ("naive Bayes", "asia query")
UNSET = ("JAX_COMPILATION_CACHE_DIR", "JAX_ENABLE_COMPILATION_CACHE", "PYTHONDONTWRITEBYTECODE")
STAGES = {"trace": "jaxpr_trace_duration", "lower": "jaxpr_to_mlir_module_duration",
          "compile": "backend_compile_duration"}
HEAD = ("job", "programs are", "import, s", "structure", "trace", "lower", "compile", "run",
        "answer, s", "programs", "of the processor, s", "peer's import, s", "peer's answer, s",
        "start to answer / peer's")
DATA = """
import csv, sys, time
began = time.perf_counter()
import numpy as np
def columns(name):
    with open(f"{sys.argv[1]}/{name}.csv") as file:
        return list(csv.DictReader(file))
iris, quakes = columns("iris"), columns("earthquakes")
X = np.array([list(row.values())[:4] for row in iris], float)
species = np.array([row["Species"] for row in iris])
counts = np.array([row["count"] for row in quakes], int)
"""
OURS = DATA + """
import jax, numpyro.distributions as dist, pandas as pd, probml
from numpyro import sample
jax.config.update("jax_enable_x64", True)
events = {}
def listen(event, seconds, **_):
    events.setdefault(event.rsplit("/", 1)[-1], []).append((time.perf_counter(), seconds))
jax.monitoring.register_event_duration_secs_listener(listen)
"""
MEASURED = """
imported = time.perf_counter() - began
def length(spans):  # of their union: an inner trace is part of the outer
    total, reach = 0.0, -1.0
    for start, end in sorted((end - seconds, end) for end, seconds in spans):
        total, reach = total + max(0.0, end - max(start, reach)), max(reach, end)
    return total
out = []
for job in (first, other):
    events.clear()
    seconds, processor = time.perf_counter(), time.process_time()
    job()
    seconds, processor = time.perf_counter() - seconds, time.process_time() - processor
    made = {key: length(spans) for key, spans in events.items()}
    count = len(events.get("backend_compile_duration", []))
    run = time.perf_counter()
    again() if job is first else other()
    out.append([imported, seconds, made, count, time.perf_counter() - run, processor])
print(json.dumps(out))
"""
PEERS = """
import json
imported = time.perf_counter() - began
began = time.perf_counter()
answer()
print(json.dumps([imported, time.perf_counter() - began]))
"""
# job → our code, which defines first, again (other data of that shape) and other (another shape);
# the peer's, which defines answer; whether PEERS has it
JOBS = {
    "iris mixture, k = 3, ten starts": ("""
from probml.models import GaussianMixture
first = lambda: GaussianMixture(3).fit(X).predict(X)
again = lambda: GaussianMixture(3).fit(X + 1.0).predict(X)
other = lambda: GaussianMixture(2).fit(X[:, :3]).predict(X[:, :3])
""", """
from sklearn.mixture import GaussianMixture
answer = lambda: GaussianMixture(3, n_init=10).fit(X).predict(X)
""", False),
    "naive Bayes": ("""
from probml.models import NaiveBayes
first = lambda: NaiveBayes().fit(X, species).predict_proba(X[:1])
again = lambda: NaiveBayes().fit(X + 1.0, species).predict_proba(X[:1])
other = lambda: NaiveBayes().fit(X[:, :3], species).predict_proba(X[:1, :3])
""", """
from sklearn.naive_bayes import GaussianNB
answer = lambda: GaussianNB().fit(X, species).predict_proba(X[:1])
""", False),
    "logistic regression": ("""
from probml.models import LogisticRegression
first = lambda: LogisticRegression().fit(X, species).predict_proba(X)
again = lambda: LogisticRegression().fit(X + 1.0, species).predict_proba(X)
other = lambda: LogisticRegression().fit(X[:, :3], species).predict_proba(X[:, :3])
""", """
from sklearn.linear_model import LogisticRegression
answer = lambda: LogisticRegression(max_iter=1000).fit(X, species).predict_proba(X)
""", False),
    "hidden Markov model, 107 counts": ("""
from probml.models import HiddenMarkov
fit = lambda k, x: HiddenMarkov(k, emission="poisson").fit(x).predict(x)
first, again, other = (lambda: fit(3, counts)), (lambda: fit(3, counts + 1)), (
    lambda: fit(2, counts[:60]))
""", """
from hmmlearn.hmm import PoissonHMM
x = counts[:, None]
answer = lambda: max((PoissonHMM(3, n_iter=1000, random_state=i).fit(x) for i in range(10)),
                     key=lambda m: m.score(x)).predict(x)
""", True),
    "asia query": ("""
from probml.models import read_bif
ask = lambda seen, site: read_bif(f"{sys.argv[1]}/asia.bif").predict_proba(
    pd.DataFrame({k: [v] for k, v in seen.items()}), site)
first, again = (lambda: ask({"dysp": "yes"}, "lung")), (lambda: ask({"dysp": "no"}, "lung"))
other = lambda: ask({"xray": "yes", "smoke": "no"}, "tub")
""", """
from pgmpy.inference import VariableElimination
from pgmpy.readwrite import BIFReader
answer = lambda: VariableElimination(BIFReader(f"{sys.argv[1]}/asia.bif").get_model()).query(
    ["lung"], evidence={"dysp": "yes"}, show_progress=False)
""", True),
    "alarm query": ("""
from probml.models import read_bif
ask = lambda seen, site: read_bif(f"{sys.argv[1]}/alarm.bif").predict_proba(
    pd.DataFrame({k: ["LOW"] for k in seen}), site)
first, again = (lambda: ask(["HR"], "LVFAILURE")), (lambda: ask(["CVP"], "LVFAILURE"))
other = lambda: ask(["CVP", "PAP"], "HYPOVOLEMIA")
""", """
from pgmpy.inference import VariableElimination
from pgmpy.readwrite import BIFReader
answer = lambda: VariableElimination(BIFReader(f"{sys.argv[1]}/alarm.bif").get_model()).query(
    ["LVFAILURE"], evidence={"HR": "LOW"}, show_progress=False)
""", True),
    "linear regression, exact": ("""
from probml.models import BayesianLinearRegression
fit = lambda x, y: BayesianLinearRegression().fit(x, y).predict(x)
first, again = (lambda: fit(X[:, :3], X[:, 3])), (lambda: fit(X[:, 1:], X[:, 0]))
other = lambda: fit(X[:, :2], X[:, 3])
""", """
from sklearn.linear_model import BayesianRidge
answer = lambda: BayesianRidge().fit(X[:, :3], X[:, 3]).predict(X[:, :3])
""", False),
    "NUTS, one covariate": ("""
def make():
    @probml.model
    def line(x):
        a, b = sample("a", dist.Normal(0, 5)), sample("b", dist.Normal(0, 5))
        s = sample("s", dist.HalfNormal(2.0))
        with probml.rows():
            sample("y", dist.StudentT(4.0, a + b * x, s))
    return line()
fitted = lambda x: make().fit({"x": x, "y": X[: len(x), 3]}, probml.NUTS(draws=300, warmup=300))
first, again = (lambda: fitted(X[:, 2])), (lambda: fitted(X[:, 1]))
other = lambda: fitted(X[:60, 0])
""", """
import jax, numpyro, numpyro.distributions as dist
from numpyro import sample
from numpyro.infer import MCMC, NUTS
jax.config.update("jax_enable_x64", True)
def line(x, y):
    a, b = sample("a", dist.Normal(0, 5)), sample("b", dist.Normal(0, 5))
    s = sample("s", dist.HalfNormal(2.0))
    with numpyro.plate("rows", len(x)):
        sample("y", dist.StudentT(4.0, a + b * x, s), obs=y)
def answer():
    mcmc = MCMC(NUTS(line), num_warmup=300, num_samples=300, num_chains=4,
                chain_method="vectorized", progress_bar=False)
    mcmc.run(jax.random.key(0), X[:, 2], X[:, 3])
    mcmc.get_samples()["a"].block_until_ready()
""", False),
}

# the default answer, a posterior, beside the mode with its standard errors; both end in a summary
MODELS = """
import jax, jax.numpy as jnp, numpyro.distributions as dist, probml
jax.config.update("jax_enable_x64", False)  # as users have it
from numpyro import sample
random = np.random.default_rng(0)
def plane(seen, d):
    @probml.model
    def of_rows(x):
        a = sample("a", dist.Normal(0.0, 5.0))
        b = sample("b", dist.Normal(0.0, 2.0).expand([d]).to_event(1))
        with probml.rows():
            sample("y", seen(a + x @ b))
    return of_rows
@probml.model
def line(x):
    a, b = sample("a", dist.Normal(0.0, 5.0)), sample("b", dist.Normal(0.0, 2.0))
    noise = sample("noise", dist.HalfNormal(2.0))
    with probml.rows():
        sample("y", dist.Normal(a + b * x, noise))
@probml.model
def schools(sigma):
    mu, tau = sample("mu", dist.Normal(0.0, 5.0)), sample("tau", dist.HalfCauchy(5.0))
    with probml.rows():
        theta = sample("theta", dist.Normal(mu, tau))
        sample("y", dist.Normal(theta, sigma))
@probml.model
def spline(B):
    a, noise = sample("a", dist.Normal(0.0, 5.0)), sample("noise", dist.HalfNormal(1.0))
    rough = sample("rough", dist.HalfNormal(1.0))
    w = sample("w", dist.Normal(0.0, rough).expand([12]).to_event(1))
    with probml.rows():
        sample("y", dist.Normal(a + B @ w, noise))
def rows(n, d, make):
    x = random.normal(size=(n, d))
    return {"x": x, "y": make(x @ np.linspace(-0.5, 0.5, d))}
logits = lambda eta: dist.Bernoulli(logits=eta)
coins = lambda eta: (random.logistic(size=len(eta)) < eta).astype(int)
counts = lambda eta: random.poisson(np.exp(eta))
def curve(n):
    x = np.sort(random.uniform(size=n))
    B = np.exp(-0.5 * ((x[:, None] - np.linspace(0, 1, 12)) / 0.08) ** 2)
    return {"B": B, "y": np.sin(6 * x) + 0.3 * random.normal(size=n)}
"""
POSTERIORS = {
    "logistic, 300 × 5": (
        "plane(logits, 5)()", "rows(300, 5, coins)", "plane(logits, 4)()", "rows(200, 4, coins)"),
    "five rows about a line": (
        "line()", "{'x': np.arange(5.0), 'y': np.array([1.0, 2.1, 2.9, 4.2, 4.8])}", "line()",
        "{'x': np.arange(6.0), 'y': np.array([1.0, 2.1, 2.9, 4.2, 4.8, 6.1])}"),
    "eight schools": (
        "schools()", "{'y': np.array([28.0, 8, -3, 7, -1, 1, 18, 12]), "
        "'sigma': np.array([15.0, 10, 16, 11, 9, 11, 10, 18])}", "schools()",
        "{'y': np.array([28.0, 8, -3, 7, -1, 1]), 'sigma': np.array([15.0, 10, 16, 11, 9, 11])}"),
    "spline of 12 functions, 100 rows": ("spline()", "curve(100)", "spline()", "curve(80)"),
    "Poisson, 12 parameters": (
        "plane(lambda eta: dist.Poisson(jnp.exp(eta)), 11)()", "rows(200, 11, counts)",
        "plane(lambda eta: dist.Poisson(jnp.exp(eta)), 10)()", "rows(150, 10, counts)"),
}
for _name, (_model, _data, _other, _rows) in POSTERIORS.items():
    JOBS[f"default posterior: {_name} (peer: MAP)"] = (f"""{MODELS}
model, data, smaller, less = {_model}, {_data}, {_other}, {_rows}
first = again = lambda: model.fit(data).summary()
other = lambda: smaller.fit(less).summary()
""", f"""{MODELS}
model, data = {_model}, {_data}
answer = lambda: model.fit(data, probml.MAP()).summary()
""", False)


def asked(code: str, environment: dict, data: str, python: str = sys.executable) -> list:
    """What a process of its own prints.

    Raises:
        RuntimeError: with the last of what it said, where it failed.
    """
    done = subprocess.run([python, "-W", "ignore", "-c", code, data], env=environment,
                          capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1][:200])
    return json.loads(done.stdout.strip().splitlines()[-1])


def medians(runs: list[list]) -> dict[str, float]:
    """Of each figure of some processes."""
    found = []
    for imported, seconds, made, count, run, processor in runs:
        stages = {stage: made.get(event, 0.0) for stage, event in STAGES.items()}
        structure = max(seconds - sum(stages.values()) - run, 0.0)
        found.append({"import": imported, "structure": structure, **stages, "run": run,
                      "answer": seconds, "programs": count, "processor": processor})
    return {key: statistics.median(each[key] for each in found) for key in found[0]}


def job_rows(name: str, turns: int, data: str, bytecode: str) -> Iterator[list[str]]:
    """The three rows of a job, peers and kept programs in turn.

    Args:
        bytecode: a folder for what Python compiles, which a first process fills.
    """
    ours, peers, apart = JOBS[name]
    code, peer = OURS + "import json\n" + ours + MEASURED, DATA + peers + PEERS
    python = os.environ.get("PEERS") if apart else sys.executable
    base = {k: v for k, v in os.environ.items() if k not in UNSET} | {"PYTHONPYCACHEPREFIX": bytecode}
    asked(code, base, data)
    cold, kept, others = [], [], []
    for _ in range(turns):
        with tempfile.TemporaryDirectory() as folder:
            here = base | {"PROBML_CACHE": folder}
            cold.append(asked(code, here, data))
            kept.append(asked(code, here, data))
        if python:
            others.append(asked(peer, base, data, python))
    theirs = [statistics.median(column) for column in zip(*others, strict=True)]
    for state, runs in (("nothing kept", [run[0] for run in cold]),
                        ("kept on disk", [run[0] for run in kept]),
                        ("another shape", [run[1] for run in cold])):
        found = medians(runs)
        ratio = ((found["import"] + found["answer"]) / sum(theirs)
                 if theirs and state != "another shape" else None)
        numbers = [*(found[key] for key in ("import", "structure", *STAGES, "run", "answer")),
                   found["programs"], found["processor"], *(theirs or [None, None]), ratio]
        yield [name, state, *("" if n is None else f"{n:.0f}" if i == 7 else f"{n:.3f}"
                              if n < 0.1 else f"{n:.2f}" for i, n in enumerate(numbers))]


def first(dtype, quick):
    """The head of the table, then its rows."""
    yield {"head": list(HEAD), "note": ""}
    data = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "data")
    with tempfile.TemporaryDirectory() as bytecode:
        for name in QUICK if quick else JOBS:
            try:
                for cells in job_rows(name, 1 if quick else FIVE, data, bytecode):
                    yield {"cells": cells, "note": ""}
            except RuntimeError as error:
                yield {"cells": [name, f"FAILED: {error}"], "note": "FAILED"}


CASES = {"first": first}

if __name__ == "__main__":
    tell(CASES)
