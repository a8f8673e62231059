"""The benchmarks. Each case yields rows of the table; run.py gives each a process of its own, with
its precision.

Project and peer take turns on the same data, so that other work on the machine slows both alike;
times are medians.
"""

import contextlib
import csv
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from functools import lru_cache, partial
from importlib import resources

import numpy as np

sys.path += [folder for folder in [os.environ.get("PEERS")] if folder]  # peers from elsewhere, last

START = {  # process start to a fitted mixture; both read the same file
    "project": """
import numpy as np, probml
from functions import gaussian_mixture
x = np.genfromtxt({path!r}, delimiter=",", skip_header=1, usecols=range(4))
fit = gaussian_mixture(k=3, d=4).fit({{"x": x}}, probml.EM(prior=False, tolerance=1e-6))
""",
    "peer": """
import numpy as np
from sklearn.mixture import GaussianMixture
x = np.genfromtxt({path!r}, delimiter=",", skip_header=1, usecols=range(4))
GaussianMixture(3, reg_covar=0, tol=1e-6, max_iter=1000).fit(x)
""",
}


def race(project, peer, repeats: int = 3):
    """Seconds: the project's first call (compile included), then medians of turns, and the last
    results of both."""
    cold, result = clock(project)
    warm, other, found = [], [], None
    for _ in range(repeats):
        if peer is not None:
            seconds, found = clock(peer)
            other.append(seconds)
        seconds, result = clock(project)
        warm.append(seconds)
    return cold, statistics.median(warm), statistics.median(other) if other else None, result, found


def clock(call):
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def row(case, cold=None, warm=None, peer=None, quality=None, peer_quality=None, note="",
        floor=None):
    return dict(case=case, cold=cold, warm=warm, peer=peer, floor=floor, quality=quality,
                peer_quality=peer_quality, note=note)


def floor(numbers=0, operations=0, dtype=float):
    """Seconds that this machine needs at the least, now: to read so many numbers from memory, or
    for so many additions and multiplications of a product of matrices, whichever takes longer."""
    read, product = _rates(np.dtype(dtype).name)
    return max(numbers / read, operations / product)


@lru_cache
def _rates(dtype):
    """Numbers read, and operations of a product, a second: the best of a few turns."""
    long, square = np.ones(2**24, dtype), np.ones((1024, 1024), dtype)
    seconds = [min(clock(call)[0] for _ in range(5))
               for call in (lambda: long.max(), lambda: square @ square)]
    return len(long) / seconds[0], 2 * 1024**3 / seconds[1]


def clusters(n: int, d: int, k: int, dtype=float):
    """Overlapping heavy-tailed clusters: EM still climbs after 50 iterations. Filled in blocks:
    nothing but the data takes memory."""
    random = np.random.default_rng(0)
    centre, bend = random.normal(size=(k, d)), np.eye(d) + 0.1 * random.normal(size=(k, d, d))
    out = np.empty((n, d), dtype)
    for first in range(0, n, 10_000):
        block = out[first : first + 10_000]
        z = random.integers(k, size=len(block))
        noise = random.standard_t(4, size=block.shape)
        for state in range(k):
            block[z == state] = centre[state] + noise[z == state] @ bend[state].T
    return out


def mixture(dtype, quick):
    """Full-covariance Gaussian mixture, 50 iterations of EM from the same start; the floor is its
    two matrix products alone."""
    from sklearn.mixture import GaussianMixture

    import probml
    from functions import gaussian_mixture

    n, d, k = (10_000, 8, 8) if quick else (100_000, 16, 16)
    x = clusters(n, d, k, dtype)
    start = {"weights": np.full(k, 1 / k), "mean": x[:k].astype(float),
             "covariance": np.tile(np.eye(d), (k, 1, 1))}
    engine = probml.EM(max_iterations=50, tolerance=0, accelerate=False, prior=False)
    # the start is given; k-means would only cost
    settings = dict(n_components=k, reg_covar=0, tol=0, max_iter=50, init_params="random")

    def project():
        return gaussian_mixture(k=k, d=d).fit({"x": x}, engine, start=start)

    def sklearn(data=x, convert=lambda v: v.astype(dtype)):
        first = dict(weights_init=start["weights"], means_init=start["mean"],
                     precisions_init=start["covariance"])
        return GaussianMixture(**settings,
                               **{name: convert(value) for name, value in first.items()}).fit(data)

    cold, warm, peer, fit, other = race(project, sklearn)
    iterations = ("" if fit.iterations == other.n_iter_ == 50 else f"iterations {fit.iterations} "
                  f"and {other.n_iter_}")
    name = f"mixture {n:,} × {d}, k = {k}, {np.dtype(dtype).name}"
    yield row(name, cold, warm, peer, fit.score({"x": x}), other.score(x), iterations)
    with contextlib.suppress(ImportError):
        import sklearn as package
        import torch

        with package.config_context(array_api_dispatch=True):
            tensor = torch.asarray(x)
            _, warm, peer, fit, other = race(
                project, lambda: sklearn(tensor, lambda v: torch.asarray(v.astype(dtype)))
            )
            yield row(name + ", peer on torch", None, warm, peer, fit.score({"x": x}),
                      float(other.score(tensor)))
    floor = products(n, d, k, dtype)
    floor()
    seconds, again = zip(*((clock(floor)[0], clock(project)[0]) for _ in range(3)), strict=True)
    warm, least = statistics.median(again), statistics.median(seconds)
    q = d + d * (d + 1) // 2
    yield row(name + ", peer = the products alone", None, warm, least,
              note=f"{warm / least:.1f} times the products",
              floor=floor(operations=51 * 4 * n * q * k, dtype=dtype))


def products(n, d, k, dtype, rows=2048, passes=51):
    """Many times n / rows chunks in cache of (rows, q) @ (q, k) and its transpose product; q
    statistics a row."""
    import jax
    import jax.numpy as jnp

    q, random = d + d * (d + 1) // 2, np.random.default_rng(0)
    statistic, share, eta = (jnp.asarray(random.normal(size=shape), dtype)
                             for shape in ((rows, q), (rows, k), (q, k)))

    @jax.jit
    def repeat(statistic, share, eta):
        def chunk(_, total):  # depends on the last, or the compiler would do it once
            return statistic.T @ (share + 1e-30 * (statistic @ (eta + 1e-30 * total)))

        return jax.lax.fori_loop(0, passes * n // rows, chunk, jnp.zeros((q, k), dtype))

    return lambda: repeat(statistic, share, eta).block_until_ready()


def restarts(dtype, quick):
    """Ten restarts as one program against one; wanted: less than six times one."""
    from sklearn.mixture import GaussianMixture

    import probml
    from functions import gaussian_mixture

    n, d, k = (2_000, 4, 4) if quick else (20_000, 8, 8)
    x, least = clusters(n, d, k, dtype), None
    for count in (1, 10):
        engine = probml.EM(max_iterations=30, tolerance=0, restarts=count, accelerate=False,
                           prior=False)

        def project(engine=engine):
            return gaussian_mixture(k=k, d=d).fit({"x": x}, engine, seed=1)

        def sklearn(count=count):
            return GaussianMixture(k, reg_covar=0, tol=0, max_iter=30, n_init=count,
                                   random_state=1).fit(x)

        cold, warm, peer, fit, other = race(project, sklearn)
        least = least or (warm, peer)
        note = (f"{warm / least[0]:.1f} and {peer / least[1]:.1f} times one restart"
                if count > 1 else "")
        yield row(f"{count} restarts, {n:,} × {d}, k = {k}, 30 iterations", cold, warm, peer,
                  fit.score({"x": x}), other.score(x), note)


def memory(dtype, quick):
    """Peak memory beyond the imports and the data; wanted: at most 500 MB."""
    import probml
    from functions import gaussian_mixture

    def peak():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000

    n, d, k = (100_000, 16, 16) if quick else (1_000_000, 16, 16)
    before = peak()
    x = clusters(n, d, k, dtype)
    start = {"weights": np.full(k, 1 / k), "mean": x[:k].astype(float),
             "covariance": np.tile(np.eye(d), (k, 1, 1))}
    engine = probml.EM(max_iterations=5, tolerance=0, accelerate=False, prior=False)
    cold, _ = clock(lambda: gaussian_mixture(k=k, d=d).fit({"x": x}, engine, start=start))
    data = x.nbytes / 1e6
    note = (f"peak {peak() - before:.0f} MB above the imports = the data, {data:.0f} MB, and "
            f"{peak() - before - data:.0f} MB")
    warm, _ = clock(lambda: gaussian_mixture(k=k, d=d).fit({"x": x}, engine, start=start))
    yield row(f"memory: {n:,} × {d}, k = {k}, 5 iterations, {np.dtype(dtype).name}", cold, warm,
              note=note)


def table(name, columns):
    with resources.files("probml.data").joinpath(f"{name}.csv").open() as lines:
        return np.array([line[:columns] for line in csv.reader(lines)][1:], float)


def small(dtype, quick):
    """Small data to convergence (a gain of 1e-6 a row), each from its own start; then whole
    processes."""
    from sklearn.mixture import GaussianMixture

    import probml
    from functions import gaussian_mixture

    for name, d, k in (("faithful", 2, 2), ("iris", 4, 3)):
        x = table(name, d).astype(dtype)

        def project(x=x, d=d, k=k):
            return gaussian_mixture(k=k, d=d).fit({"x": x}, probml.EM(prior=False, tolerance=1e-6))

        def sklearn(x=x, k=k):
            return GaussianMixture(k, reg_covar=0, tol=1e-6, max_iter=1000, random_state=0).fit(x)

        cold, warm, peer, fit, other = race(project, sklearn, 11)
        note = f"iterations {fit.iterations} and {other.n_iter_}"
        yield row(f"{name} {len(x)} × {d}, k = {k}", cold, warm, peer, fit.score({"x": x}),
                  other.score(x), note)
        questions = (partial(fit.predict_proba, {"x": x}), partial(other.predict_proba, x))
        cold, warm, peer, ours, theirs = race(*questions, 11)
        yield row(f"{name}: predict_proba", cold, warm, peer, ours.max(1).mean(),
                  theirs.max(1).mean())
    path = str(resources.files("probml.data") / "iris.csv")
    with tempfile.TemporaryDirectory() as folder:
        cache = {"JAX_ENABLE_COMPILATION_CACHE": "true", "JAX_COMPILATION_CACHE_DIR": folder}
        environment = os.environ | cache | {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}

        def process(side):
            command = [sys.executable, "-W", "ignore", "-c", START[side].format(path=path)]
            subprocess.run(command, check=True, env=environment,
                           cwd=os.path.dirname(os.path.abspath(__file__)))

        cold, warm, peer, _, _ = race(lambda: process("project"), lambda: process("peer"),
                                      1 if quick else 3)
    yield row("process start to a fitted iris mixture", cold, warm, peer,
              note="warm: JAX's compilation cache on disk filled")


def bayes(dtype, quick):
    """Naive Bayes, fit and predict_proba of the same rows; quality is the mean log probability of
    the true class."""
    from sklearn.naive_bayes import CategoricalNB, GaussianNB

    import probml
    from functions import categorical_bayes, gaussian_bayes

    n, d, k, states = 10_000 if quick else 1_000_000, 30, 5, 4
    random = np.random.default_rng(0)
    y = random.integers(k, size=n)
    x = (0.3 * random.normal(size=(k, d))[y] + random.normal(size=(n, d))).astype(dtype)
    codes = (x[..., None] > np.array([-1.0, 0.0, 1.0], dtype)).sum(-1)
    for name, model, values, peer in (
        ("Gaussian", gaussian_bayes(k=k, d=d), x, GaussianNB(var_smoothing=0)),
        ("categorical", categorical_bayes(k=k, d=d, states=states), codes,
         CategoricalNB(alpha=1, min_categories=states)),
    ):
        for plug_in in (False, True):

            def project(model=model, values=values, plug_in=plug_in):
                return model.fit({"x": values, "y": y},
                                 probml.Exact()).predict_proba({"x": values}, "y", plug_in=plug_in)

            results = race(project, lambda peer=peer, values=values: peer.fit(
                values, y
            ).predict_proba(values), 3)
            quality = [float(np.log(p[np.arange(n), y]).mean()) for p in results[3:]]
            case = f"naive Bayes, {name}, {n:,} × {d}, {k} classes, " + (
                "plug-in" if plug_in else "posterior averaged"
            )
            yield row(case, *results[:3], *quality, floor=floor(2 * n * d, dtype=dtype))


def unseen(dtype, quick):
    """The mixture with a fifth of its cells unseen, no peer has one; wanted: at most five times as
    long as complete data."""
    import probml
    from functions import gaussian_mixture

    n, d, k = (10_000, 8, 8) if quick else (100_000, 16, 16)
    x = clusters(n, d, k, dtype)
    holes = np.where(np.random.default_rng(1).random(x.shape) < 0.2, np.nan, x)
    start = {"weights": np.full(k, 1 / k), "mean": x[:k].astype(float),
             "covariance": np.tile(np.eye(d), (k, 1, 1))}
    engine = probml.EM(max_iterations=20, tolerance=0, accelerate=False, prior=False)
    model = gaussian_mixture(k=k, d=d)
    results = race(lambda: model.fit({"x": holes}, engine, start=start),
                   lambda: model.fit({"x": x}, engine, start=start), 3)
    note = (f"{results[1] / results[2]:.1f} times complete data, which stand where the peer's "
            f"time is")
    yield row(f"a fifth unseen, {n:,} × {d}, k = {k}, 20 iterations, {np.dtype(dtype).name}",
              *results[:3], note=note,
              floor=floor(operations=21 * 4 * n * (d + d * (d + 1) // 2) * k, dtype=dtype))


def choosing(dtype, quick):
    """k = 1 … 10 with ten restarts each: one program against a loop over scikit-learn's n_init;
    wanted: five times faster."""
    from sklearn.mixture import GaussianMixture as Peer

    from probml.models import GaussianMixture

    n, d = (1_000, 4) if quick else (20_000, 8)
    x = clusters(n, d, 5, dtype)
    sizes = range(1, 11)
    ours = GaussianMixture(sizes, n_init=10, prior=False, tol=1e-3, max_iter=100, random_state=0)

    def loop():
        return [Peer(k, n_init=10, tol=1e-3, reg_covar=0, random_state=0).fit(x) for k in sizes]

    cold, warm, peer, estimator, peers = race(lambda: ours.fit(x), loop, 1)
    scores = [[fit.score({"x": x}) for fit in estimator.fits_.values()],
              [peer.score(x) for peer in peers]]
    quality = [float(np.mean(side)) for side in scores]
    yield row(f"k = 1 … 10 × 10 restarts, {n:,} × {d}", cold, warm, peer, *quality,
              note="quality: mean over k of the log-likelihood a row")


def imports(dtype, quick):
    """Fresh processes: `import probml` against `import numpyro`; wanted: less than 0.3 s more."""

    def process(name):
        line = (f"import time; t = time.perf_counter(); import {name}; "
                f"print(time.perf_counter() - t)")
        return float(subprocess.run([sys.executable, "-c", line], check=True, capture_output=True,
                                    text=True).stdout)

    process("probml")
    turns = [(process("probml"), process("numpyro")) for _ in range(1 if quick else 5)]
    ours, theirs = (statistics.median(side) for side in zip(*turns, strict=True))
    yield row("import, peer = import numpyro", None, ours, theirs, note=f"{ours - theirs:+.2f} s")


CASES = {case.__name__: case for case in (mixture, unseen, restarts, choosing, memory, small, bayes,
                                          imports)}


def tell(cases):
    """python FILE CASE PRECISION [--quick]: one JSON object a row of the table."""
    warnings.simplefilter("ignore")
    for record in cases[sys.argv[1]](np.dtype(sys.argv[2]).type, "--quick" in sys.argv):
        numbers = {key: value if value is None or isinstance(value, str | list) else float(value)
                   for key, value in record.items()}
        print(json.dumps(numbers), flush=True)


if __name__ == "__main__":
    tell(CASES)
