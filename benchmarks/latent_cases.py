"""Unseen numbers of rows, integrated out: item response by quadrature, factor analysis with unseen
cells beside scikit-learn's of complete rows, eight schools by NUTS with and without their effects
among what is sampled. In turns in one process; seconds of processor."""

import warnings

import numpy as np

from common_cases import row, tell
from mixed_cases import race


def answers(n: int, items: int):
    """Answers 0 and 1 of the two-parameter model."""
    random = np.random.default_rng(0)
    slope, easy = np.exp(0.3 * random.normal(size=items)), random.normal(size=items)
    chance = 1 / (1 + np.exp(-(random.normal(size=(n, 1)) * slope + easy)))
    return (random.random((n, items)) < chance).astype(float)


def item_response(dtype, quick):
    """The two-parameter model by adaptive quadrature, maximum likelihood."""
    import probml
    from probml.models import item_response

    n, items = (500, 10) if quick else (5_000, 40)
    y = answers(n, items)
    cold, warm, _, fit, _ = race(
        lambda: item_response(items=items).fit({"y": y}, probml.MAP(prior=False)), None)
    yield row(f"item response, {n:,} × {items}, 2PL", cold, warm, None, fit.history[-1], None,
              f"processor seconds; {fit.status}")


def factor_table(n: int, d: int, q: int):
    """Rows of q factors and noise, and the same with a fifth of the cells unseen."""
    random = np.random.default_rng(0)
    x = random.normal(size=(n, q)) @ random.normal(size=(q, d)) + random.normal(
        size=(n, d)) * random.uniform(0.5, 1.5, size=d)
    return x, np.where(random.random(x.shape) < 0.2, np.nan, x)


def factors(dtype, quick):
    """Factor analysis; wanted: with a fifth of the cells unseen not slower than three times
    scikit-learn on complete rows."""
    from sklearn.decomposition import FactorAnalysis as Peer

    from probml.models import FactorAnalysis

    n, d, q = (5_000, 20, 3) if quick else (100_000, 50, 5)
    x, holes = factor_table(n, d, q)
    for title, seen in (("complete", x), ("a fifth unseen, peer on complete rows", holes)):
        cold, warm, theirs, ours, peer = race(
            lambda seen=seen: FactorAnalysis(q, prior=False).fit(seen), lambda: Peer(q).fit(x))
        yield row(f"factor analysis, {n:,} × {d}, q = {q}, {title}", cold, warm, theirs,
                  ours.score(x), peer.score(x), f"processor seconds; {ours.status}")


Y, SIGMA = np.array([28.0, 8, -3, 7, -1, 1, 18, 12]), np.array([15.0, 10, 16, 11, 9, 11, 10, 18])


def draw_schools(integrate: str, draws: int):
    """Eight schools, a row a school, by NUTS."""
    import numpyro.distributions as dist
    from numpyro import sample

    import probml

    @probml.model
    def model(sigma):
        mu, tau = sample("mu", dist.Normal(0.0, 5.0)), sample("tau", dist.HalfCauchy(5.0))
        with probml.rows():
            theta = sample("theta", dist.Normal(mu, tau))
            sample("y", dist.Normal(theta, sigma))

    engine = probml.NUTS(draws=draws, chains=4, integrate=integrate)
    return model().fit({"y": Y, "sigma": SIGMA}, engine)


def schools(dtype, quick):
    """Eight schools, a row a school: effective draws of mu and tau a second, the effects integrated
    out (the default) and among what is sampled (the peer); wanted: five times as many."""
    draws = 200 if quick else 1_000
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # divergences of the sampled form, which the note tells
        draw_schools("none", draws)
        cold, warm, theirs, ours, sampled = race(lambda: draw_schools("exact", draws),
                                                 lambda: draw_schools("none", draws))
    least = [fit.summary().loc[["mu", "tau"], ["ess_bulk", "ess_tail"]].to_numpy().min() / seconds
             for fit, seconds in ((ours, warm), (sampled, theirs))]
    yield row("eight schools by NUTS, effects integrated out, peer: sampled", cold, warm, theirs,
              *least, f"processor seconds; quality: least effective draws a second; sampled: "
                      f"{sampled.status}")


CASES = {"item_response": item_response, "factors": factors, "schools_integrated": schools}


if __name__ == "__main__":
    tell(CASES)
