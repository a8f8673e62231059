"""Tables and predictions of regressions whose answer is a posterior of all parameters."""

from collections.abc import Sequence

import numpy as np

from probml import Fit, ModelError
from probml.assessment.intervals import Interval
from probml.typing import SiteValues


def is_posterior(fit: Fit) -> bool:
    """Whether all parameters have draws; False of a point, also if effects of groups vary about
    it."""
    return fit.drawn is not None and not fit.belief.partly


def posterior_rows(fit: Fit, names: Sequence[str], index: Sequence[str]) -> np.ndarray:
    """The summary of some parameters of a posterior: mean, sd, 5%, 95%, and what the engine says of
    its draws.

    Args:
        index: what the rows are called.
    """
    size = {name: np.size(value) for name, value in fit.params.items()}
    first = dict(zip(size, np.cumsum([0, *size.values()]), strict=False))
    rows = np.concatenate([first[name] + np.arange(size[name]) for name in names])
    return fit.summary().iloc[rows].set_axis(index)


def predicted(fit: Fit, family: str, inputs: SiteValues, units: tuple[float, float],
              interval: float | None) -> np.ndarray | Interval:
    """E[y] of every row, (n,), of the binomial the rate; averaged over a posterior, effects of new
    members drawn.

    Args:
        inputs: of the rows, as the fit takes them; those that its model has not are left out, and
            those that are None are 0 of an offset, and one trial.
        units: the level of y and its unit in the fit.
        interval: a probability: an Interval (value, lower, upper) of a new y, of the binomial of
            its rate.

    Raises:
        ModelError: an interval of y that is 0 or 1; no probability.
    """
    rows = len(next(value for value in inputs.values() if value is not None))
    nothing = {"offset": np.zeros(rows), "trials": np.ones(rows, int)}
    data = {name: nothing[name] if value is None else value for name, value in inputs.items()
            if name in fit.model.inputs}
    if family == "bernoulli":
        if interval is not None:
            raise ModelError(f"predict(interval={interval!r}): y is 0 or 1 and has no interval: "
                             f"omit interval=; predict(X) is the probability of 1")
        return fit.predict_proba(data, "y", unknown="new")[:, 1]
    level, unit = units
    found = fit.predict(data, "y", interval=interval, unknown="new")
    found = [each / data.get("trials", 1) * unit + level
             for each in (found if interval else [found])]
    return Interval(*found) if interval else found[0]
