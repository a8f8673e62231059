"""Hidden Markov models against hmmlearn and dynamax; `PEERS=/path/to/python` names an interpreter
that has them.

Every side runs in a process of its own, so that its peak memory is its own, and waits while another
is timed: they take turns on the same data from the same start, all priors off. An iteration's time
is that of a long fit less that of a fit of one iteration, divided; their order alternates after a
fit that is not timed, for the first after a pause also pays for its memory. hmmlearn has float64
alone. dynamax compiles at every call of fit_em: its cold time is what each such call costs, its
warm time one compiled once.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from common_cases import clock, row, tell

PEERS = {"float64": ("hmmlearn scaling", "hmmlearn log", "dynamax"),
         "float32": ("hmmlearn scaling", "dynamax")}
# a side that took longer than this many seconds in its turns gets no further one
TURNS, BUDGET = 6, 15.0


def generate(n, steps, k, d=None, symbols=None):
    """Sequences from overlapping states, (n, steps, d) numbers or (n, steps) symbols, and where to
    start learning."""
    random = np.random.default_rng(0)
    transition = 0.1 * random.dirichlet(np.ones(k), k) + 0.9 * np.eye(k)
    cumulative, u = transition.cumsum(1), random.random((steps, n))
    z = np.empty((steps, n), int)
    z[0] = random.integers(k, size=n)
    for t in range(1, steps):
        z[t] = np.minimum((u[t][:, None] > cumulative[z[t - 1]]).sum(1), k - 1)
    z = z.T
    start = {"initial": np.full(k, 1 / k), "transition": 0.5 * np.eye(k) + 0.5 / k}
    if symbols:
        table = random.dirichlet(np.full(symbols, 0.3), k)
        y = np.minimum((random.random((n, steps, 1)) > table.cumsum(1)[z]).sum(-1), symbols - 1)
        return y, start | {"probs": 0.5 * table[random.permutation(k)] + 0.5
                           * random.dirichlet(np.ones(symbols), k)}
    mean = 1.5 * random.normal(size=(k, d))
    y = mean[z] + random.normal(size=(n, steps, d))
    return y, start | {"mean": mean + 0.5 * random.normal(size=(k, d)),
                       "scale": np.full((k, d), 1.5)}


def probml_side(y, start, variant):
    import jax

    import probml
    from probml.models import hidden_markov

    k = len(start["initial"])
    kind = dict(emission="normal", d=y.shape[-1]) if "mean" in start else dict(
        emission="categorical", symbols=start["probs"].shape[1]
    )
    model = hidden_markov(k=k, **kind)

    def learn(count):
        engine = probml.EM(max_iterations=count, prior=False, accelerate=False, tolerance=0.0)
        fit = model.fit({"y": y}, engine, start=start)
        jax.block_until_ready(fit.params)
        return fit

    return SimpleNamespace(
        learn=learn,
        score=lambda fit: np.sum(fit.log_prob({"y": y})),
        decode=lambda: np.asarray(model.at(start).decode({"y": y}, sites=["z"])["z"]),
        smooth=lambda: np.asarray(model.at(start).predict_proba({"y": y}, "z")),
    )


def hmmlearn_side(y, start, variant):
    import logging

    from hmmlearn.hmm import CategoricalHMM, GaussianHMM

    logging.disable(logging.CRITICAL)
    k, shape, normal = len(start["initial"]), y.shape[:2], "mean" in start
    x, lengths = (y.reshape(shape[0] * shape[1], -1).astype(float if normal else int),
                  [shape[1]] * shape[0])

    def model(count=1):
        settings = dict(implementation=variant, n_iter=count, tol=-np.inf, init_params="")
        if normal:
            peer = GaussianHMM(k, "diag", covars_prior=0, covars_weight=0, min_covar=0, **settings)
            peer.means_, peer.covars_ = start["mean"], start["scale"] ** 2
        else:
            peer = CategoricalHMM(k, n_features=start["probs"].shape[1], **settings)
            peer.emissionprob_ = start["probs"]
        peer.startprob_, peer.transmat_ = start["initial"], start["transition"]
        return peer

    return SimpleNamespace(
        learn=lambda count: model(count).fit(x, lengths),
        score=lambda fit: fit.score(x, lengths),
        decode=lambda: model().decode(x, lengths)[1].reshape(shape),
        smooth=lambda: model().predict_proba(x, lengths).reshape(*shape, k),
    )


def dynamax_side(y, start, variant):
    import jax
    import jax.numpy as jnp
    from dynamax.hidden_markov_model import CategoricalHMM, DiagonalGaussianHMM

    # at 1 its mode is NaN
    k, dtype, flat = (len(start["initial"]), y.dtype if "mean" in start else np.dtype(variant),
                      1 + 1e-6)
    known = {"initial_probs": start["initial"], "transition_matrix": start["transition"]}
    priors = {"initial_probs_concentration": flat, "transition_matrix_concentration": flat}
    if "mean" in start:
        kind, sizes, data = DiagonalGaussianHMM, (k, y.shape[-1]), y
        known |= {"emission_means": start["mean"], "emission_scale_diags": start["scale"]}
        priors |= {"emission_prior_mean_concentration": 0.0, "emission_prior_concentration": -1.5,
                   "emission_prior_scale": 0.0}
    else:
        kind, sizes, data = CategoricalHMM, (k, 1, start["probs"].shape[1]), y[..., None]
        known["emission_probs"] = start["probs"][:, None]
        priors["emission_prior_concentration"] = flat
    params, props = kind(*sizes).initialize(**{name: jnp.asarray(value, dtype)
                                               for name, value in known.items()})
    model, data, compiled = kind(*sizes, **priors), jnp.asarray(data), {}

    def fit(params, data, count):
        return model.fit_em(params, props, data, num_iters=count, verbose=False)[0]

    def learn(count):
        """The first call is a user's, not compiled as a whole."""
        if not compiled:
            compiled[0] = None
            return jax.block_until_ready(fit(params, data, count))
        if count not in compiled:
            compiled[count] = jax.jit(fit, static_argnums=2)
        return jax.block_until_ready(compiled[count](params, data, count))

    score = jax.jit(
        lambda params, data: jax.vmap(lambda one: model.marginal_log_prob(params, one))(data)
    )
    decode = jax.jit(
        lambda params, data: jax.vmap(lambda one: model.most_likely_states(params, one))(data)
    )
    smooth = jax.jit(
        lambda params, data: jax.vmap(lambda one: model.smoother(params, one).smoothed_probs)(data)
    )
    return SimpleNamespace(
        learn=learn,
        score=lambda fitted: np.sum(np.asarray(score(fitted, data), float)),
        decode=lambda: np.asarray(decode(params, data)),
        smooth=lambda: np.asarray(smooth(params, data)),
    )


SIDES = {"probml": probml_side, "hmmlearn": hmmlearn_side, "dynamax": dynamax_side}


def path_score(path, y, start):
    """log p(path, y), a step."""
    if "probs" in start:
        total = np.log(start["probs"])[path, y].sum()
    else:
        residual = (y - start["mean"][path]) / start["scale"][path]
        total = (-0.5 * residual**2 - np.log(start["scale"][path]) - 0.5 * np.log(2 * np.pi)).sum()
    total += np.log(start["initial"])[path[:, 0]].sum() + np.log(start["transition"])[
        path[:, :-1], path[:, 1:]
    ].sum()
    return total / path.size


def peak():
    """Megabytes; unlike ru_maxrss, without the process that started this one."""
    return next(int(line.split()[1]) for line in open("/proc/self/status")
                if line.startswith("VmHWM")) / 1000


def worker(side, variant, task, precision, path):
    """Lines of JSON: first the cold seconds, a line for every line that comes, at the end quality
    and peak memory."""
    with np.load(path) as file:
        y, start = file["y"], {name: file[name] for name in file.files if name not in ("y", "more")}
        more = int(file["more"])
    if "mean" in start and side != "hmmlearn":
        y = y.astype(precision)
    run = SIDES[side](y, start, variant or precision)
    before = peak()

    def tell_line(value):
        print(json.dumps(value), flush=True)

    if task == "learn":
        cold, result = clock(lambda: run.learn(more))
        counts = (1, more)
        for count in counts:  # each is compiled
            run.learn(count)
    else:
        cold, result = clock(getattr(run, task))
    tell_line(cold)
    for _ in sys.stdin:
        if task == "learn":
            run.learn(1)
            counts = counts[::-1]
            tell_line({count: clock(lambda count=count: run.learn(count))[0] for count in counts})
        else:
            tell_line({1: clock(getattr(run, task))[0]})
    memory = peak()
    y = y.astype(float) if "mean" in start else y
    steps = y.shape[0] * y.shape[1]
    quality = {
        "learn": lambda: run.score(result) / steps,
        "decode": lambda: path_score(result, y, start),
        "smooth": lambda: result.max(-1).mean(dtype=float),
    }[task]()
    tell_line({"peak": memory, "before": before, "quality": float(quality)})


class Side:
    """One side in its process; after an error its numbers are None and `error` tells why."""

    def __init__(self, name, task, precision, path, folder):
        package, _, variant = name.partition(" ")
        python = sys.executable if package == "probml" else os.environ.get("PEERS", sys.executable)
        settings = {"JAX_PLATFORMS": "cpu", "JAX_ENABLE_COMPILATION_CACHE": "false",
                    "JAX_ENABLE_X64": str(precision == "float64").lower()}
        self.log = Path(folder) / f"{name}.log"
        command = [python, "-W", "ignore", __file__, "worker", package, variant, task, precision,
                   str(path)]
        with self.log.open("w") as log:
            pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
            self.process = subprocess.Popen(command, env=os.environ | settings, **pipes)
        self.name, self.turns, self.spent, self.end = (name, [], 0.0,
                                                       dict.fromkeys(("peak", "before", "quality")))
        self.cold = self.read()

    def read(self):
        line = self.process.stdout.readline()
        return json.loads(line) if line else None

    def turn(self):
        if self.cold is not None and self.spent < BUDGET and self.process.poll() is None:
            print(file=self.process.stdin, flush=True)
            seconds = self.read()
            self.turns += [seconds] if seconds else []
            self.spent += sum(seconds.values()) if seconds else np.inf

    def close(self):
        self.process.stdin.close()
        self.end = self.read() or self.end
        self.process.wait()
        lines = self.log.read_text().split("\n") if self.process.returncode else []
        self.error = next((line for line in reversed(lines) if line.strip()),
                          str(self.process.returncode)) if lines else ""
        fits = sorted((int(count), statistics.median(turn[count] for turn in self.turns))
                      for count in (self.turns or [{}])[0])
        self.fits = (", ".join(f"{seconds:.3g} s for {count}" for count, seconds in fits)
                     if len(fits) > 1 else "")
        (few, least), (many, most) = fits[0] if fits else (0, None), fits[-1] if fits else (0, None)
        self.warm = (most - least) / (many - few) if many > few else least
        return self

    def note(self):
        if self.error:
            return (f"{self.name} "
                    f"{'not installed' if 'ModuleNotFound' in self.error else self.error[:200]}")
        parts = [f"cold {self.cold:.3g} s", self.fits,
                 f"peak {self.end['peak']:.0f} MB of which {self.end['before']:.0f} before"]
        return f"{self.name} ({len(self.turns)} turns): {', '.join(filter(None, parts))}"


def compete(task, case, y, start, precision, more=2):
    """One row for every peer."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.npz"
        np.savez(path, y=y, more=more, **start)
        sides = [Side(name, task, precision, path, folder)
                 for name in ("probml", *PEERS[precision])]
        for _ in range(TURNS):
            for side in sides:
                side.turn()
        ours, *peers = [side.close() for side in sides]
    failed = "FAILED: " if ours.error else ""
    for peer in peers:
        note = f"{failed}{ours.note()}; {peer.note()}"
        yield row(f"{case}, {precision}, peer {peer.name}", ours.cold, ours.warm, peer.warm,
                  ours.end["quality"], peer.end["quality"], note)


def sizes(quick):
    return {"chain": dict(n=1, steps=10_000 if quick else 1_000_000, k=8),
            "sequences": dict(n=100, steps=50 if quick else 1000, k=16)}


def title(n, steps, k, **rest):
    return (f"{n:,} × {steps:,}{''.join(f' × {value} {name}' for name, value in rest.items())}, "
            f"k = {k}")


def learning(shape, dtype, more, **emission):
    case = f"one iteration of EM, {title(**shape, **emission)} (cold: {more} iterations)"
    yield from compete("learn", case, *generate(**shape, **emission), np.dtype(dtype).name, more)


def chain(dtype, quick):
    """EM on one long chain; wanted: three times hmmlearn's faster implementation."""
    yield from learning(sizes(quick)["chain"], dtype, 4, d=4)


def sequences(dtype, quick):
    """EM on many sequences; wanted: five times hmmlearn, three times dynamax."""
    yield from learning(sizes(quick)["sequences"], dtype, 6, d=8)


def symbols(dtype, quick):
    """The same of 50 symbols."""
    for name, more in (("sequences", 6), ("chain", 4)):
        yield from learning(sizes(quick)[name], dtype, more, symbols=50)


def answers(dtype, quick):
    """The most probable path and the posterior probabilities of the states at the start's
    parameters."""
    for name, d in (("chain", 4), ("sequences", 8)):
        shape = sizes(quick)[name]
        data = generate(**shape, d=d)
        for task in ("decode", "smooth"):
            yield from compete(task, f"{task} {title(**shape, d=d)}", *data, np.dtype(dtype).name)


CASES = {case.__name__: case for case in (chain, sequences, symbols, answers)}


if __name__ == "__main__":
    if sys.argv[1] == "worker":
        worker(*sys.argv[2:])
    else:
        tell(CASES)
