"""Tables of regressions: coefficients by the names of columns, as statsmodels and lme4 print
them, and the standard deviations and dispersions that go with them."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from probml.interface.showing.estimates import Estimates, Quantity
from probml.interface.showing.summary import Table
from probml.numerics.process.libraries import pd

INTERCEPT = "Intercept"
# parameter → (its name in the field, function to it)
_SCALES = {
    "variance": ("Residual standard deviation", jnp.sqrt),
    "sigma": ("Residual standard deviation", None),
    "concentration": ("Dispersion (shape)", None),
    "df": ("Degrees of freedom", None),
    "zero_probability": ("Probability of an added zero", None),
    "scale": ("Scale", None),
    "tau": ("tau (sd of true effects)", None),
}

_COVARIANCE_FUNCTION = {
    "variance": ("Standard deviation of the function", jnp.sqrt),
    "length": ("Length scale", None), "noise": ("Residual standard deviation", None),
    "alpha": ("Mixture of scales (alpha)", None), "period": ("Period", None),
    "waviness": ("Waviness", None),
}


def _terms(estimates: Estimates, site: str = "x") -> list:
    names = estimates.names("beta", 0)
    given = [name for name in names if not isinstance(name, int | np.integer)]
    return names if given else estimates.columns(site, len(names))


def coefficients(estimates: Estimates, heading: str = "Coefficients",
                 site: str = "x") -> list[Table]:
    """The intercept and the coefficient of each column; of several classes or outputs a column
    each."""
    labels, parts = [], []
    if "intercept" in estimates:
        labels, parts = [INTERCEPT], [estimates.of("intercept")]
    if "beta" in estimates:
        labels += _terms(estimates, site)
        parts.append(estimates.of("beta"))
    if not parts:
        return []
    if np.ndim(estimates.values.get("beta", 0)) == 2:
        size = estimates.values["beta"].shape[1]
        index = estimates.labels("y", size, "y")
        matrices = [part.map(lambda array: np.reshape(array, (-1, size))) for part in parts]
        return [estimates.across(heading, labels, index, Quantity.concatenated(matrices, 0))]
    return [estimates.listed(heading, labels, Quantity.concatenated(parts))]


def scales(estimates: Estimates) -> list[Table]:
    """Residual standard deviation, dispersion, degrees of freedom."""
    def labels(name: str, label: str, found: Quantity) -> list[str]:
        size = found.value.size
        return [label] if size == 1 else [f"{label}, {label_of_y}"
                                          for label_of_y in estimates.labels("y", size, "y")]

    return estimates.named("Scale", _SCALES, labels)


def regression_tables(estimates: Estimates) -> list[Table]:
    """Tables of regressions whose rows are about x β + b."""
    return [*coefficients(estimates), *scales(estimates)]


def ordinal_tables(estimates: Estimates) -> list[Table]:
    """Tables of ordinal_regression, as polr prints them: coefficients, then thresholds."""
    thresholds = estimates.of("thresholds")
    labels = estimates.names("thresholds", 0)
    return [*coefficients(estimates), estimates.listed("Thresholds", list(labels), thresholds)]


def mixed_tables(estimates: Estimates) -> list[Table]:
    """Tables of mixed_model, as lme4 prints them: random effects, then fixed effects."""
    return [_random(estimates), *coefficients(estimates, "Fixed effects")]


def _random(estimates: Estimates) -> Table:
    """Standard deviations of the random effects, and their correlations."""
    rows, columns, correlation = [], [], []
    for name, (_, width) in estimates.settings["effects"].items():
        estimates.covered.add(name)
        sds = estimates.of(f"sd_{name}").map(np.ravel)
        own = _columns_of(estimates, name, width)
        rows += [(name, each) for each in own]
        columns.append(sds)
        matrix = None
        if f"corr_cholesky_{name}" in estimates:
            matrix = estimates.function(lambda chol: chol @ chol.T, f"corr_cholesky_{name}").value
        correlation += [["" if matrix is None or j >= i else f"{matrix[i, j]:.2f}"
                         for j in range(width - 1)] for i in range(width)]
    for name, label in (("sigma", "Residual"), ("concentration", "Dispersion")):
        if name in estimates:
            rows.append((label, ""))
            columns.append(estimates.of(name).map(np.ravel))
            correlation.append([])
    frame = pd.DataFrame(Quantity.concatenated(columns).columns, index=pd.MultiIndex.from_tuples(
        rows, names=["Group", "Name"])).rename(columns={"Estimate": "Std. Dev.", "mean":
                                                        "Std. Dev."})
    for j in range(max(map(len, correlation))):
        frame["Corr" if j == 0 else f"Corr {j + 1}"] = [
            own[j] if j < len(own) else "" for own in correlation]
    return Table("Random effects", frame)


def _columns_of(estimates: Estimates, name: str, width: int) -> Sequence:
    """The columns whose coefficients vary between the levels of a grouping."""
    unit = estimates.fit.units.get(name)
    known = None if unit is None else unit.names.get(1)
    if known is None:
        known = ["1"] if width == 1 else estimates.names(f"sd_{name}", 0)
    return ["(Intercept)" if str(column) == "1" else str(column) for column in known]


def spline_tables(estimates: Estimates) -> list[Table]:
    """Tables of smoothing: the intercept and the straight lines; curves by their standard
    deviation."""
    lines = estimates.settings["lines"]
    joined = Quantity.concatenated([estimates.of("intercept").map(np.ravel),
                                    estimates.of("beta")[:lines]])
    names = [str(name).removesuffix(", line") for name in estimates.names("beta", 0)[:lines]]
    names = [name if not name.isdigit() else f"h[{name}]" for name in names]
    return [estimates.listed("Linear terms", [INTERCEPT, *names], joined), *scales(estimates)]


def process_tables(estimates: Estimates) -> list[Table]:
    """Tables of gaussian_process: the parameters of its covariance function."""
    def labels(name: str, label: str, found: Quantity) -> list[str]:
        return [label] if found.value.ndim == 0 else [
            f"{label}, {column}" for column in estimates.columns("x", found.value.size, (name, 0))]

    return estimates.named("Covariance function", _COVARIANCE_FUNCTION, labels)


def experts_tables(estimates: Estimates) -> list[Table]:
    """Tables of mixture_of_experts: the coefficients of each expert, and of the gate."""
    weights = estimates.of("weights")
    k = weights.value.shape[0]
    terms = [INTERCEPT if str(name) == "intercept" else name
             for name in estimates.names("weights", weights.value.ndim - 1)]
    terms = [INTERCEPT if i == 0 and name == 0 else name for i, name in enumerate(terms)]
    experts = pd.Index(range(k), name="expert")
    if weights.value.ndim == 3:
        states = estimates.names("weights", 1)
        experts = pd.MultiIndex.from_product([experts, states], names=["expert", "class"])
    tables = [estimates.across("Coefficients of the experts", terms, experts, weights.map(
        lambda array: np.reshape(array, (-1, len(terms))).T))]
    if "precision" in estimates:
        sd = estimates.function(lambda precision: precision**-0.5, "precision")
        tables.append(estimates.across("Residual standard deviations", experts, ["sd"], sd))
    if "gate" in estimates:
        gate = estimates.of("gate")
        tables.append(estimates.across(
            f"Coefficients of the gate (log odds against expert {k - 1})", terms,
            pd.Index(range(k - 1), name="expert"), gate))
    if "shares" in estimates:
        tables.append(estimates.across("Mixing proportions", experts, ["share"],
                                       estimates.of("shares")))
    return tables
