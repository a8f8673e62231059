"""Weakly informative priors of regressions and mixed models, scaled by the data: what
engine="bayes" puts in the place of flat ones.

| parameter | prior |
|---|---|
| coefficient of a column x_j | Normal(0, 2.5 · unit / sd(x_j)) |
| intercept, at the means of the columns | Normal(level, 2.5 · unit) |
| σ of the normal and student_t | Exponential, of mean sd(y) |
| concentration of gamma, negative binomial and beta | Exponential(1) |
| df of student_t; zero_probability of counts | Gamma(2, 0.1); uniform |
| standard deviation of random effects of an intercept | Exponential, of mean unit |
| the same of the effects of a column x_j | Exponential, of mean unit / sd(x_j) |
| correlations of random effects | LKJ(1): uniform |

For normal and student_t with the identity link, level and unit are mean and standard deviation of
y; for other families they are 0 and 1 on the scale of the link. These are the defaults of rstanarm,
but for two points. A y that has a unit, gamma, or normal with the log or inverse link, is first
divided by its root mean square, so that a change of units changes no answer. Standard deviations of
random effects have priors of their own, in the place of rstanarm's one for their whole covariance.
Without an intercept, columns are not centred, and the root mean square of y is its sd. Standard
deviations have the divisor n.

The priors are numbers, the same for all data: y and columns are fitted in these units.

Sources: Goodrich, Gabry, Ali & Brilleman (2024), "rstanarm: Bayesian applied regression modeling
via Stan", vignette "Prior distributions for rstanarm models"; Gelman, Jakulin, Pittau & Su (2008),
"A weakly informative default prior distribution for logistic and other regression models".
"""

import numpy as np

from probml import DataError, ModelError
from probml.estimators.rules import ENGINE, Rule
from probml.models.regression.generalized_linear import REAL
from probml.models.regression.targets import COUNTS

BAYES = "bayes"
ENGINE_OR_BAYES: Rule = (
    "None, 'bayes' or an engine, such as probml.NUTS()",
    lambda value: ENGINE[1](value) or isinstance(value, str) and value == BAYES,
)
WEAK = {"weight_scale": 2.5, "bias_scale": 2.5, "noise_scale": 1.0, "concentration_scale": 1.0}

# link → where the linear predictor has its 0, and its unit, if y is divided by a number
DIVIDED = {
    "identity": lambda unit: (0.0, unit),
    "log": lambda unit: (float(np.log(unit)), 1.0),
    "inverse": lambda unit: (0.0, 1 / unit),
}

Affine = tuple[float, float]


def units_of(family: str, link: str, y: np.ndarray, weights: np.ndarray, centred: bool,
             weak: bool) -> tuple[Affine, Affine]:
    """(level, unit) of y and of the linear predictor, in which a regression is fitted.

    Args:
        centred: the regression has an intercept.
        weak: it has the priors of this page, which are stated in these units.

    Raises:
        ModelError: weak priors where the linear predictor is in units of y, a count.
    """
    if family in REAL and link == "identity":
        return (affine := middle_and_spread(y, weights, centred)), affine
    if not weak or link not in DIVIDED:
        return (0.0, 1.0), (0.0, 1.0)
    if family not in (*COUNTS, "beta"):
        unit = middle_and_spread(y, weights, False)[1]
        return (0.0, unit), DIVIDED[link](unit)
    if link != "log":
        raise ModelError(f"engine='bayes' has no default priors for family={family!r} with "
                         f"link={link!r}. With this link, the size of the coefficients depends "
                         "on the size of y. Omit link=, or write your own model with priors "
                         "(@probml.model)")
    return (0.0, 1.0), (0.0, 1.0)


def refuse_exact(x: np.ndarray | None, y: np.ndarray, intercept: bool) -> None:
    """
    Args:
        x, y: as they are fitted; x None: no columns.

    Raises:
        DataError: a plane goes through every row of y, and rows are more than its coefficients:
            the posterior of σ under an exponential prior is then no distribution, all of it at 0.
    """
    design = np.ones((len(y), int(intercept)))
    design = design if x is None else np.column_stack([design, x])
    n_rows = 16 * (design.shape[1] + 1)
    for step in dict.fromkeys((max(len(y) // n_rows, 1), 1)):  # some rows that are off are enough
        rows, targets = design[::step], y[::step]
        beta, _, rank, _ = np.linalg.lstsq(rows, targets)
        if len(targets) <= rank or np.sqrt(np.mean((targets - rows @ beta) ** 2)) > 1e-10:
            return
    raise DataError("a linear function of the columns fits every row of y exactly, for example "
                    "because y is constant. The residual standard deviation can then not be "
                    "estimated, and engine='bayes' has no posterior. Use engine=None, or check y")


def middle_and_spread(y: np.ndarray, weights: np.ndarray, centred: bool) -> Affine:
    """The mean of y, 0 where there is no intercept, and the standard deviation about it; 1 if
    there is none."""
    mean = np.average(y, weights=weights) if centred else 0.0
    spread = float(np.sqrt(np.average((y - mean) ** 2, weights=weights)))
    return float(mean), spread or 1.0
