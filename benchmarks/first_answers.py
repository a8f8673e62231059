"""First answers of every estimator beside their peers': default arguments on data as a newcomer has
them, a third of the rows held out.

A row is an estimator, a data set and a score: the median over the seeds of the held-out log density a row
(a step), log score of the classes, share of hits, or R², ours and the best peer's median. A seed is
both the split and `random_state`. The note says how many seeds warned, ours and theirs, and by how
much ours falls short: `below`, or `BELOW` where that is more than 0.001 and the mean difference
over the seeds more than two standard errors (Nadeau & Bengio 2003: splits share rows). Names in
brackets are models of another kind, not judged.

`PEERS=/path/to/python` names one that has hmmlearn, pgmpy, pomegranate and statsmodels besides
scikit-learn (its absent peers are skipped with a word); `ONLY=word,word` takes the questions whose
"estimator | data" has one of the words; `VERBOSE=1` shows warnings and failures; `ANSWERS=folder` keeps
what both sides answered there, and asks again only what is not there.
"""

import json
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np

from common_cases import row, tell
from first_data import QUESTIONS, chosen, classes, numbers, parts, seeds

# standard errors, and nats or shares, beyond which a difference is told in capitals
NOISE, WORTH = 2.0, 1e-3


def makers():
    """Estimator → (words, seed) → an unfitted estimator with its defaults."""
    from probml import models as m

    return {
        "GaussianMixture": lambda w, s: m.GaussianMixture(w["k"], random_state=s),
        "PoissonMixture": lambda w, s: m.PoissonMixture(w["k"], random_state=s),
        "LatentClass": lambda w, s: m.LatentClass(w["k"], random_state=s),
        "MixedMixture": lambda w, s: m.MixedMixture(w["k"], random_state=s),
        "NaiveBayes": lambda w, s: m.NaiveBayes(),
        "NaiveBayes table": lambda w, s: m.NaiveBayes(),
        "NaiveBayes words": lambda w, s: m.NaiveBayes(),
        "NaiveBayes counts": lambda w, s: m.NaiveBayes(kinds="multinomial"),
        "NaiveBayes bernoulli": lambda w, s: m.NaiveBayes(kinds="bernoulli"),
        "GaussianDiscriminant": lambda w, s: m.GaussianDiscriminant(w["shape"]),
        "FisherDiscriminant": lambda w, s: m.FisherDiscriminant(),
        "MixtureDiscriminant": lambda w, s: m.MixtureDiscriminant(random_state=s),
        "LogisticRegression": lambda w, s: m.LogisticRegression(),
        "Perceptron": lambda w, s: m.Perceptron(random_state=s),
        "LinearSVM": lambda w, s: m.LinearSVM(),
        "SupportVectorMachine": lambda w, s: m.SupportVectorMachine(),
        "SupportVectorRegression": lambda w, s: m.SupportVectorRegression(),
        "KernelDensity": lambda w, s: m.KernelDensity(),
        "ParzenClassifier": lambda w, s: m.ParzenClassifier(),
        "HiddenMarkov": lambda w, s: m.HiddenMarkov(w["k"], emission=w["emission"], random_state=s),
        "BayesianLinearRegression": lambda w, s: m.BayesianLinearRegression(),
        "GLM poisson": lambda w, s: m.GeneralizedLinearModel("poisson"),
        "GLM gamma": lambda w, s: m.GeneralizedLinearModel("gamma"),
        "RobustRegression": lambda w, s: m.RobustRegression(),
        "SmoothingSpline": lambda w, s: m.SmoothingSpline(),
        "FactorAnalysis": lambda w, s: m.FactorAnalysis(random_state=s),
        "ProbabilisticPCA": lambda w, s: m.ProbabilisticPCA(random_state=s),
        "MixtureOfExperts": lambda w, s: m.MixtureOfExperts(w["k"], random_state=s),
        "MixtureOfExpertsClassifier": lambda w, s: m.MixtureOfExpertsClassifier(random_state=s),
        "NeuralNetworkClassifier": lambda w, s: m.NeuralNetworkClassifier(random_state=s),
        "NeuralNetworkRegressor": lambda w, s: m.NeuralNetworkRegressor(random_state=s),
    }


def _network(train, test):
    """A graph learnt from the rows, its tables by its defaults."""
    import pandas as pd

    from probml.models import bayesian_network, learn_structure

    # no side is asked for a word that it has not been told of
    both = pd.concat([train["X"], test["X"]])
    states = {c: sorted(both[c].unique()) for c in both}
    graph = learn_structure(train["X"], states=states)
    return {"log density": bayesian_network(graph, states=states).fit(train["X"]).score(test["X"])}


def _plain(estimator, train, test):
    """The generative functions without an estimator; standardised columns, since their penalties are in
    units of X as they are written."""
    from probml import models

    centre, spread = train["X"].mean(0), train["X"].std(0)
    mean = train["y"].mean()
    fit = getattr(models, estimator)().fit({"x": (train["X"] - centre) / spread, "y": train["y"] - mean})
    return numbers(test["y"], np.asarray(fit.predict({"x": (test["X"] - centre) / spread})) + mean)


def ours(make, estimator, words, seed, train, test):
    if estimator == "network":
        return _network(train, test)
    if estimator in ("ridge", "lasso"):
        return _plain(estimator, train, test)
    found = make[estimator](words, seed)
    if estimator == "PoissonMixture":
        return {"log density": found.fit(train["y"][:, None]).score(test["y"][:, None])}
    if estimator == "HiddenMarkov":
        return {"log density": found.fit(train["X"]).score(test["X"]) / len(test["X"])}
    if test["y"] is None or any(word in estimator for word in ("Mixture", "KernelDensity",
                                                          "FactorAnalysis", "PCA", "LatentClass")):
        if not any(word in estimator for word in ("Discriminant", "Experts")):
            return {"log density": float(np.mean(found.fit(train["X"]).score_samples(test["X"])))}
    found.fit(train["X"], train["y"])
    if not hasattr(found, "classes_"):
        return numbers(test["y"], found.predict(test["X"]))
    if hasattr(found, "predict_proba"):
        return classes(test["y"], found.predict_proba(test["X"]), found.classes_)
    return classes(test["y"], predicted=found.predict(test["X"]))


def kept(file):
    """question → the records that an earlier run left in the folder ANSWERS, the last of each
    peer."""
    path = Path(os.environ.get("ANSWERS", "")) / file
    found = (map(json.loads, path.read_text().splitlines()) if "ANSWERS" in os.environ
             and path.exists() else ())
    out = {}
    for record in found:
        out.setdefault(record["question"], {})[record.get("peer")] = record
    return out


def keep(file, lines):
    if "ANSWERS" in os.environ:
        with open(Path(os.environ["ANSWERS"]) / file, "a") as out:
            out.writelines(f"{line}\n" for line in lines)


def peers(quick):
    """question → peer → record, from the peers' own process where not all is kept."""
    found = kept("peers.jsonl")
    if any(q[0] not in found for q in chosen()):
        command = [os.environ.get("PEERS", sys.executable),
                   str(Path(__file__).with_name("first_peers.py")), *["--quick"] * quick]
        lines = subprocess.run(command, stdout=subprocess.PIPE, text=True,
                               check=True).stdout.splitlines()
        keep("peers.jsonl", lines)
        for record in map(json.loads, lines):
            found.setdefault(record["question"], {})[record["peer"]] = record
    return found


def asked(make, i, estimator, name, words, quick):
    """Our record of a question: scores, seconds and warnings of every seed."""
    record = dict(question=i, scores=[], times=[], said=0, failed=0)
    verbose = "VERBOSE" in os.environ
    for seed in seeds(estimator, name, quick):
        train, test = parts(name, seed)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            began = time.perf_counter()
            try:
                record["scores"].append(ours(make, estimator, words, seed, train, test))
            except Exception as error:
                record["scores"].append(None)
                record["failed"] += 1
                if verbose:
                    print(f"# {estimator} {name} seed {seed}: {type(error).__name__}: {error}"[:500],
                          file=sys.stderr, flush=True)
            record["times"].append(time.perf_counter() - began)
        record["said"] += bool(caught)
        for text in sorted({str(w.message)[:400] for w in caught}) if verbose else ():
            print(f"# {estimator} {name} seed {seed} warns: {text}", file=sys.stderr, flush=True)
    return record


def _row(estimator, name, words, key, mine, rivals, share):
    """Ours and the best peer's median, and how far apart in standard errors."""
    values = np.array([np.nan if s is None else s[key] for s in mine["scores"]])
    medians = {}
    for record in rivals:
        theirs = np.array(
            [np.nan if not s else s.get(key, np.nan) for s in record["scores"][: len(values)]]
        )
        if len(theirs) and not np.isnan(theirs).all():
            medians[record["peer"]] = (np.nanmedian(theirs), theirs, record)
    median = np.nanmedian(values) if not np.isnan(values).all() else np.nan
    case = f"{estimator}{''.join(f' {v}' for v in words.values())}, {name}, {key}"
    note = f"warned {mine['said']} of {len(values)}" + (f", failed {mine['failed']}"
                                                        if mine["failed"] else "")
    judged = {n: v for n, v in medians.items() if not n.startswith("(")}
    best, peer_time = None, None
    if judged:
        rival = max(judged, key=lambda n: judged[n][0])
        best, theirs, record = judged[rival]
        peer_time = record["time"]
        apart = values - theirs
        spread = np.nanstd(apart) * np.sqrt(1 / len(apart) + share)
        note += f"; {rival}, warned {record['said']}" + (
            f", {record['failed']}" if record["failed"] else ""
        )
        if not median >= best - 1e-6 * max(1, abs(best)):
            errors = np.nanmean(apart) / spread if spread > 0 else -np.inf
            word = ("BELOW" if errors < -NOISE and best - median > WORTH or np.isnan(median)
                    else "below")
            note += f"; {word} by {best - median:.3g} ({errors:+.1f} se)"
    for n, v in medians.items():
        if n not in judged:
            note += f"; {n} {v[0]:.4g}"
    for record in rivals:
        if record["failed"] and record["peer"] not in medians:
            note += f"; {record['peer']}: {record['failed'][:60]}"
    return row(case, mine["times"][0], float(np.median(mine["times"][1:])), peer_time, median, best,
               note)


def first_answers(dtype, quick):
    """The table; rows below the best peer's median say so: in capitals where that is beyond NOISE
    and WORTH."""
    rivals, own, make = peers(quick), kept("ours.jsonl"), makers()
    below = noise = total = 0
    for i, estimator, name, words in chosen():
        mine = own.get(i, {}).get(None)
        if mine is None:
            mine = asked(make, i, estimator, name, words, quick)
            keep("ours.jsonl", [json.dumps(mine)])
        train, test = parts(name, 0)
        for key in next((list(s) for s in mine["scores"] if s), ["failed"]):
            record = _row(estimator, name, words, key, mine, list(rivals.get(i, {}).values()),
                          len(test["X"]) / len(train["X"]))
            below += "BELOW" in record["note"]
            noise += " below by" in record["note"]
            total += record["peer_quality"] is not None
            yield record
    told = f"first answers: {total} scores beside a peer, {len(QUESTIONS)} questions"
    yield row(told, note=f"BELOW the best peer's median {below}, below within noise {noise}")


CASES = {"defaults": first_answers}

if __name__ == "__main__":
    tell(CASES)
