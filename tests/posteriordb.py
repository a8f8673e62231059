"""The reference posteriors of posteriordb, each model written as a user would: the table that
engines of posteriors are held against.

A case says how the reference's data become those of the model, and how the model's parameters get
the names of the reference: pieces as `beta[1]`, and what is computed from parameters, such as
`theta` of eight schools.
"""

import functools
import gzip
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.experimental.ode import odeint
from numpyro import plate, sample
from numpyro.distributions import constraints
from scipy.special import logit

import probml

Arrays = Mapping[str, Any]


def flat(*shape, support=constraints.real):
    """No prior: the improper uniform distribution."""
    return dist.ImproperUniform(support, (), shape)


def half(distribution):
    """A distribution cut off below zero."""
    return dist.TruncatedDistribution(distribution, low=0.0)


class Ordered(dist.Distribution):
    """Independent normals, given that they are positive and ascend; unnormalised, as a prior with a
    constraint is in Stan."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.positive_ordered_vector
    pytree_data_fields = ("loc", "scale")

    def __init__(self, loc, scale, *, validate_args=None):
        self.loc, self.scale = jnp.broadcast_arrays(jnp.asarray(loc, float),
                                                    jnp.asarray(scale, float))
        super().__init__(self.loc.shape[:-1], self.loc.shape[-1:], validate_args=validate_args)

    def log_prob(self, value):
        return dist.Normal(self.loc, self.scale).log_prob(value).sum(-1)


# Regressions


@probml.model
def linear_flat(x):
    beta = sample("beta", flat(x.shape[-1]))
    sigma = sample("sigma", flat(support=constraints.positive))
    with probml.rows():
        sample("y", dist.Normal(x @ beta, sigma))


@probml.model
def linear_cauchy(x):
    beta = sample("beta", flat(x.shape[-1]))
    sigma = sample("sigma", dist.HalfCauchy(2.5))
    with probml.rows():
        sample("y", dist.Normal(x @ beta, sigma))


@probml.model
def linear_normal(x):
    beta = sample("beta", dist.Normal(0, 10).expand([x.shape[-1]]).to_event(1))
    sigma = sample("sigma", dist.HalfNormal(10))
    with probml.rows():
        sample("y", dist.Normal(x @ beta, sigma))


@probml.model
def diamonds(x):
    b = sample("b", dist.Normal(0, 1).expand([x.shape[-1]]).to_event(1))
    intercept = sample("Intercept", dist.StudentT(3, 8, 10))
    sigma = sample("sigma", half(dist.StudentT(3, 0, 10)))
    with probml.rows():
        sample("y", dist.Normal(intercept + x @ b, sigma))


@probml.model
def logistic_flat(x):
    beta = sample("beta", flat(x.shape[-1]))
    with probml.rows():
        sample("y", dist.Bernoulli(logits=x @ beta))


@probml.model
def logistic_interaction(c_dist, c_arsenic):
    alpha = sample("alpha", flat())
    beta = sample("beta", flat(3))
    with probml.rows():
        sample("switched", dist.Bernoulli(
            logits=alpha + beta[0] * c_dist + beta[1] * c_arsenic + beta[2] * c_dist * c_arsenic
        ))


@probml.model
def dogs(avoided, shocked):
    beta = sample("beta", dist.Normal(0, 100).expand([3]).to_event(1))
    with probml.rows():
        sample("y", dist.Bernoulli(logits=beta[0] + beta[1] * avoided + beta[2] * shocked))


@probml.model
def glm_poisson(year):
    alpha = sample("alpha", dist.Uniform(-20, 20))
    beta1 = sample("beta1", dist.Uniform(-10, 10))
    beta2 = sample("beta2", dist.Uniform(-10, 10))
    beta3 = sample("beta3", dist.Uniform(-10, 10))
    with probml.rows():
        sample("C", dist.Poisson(jnp.exp(alpha + beta1 * year + beta2 * year**2 + beta3 * year**3)))


@probml.model
def dugongs(x):
    alpha = sample("alpha", dist.Normal(0, 1000))
    beta = sample("beta", dist.Normal(0, 1000))
    rate = sample("lambda", dist.Uniform(0.5, 1))
    tau = sample("tau", dist.Gamma(1e-4, 1e-4))
    with probml.rows():
        sample("Y", dist.Normal(alpha - beta * rate**x, 1 / jnp.sqrt(tau)))


@probml.model
def autoregression(lags):
    alpha = sample("alpha", dist.Normal(0, 10))
    beta = sample("beta", dist.Normal(0, 10).expand([lags.shape[-1]]).to_event(1))
    sigma = sample("sigma", dist.HalfCauchy(2.5))
    with probml.rows():
        sample("y", dist.Normal(alpha + lags @ beta, sigma))


@probml.model
def radon_pooled(floor):
    alpha = sample("alpha", dist.Normal(0, 10))
    beta = sample("beta", dist.Normal(0, 10))
    sigma = sample("sigma_y", dist.HalfNormal(1))
    with probml.rows():
        sample("log_radon", dist.Normal(alpha + beta * floor, sigma))


# Groups


@probml.model
def eight_schools(schools: int, school, sigma):
    mu = sample("mu", dist.Normal(0, 5))
    tau = sample("tau", dist.HalfCauchy(5))
    with plate("schools", schools):
        theta_trans = sample("theta_trans", dist.Normal(0, 1))
    theta = mu + tau * theta_trans
    with probml.rows():
        sample("y", dist.Normal(theta[school], sigma))


@probml.model
def radon_counties(counties: int, county, floor):
    mu = sample("mu_alpha", dist.Normal(0, 10))
    scale = sample("sigma_alpha", dist.HalfNormal(1))
    beta = sample("beta", dist.Normal(0, 10))
    sigma = sample("sigma_y", dist.HalfNormal(1))
    with plate("counties", counties):
        raw = sample("alpha_raw", dist.Normal(0, 1))
    alpha = mu + scale * raw
    with probml.rows():
        sample("log_radon", dist.Normal(alpha[county] + beta * floor, sigma))


@probml.model
def rats(animals: int, rat, age):
    mu_alpha = sample("mu_alpha", dist.Normal(0, 100))
    mu_beta = sample("mu_beta", dist.Normal(0, 100))
    sigma_alpha = sample("sigma_alpha", flat(support=constraints.positive))
    sigma_beta = sample("sigma_beta", flat(support=constraints.positive))
    sigma_y = sample("sigma_y", flat(support=constraints.positive))
    with plate("animals", animals):
        alpha = sample("alpha", dist.Normal(mu_alpha, sigma_alpha))
        beta = sample("beta", dist.Normal(mu_beta, sigma_beta))
    with probml.rows():
        sample("weight", dist.Normal(alpha[rat] + beta[rat] * age, sigma_y))


@probml.model
def seeds(plates: int, dish, x1, x2, total):
    alpha0 = sample("alpha0", dist.Normal(0, 1000))
    alpha1 = sample("alpha1", dist.Normal(0, 1000))
    alpha2 = sample("alpha2", dist.Normal(0, 1000))
    alpha12 = sample("alpha12", dist.Normal(0, 1000))
    tau = sample("tau", dist.Gamma(1e-3, 1e-3))
    with plate("dishes", plates):
        b = sample("b", dist.Normal(0, 1 / jnp.sqrt(tau)))
    with probml.rows():
        sample("n", dist.Binomial(
            total, logits=alpha0 + alpha1 * x1 + alpha2 * x2 + alpha12 * x1 * x2 + b[dish]
        ))


# Mixtures and chains: what is discrete is unseen


@probml.model
def two_normals():
    theta = sample("theta", dist.Beta(5, 5))
    with plate("component", 2):
        mu = sample("mu", dist.Normal(0, 2))
        sigma = sample("sigma", dist.HalfNormal(2))
    with probml.rows():
        z = sample("z", dist.Bernoulli(1 - theta))
        sample("y", dist.Normal(mu[z], sigma[z]))


@probml.model
def hmm_example():
    with plate("state", 2):
        theta = sample("theta", dist.Dirichlet(jnp.ones(2)))
    mu = sample("mu", Ordered([3, 10], 1))
    with probml.rows():
        z = sample("z", probml.MarkovChain(jnp.full(2, 0.5), theta))
        sample("y", dist.Normal(mu[z], 1).to_event(1))


@probml.model
def hmm_drive(alpha):
    with plate("state", 2):
        theta = sample("theta", dist.Dirichlet(jnp.asarray(alpha, float)))
    phi = sample("phi", Ordered([0, 3], 1))
    rate = sample("lambda", Ordered([0, 3], 1))
    with probml.rows():
        z = sample("z", probml.MarkovChain(jnp.full(2, 0.5), theta))
        sample("u", dist.Exponential(phi[z]).to_event(1))
        sample("v", dist.Exponential(rate[z]).to_event(1))


# Curves


@probml.model
def gaussian_process(x):
    rho = sample("rho", dist.Gamma(25, 4))
    alpha = sample("alpha", dist.HalfNormal(2))
    sigma = sample("sigma", dist.HalfNormal(1))
    apart = x[..., :, None] - x[..., None, :]
    covariance = alpha**2 * jnp.exp(-(apart**2) / (2 * rho**2)) + sigma * jnp.eye(x.shape[-1])
    with probml.rows():  # one row: the whole curve
        sample("y", dist.MultivariateNormal(0, covariance))


@probml.model
def motorcycle_processes(frequencies, frequencies_sigma, basis, basis_sigma):
    def process(ending, frequencies, basis):
        scale = sample(f"sdgp{ending}_1", half(dist.StudentT(3, 0, 36)))
        length = sample(f"lscale{ending}_1", dist.InverseGamma(1.124909, 0.0177))
        z = sample(f"zgp{ending}_1", dist.Normal(0, 1).expand([len(frequencies)]).to_event(1))
        # the root of the spectral density at once: the density underflows at long lengths, and the
        # slope of √0 is infinite
        root = scale * jnp.sqrt(jnp.sqrt(2 * jnp.pi) * length) * jnp.exp(
            -0.25 * (length * frequencies) ** 2
        )
        return basis @ (root * z)

    mean = sample("Intercept", dist.StudentT(3, -13, 36)) + process("", frequencies, basis)
    log_scale = sample("Intercept_sigma", dist.StudentT(3, 0, 10)) + process(
        "_sigma", frequencies_sigma, basis_sigma
    )
    with probml.rows():
        sample("y", dist.Normal(mean, jnp.exp(log_scale)))


@probml.model
def motorcycle_splines(x, z, x_sigma, z_sigma):
    def spline(ending, x, z):
        b = sample(f"bs{ending}", flat(x.shape[-1]))
        weights = sample(f"zs{ending}_1_1", dist.Normal(0, 1).expand([z.shape[-1]]).to_event(1))
        scale = sample(f"sds{ending}_1_1", half(dist.StudentT(3, 0, 36)))
        return x @ b + z @ (scale * weights)

    mean = sample("Intercept", dist.StudentT(3, -13, 36)) + spline("", x, z)
    log_scale = sample("Intercept_sigma", dist.StudentT(3, 0, 10)) + spline("_sigma", x_sigma,
                                                                            z_sigma)
    with probml.rows():
        sample("y", dist.Normal(mean, jnp.exp(log_scale)))


@probml.model
def lotka_volterra(years: int, year):
    theta = sample("theta", dist.TruncatedNormal(
        jnp.array([1, 0.05, 1, 0.05]), jnp.array([0.5, 0.05, 0.5, 0.05]), low=0
    ).to_event(1))
    z_init = sample("z_init", dist.LogNormal(jnp.log(10), 1).expand([2]).to_event(1))
    sigma = sample("sigma", dist.LogNormal(-1, 1).expand([2]).to_event(1))

    def change(z, t, theta):
        u, v = z
        return jnp.stack([(theta[0] - theta[1] * v) * u, (-theta[2] + theta[3] * u) * v])

    z = odeint(change, z_init, jnp.arange(years, dtype=float), theta, rtol=1e-6, atol=1e-5,
               mxstep=1000)
    with probml.rows():  # the year is a covariate
        sample("y", dist.LogNormal(jnp.log(z[year]), sigma).to_event(1))


# The table


def pieces(params: Arrays, lead: int = 0) -> dict[str, np.ndarray]:
    """Values by the names of Stan: `beta` of two cells is `beta[1]` and `beta[2]`; `lead` leading
    axes are those of draws."""
    out = {}
    for name, value in params.items():
        value = np.asarray(value)
        for index in np.ndindex(value.shape[lead:]):
            own = f"{name}[{','.join(str(i + 1) for i in index)}]" if index else name
            out[own] = value[(slice(None),) * lead + index]
    return out


def whole(named: Mapping[str, float]) -> dict[str, np.ndarray]:
    """The other way round."""
    out: dict[str, Any] = {}
    for name, value in named.items():
        match = re.fullmatch(r"(.+)\[(\d+)\]", name)
        if match is None:
            out[name] = np.asarray(value, float)
        else:
            out.setdefault(match[1], []).append(value)
    return {name: np.asarray(value, float) for name, value in out.items()}


@dataclass(frozen=True)
class Case:
    """One reference posterior, and the same as a model of probml.

    Attributes:
        posterior: its name in posteriordb: data-model.
        model: from the reference's data to the bound model.
        data: from the reference's data to those of `fit`.
        named: from parameters with one leading axis to values by the names of the reference (before
            they are cut in pieces).
        back: the inverse, from values by the names of the reference's log density to parameters.
    """

    posterior: str
    model: Callable[[Arrays], probml.Model]
    data: Callable[[Arrays], dict[str, Any]]
    named: Callable[[Arrays], Arrays] = dict
    back: Callable[[Arrays], Arrays] = dict

    def __repr__(self) -> str:
        return self.posterior

    def read(self, folder: Path) -> tuple[probml.Model, dict[str, Any], dict[str, Any]]:
        """The model, its data and the reference.

        Args:
            folder: the shared data.
        """
        reference = json.loads(
            (folder / "posteriordb" / "reference" / f"{self.posterior}.json").read_text()
        )
        held = _data(folder / reference["data_file"])
        return self.model(held), self.data(held), reference

    def quantities(self, params: Arrays, lead: int = 1) -> dict[str, np.ndarray]:
        """Parameters, a leading axis of draws each, as the quantities of the reference."""
        return pieces(self.named({name: np.asarray(value) for name, value in params.items()}), lead)

    def params(self, names: list[str], values: list[float]) -> dict[str, np.ndarray]:
        """A point of the reference's log density as parameters of the model."""
        return dict(self.back(whole(dict(zip(names, values, strict=True)))))


@functools.cache
def _data(path: Path) -> dict[str, np.ndarray]:
    zipped = path.with_name(path.name + ".gz")
    text = gzip.decompress(zipped.read_bytes()) if zipped.exists() else path.read_bytes()
    return {name: np.asarray(value) for name, value in json.loads(text).items()}


def regression(model: Any, y: Callable[[Arrays], Any], *terms: Callable[[Arrays], Any]):
    """Model and data of a regression on a constant and these terms."""

    def data(d: Arrays) -> dict[str, Any]:
        columns = [np.asarray(term(d), float) for term in terms]
        return {"x": np.stack([np.ones_like(columns[0]), *columns], 1),
                "y": np.asarray(y(d), float)}

    return lambda d: model(), data


def _the(name: str) -> Callable[[Arrays], np.ndarray]:
    return lambda d: d[name]


def _log(*names: str) -> Callable[[Arrays], np.ndarray]:
    return lambda d: np.log(np.prod([d[name] for name in names], 0, dtype=float))


def _age(group: int) -> Callable[[Arrays], np.ndarray]:
    return lambda d: d["age_discrete"] == group


def _before(y: np.ndarray) -> np.ndarray:
    """How often before each trial."""
    return (np.cumsum(y, 1) - y).reshape(-1).astype(float)


def _centred(x: np.ndarray) -> np.ndarray:
    return x - x.mean(0)


def _rows_of_table(d: Arrays) -> dict[str, np.ndarray]:
    """`theta1` and `theta2` are the rows of the transition table."""
    rest = {name: value for name, value in d.items() if name != "theta"}
    return {"theta1": d["theta"][..., 0, :], "theta2": d["theta"][..., 1, :], **rest}


def _table_of_rows(d: Arrays) -> dict[str, np.ndarray]:
    rest = {name: value for name, value in d.items() if name not in ("theta1", "theta2")}
    return {"theta": np.stack([d["theta1"], d["theta2"]]), **rest}


def _ascending(d: Arrays) -> dict[str, np.ndarray]:
    """Components in the order of their means: theta is the weight of the first."""
    swap = d["mu"][..., 0] > d["mu"][..., 1]
    out = {name: np.where(swap[..., None], d[name][..., ::-1], d[name]) for name in ("mu", "sigma")}
    return {**out, "theta": np.where(swap, 1 - d["theta"], d["theta"])}


def _kidscore(name: str, *terms: Callable[[Arrays], Any]) -> Case:
    return Case(f"kidiq-kidscore_{name}", *regression(linear_cauchy, _the("kid_score"), *terms))


def _earnings(name: str, y: Callable[[Arrays], Any], *terms: str) -> Case:
    return Case(f"earnings-{name}", *regression(linear_flat, y, *map(_the, terms)))


def _mesquite(name: str, y: Callable[[Arrays], Any], *terms: Callable[[Arrays], Any]) -> Case:
    return Case(f"mesquite-{name}", *regression(linear_flat, y, *terms))


def _election(year: int) -> Case:
    terms = [_the("real_ideo"), _the("race_adj"), _age(2), _age(3), _age(4), _the("educ1"),
             _the("gender"), _the("income")]
    return Case(f"nes{year}-nes", *regression(linear_flat, _the("partyid7"), *terms))


def _both(d: Arrays) -> np.ndarray:
    return d["mom_hs"] * d["mom_iq"]


CASES = [
    Case("GLM_Poisson_Data-GLM_Poisson_model", lambda d: glm_poisson(),
         lambda d: {"year": d["year"], "C": d["C"]}),
    Case(
        "arK-arK",
        lambda d: autoregression(),
        lambda d: {"lags": np.stack([d["y"][5 - k : -k] for k in range(1, 6)], 1), "y": d["y"][5:]},
    ),
    Case(
        "bball_drive_event_0-hmm_drive_0",
        lambda d: hmm_drive(d["alpha"]),
        lambda d: {"u": d["u"][None], "v": d["v"][None]},
        _rows_of_table,
        _table_of_rows,
    ),
    Case("diamonds-diamonds", lambda d: diamonds(),
         lambda d: {"x": _centred(d["X"][:, 1:]), "y": d["Y"]}),
    Case(
        "dogs-dogs",
        lambda d: dogs(),
        lambda d: {"avoided": _before(1 - d["y"]), "shocked": _before(d["y"]),
                   "y": d["y"].reshape(-1)},
    ),
    Case(
        "dugongs_data-dugongs_model",
        lambda d: dugongs(),
        lambda d: {"x": d["x"], "Y": d["Y"]},
        lambda d: {**d, "sigma": 1 / np.sqrt(d["tau"]), "U3": logit(d["lambda"])},
    ),
    _earnings("earn_height", _the("earn"), "height"),
    _earnings("log10earn_height", lambda d: np.log10(d["earn"]), "height"),
    _earnings("logearn_height", _log("earn"), "height"),
    _earnings("logearn_height_male", _log("earn"), "height", "male"),
    Case(
        "eight_schools-eight_schools_noncentered",
        lambda d: eight_schools(len(d["y"])),
        lambda d: {"school": np.arange(len(d["y"])), "sigma": d["sigma"].astype(float),
                   "y": d["y"].astype(float)},
        lambda d: {"theta": d["mu"][..., None] + d["tau"][..., None] * d["theta_trans"],
                   "mu": d["mu"], "tau": d["tau"]},
    ),
    Case("gp_pois_regr-gp_regr", lambda d: gaussian_process(),
         lambda d: {"x": d["x"][None].astype(float), "y": d["y"][None]}),
    Case("hmm_example-hmm_example", lambda d: hmm_example(), lambda d: {"y": d["y"][None]},
         _rows_of_table, _table_of_rows),
    Case(
        "hudson_lynx_hare-lotka_volterra",
        lambda d: lotka_volterra(1 + len(d["ts"])),
        lambda d: {"year": np.arange(1 + len(d["ts"])),
                   "y": np.concatenate([d["y_init"][None], d["y"]])},
    ),
    _kidscore("interaction", _the("mom_hs"), _the("mom_iq"), _both),
    _kidscore("momhs", _the("mom_hs")),
    _kidscore("momhsiq", _the("mom_hs"), _the("mom_iq")),
    _kidscore("momiq", _the("mom_iq")),
    Case("low_dim_gauss_mix-low_dim_gauss_mix", lambda d: two_normals(), lambda d: {"y": d["y"]},
         _ascending),
    Case(
        "mcycle_gp-accel_gp",
        lambda d: motorcycle_processes(d["slambda_1"][:, 0], d["slambda_sigma_1"][:, 0]),
        lambda d: {"basis": d["Xgp_1"], "basis_sigma": d["Xgp_sigma_1"], "y": d["Y"]},
    ),
    Case(
        "mcycle_splines-accel_splines",
        lambda d: motorcycle_splines(),
        lambda d: {"x": d["Xs"], "z": d["Zs_1_1"], "x_sigma": d["Xs_sigma"],
                   "z_sigma": d["Zs_sigma_1_1"], "y": d["Y"]},
    ),
    _mesquite(
        "logmesquite",
        _log("weight"),
        *(_log(name) for name in ("diam1", "diam2", "canopy_height", "total_height", "density")),
        _the("group"),
    ),
    _mesquite("logmesquite_logva", _log("weight"), _log("diam1", "diam2", "canopy_height"),
              _log("diam1", "diam2"), _the("group")),
    _mesquite("logmesquite_logvolume", _log("weight"), _log("diam1", "diam2", "canopy_height")),
    _mesquite(
        "mesquite", _the("weight"), *(_the(name) for name in ("diam1", "diam2", "canopy_height",
                                                              "total_height", "density", "group"))
    ),
    *map(_election, (1972, 1976, 1984, 1988, 1996)),
    Case(
        "radon_mn-radon_pooled",
        lambda d: radon_pooled(),
        lambda d: {"floor": d["floor_measure"].astype(float), "log_radon": d["log_radon"]},
    ),
    Case(
        "radon_mn-radon_variable_intercept_noncentered",
        lambda d: radon_counties(int(d["J"])),
        lambda d: {"county": d["county_idx"] - 1, "floor": d["floor_measure"].astype(float),
                   "log_radon": d["log_radon"]},
        lambda d: {
            **d, "alpha": d["mu_alpha"][..., None] + d["sigma_alpha"][..., None] * d["alpha_raw"]
        },
    ),
    Case(
        "rats_data-rats_model",
        lambda d: rats(int(d["N"])),
        lambda d: {"rat": d["rat"] - 1, "age": (d["x"] - d["xbar"]).astype(float),
                   "weight": d["y"].astype(float)},
    ),
    Case("sblrc-blr", lambda d: linear_normal(), lambda d: {"x": d["X"], "y": d["y"]}),
    Case(
        "seeds_data-seeds_model",
        lambda d: seeds(int(d["I"])),
        lambda d: {
            "dish": np.arange(d["I"]),
            "x1": d["x1"].astype(float),
            "x2": d["x2"].astype(float),
            "total": d["N"],
            "n": d["n"],
        },
    ),
    Case("sesame_data-sesame_one_pred_a",
         *regression(linear_flat, _the("watched"), _the("encouraged"))),
    Case("wells_data-wells_dist",
         *regression(logistic_flat, lambda d: d["switched"], _the("dist"))),
    Case(
        "wells_data-wells_interaction_c_model",
        lambda d: logistic_interaction(),
        lambda d: {"c_dist": _centred(d["dist"]) / 100, "c_arsenic": _centred(d["arsenic"]),
                   "switched": d["switched"]},
    ),
]
