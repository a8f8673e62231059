"""Classes parted by planes whose loss is no likelihood: the linear support vector machine as a
generative function.

    f_j(x) = x β_j + b_j,   loss of a row of class y = Σ_j max(0, 1 − s_j f_j(x))^p,
    s_j = 1 for j = y, −1 for the others

p = 1 is the hinge (Cortes & Vapnik 1995), p = 2 the squared hinge. Of two classes there is one
plane, s = ±1; of more, one against the rest. The loss stands in the function as numpyro.factor: MAP
minimises Σ loss + Σ β²/(2 s²), predict and decode take the class of the least loss, and whatever
needs a likelihood is refused by name. Logistic and softmax regression, which have one, are in
generalized_linear.py; least squares, in which the classes are numbers, is linear_regression.
"""

import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro import factor, sample

import probml
from probml.errors import listed
from probml.models.regression.generalized_linear import linear_predictor
from probml.models.summaries.former_names import INTERCEPT
from probml.models.summaries.regressions import regression_tables

POWERS = {"hinge": 1, "squared_hinge": 2}


@probml.model
def linear_support_vector_machine(x, classes=2, loss="squared_hinge", weight_scale=1.0,
                                  bias_scale=10.0):
    """Hyperplanes with a large margin. Input `x` (n, d), site `y` in every row; sites `beta` (d,
    planes), `intercept` (planes,).

    Args:
        loss: "squared_hinge", or "hinge", which has kinks: its minimum is better found by the dual
            (support_vectors.py).
        weight_scale, bias_scale: as in logistic_regression; C = weight_scale² of scikit-learn.

    Raises:
        ModelError: an unknown loss.
    """
    if loss not in POWERS:
        raise probml.ModelError(f"linear_support_vector_machine(loss={loss!r}): expected one of "
                                f"{listed(POWERS)}")
    planes = 1 if classes == 2 else classes
    f = linear_predictor(x, (planes,), weight_scale, bias_scale)
    with probml.rows():
        y = sample("y", dist.Categorical(jnp.full(classes, 1 / classes)))
        sign = 2 * y[..., None] - 1 if classes == 2 else jnp.where(
            y[..., None] == jnp.arange(classes), 1, -1
        )
        factor(loss, -jnp.sum(jnp.maximum(1 - sign * f, 0.0) ** POWERS[loss], -1))


linear_support_vector_machine.summarized(regression_tables)
linear_support_vector_machine.renames(INTERCEPT)
