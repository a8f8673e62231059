"""ArviZ's pictures of what is exported, and its summaries, in whichever generation is installed
whole: none of them complains, and their numbers are ours."""

import warnings

import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample

import probml

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    arviz = pytest.importorskip("arviz")
pytest.importorskip("matplotlib").use("agg")

OLD = arviz.__version__.startswith("0.")
PICTURES = ["plot_trace", "plot_rank", "plot_forest", "plot_pair", "plot_autocorr", "plot_ess",
            "plot_energy" if OLD else "plot_mcse", "plot_ppc" if OLD else "plot_ppc_dist",
            "plot_loo_pit", "plot_khat" if OLD else "plot_convergence_dist"]
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")]


@probml.model
def wards(ward, n: int):
    noise = sample("noise", dist.HalfNormal(2.0))
    with plate("wards", n):
        level = sample("level", dist.Normal(0.0, 5.0))
    with probml.rows():
        sample("y", dist.Normal(level[ward], noise))


@pytest.fixture(scope="module")
def drawn():
    random = np.random.default_rng(0)
    data = {"ward": np.repeat(["north", "south", "west"], 10), "y": random.normal(size=30)}
    fit = wards(n=3).fit(data, probml.NUTS(draws=300, warmup=300, chains=2, progress=False))
    return fit, fit.to_arviz(data, prior=50)


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_drawn(drawn, name):
    from matplotlib import pyplot

    _, told = drawn
    if name == "plot_energy":
        pytest.skip("NumPyro's sampler tells no energy")
    given = {"plot_loo_pit": {"y": "y"} if OLD else {},
             "plot_khat": {}}.get(name, {})
    found = arviz.loo(told, pointwise=True) if name == "plot_khat" else told
    assert getattr(arviz, name)(found, **given) is not None
    pyplot.close("all")


def test_a_summary_is_ours_by_the_names_of_members(drawn):
    fit, told = drawn
    theirs, ours = arviz.summary(told, round_to=6 if OLD else "none"), fit.summary()
    for ward in ("north", "south", "west"):
        row = theirs.loc[f"level[{ward}]"]
        assert float(row["mean"]) == pytest.approx(ours.loc[f"level[{ward}]", "mean"], abs=1e-3)
        # NumPyro's sum of autocorrelations leaves out the last even lag, which ArviZ adds: up to 3%
        assert float(row["ess_bulk"]) == pytest.approx(ours.loc[f"level[{ward}]", "ess_bulk"],
                                                       rel=0.05)
        assert float(row["r_hat"]) == pytest.approx(ours.loc[f"level[{ward}]", "r_hat"], abs=2e-3)


def test_leave_one_out_is_that_of_compare(drawn):
    fit, told = drawn
    found = arviz.loo(told)
    ours = probml.compare({"wards": fit}, fit.data and {"ward": np.repeat(
        ["north", "south", "west"], 10), "y": told.observed_data["y"].values})
    elpd = found.elpd_loo if OLD else found.elpd
    assert float(elpd) == pytest.approx(ours.loc["wards", "elpd_loo"], abs=1e-4)


def test_groups_go_to_a_file_and_come_back(drawn, tmp_path):
    pytest.importorskip("h5netcdf") if OLD else pytest.importorskip("netCDF4")
    _, told = drawn
    told.to_netcdf(tmp_path / "draws.nc")
    again = arviz.from_netcdf(tmp_path / "draws.nc")
    np.testing.assert_array_equal(again.posterior["level"], told.posterior["level"])
