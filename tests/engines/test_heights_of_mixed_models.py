"""Mixed models of lme4's and nlme's documentation, flat priors, by the engine that the default asks
first: what is said to have converged is no more than 0.01 below the maximum of the marginal
likelihood, by hand in double.

A line of LINES is a model more: its name, its rows, its groupings with the column whose coefficient
differs among members ("" the intercept), its fixed columns beside the intercept. Data that are not
at hand are drawn in the shape of those that bear the name, in their units.
"""

from typing import NamedTuple

import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpyro import plate, sample
from numpyro.distributions import constraints
from scipy import optimize

import probml
from probml.engines.optimization import maximization

SHORT = 0.01  # nats
FAST = ("Oxide", "Rail", "ergoStool")


@probml.model
def effects_about_zero(x, z, member, groupings: tuple):
    """Fixed columns x (n, p); of each grouping (name, members) its column of z, member of rows."""
    beta = sample("beta", dist.ImproperUniform(constraints.real, (), (x.shape[-1],)))
    eta, positive = x @ beta, dist.ImproperUniform(constraints.positive, (), ())
    for k, (name, members) in enumerate(groupings):
        sd = sample(f"sd_{name}", positive)
        with plate(f"members_{name}", members):
            u = sample(f"u_{name}", dist.Normal(0.0, sd))
        eta = eta + u[member[..., k]] * z[..., k]
    sigma = sample("sigma", positive)
    with probml.rows():
        sample("y", dist.Normal(eta, sigma))


class Line(NamedTuple):
    name: str
    table: object  # shared data → a DataFrame with a column y
    groupings: tuple = (("subject", ""),)
    fixed: tuple = ()


def drawn(seed, level, sigma, sds, fixed=None, **factors):
    """Rows of a balanced design in factors, `inner="outer:rows"` nested, with normal effects."""
    def make(_):
        random = np.random.default_rng(seed)
        grid = np.meshgrid(*(np.arange(size) for size in factors.values()), indexing="ij")
        table = pd.DataFrame({name: axis.ravel() for name, axis in zip(factors, grid, strict=True)})
        y = np.full(len(table), float(level))
        for name, sd in sds.items():
            code, column = codes(table, *name.split("~")[:1]), name.partition("~")[2]
            own = random.normal(0, sd, code.max() + 1)[code]
            y += own * (table[column] if column else 1.0)
        for name, slope in (fixed or {}).items():
            y += slope * table[name]
        return table.assign(y=y + random.normal(0, sigma, len(table)))
    return make


def csv(name, y, **renamed):
    return lambda shared: pd.read_csv(shared / "classic" / f"{name}.csv").rename(
        columns={y: "y", **renamed})


RAIL = (55, 53, 54, 26, 37, 32, 78, 91, 85, 92, 100, 96, 49, 51, 50, 80, 85, 83)
STOOL = (12, 15, 12, 10, 10, 14, 13, 12, 7, 14, 13, 9, 7, 11, 10, 9, 8, 11, 8, 7, 9, 11, 11, 10, 8, 12,
         12, 11, 7, 11, 8, 7, 9, 13, 10, 8)


def rail(_):
    return pd.DataFrame({"subject": np.repeat(np.arange(6), 3), "y": np.array(RAIL, float)})


def stool(_):
    kind = np.tile(np.arange(4), 9)
    return pd.DataFrame({"subject": np.repeat(np.arange(9), 4), "y": np.array(STOOL, float),
                         **{f"T{k}": (kind == k) * 1.0 for k in (1, 2, 3)}})


NESTED = (("lot", ""), ("lot:wafer", ""))
LINES = [
    Line("Rail", rail),
    Line("ergoStool", stool, fixed=("T1", "T2", "T3")),
    Line("Dyestuff", csv("dyestuff", "Yield", Batch="subject")),
    Line("Dyestuff2", csv("dyestuff2", "Yield", Batch="subject")),
    Line("Pastes", csv("pastes", "strength"), (("batch", ""), ("sample", ""))),
    Line("Penicillin", csv("penicillin", "diameter"), (("plate", ""), ("sample", ""))),
    Line("sleepstudy, intercepts", csv("sleepstudy", "Reaction", Subject="subject"),
         fixed=("Days",)),
    Line("sleepstudy, slopes", csv("sleepstudy", "Reaction", Subject="subject"),
         (("subject", ""), ("subject", "Days")), ("Days",)),
    Line("Oxide", drawn(1, 2000, 3.5, {"lot": 11, "lot:wafer": 6}, lot=8, wafer=3, site=3), NESTED),
    Line("Oxide in metres", drawn(2, 2e-6, 3e-9, {"lot": 1e-8, "lot:wafer": 6e-9}, lot=8, wafer=3,
                                  site=3), NESTED),
    Line("Oxide, lots alike", drawn(3, 2000, 3.5, {"lot": 0, "lot:wafer": 6}, lot=8, wafer=3,
                                    site=3), NESTED),
    Line("Orthodont", drawn(4, 17, 1.4, {"subject": 1.8}, {"age": 0.66}, subject=27, age=4),
         fixed=("age",)),
    Line("Orthodont, slopes", drawn(5, 17, 1.3, {"subject": 1.8, "subject~age": 0.2},
                                    {"age": 0.66}, subject=27, age=4),
         (("subject", ""), ("subject", "age")), ("age",)),
    Line("Machines", drawn(6, 52, 0.96, {"worker": 4.8, "worker:machine": 3.7}, {"machine": 7.0},
                           worker=6, machine=3, again=3),
         (("worker", ""), ("worker:machine", "")), ("machine",)),
    Line("Oats", drawn(7, 80, 12.9, {"block": 14.6, "block:variety": 10.5}, {"nitro": 15.0}, block=6,
                       variety=3, nitro=4), (("block", ""), ("block:variety", "")), ("nitro",)),
    Line("Pixel", drawn(8, 1073, 9, {"dog": 28, "dog:side": 17}, {"day": 6.1}, dog=10, side=2, day=5),
         (("dog", ""), ("dog:side", "")), ("day",)),
    Line("Assay", drawn(9, 1.0, 0.04, {"block": 0.01, "block:row": 0.06}, {"dilution": -0.05},
                        block=2, row=6, dilution=5), (("block", ""), ("block:row", "")),
         ("dilution",)),
    Line("Alfalfa", drawn(10, 1.57, 0.17, {"block": 0.2, "block:variety": 0.11}, {"date": -0.1},
                          block=6, variety=3, date=4), (("block", ""), ("block:variety", "")),
         ("date",)),
    Line("Oxboys", drawn(11, 149, 0.66, {"boy": 8.1, "boy~age": 1.7}, {"age": 6.5}, boy=26, age=9),
         (("boy", ""), ("boy", "age")), ("age",)),
    Line("BodyWeight", drawn(12, 251, 4.4, {"rat": 118, "rat~day": 0.25}, {"day": 0.36}, rat=16,
                             day=11), (("rat", ""), ("rat", "day")), ("day",)),
    Line("Gasoline", drawn(13, 20, 1.9, {"crude": 1.4}, {"point": 0.16}, crude=10, point=3),
         (("crude", ""),), ("point",)),
    Line("MathAchieve", drawn(14, 12.7, 6.2, {"school": 2.9}, {"ses": 2.4}, school=40, ses=15),
         (("school", ""),), ("ses",)),
    Line("InstEval", drawn(15, 3.2, 1.18, {"student": 0.33, "lecturer": 0.52}, student=30,
                           lecturer=12), (("student", ""), ("lecturer", ""))),
    Line("cake", drawn(16, 33, 4.5, {"recipe:batch": 6.4}, {"temperature": 1.5}, recipe=3, batch=15,
                       temperature=6), (("recipe:batch", ""),), ("temperature",)),
    Line("Semiconductor", drawn(17, 45, 0.33, {"wafer": 0.6, "wafer:batch": 0.3}, wafer=12, batch=3,
                                site=4), (("wafer", ""), ("wafer:batch", ""))),
    Line("Meat", drawn(18, 27, 3.0, {"storage": 1.0, "pair": 5.0}, storage=6, pair=10),
         (("storage", ""), ("pair", ""))),
    Line("three layers", drawn(19, 5e4, 2.0, {"a": 30, "a:b": 9, "a:b:c": 4}, a=6, b=4, c=3, d=2),
         (("a", ""), ("a:b", ""), ("a:b:c", ""))),
    Line("Milk", drawn(20, 3.8, 0.26, {"cow": 0.25}, {"time": -0.02}, cow=30, time=8),
         (("cow", ""),), ("time",)),
    Line("Earthquake", drawn(21, -1.2, 0.22, {"quake": 0.15}, {"distance": -0.3}, quake=15,
                             distance=6), (("quake", ""),), ("distance",)),
    Line("Wafer", drawn(22, -4.3, 0.1, {"wafer": 0.1, "wafer:site": 0.16, "wafer~voltage": 0.2},
                        {"voltage": 5.9}, wafer=10, site=8, voltage=5),
         (("wafer", ""), ("wafer:site", ""), ("wafer", "voltage")), ("voltage",)),
]


def codes(table, name):
    """The members of a grouping, one that is nested by the names of its factors."""
    columns = table[name.split(":")].astype(str).agg(":".join, axis=1)
    return pd.factorize(columns)[0]


def rows_of(line, shared):
    table = line.table(shared)
    member = np.column_stack([codes(table, name) for name, _ in line.groupings])
    z = np.column_stack([table[column].to_numpy(float) if column else np.ones(len(table))
                         for _, column in line.groupings])
    x = np.column_stack([np.ones(len(table)), *(table[name].to_numpy(float) for name in line.fixed)])
    return {"x": x, "z": z, "member": member, "y": table["y"].to_numpy(float)}


def highest(data):
    """(log sds, σ last) → the marginal log likelihood in double, coefficients given or the best: by
    the inverse of σ² I + M Mᵀ, M the columns of effects times their sds (Woodbury's)."""
    x, z, member, y = (data[name] for name in ("x", "z", "member", "y"))
    blocks = [np.eye(code.max() + 1)[code] * column[:, None]
              for code, column in zip(member.T, z.T, strict=True)]
    columns, sizes = np.column_stack(blocks), [block.shape[1] for block in blocks]
    cross, n = columns.T @ columns, len(y)

    def height(logs, beta=None):
        own, noise = np.repeat(np.exp(logs[:-1]), sizes), np.exp(2 * logs[-1])
        lower = np.linalg.cholesky(noise * np.eye(len(own)) + cross * np.outer(own, own))

        def inverse(v):
            half = np.linalg.solve(lower, own[:, None] * (columns.T @ v))
            return (v - columns @ (own[:, None] * np.linalg.solve(lower.T, half))) / noise

        if beta is None:
            back = inverse(x)
            beta = np.linalg.solve(x.T @ back, back.T @ y)
        left = (y - x @ beta)[:, None]
        volume = 2 * np.log(np.diag(lower)).sum() + (n - len(own)) * 2 * logs[-1]
        return float(-0.5 * (left.T @ inverse(left))[0, 0] - 0.5 * volume
                     - 0.5 * n * np.log(2 * np.pi))
    return height


def best(data):
    """The maximum of several starts."""
    height, left = highest(data), data["y"] - data["x"] @ np.linalg.lstsq(data["x"], data["y"],
                                                                         rcond=None)[0]
    scale, k = np.log(left.std()), data["z"].shape[1]
    widths = np.array([np.log(np.abs(column).mean()) for column in data["z"].T])
    starts = [np.r_[scale - widths + share, scale - 1.0] for share in (0.0, -1.5)]
    starts += [np.r_[scale - widths - 4.0 * (np.arange(k) == i), scale - 0.7] for i in range(k)]
    middle = np.r_[scale - widths, scale]
    bounds = optimize.Bounds(middle - 9.0, middle + 3.0, keep_feasible=True)
    return max(-optimize.minimize(lambda logs: -height(logs), start, method="L-BFGS-B",
                                  bounds=bounds, options={"ftol": 1e-13, "maxiter": 500}).fun
               for start in starts)


@pytest.mark.parametrize("dear", [False, True])
@pytest.mark.parametrize("line", [
    pytest.param(line, id=line.name, marks=[] if line.name in FAST else pytest.mark.slow)
    for line in LINES])
def test_what_is_said_to_have_converged_is_at_the_maximum(line, dear, shared_data, monkeypatch):
    if dear:  # by BFGS in whitened coordinates, as effects of thousands of levels
        monkeypatch.setattr(maximization, "MAX_MATRIX_WITH_GRADIENT", 0)
    data = rows_of(line, shared_data)
    names = [f"{name}_{column}".replace(":", "_in_") for name, column in line.groupings]
    groupings = tuple(zip(names, (data["member"].max(0) + 1).tolist(), strict=True))
    fit = effects_about_zero(groupings=groupings).fit(data, probml.MAP(prior=False))
    logs = np.log([max(float(fit.params[f"sd_{name}"]), 1e-12) for name in names]
                  + [float(fit.params["sigma"])])
    short = best(data) - highest(data)(logs, np.asarray(fit.params["beta"], float))
    assert short < SHORT or not fit.converged, (short, fit.status)
    assert short < SHORT, (short, fit.status)


@pytest.mark.parametrize("line", [line for line in LINES if line.name == "Oxide"],
                         ids=lambda line: line.name)
def test_em_that_is_asked_for_ends_there_too(line, shared_data):
    data = rows_of(line, shared_data)
    names = [f"{name}_{column}".replace(":", "_in_") for name, column in line.groupings]
    groupings = tuple(zip(names, (data["member"].max(0) + 1).tolist(), strict=True))
    fit = effects_about_zero(groupings=groupings).fit(data, probml.EM(prior=False))
    logs = np.log([float(fit.params[f"sd_{name}"]) for name in names] + [float(fit.params["sigma"])])
    assert best(data) - highest(data)(logs, np.asarray(fit.params["beta"], float)) < SHORT


def test_rail_has_the_published_estimates():
    """Pinheiro & Bates (2000), "Mixed-Effects Models in S and S-PLUS", section 1.1, by maximum
    likelihood."""
    data = rows_of(LINES[0], None)
    fit = effects_about_zero(groupings=(("subject", 6),)).fit(data, probml.MAP(prior=False))
    np.testing.assert_allclose([fit.params["beta"][0], fit.params["sd_subject"],
                                fit.params["sigma"]], [66.5, 22.62435, 4.020779], rtol=1e-4)
