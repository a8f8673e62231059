"""Mixtures of experts: regressions that share the rows out by a softmax gate, flat or a tree of any
depth.

    z ~ Categorical(softmax(x̃ γ))               gate; x̃ = (1, x)
    y | z = j ~ N(x̃ᵀ w_j, 1/p_j)                 Gaussian experts
    y | z = j ~ Categorical(softmax(W_j x̃))      softmax experts, for classes

In a tree every level has a gate of its own below each choice made above it, z_1 ~
Categorical(softmax(x̃ γ_1)), z_2 | z_1 ~ Categorical(softmax(x̃ γ_2[z_1])), …, and an expert at
each leaf. Without a gate, z ~ Categorical(π), it is a mixture of regressions.

The first state of every softmax has logit 0, which is what its gauge freedom leaves to choose. EM
finds the weights of Gaussian experts by weighted least squares; gates and softmax experts climb.
Intercepts stand in the same site as the slopes, so that they move together: apart, EM takes some
fifty times as many iterations.

Sources: Jacobs, Jordan, Nowlan & Hinton (1991), "Adaptive mixtures of local experts"; Jordan &
Jacobs (1994), "Hierarchical mixtures of experts and the EM algorithm"; DeSarbo & Cron (1988) for
mixtures of regressions.
"""

import math

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro import sample

import probml
from probml.models.summaries.regressions import experts_tables


@probml.model
def mixture_of_experts(
    x,
    k: int,
    classes: int | None = None,
    gate: bool = True,
    concentration=1.0,
    gate_scale=10.0,
    weight_scale=10.0,
    bias_scale=1000.0,
    scale=0.1,
):
    """k experts behind one gate. Input `x` (n, d); in every row `z`, the expert, and `y`.

    Sites: `gate` (1 + d, k − 1), its intercepts first, or without a gate `shares` (k,); `weights`
    (k, 1 + d), intercepts first, and `precision` (k,), 1/σ²; with classes `weights` (k, classes −
    1, 1 + d) and no precision. With k = 1 there is neither gate nor z.

    A missing y is exact; a missing cell of x is refused, since nothing says how x is distributed.
    Centre and scale the columns.

    Args:
        k: experts.
        classes: None: y is a number; or the number of its states.
        gate: whether the shares of the experts depend on x.
        concentration: a of the Dirichlet prior of shares, pseudo-rows; one number or (k,).
        gate_scale: prior standard deviation of the gate's coefficients, logits per unit of x.
        weight_scale: prior standard deviation of a slope, in units of y (of logits) per unit of x.
        bias_scale: that of an intercept, in units of y (of logits).
        scale: s of p ~ Gamma(3/2, s²/2), in units of y: at the mode σ² = (residual squares +
            s²)/(rows + 1). The density vanishes at σ = 0, so that no expert can collapse.

    Cost: of an iteration of EM about n · k²(1 + d)² operations for the weights of Gaussian experts.
    """
    states: tuple[jax.Array, ...] = ()
    if k > 1 and gate:
        return _tree(x, {"z": (k, "gate")}, classes, gate_scale, weight_scale, bias_scale, scale)
    if k > 1:
        shares = sample("shares", dist.Dirichlet(jnp.full(k, concentration)))
        states = (shares,)
    weights, precision = _experts(x, k, classes, weight_scale, bias_scale, scale)
    with probml.rows():
        code = sample("z", dist.Categorical(states[0])) if states else jnp.zeros(x.shape[:-1], int)
        _response_site(x, code, weights, precision)


mixture_of_experts.summarized(experts_tables)


@probml.model
def hierarchical_mixture_of_experts(
    x,
    branches: tuple = (2, 2),
    classes: int | None = None,
    gate_scale=10.0,
    weight_scale=10.0,
    bias_scale=1000.0,
    scale=0.1,
):
    """A tree of gates with an expert at each leaf. Input `x` (n, d); in every row `z1`, `z2`, …,
    the choices from the top, and `y`.

    Sites: `gate1` (1 + d, branches[0] − 1), `gate2` (branches[0], 1 + d, branches[1] − 1), …, of
    each level for every choice above it; `weights`, `precision` as in mixture_of_experts, of the
    leaves in the order of the last choice first to vary.

    Args:
        branches: how many ways every gate of a level has, from the top; (k,) is the flat mixture.
        classes, gate_scale, weight_scale, bias_scale, scale: as in mixture_of_experts.
    """
    levels = {f"z{i}": (size, f"gate{i}") for i, size in enumerate(branches, 1)}
    _tree(x, levels, classes, gate_scale, weight_scale, bias_scale, scale)


def _tree(x, levels, classes, gate_scale, weight_scale, bias_scale, scale):
    """Gates of levels {choice: (ways, site of the gate)} and experts at the leaves."""
    columns, gates, leading = 1 + x.shape[-1], {}, tuple[int, ...]()
    for choice, (size, site) in levels.items():
        shape = (*leading, columns, size - 1)
        gates[choice] = sample(site,
                               dist.Normal(0.0, gate_scale).expand(shape).to_event(len(shape)))
        leading += (size,)
    weights, precision = _experts(x, math.prod(leading), classes, weight_scale, bias_scale, scale)
    with probml.rows():
        code = jnp.zeros(x.shape[:-1], int)
        for choice, (size, _) in levels.items():
            gate = gates[choice].reshape(-1, columns, size - 1)
            logits = _pick(jnp.tensordot(_with_intercept(x), gate, ((-1,), (1,))), code)
            code = size * code + sample(choice, dist.Categorical(logits=_full(logits)))
        _response_site(x, code, weights, precision)


def _experts(x, leaves, classes, weight_scale, bias_scale, scale):
    """The sites of the experts: weights, and precisions or None."""
    sds = jnp.concatenate([jnp.full(1, bias_scale), jnp.full(x.shape[-1], weight_scale)])
    shape = (leaves, len(sds)) if classes is None else (leaves, classes - 1, len(sds))
    weights = sample("weights",
                     dist.Normal(0.0, jnp.broadcast_to(sds, shape)).to_event(len(shape)))
    if classes is not None:
        return weights, None
    return weights, sample("precision", dist.Gamma(1.5, scale**2 / 2).expand([leaves]).to_event(1))


def _response_site(x, code, weights, precision):
    """The site y given the number of the expert: all experts by one product, then the row's own."""
    outputs = _pick(jnp.tensordot(_with_intercept(x), weights, ((-1,), (weights.ndim - 1,))), code)
    sample("y", dist.Categorical(logits=_full(outputs)) if precision is None
           else dist.Normal(outputs, precision[code] ** -0.5))


def _with_intercept(x):
    return jnp.concatenate([jnp.ones((*x.shape[:-1], 1), x.dtype), x], -1)


def _full(logits):
    """With the first state's, 0."""
    return jnp.concatenate([jnp.zeros((*logits.shape[:-1], 1), logits.dtype), logits], -1)


def _pick(table, code):
    """(n, states, ...) at the state of every row, (n, ...)."""
    return jnp.take_along_axis(table, code.reshape(-1, *(1,) * (table.ndim - 1)), 1)[:, 0]
