"""Bayesian networks against pyAgrum and pgmpy, which run in a process of their own:
`PEERS=/path/to/python` names one that has them.

They answer one row at a time, so that they are given few rows and compared by the row.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
from importlib import resources
from pathlib import Path

import numpy as np

from common_cases import clock, race, row, tell

QUERIES = """
import csv, json, sys, time
network, rows, count = sys.argv[1], list(csv.DictReader(open(sys.argv[2]))), int(sys.argv[3])
evidence = [{k: v for k, v in row.items() if v} for row in rows[:count]]
if sys.argv[4] == "pyAgrum":
    import pyagrum
    net = pyagrum.loadBN(network)
    def ask(e):
        engine = pyagrum.LazyPropagation(net)
        engine.setEvidence(e)
        engine.makeInference()
        return [engine.posterior(n).tolist() for n in net.names()]
else:
    import logging
    logging.disable(logging.CRITICAL)
    from pgmpy.readwrite import BIFReader
    from pgmpy.inference import BeliefPropagation, VariableElimination
    net = BIFReader(network).get_model()
    engine = VariableElimination(net)
    def ask(e):
        return [engine.query([n], evidence=e, show_progress=False)
                for n in net.nodes() if n not in e]
ask(evidence[0])
start = time.perf_counter()
for e in evidence:
    ask(e)
print(json.dumps((time.perf_counter() - start) / len(evidence)))
"""

LEARNING = """
import json, sys, time
import pyagrum
net = pyagrum.loadBN(sys.argv[1])
learner = pyagrum.BNLearner(sys.argv[2], net, ["?"])
learner.useEM(1e-9)
learner.EMsetMaxIter(int(sys.argv[3]))
start = time.perf_counter()
learner.fitParameters(net)
print(json.dumps((time.perf_counter() - start) / max(learner.EMnbrIterations(), 1)))
"""


def peer(script: str, *arguments) -> float | None:
    """Seconds a row, or None where the peer is not installed."""
    done = subprocess.run([os.environ.get("PEERS", sys.executable), "-c", script,
                           *map(str, arguments)], capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else None


def times(seconds: float | None, ours: float) -> str:
    return ("not installed" if seconds is None else f"{1e3 * seconds:.3g} ms, {seconds / ours:.0f} "
            f"times ours")


def alarm(n: int, missing: float, seed: int):
    """The network, and rows of it with cells unseen at random."""
    import pandas as pd

    from probml.models import read_bif

    with resources.as_file(resources.files("probml.data") / "alarm.bif") as path:
        fit = read_bif(path)
    rows = pd.DataFrame(fit.simulate(rows=n, seed=seed))
    return fit, rows.mask(np.random.default_rng(seed).random(rows.shape) < missing)


def queries(dtype, quick):
    """All marginals of alarm's 37 nodes for 10,000 different rows of evidence; wanted: 150 times
    pyAgrum, 5,000 times pgmpy, by the row."""
    n = 500 if quick else 10_000
    fit, rows = alarm(n, 0.5, 1)
    nodes = list(fit.model.graph)
    cold, warm, _, found, _ = race(lambda: fit.predict_proba(rows, nodes), None)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        rows.to_csv(path, index=False)
        network = str(resources.files("probml.data") / "alarm.bif")
        seconds = {name: peer(QUERIES, network, path, count, name)
                   for name, count in (("pyAgrum", 200), ("pgmpy", 5))}
    note = f"{n / warm:,.0f} rows/s; " + "; ".join(f"{name} a row {times(s, warm / n)}"
                                                   for name, s in seconds.items())
    other = seconds["pyAgrum"] and seconds["pyAgrum"] * n
    yield row(f"all marginals of alarm, {n:,} rows, half the cells seen", cold, warm, other,
              note=note)


def learning(dtype, quick):
    """EM on alarm with a fifth of the cells unseen; wanted: 0.1 s an iteration, 6 s for a whole
    cold fit."""
    import probml

    n = 500 if quick else 10_000
    fit, rows = alarm(n, 0.2, 2)
    engine = probml.EM(prior=False)
    cold, warm, _, found, _ = race(lambda: fit.model.fit(rows, engine), None)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        rows[:1000].fillna("?").to_csv(path, index=False)
        seconds = peer(LEARNING, str(resources.files("probml.data") / "alarm.bif"), path, 5)
    steps = len(found.history)
    note = f"{steps} evaluations, {1e3 * warm / steps:.0f} ms each; pyAgrum "
    note += "not installed" if seconds is None else f"{seconds:.2g} s an iteration at 1,000 rows"
    yield row(f"EM on alarm, {n:,} rows, a fifth unseen", cold, warm,
              quality=float(found.history[-1]) / n, note=note)


def large(dtype, quick):
    """A network of 400 nodes learns from rows with unseen cells and answers; compile time and
    memory."""
    import networkx as nx
    import pandas as pd

    import probml
    from probml.models import bayesian_network

    count, n = (40, 200) if quick else (400, 2000)
    random, dag = np.random.default_rng(0), nx.DiGraph()
    dag.add_nodes_from(f"n{i}" for i in range(count))
    for i in range(1, count):  # a random tree: bushy, not long
        dag.add_edge(f"n{random.integers(i)}", f"n{i}")
    model = bayesian_network(dag,
                             states={f"n{i}": int(random.integers(2, 5)) for i in range(count)})
    shapes = {name: data["shape"] for name, data in model.structure.nodes(data=True)
              if not data["rows"]}
    truth = model.at({name: random.dirichlet(np.full(shape[-1], 0.5), shape[:-1])
                      for name, shape in shapes.items()})
    seconds, rows = clock(lambda: pd.DataFrame(truth.simulate(rows=n, seed=1)))
    yield row(f"{count} nodes, simulate {n:,} rows", seconds)
    holes = rows.mask(random.random(rows.shape) < 0.2)
    cold, warm, _, fit, _ = race(
        lambda: model.fit(holes, probml.EM(prior=False, max_iterations=20)), None, 1
    )
    yield row(f"{count} nodes, EM, {n:,} rows, a fifth unseen", cold, warm,
              quality=float(fit.history[-1]) / n, note=fit.status)
    cold, warm, _, _, _ = race(lambda: fit.predict_proba(holes[:200], list(dag)), None, 1)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    yield row(f"{count} nodes, all marginals of 200 rows", cold, warm,
              note=f"peak memory of the process {peak:.0f} MB")


CASES = {case.__name__: case for case in (queries, learning, large)}


if __name__ == "__main__":
    tell(CASES)
