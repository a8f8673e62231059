"""The sides of the table of many rows, each written as the package's user would write it, and the
process that runs one of them.

A side takes (work, data, size) and returns a call: work names what is timed, data are the arrays
that all sides of it are given, size its counts. What a call returns is what it found; `judged` makes
one number of it afterwards. A call that times itself, such as an iteration as the difference of a
long and a short fit, returns `Timed`.
"""

import gc
import json
import sys
import warnings
from pathlib import Path

import numpy as np

import chain_cases
import posterior_sides
from clocks import Timed, iteration, now
from machine import Peak
from many_peers import PEERS, begun

# The project


def mixtures(work, data, size):
    import probml
    from functions import gaussian_mixture
    from probml.models import GaussianMixture

    x = data["x"]
    k, (d, count) = size["k"], (x.shape[1], size["iterations"])
    if work == "sizes":
        return lambda: GaussianMixture(range(1, k + 1), n_init=10, prior=False, tol=1e-3,
                                       max_iter=100, random_state=0).fit(x)
    start = begun(data["complete"] if work == "unseen" else x, k)
    if work == "estimator":
        return lambda: GaussianMixture(
            k, max_iter=count, tol=0, prior=False, accelerate=False, random_state=0,
            weights_init=start["weights"], means_init=start["mean"],
            precisions_init=start["covariance"]).fit(x)
    engine = probml.EM(max_iterations=count, tolerance=0, accelerate=False, prior=False)
    return lambda: gaussian_mixture(k=k, d=d).fit({"x": x}, engine, start=start)


def complete(work, data, size):
    """The project on complete rows."""
    return mixtures("mixture", {"x": data["complete"]}, size)


def products(work, data, size):
    """The two products of a mixture's E-step alone, on chunks in cache; nothing is found."""
    from common_cases import products as made

    n, d = data["x"].shape
    call = made(n, d, size["k"], data["x"].dtype, passes=size["iterations"] + 1)

    def run():
        call()

    return run


def bayes(work, data, size):
    import probml
    from functions import categorical_bayes, gaussian_bayes

    x, y = data["x"], data["y"]
    kind, way = work.split()
    model = (gaussian_bayes(k=size["k"], d=x.shape[1]) if kind == "gaussian" else
             categorical_bayes(k=size["k"], d=x.shape[1], states=size["states"]))
    return lambda: model.fit({"x": x, "y": y}, probml.Exact()).predict_proba(
        {"x": x}, "y", plug_in=way == "plug-in")


def chains(work, data, size, side=chain_cases.probml_side, variant="float64"):
    start = {name: value for name, value in data.items() if name != "y"}
    run = side(data["y"], start, variant)
    if work != "learn":
        return getattr(run, work)
    few, many = 1, size["iterations"]

    def call():
        timed = iteration(run.learn, few, many)
        return timed._replace(found=(run.score, timed.found))

    return call


def networks(work, data, size):
    import pandas as pd

    import probml
    from network_cases import alarm

    fit, _ = alarm(1, 0.0, 0)
    rows = pd.read_csv(data["table"], keep_default_na=False, dtype=str).replace("", None)
    if work == "marginals":
        nodes = list(fit.model.graph)
        return lambda: fit.predict_proba(rows, nodes)

    def learn():
        began = now()
        found = fit.model.fit(rows, probml.EM(prior=False))
        return Timed(found, *(now() - began) / len(found.history))

    return learn


def logistic(work, data, size):
    from probml.models import LogisticRegression

    return lambda: LogisticRegression().fit(data["x"], data["y"])


def squares(work, data, size):
    import probml
    from functions import line

    engine = {"MAP": probml.MAP(),
              "NUTS": probml.NUTS(draws=size["draws"], warmup=size["draws"], chains=2)}[work]
    return lambda: line().fit(data, engine)


def experts(work, data, size):
    import probml
    from probml.models import mixture_of_experts

    k, d = size["k"], data["x"].shape[1]
    random = np.random.default_rng(1)
    start = {"weights": 0.5 * random.normal(size=(k, 1 + d)), "precision": np.ones(k),
             "gate": 0.1 * random.normal(size=(1 + d, k - 1))}

    def learn(count):
        engine = probml.EM(max_iterations=count, tolerance=0, accelerate=False)
        return mixture_of_experts(k=k).fit(data, engine, start=start)

    return lambda: iteration(learn, 1, size["iterations"])


def kernel_machine(work, data, size):
    from probml.models import SupportVectorMachine

    return lambda: SupportVectorMachine().fit(data["x"], data["y"])


PROBML = {"mixture": mixtures, "bayes": bayes, "chain": chains, "network": networks,
          "logistic": logistic, "squares": squares, "experts": experts, "machine": kernel_machine}


def sampled(side, case, variant, data, size):
    """Posteriors: sides that stand in posterior_sides.py."""
    run, turn = posterior_sides.SIDES[side](case, variant, data, size["sampler"]), iter(range(10**6))
    return lambda: run(next(turn))


def made(name, group, work, data, size):
    """The call of a side: `name` is a package and, behind a space, a variant of it."""
    package, _, variant = name.partition(" ")
    if group == "posterior":
        return sampled(package, work, variant, data, size)
    if package == "probml":
        return PROBML[group](work, data, size)
    if package == "ours":  # the project again, on another work
        return {"products": products, "complete": complete}[variant](work, data, size)
    if package in ("hmmlearn", "dynamax"):
        return chains(work, data, size, chain_cases.SIDES[package], variant or "float64")
    call = PEERS[package][group]
    return call(work, data, size, variant) if variant else call(work, data, size)


# What was found, as one number


def judged(name, group, work, data, size, found) -> float | None:
    ours = name.partition(" ")[0] in ("probml", "ours")
    if found is None:
        return None
    if group == "mixture" and work == "sizes":
        fits = list(found.fits_.values()) if ours else found
        return float(np.mean([fit.score({"x": data["x"]} if ours else data["x"]) for fit in fits]))
    if group == "mixture" and (name == "sklearn torch" or work == "unseen"):
        # of scikit-learn that of one iteration before
        return float(found.lower_bound_ if hasattr(found, "lower_bound_")
                     else found.history[-1] / len(data["x"]))
    if group == "mixture":
        faced = hasattr(found, "lower_bound_")
        return float(found.score(data["x"] if faced else {"x": data["x"]}))
    if group == "bayes":
        return float(np.log(found[np.arange(len(found)), data["y"]]).mean(dtype=float))
    if group == "chain":
        y = data["y"].astype(float) if "mean" in data else data["y"]
        start = {name: value for name, value in data.items() if name != "y"}
        if work == "learn":
            score, fitted = found
            return float(score(fitted)) / (y.shape[0] * y.shape[1])
        return float(chain_cases.path_score(found, y, start) if work == "decode"
                     else found.max(-1).mean(dtype=float))
    if group == "logistic":
        from discriminative_cases import objective

        return objective(data["x"], data["y"], found.coef_, found.intercept_)
    if group == "squares":
        return float(found.params["scale"] if ours
                     else np.std(data["y"] - found.predict(data["x"])))
    if group == "experts":
        return float(found.history[-1]) / len(data["y"])
    if group == "network" and work == "marginals":  # of the rows that the peer gets, or its own
        return (found if isinstance(found, float) else
                float(np.mean([p[: size["few"]].max(-1).mean() for p in found.values()])))
    if group == "network":  # a row; pyAgrum tells none
        return float(found.history[-1]) / size["n"] if hasattr(found, "history") else None
    if group == "machine":
        return float(np.abs(found.decision_function(data["x"])).mean())
    if group == "posterior":
        return float(np.ravel(found["mean"])[0]) if "diverging" not in found else None
    return None


def main(name, group, work, folder, size):
    """Lines of JSON, one for every line that comes: seconds by the clock and of processors,
    megabytes that were added at the most, and the clock's seconds of the whole call, of which a
    `Timed` one counts a part; a last line of quality when no more comes."""
    warnings.simplefilter("ignore")
    folder, size = Path(folder), json.loads(size)
    data = json.loads((folder / "paths.json").read_text())
    data |= {path.stem: np.load(path) for path in sorted(folder.glob("*.npy"))}
    call, found = made(name, group, work, data, size), None
    print(json.dumps("ready"), flush=True)
    for turn, _ in enumerate(sys.stdin):
        found = None
        gc.collect()
        peak, began = Peak(), now()
        found = call()
        wall, processor = now() - began
        most, whole = peak.megabytes(), wall
        if isinstance(found, Timed):
            found, wall, processor = found
        if group == "posterior" and "diverging" in found:  # effective draws are counted elsewhere
            np.savez(folder / f"{name}{turn}.npz", **found)
        print(json.dumps([float(wall), float(processor), most, float(whole)]), flush=True)
    print(json.dumps(judged(name, group, work, data, size, found)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
