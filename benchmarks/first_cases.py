"""The first answer: `first`. How many programs a first fit and its questions compile, and what
tracing, lowering and compiling them take; each job in a fresh process, with nothing kept on disk;
and then in another, which finds the programs of one before it there. And `process`: from process
start to the answer, imports included, beside scikit-learn's.

cold: seconds of processor from after the imports to the answer. warm: the same once more in that
process, on other data of the same shape. quality: the number of programs of the first answer. The
note tells the programs of later questions, and the seconds of tracing, lowering and compiling
(which count what waits for other work on the machine). Counts do not depend on the machine's load.
"""

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from importlib.resources import as_file, files

from common_cases import row, tell

HEAD = """
import json, time, warnings
warnings.simplefilter("ignore")
import jax
import numpy as np, pandas as pd, numpyro.distributions as dist
from numpyro import sample
from importlib.resources import files
import probml
spent, programs = {}, []
def listen(event, seconds, **more):
    key = event.rsplit("/", 1)[-1]
    spent[key] = spent.get(key, 0.0) + seconds
    programs.extend([more.get("fun_name", "?")] * (key == "backend_compile_duration"))
jax.monitoring.register_event_duration_secs_listener(listen)
iris = pd.read_csv(files("probml.data") / "iris.csv")
X, species = iris.iloc[:, :4].to_numpy(), iris["Species"].to_numpy(object)
"""
TAIL = """
out = []
for job in (first, again, later):
    spent.clear(), programs.clear()
    began = time.process_time()
    job()
    out.append([time.process_time() - began, len(programs), dict(spent)])
print(json.dumps(out))
"""
# job -> what defines `first` and `again`, which do the same on other data, and `later`, what other
# questions there are
JOBS = {
    "iris mixture, k = 3": """
from probml.models import GaussianMixture
first = lambda: GaussianMixture(3).fit(X).predict(X)
again = lambda: GaussianMixture(3).fit(X + 1.0).predict(X)
fit = GaussianMixture(3)
later = lambda: (fit.fit(X).predict_proba(X), fit.score_samples(X[:10]))
""",
    "naive Bayes": """
from probml.models import NaiveBayes
holes = X[:10].copy()
holes[np.arange(10), np.arange(10) % 4] = np.nan
fit = NaiveBayes()
first = lambda: fit.fit(X, species).predict_proba(X[:1])
again = lambda: fit.fit(X + 1.0, species).predict_proba(X[:1])
later = lambda: [fit.predict_proba(x) for x in (X[:3], X[:50], *holes[:, None])]
""",
    "logistic regression": """
from probml.models import LogisticRegression
first = lambda: LogisticRegression().fit(X, species).predict_proba(X)
again = lambda: LogisticRegression().fit(X + 1.0, species).predict_proba(X)
later = lambda: LogisticRegression().fit(X, species).predict(X[:10])
""",
    "hidden Markov model": """
from probml.models import HiddenMarkov
quakes = pd.read_csv(files("probml.data") / "earthquakes.csv")["count"].to_numpy()
face = HiddenMarkov(3, emission="poisson")
first = lambda: face.fit(quakes).predict(quakes)
again = lambda: face.fit(quakes + 1).predict(quakes)
later = lambda: [face.predict(quakes[:n]) for n in (90, 70, 66)]
""",
    "alarm query": """
from probml.models import read_bif
alarm = read_bif(files("probml.data") / "alarm.bif")
ask = lambda a, b: alarm.predict_proba(pd.DataFrame({a: ["LOW"]}), b)
first, again = lambda: ask("HR", "LVFAILURE"), lambda: ask("CVP", "LVFAILURE")
later = lambda: [ask("CVP", "HYPOVOLEMIA"), ask("PAP", "LVFAILURE")]
""",
    "linear regression, exact": """
from probml.models import BayesianLinearRegression
first = lambda: BayesianLinearRegression().fit(X[:, :3], X[:, 3]).predict(X[:, :3])
again = lambda: BayesianLinearRegression().fit(X[:, 1:], X[:, 0]).predict(X[:, 1:])
later = lambda: BayesianLinearRegression().fit(X[:, :3], X[:, 3]).predict(X[:10, :3])
""",
    "NUTS, one covariate": """
def make():
    @probml.model
    def line(x):
        a, b = sample("a", dist.Normal(0, 5)), sample("b", dist.Normal(0, 5))
        s = sample("s", dist.HalfNormal(2.0))
        with probml.rows():
            sample("y", dist.StudentT(4.0, a + b * x, s))
    return line()
run = lambda x: make().fit({"x": x, "y": X[:, 3]}, probml.NUTS(draws=300, warmup=300))
first, again, later = lambda: run(X[:, 2]), lambda: run(X[:, 1]), lambda: run(X[:, 0])
""",
}
QUICK = ("naive Bayes", "alarm query")
STAGES = {"trace": "jaxpr_trace_duration", "lower": "jaxpr_to_mlir_module_duration",
          "compile": "backend_compile_duration"}


def answered(job, environment):
    """The three jobs in a process of their own: (seconds, programs, stages) each, or what failed."""
    done = subprocess.run([sys.executable, "-c", HEAD + job + TAIL], env=environment,
                          capture_output=True, text=True)
    if done.returncode:
        return None, done.stderr.strip().splitlines()[-1][:200]
    return json.loads(done.stdout.strip().splitlines()[-1]), None


def first(dtype, quick):
    """A row a job."""
    nothing = os.environ | {"JAX_ENABLE_COMPILATION_CACHE": "false"}
    for name in QUICK if quick else JOBS:
        found, failure = answered(JOBS[name], nothing)
        with tempfile.TemporaryDirectory() as folder:
            kept = {k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"}
            kept |= {"PROBML_CACHE": folder}
            again = [answered(JOBS[name], kept)[0] for _ in range(2)][1]
        if found is None or again is None:
            yield row(name, note=f"FAILED: {failure}")
            continue
        (cold, count, spent), (warm, second, _), (_, later, _) = found
        stages = ", ".join(f"{stage} {spent.get(event, 0.0):.2f} s"
                           for stage, event in STAGES.items())
        yield row(name, cold, warm, quality=count,
                  note=f"programs again {second}, other questions {later}; {stages}; in another "
                       f"process {again[0][0]:.2f} s and {again[0][1]} programs")


READ = """
import os, sys
import numpy as np
os.environ.setdefault("JAX_ENABLE_X64", "true")
table = np.genfromtxt({path!r}, delimiter=",", skip_header=1, dtype=str)
X, y = table[:, :4].astype(float), table[:, 4]
"""
# job -> ours and scikit-learn's, process start to the answer
PROCESSES = {
    "iris mixture, k = 3": (
        "from probml.models import GaussianMixture; GaussianMixture(3).fit(X).predict(X)",
        "from sklearn.mixture import GaussianMixture; GaussianMixture(3, n_init=10).fit(X).predict(X)"),
    "naive Bayes": (
        "from probml.models import NaiveBayes; NaiveBayes().fit(X, y).predict_proba(X[:1])",
        "from sklearn.naive_bayes import GaussianNB; GaussianNB().fit(X, y).predict_proba(X[:1])"),
    "logistic regression": (
        "from probml.models import LogisticRegression; LogisticRegression().fit(X, y).predict_proba(X)",
        "from sklearn.linear_model import LogisticRegression; "
        "LogisticRegression(max_iter=1000).fit(X, y).predict_proba(X)"),
}


def spent(code: str, environment: dict) -> float:
    """Seconds of processor of a process, its imports included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return sum(getattr(after, key) - getattr(before, key) for key in ("ru_utime", "ru_stime"))


def process(dtype, quick):
    """A row a job: cold with an empty folder of programs, warm with those of a process before it
    (median of three, in turn with the peer's)."""
    with as_file(files("probml.data") / "iris.csv") as path:
        head = READ.format(path=str(path))
        for name, (ours, peers) in PROCESSES.items():
            with tempfile.TemporaryDirectory() as folder:
                kept = {k: v for k, v in os.environ.items()
                        if k not in ("JAX_COMPILATION_CACHE_DIR", "JAX_ENABLE_COMPILATION_CACHE")}
                kept |= {"PROBML_CACHE": folder}
                cold = spent(head + ours, kept)
                turns = [(spent(head + ours, kept), spent(head + peers, kept))
                         for _ in range(1 if quick else 3)]
            warm, peer = map(statistics.median, zip(*turns, strict=True))
            alone = statistics.median(spent(head + ours.partition(";")[0], kept) for _ in range(3))
            yield row(name, cold, warm, peer, note=f"imports alone {alone:.2f} s")


CASES = {"first": first, "process": process}

if __name__ == "__main__":
    tell(CASES)
