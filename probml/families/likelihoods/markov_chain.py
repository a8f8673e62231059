"""Markov chain: log initial and transition tables; what is seen of a whole chain enters through its
first state and its pair counts."""

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from probml.families.forms.dirichlet import DIRICHLET
from probml.families.likelihood import Arguments, Entry, Likelihood
from probml.families.log_linear import rising
from probml.language.markov_chain import MarkovChain, check_distributions
from probml.numerics.logs import log_of, weighted_log


class Chain(Likelihood):
    """log p(z) = Σ_i [z_1 = i] log initial_i + Σ_ij n_ij log transition_ij, n_ij the number of
    steps from i to j.

    A site's arguments are traced for a chain of one step, so that a transition that varies along
    time is that into one step.
    """

    name = "MarkovChain"
    nominal = True
    event = 1
    argument_event = {"initial": 1, "transition": 2}
    canonical = {"initial": (DIRICHLET, ()), "transition": (DIRICHLET, ())}

    def arguments(self, base: dist.Distribution):
        transition = base.transition[..., 0, :, :] if base.inhomogeneous else base.transition
        return {"initial": base.initial, "transition": transition}

    def states(self, arguments: Arguments):
        return arguments["initial"].shape[-1]

    def distribution(self, arguments: Arguments):
        return MarkovChain(**arguments, steps=1)

    def natural(self, arguments: Arguments, centre: jax.Array | float):
        return {name: log_of(table) for name, table in arguments.items()}

    def check(self, where: str, arguments: dict[str, jax.Array], steps: int | None):
        for name, table in arguments.items():
            check_distributions(f"{where}: {name}", table)

    def probabilities(self, arguments: Arguments):
        """The probabilities of the first state."""
        return arguments["initial"]


def counts(states: jax.Array, alive: jax.Array | None, k: int) -> dict[str, jax.Array]:
    """What of whole chains the density takes: the first state, one-hot, and the pair counts.

    Args:
        states: (rows, steps).
        alive: bool (rows, steps), the first steps of each row that count; None: all.

    Returns:
        initial (rows, k) and transition (rows, k, k).
    """
    hot = jax.nn.one_hot(states, k, dtype=jnp.result_type(float))
    if alive is not None:
        hot = jnp.where(alive[..., None], hot, 0.0)
    return {"initial": hot[:, 0], "transition": jnp.einsum("rti,rtj->rij", hot[:, :-1], hot[:, 1:])}


def log_density(log: jax.Array, count: jax.Array) -> jax.Array:
    """Σ count × log probability: a table (rows or 1, *scope, *own) and counts (rows, *own) → (rows,
    *scope); 0 · (−∞) = 0."""
    count, axes = _align_counts(log, count)
    return weighted_log(count, log).sum(axes)


def predictive(concentration: jax.Array, count: jax.Array) -> jax.Array:
    """log p(counts) with a table's rows integrated out, each its own Dirichlet: Π Γ(a. )/Γ(a. + n.)
    Π Γ(a + n)/Γ(a), of one sequence."""
    count, axes = _align_counts(concentration, count)
    cells = rising(concentration, count).sum(axes)
    return cells - rising(concentration.sum(-1), count.sum(-1)).sum(axes[:-1])


def _align_counts(table: jax.Array, count: jax.Array) -> tuple[jax.Array, tuple[int, ...]]:
    """Counts with axes for a table's scope, and the table's own axes."""
    scope = table.ndim - count.ndim
    return (count.reshape(len(count), *(1,) * scope, *count.shape[1:]),
            tuple(range(1 + scope, table.ndim)))


ENTRIES = (Entry((MarkovChain,), Chain()),)
