"""Multi-layer networks as generative functions: hidden layers of units, a last layer of logits or
of means.

    h_0 = x,   h_i = activation(h_{i−1} W_i + b_i),
    y ~ Categorical(logits = h W + b)  or  Normal(h W + b, σ)

Weights have the prior N(0, s²/fan-in), biases N(0, s²): the ridge penalty ("weight decay")
fan-in/(2s²) |W|², under which a wide network tends to a Gaussian process (Neal 1996). Nothing in an
engine knows of networks: MAP() climbs by L-BFGS, MAP(optimizer=optax.adam(1e-3), batch_rows=...,
held_out=0.1, patience=...) trains with early stopping, Laplace() and NUTS() sample the weights. At
the prior means all units are alike, which is a saddle; MAP sees that and starts from a draw of the
prior instead.

Sources: Rumelhart, Hinton & Williams (1986); MacKay (1992), "A practical Bayesian framework for
    backpropagation networks"; Neal (1996).
"""

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro import sample

import probml
from probml.errors import listed
from probml.models.frames.measured import from_data

ACTIVATIONS = {"tanh": jnp.tanh, "relu": jax.nn.relu, "logistic": jax.nn.sigmoid,
               "gelu": jax.nn.gelu, "silu": jax.nn.silu}


@probml.model
def neural_network(x, states=None, hidden=(32,), activation="tanh", weight_scale=3.0, noise=None,
                   outputs=None):
    """A network for classes or for numbers. Input `x` (n, d), standardised; site `y` in every row.

    Sites: `weights0` (d, hidden[0]), `bias0` (hidden[0],), …, one pair for each hidden layer and
    one for the last; `variance`, σ², of numbers whose noise is unknown.

    Args:
        states: of y, the number of classes; None: y is a number.
        hidden: units of each hidden layer; () is a linear model.
        activation: "tanh", "relu", "logistic", "gelu" or "silu".
        weight_scale: s; larger is rougher. "each" makes it a site `prior_scale` (1,), whose value
            is given in the data.
        noise: σ of a number, in its units; None: a site `variance` ~ InverseGamma(0.5, 0.005).
        outputs: None for one number a row, or m numbers.

    Raises:
        ModelError: an unknown activation; hidden units that are no whole numbers above 0.
    """
    if activation not in ACTIVATIONS:
        raise probml.ModelError(f"neural_network(activation={activation!r}): expected one of "
                                f"{listed(ACTIVATIONS)}")
    hidden = tuple(hidden) if isinstance(hidden, tuple | list) else (hidden,)
    if not all(isinstance(units, int) and units > 0 for units in hidden):
        raise probml.ModelError(f"neural_network(hidden={hidden!r}): expected integers of at least "
                                f"1, such as (32, 16)")
    width = states if states is not None else 1 if outputs is None else outputs
    if isinstance(weight_scale, str):
        weight_scale = from_data("prior_scale", weight_scale, 1)[0]
    h = x
    for i, units in enumerate((*hidden, width)):
        fan_in = h.shape[-1]
        weights = sample(f"weights{i}", dist.Normal(
            0.0, weight_scale / fan_in**0.5
        ).expand([fan_in, units]).to_event(2))
        bias = sample(f"bias{i}", dist.Normal(0.0, weight_scale if i < len(hidden)
                                              else LOOSE).expand([units]).to_event(1))
        h = h @ weights + bias
        h = ACTIVATIONS[activation](h) if i < len(hidden) else h
    if states is None and noise is None:
        noise = jnp.sqrt(sample("variance", dist.InverseGamma(0.5, 0.005)))
    with probml.rows():
        if states is not None:
            sample("y", dist.Categorical(logits=h))
        elif outputs is None:
            sample("y", dist.Normal(h[..., 0], noise))
        else:
            sample("y", dist.Normal(h, noise).to_event(1))


LOOSE = 10.0  # prior standard deviation of the last layer's bias
