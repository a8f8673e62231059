"""`process`: from process start to the answer, imports included, beside scikit-learn's, in seconds
of processor, which count what other work on the machine cannot. The stages of an answer, by the
clock, are case `first` (first_table.py).
"""

import os
import resource
import statistics
import subprocess
import sys
import tempfile
from importlib.resources import as_file, files

from common_cases import row, tell

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


CASES = {"process": process}

if __name__ == "__main__":
    tell(CASES)
