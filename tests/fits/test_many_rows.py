"""What a user of many rows asks for besides a fit: models compared, more rows added, plans explained, Polars."""


import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample

import probml


@probml.model
def classes():
    with plate("class", 2):
        mean = sample("mean", dist.Normal(0.0, 10.0))
    share = sample("share", dist.Beta(1.0, 1.0))
    with probml.rows():
        z = sample("z", dist.Bernoulli(share))
        sample("y", dist.Normal(mean[z], 1.0))


@probml.model
def alike():
    mean, share = sample("mean", dist.Normal(0.0, 10.0)), sample("share", dist.Beta(1.0, 1.0))
    with probml.rows():
        sample("z", dist.Bernoulli(share))
        sample("y", dist.Normal(mean, 1.0))


RANDOM = np.random.default_rng(0)
Z = RANDOM.integers(2, size=90)
TABLE = {"z": Z, "y": RANDOM.normal(size=90) + 2.0 * Z}


def parts(low: int = 0, high: int = 90):
    for at in range(low, high, 30):
        yield {name: column[at : at + 30] for name, column in TABLE.items()}


def test_models_of_a_source_are_compared_by_their_scores():
    fits = {"classes": classes().fit(parts), "alike": alike().fit(parts)}
    with pytest.raises(probml.ModelError, match=r"needs all rows in memory.*fit\.score"):
        probml.compare(fits, parts)
    plain = probml.compare(fits, TABLE)
    scores = {name: fit.score(TABLE) for name, fit in fits.items()}
    assert max(scores, key=scores.get) == plain["loglik"].idxmax()


def test_a_fit_takes_further_rows_from_a_source():
    whole = classes().fit(TABLE)
    fit = classes().fit(lambda: parts(0, 30)).update(lambda: parts(30, 90))
    assert fit.log_evidence == pytest.approx(whole.log_evidence, rel=1e-5)
    assert "Exact" in str(classes().explain(parts))


def test_batches_of_polars_are_read_in_every_pass():
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame({"z": np.array(["no", "yes"])[Z], "y": TABLE["y"]})
    fit = classes().fit(lambda: frame.iter_slices(30))
    assert fit.labels("z") == ("no", "yes")
    assert fit.log_evidence == pytest.approx(classes().fit(frame).log_evidence, rel=1e-5)
