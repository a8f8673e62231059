"""Student's t likelihood, a normal whose precision varies from cell to cell: given these precisions
its updates are the normal's."""

import jax.numpy as jnp
import numpyro.distributions as dist

from probml.families.entry import Entry
from probml.families.forms.gaussian import GAUSSIAN
from probml.families.forms.inverse_gamma import INVERSE_GAMMA
from probml.families.likelihood import Likelihood
from probml.families.location_scale import plain


class StudentT(Likelihood):
    """x = loc + scale · e / √w, e ~ N(0, 1), w ~ Gamma(df/2, df/2): Student's t with df degrees of
    freedom.

    Given a cell, w has the mean (df + 1) / (df + ((x − loc)/scale)²). In its place the log density
    of the cell and w has its expectation below log p(x) + constant, and touches it where that mean
    was taken: an M-step is least squares with weights, and never lowers the likelihood (Dempster,
    Laird & Rubin 1980; Lange, Little & Taylor 1989). `df` itself is climbed.
    """

    name = "StudentT"
    event = 0
    argument_event = {"df": 0, "loc": 0, "scale": 0}
    canonical = {"loc": (GAUSSIAN, ()), "scale": (INVERSE_GAMMA, (("power", 2.0),))}
    scatter = ("scale",)
    mean_of = ("loc",)
    rowwise = True  # every cell has a weight of its own

    def smallest(self, arguments):
        """The scale of each cell."""
        return arguments["scale"]

    def distribution(self, arguments):
        return dist.StudentT(**arguments)

    def minorant(self, anchor, arguments, x):
        """E[log p(x, w)] over w given x at the arguments `anchor`, as a function of loc and scale,
        up to a constant; cell by cell."""
        square = ((x - anchor["loc"]) / anchor["scale"]) ** 2
        weight = (anchor["df"] + 1) / (anchor["df"] + square)
        return -jnp.log(arguments["scale"]) - 0.5 * weight * (
            (x - arguments["loc"]) / arguments["scale"]
        ) ** 2


ENTRIES = (Entry((dist.StudentT,), StudentT(), location_scale=plain),)
