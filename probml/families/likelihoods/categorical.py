"""Categorical likelihood: log probability tables, looked up by matrix products with one-hot rows,
or where there are many states by a gather."""

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from probml.families.forms.dirichlet import DIRICHLET
from probml.families.likelihood import Arguments, Entry, Likelihood
from probml.numerics.logs import floored, log_of, unfloored

# Up to this many states a one-hot product is faster than gather and its scatter-add gradient: of 50
# and 8 rows of the table, 158 and 24 ns a cell on a CPU (jaxlib 0.10).
ONE_HOT = 8


def look_up(table: jax.Array, codes: jax.Array, mask: jax.Array | None):
    """Σ over cells of table[p, c, codes[b, c]], for seen cells.

    Args:
        table: log probabilities, (p, c, k), −inf allowed.
        codes: states, (b, c).
        mask: (b, c) bool, or None where all are seen.

    Returns:
        (b, p); −inf where a seen cell is impossible, never NaN, with finite gradients.
    """
    p, c, k = table.shape
    if k <= ONE_HOT and p == len(codes) == 1:  # a row with a table of its own
        picked = table[..., 0]
        for state in range(1, k):
            picked = jnp.where(codes == state, table[..., state], picked)
        return (picked if mask is None else jnp.where(mask, picked, 0.0)).sum(1, keepdims=True)
    if k <= ONE_HOT:
        hot = jax.nn.one_hot(codes, k, dtype=table.dtype)
        if mask is not None:
            hot = hot * mask[..., None]
        hot = hot.reshape(len(codes), c * k)
        return unfloored(hot @ floored(table.reshape(p, c * k)).T)
    flat = table.transpose(1, 2, 0).reshape(c * k, p)
    picked = jnp.take(flat, codes + k * jnp.arange(c), axis=0, mode="clip")  # (b, c, p)
    if mask is not None:
        picked = jnp.where(mask[..., None], picked, 0.0)
    return picked[:, 0] if c == 1 else picked.sum(1)


class Categorical(Likelihood):
    """p(x = i) = probs_i; the natural parameters are the log table, the statistics expected
    counts."""

    name = "Categorical"
    nominal = True
    argument_event = {"probs": 1, "logits": 1}
    # logits are shared up to a constant and normalised together: no form
    canonical = {"probs": (DIRICHLET, ())}

    def states(self, arguments: Arguments):
        return next(iter(arguments.values())).shape[-1]

    def probabilities(self, arguments: Arguments):
        """(..., c, k) table of state probabilities."""
        return arguments["probs"] if "probs" in arguments else jax.nn.softmax(arguments["logits"],
                                                                              -1)

    def natural(self, arguments: Arguments, centre: jax.Array | float):
        if "logits" in arguments:
            return {"log": jax.nn.log_softmax(arguments["logits"], -1)}
        return {"log": log_of(arguments["probs"])}

    def log_density(self, natural: Arguments, x: jax.Array, seen: jax.Array | None):
        return look_up(natural["log"], x, seen)


ENTRIES = (Entry((dist.CategoricalProbs, dist.CategoricalLogits), Categorical()),)
