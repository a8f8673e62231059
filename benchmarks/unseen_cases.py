"""What unseen numbers cost, all rows that issue and docs speak of in one run of some minutes:
`python benchmarks/run.py unseen_numbers`; on a quiet machine, since its seconds are the clock's.

Peers that are not in this environment are looked for in the folder that PEERS names (a
site-packages of the same Python and NumPy): scikit-learn, statsmodels, dynamax. Each peer is asked
once, after ours; one that is not there leaves its cell empty.
"""

import contextlib
import importlib
import time
import warnings

import numpy as np

from common_cases import clock, row, tell
from kalman_cases import D, iteration, model, peer, system
from latent_cases import answers, draw_schools, factor_table
from mixed_cases import counts, crossed, lines


def told(case, wanted, project, other=None, quality=None):
    """One row: our first call, our second, and the peer's one.

    Args:
        wanted: peer / ours, in words. quality: results of both → two numbers.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cold, _ = clock(project)
        began = time.process_time()
        warm, ours = clock(project)
        spent = time.process_time() - began
        seconds, theirs = (None, None) if other is None else clock(other)
    found = (None, None) if quality is None else quality(ours, theirs)
    return row(case, cold, warm, seconds, *found,
               f"{spent:.2f} s of processor; wanted: {wanted}")


def last(ours, theirs):
    """Log likelihoods."""
    return ours.history[-1], getattr(theirs, "llf", None)


def mixed(quick):
    n, groups = (2_000, 100) if quick else (100_000, 5_000)
    project, other = lines(n, groups)
    yield told(f"lines of {groups:,} groups, {n:,} rows, peer MixedLM", "10", project, other, last)
    n, ones, twos = (2_000, 40, 10) if quick else (50_000, 1_000, 200)
    yield told(f"crossed effects, {n:,} rows, {ones:,} + {twos:,} levels", "no bound",
               crossed(n, ones, twos), None, last)
    n, groups = (2_000, 100) if quick else (100_000, 5_000)
    yield told(f"counts with effects, {n:,} rows, {groups:,} groups, 25 nodes", "no bound",
               counts(n, groups), None, last)


def kalman(quick):
    p, linear = system(), model()
    for n, steps in ((1, 5_000), (20, 200)) if quick else ((1, 100_000), (1_000, 200)):
        y = np.asarray(linear.at(p).simulate(n, steps=steps)["y"], float)
        fit, title = linear.at(p), f"{n:,} × {steps:,} × {D} states"
        other, share = peer(p, y), 1
        if other is not None and n > 50:  # one series after another, all of one length
            other, share = peer(p, y[:50]), n / 50
        record = told(f"Kalman smoothing, {title}, peer statsmodels", "3",
                      lambda fit=fit, y=y: np.asarray(fit.conditional({"y": y}, "z").mean), other,
                      lambda ours, theirs: (None, None) if theirs is None else (
                          float(np.abs(ours[0] - theirs).max()), 0.0))
        smoother = record["peer"] = None if record["peer"] is None else record["peer"] * share
        yield record | {"note": record["note"] + "; quality: largest difference of states"}
        yield row(f"one iteration of EM, {title}, peer's smoother", None,
                  iteration(linear, p, y, 4), smoother, note="wanted: 3")
        if (found := dynamax(p, y)) is not None:
            yield found | {"case": f"the same, {title}, peer dynamax", "warm": record["warm"]}


def dynamax(p, y):
    """Its smoother of all series, compiled; None: not installed."""
    with contextlib.suppress(ImportError):
        import jax
        import jax.numpy as jnp

        inference = importlib.import_module("dynamax.linear_gaussian_ssm.inference")
        eye, zero = jnp.eye(D), jnp.zeros(D)
        params = inference.make_lgssm_params(
            initial_mean=zero, initial_cov=eye, dynamics_weights=jnp.asarray(p["turn"]),
            dynamics_cov=jnp.asarray(p["push"]), emissions_weights=jnp.asarray(p["load"]),
            emissions_cov=jnp.diag(jnp.asarray(p["noise"]) ** 2))
        smooth = jax.jit(jax.vmap(lambda y: inference.lgssm_smoother(params, y).smoothed_means))
        held = jnp.asarray(y)
        first, _ = clock(lambda: smooth(held).block_until_ready())
        again, _ = clock(lambda: smooth(held).block_until_ready())
        return row("", None, None, again, note=f"wanted: 3; its first call {first:.1f} s")
    return None


def factors(quick):
    from probml.models import FactorAnalysis

    n, d, q = (2_000, 20, 3) if quick else (100_000, 50, 5)
    x, holes = factor_table(n, d, q)
    other = None
    with contextlib.suppress(ImportError):
        from sklearn.decomposition import FactorAnalysis as Peer

        def other():
            return Peer(q).fit(x)

    def scores(ours, theirs):
        return ours.score(x), None if theirs is None else theirs.score(x)

    record = told(f"factor analysis, {n:,} × {d}, q = {q}, complete, peer scikit-learn", "1",
                  lambda: FactorAnalysis(q, prior=False).fit(x), other, scores)
    yield record
    more = told("the same, a fifth unseen, peer on complete rows", "1 / 3",
                lambda: FactorAnalysis(q, prior=False).fit(holes), None,
                lambda ours, _: (ours.score(x), record["peer_quality"]))
    yield more | {"peer": record["peer"]}


def answered(quick):
    import probml
    from probml.models import item_response

    n, items = (500, 10) if quick else (5_000, 40)
    y = answers(n, items)
    yield told(f"item response, {n:,} × {items}, 2PL by quadrature", "3 s",
               lambda: item_response(items=items).fit({"y": y}, probml.MAP(prior=False)), None,
               last)


def schools(quick):
    draws = 200 if quick else 1_000

    def least(fit, seconds):
        return fit.summary().loc[["mu", "tau"], ["ess_bulk", "ess_tail"]].to_numpy().min() / seconds

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        draw_schools("none", draws)  # compiles
    record = told(f"eight schools by NUTS, 4 × {draws}, effects integrated out, peer: sampled", "5 "
                  "times the effective draws a second, which are the quality",
                  lambda: draw_schools("exact", draws), lambda: draw_schools("none", draws),
                  lambda *both: both)
    ours, theirs = record["quality"], record["peer_quality"]
    yield record | {"quality": least(ours, record["warm"]),
                    "peer_quality": least(theirs, record["peer"])}


def unseen_numbers(dtype, quick):
    """All of these."""
    for part in (answered, mixed, factors, schools, kalman):
        yield from part(quick)


CASES = {"unseen_numbers": unseen_numbers}


if __name__ == "__main__":
    tell(CASES)
