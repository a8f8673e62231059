"""What is shared: one fit asked by several threads, estimators in threads, fits in processes that share one cache
(whole, torn, read-only), a stream that does not end. Faults as those of faults.py, which has them among its own."""

import json
import os
import shutil
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from kills import MOST
from numpyro import plate, sample

import probml
from probml import models

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(30, 2)) + np.repeat([[0.0], [4.0]], 15, 0)
Y = X @ [1.0, -2.0] + 0.1 * RANDOM.normal(size=30)
NOBODY = 65534
GROWTH = 60.0  # megabytes by which a stream of thousands of parts may grow


@probml.model
def steps():
    initial = jnp.array([0.6, 0.4])
    with plate("state", 2):
        rate = sample("rate", dist.Gamma(2.0, 1.0))
        moves = sample("moves", dist.Dirichlet(jnp.full(2, 2.0)))
    with probml.rows():
        z = sample("z", probml.MarkovChain(initial, moves))
        sample("y", dist.Poisson(rate[z]).to_event(1))


@probml.model
def pair():
    weights = sample("weights", dist.Dirichlet(jnp.full(2, 2.0)))
    with plate("component", 2):
        mean = sample("mean", dist.Normal(0.0, 5.0))
    with probml.rows():
        z = sample("z", dist.Categorical(weights))
        sample("x", dist.Normal(mean[z], 1.0))


COUNTS = RANDOM.poisson(np.repeat([1.0, 6.0], [4, 4]), (5, 8)).astype(float)


def in_threads(works):
    """What each of several functions gives, all begun at once.

    Raises:
        AssertionError: one raises, or does not end.
    """
    found, failed, gate = [None] * len(works), [], threading.Barrier(len(works))

    def run(i):
        gate.wait()
        try:
            found[i] = works[i]()
        except BaseException as error:
            failed.append((i, repr(error)))

    running = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(len(works))]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(MOST)
    assert not any(thread.is_alive() for thread in running), "a thread does not end"
    assert not failed, failed
    return found


def asked_by_threads(folder, random):
    """One fit that several threads ask at once, each question met for the first time, answers each as alone."""
    rows = COUNTS[:, : int(random.integers(4, 9))]
    data = {"y": np.where(random.random(rows.shape) < 0.2, np.nan, rows)}
    point = {"rate": random.gamma(2.0, 2.0, 2), "moves": random.dirichlet([2, 2], 2)}
    verbs = {
        "log_prob": lambda fit: fit.log_prob(data), "states": lambda fit: fit.predict_proba(data, "z"),
        "filtered": lambda fit: fit.predict_proba(data, "z", given="filtered"),
        "path": lambda fit: fit.decode(data)["z"], "filled": lambda fit: fit.impute(data)["y"],
        "drawn": lambda fit: fit.simulate(given=data, seed=3)["y"], "pairs": lambda fit: fit.pairs(data, "z"),
        "next": lambda fit: fit.forecast(data, 2)["y"] if isinstance(fit.forecast(data, 2), dict) else 0.0,
    }  # fmt: skip
    fit = steps().at(point)
    names = [str(name) for name in random.choice(list(verbs), 6)]
    together = in_threads([lambda name=name: np.asarray(verbs[name](fit)) for name in names])
    for name, found in zip(names, together, strict=True):
        np.testing.assert_array_equal(found, np.asarray(verbs[name](steps().at(point))), err_msg=name)


def estimators_in_threads(folder, random):
    """Estimators that are fitted and asked in several threads give what they give alone."""
    rows = int(random.integers(20, 31))
    kinds = {
        "mixture": lambda: models.GaussianMixture(2, n_init=1).fit(X[:rows]).predict_proba(X),
        "line": lambda: models.BayesianLinearRegression().fit(X[:rows], Y[:rows]).predict(X),
        "classes": lambda: models.LogisticRegression().fit(X[:rows], Y[:rows] > 0).predict_proba(X),
        "bayes": lambda: models.NaiveBayes().fit(X[:rows], Y[:rows] > 0).predict_proba(X),
        "tree": lambda: models.EvidenceTree().fit(X[:rows], Y[:rows] > 0).predict_proba(X),
    }
    names = [str(name) for name in random.choice(list(kinds), 4)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        together = in_threads([kinds[name] for name in names])
        for name, found in zip(names, together, strict=True):
            np.testing.assert_array_equal(found, kinds[name](), err_msg=name)


PROCESS = """
import json, sys, warnings
warnings.simplefilter("ignore")
sys.path.insert(0, sys.argv[1])
import numpy as np
import sharing
fit = sharing.pair().fit({"x": sharing.X[:, 0]}, sharing.probml.EM(restarts=2, max_iterations=30))
hmm = sharing.steps().fit({"y": sharing.COUNTS}, sharing.probml.EM(restarts=2, max_iterations=20))
drawn = hmm.simulate(3, steps=4, seed=5)
print(json.dumps([fit.params["mean"].tolist(), fit.history[-1], hmm.params["rate"].tolist(),
                  drawn["y"].tolist()]))
"""


def processes_that_share_a_cache(folder, random):
    """Processes that fit at once with one cache, then with a cache that is torn, then with one that is read-only,
    find the same to the last bit."""
    cache = Path(folder) / "cache"
    cache.mkdir(mode=0o700)
    found = _processes(cache, 3)
    for path in (path for path in cache.rglob("*") if path.is_file()):
        content = bytearray(path.read_bytes())
        for _ in range(int(random.integers(0, 3))):
            content[random.integers(len(content))] ^= 1 << random.integers(8)
        path.write_bytes(content[: int(random.integers(1, len(content) + 1))])
    found += _processes(cache, 2)
    for path in [*cache.rglob("*"), cache]:
        path.chmod(0o500 if path.is_dir() else 0o400)
    try:
        found += _processes(cache, 1, held=True)
    finally:
        for path in [cache, *cache.rglob("*")]:
            path.chmod(0o700)
    assert all(one == found[0] for one in found), found


def _processes(cache, count, held=False):
    """What so many processes find at once; `held`: to what files and folders allow, as root is not."""
    bare = ["setpriv", "--bounding-set=-dac_override", "--inh-caps=-all"] if (
        held and os.geteuid() == 0 and shutil.which("setpriv")) else []
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAX_COMPILATION")}
    environment |= {"PROBML_CACHE": str(cache), "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                    "JAX_PLATFORMS": "cpu", "JAX_ENABLE_COMPILATION_CACHE": "true"}
    begun = [subprocess.Popen([*bare, sys.executable, "-c", PROCESS, str(Path(__file__).parent)], env=environment,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(count)]
    out = [process.communicate(timeout=MOST) for process in begun]
    for process, (_, said) in zip(begun, out, strict=True):
        assert process.returncode == 0, said[-2000:]
    return [json.loads(text) for text, _ in out]


def saved_where_nothing_may_be_written(folder, random):
    """A folder that may only be read: the error is the system's or ours, and names it; nothing is changed."""
    path, other, data = Path(folder) / "kept", Path(folder) / "open", {"x": X[:, 0]}
    path.mkdir(), other.mkdir()
    fit = pair().at({"weights": [0.5, 0.5], "mean": [0.0, 4.0]})
    writes = (lambda at: fit.save(at / "other"), lambda at: fit.save(at / "fit"),
              lambda at: fit.report(at / "page.html", data),
              lambda at: fit.answer(data, ("log_prob",), to=at / "rows.csv"))
    for write in writes:  # what is read late is read by now
        write(other)
    fit.save(path / "fit")
    before, root = (path / "fit").read_bytes(), os.geteuid() == 0
    Path(folder).chmod(0o755)
    path.chmod(0o555)
    try:
        if root:  # who may write everywhere
            os.seteuid(NOBODY)
        for write in writes:
            try:
                write(path)
            except (OSError, probml.ModelError) as error:
                assert "kept" in str(error), error
            else:
                raise AssertionError("written where nothing may be")
    finally:
        if root:
            os.seteuid(0)
        path.chmod(0o700)
    assert [p.name for p in path.iterdir()] == ["fit"] and (path / "fit").read_bytes() == before


def streamed_for_long(folder, random):
    """A stream of thousands of small parts, each a step of what is learnt, leaves memory as it is and follows what
    the rows say."""
    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20

    engine = probml.EM(restarts=1, max_iterations=50)
    draw = np.random.default_rng(int(random.integers(100)))

    def part():
        return {"x": draw.normal(size=16) + 6.0 * draw.integers(2, size=16)}

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        first = part()
        fit = pair().fit(first, engine).running(first)
        for _ in range(50):
            fit = fit.update(part())
        before, lengths = resident(), []
        for _ in range(600):
            fit = fit.update(part())
            lengths.append(len(fit.history))
    grown = resident() - before
    assert grown < GROWTH, f"{grown:.0f} MB more after 600 parts"
    np.testing.assert_allclose(np.sort(fit.params["mean"]), [0.0, 6.0], atol=0.3)


SHARING = (asked_by_threads, estimators_in_threads, processes_that_share_a_cache, saved_where_nothing_may_be_written,
           streamed_for_long)
