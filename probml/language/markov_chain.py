"""The distribution of a Markov chain's states, which NumPyro lacks, and the stationary distribution
of a transition table."""

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import constraints
from numpyro.util import is_prng_key

from probml.errors import ModelError, counted, listed
from probml.language.chain import Chain
from probml.language.given import as_array, check_flag
from probml.numerics.logs import log_of

SLACK = 1e-4  # by how much the probabilities of a row may miss 1


class MarkovChain(Chain):
    """States of a Markov chain: p(z) = initial[z_1] Π_t transition[z_{t−1}, z_t], event shape
    (steps,).

    Inside a model the states of a latent chain are summed out along time, wherever they are not
    observed; sites may depend on the chain at their own step, with time as their first event axis:
    `dist.Normal(mean[z], scale[z]).to_event(1)`.

    Args:
        initial: p(z_1), (..., k).
        transition: p(z_t = j | z_{t−1} = i) in [..., i, j], (..., k, k); every row sums to 1.
        steps: the number of steps; None takes it from the data, or from `simulate(rows,
            steps=...)`.
        inhomogeneous: the transition varies along time, (..., steps, k, k): entry t leads into step
            t, and entry 0 is not used. It is computed from inputs, or from other chains:
            `MarkovChain(initial, table[other], inhomogeneous=True)`.

    Raises:
        ModelError: shapes that do not fit; a row that is no distribution, where the values are
            known or `validate_args` is set; steps unknown or below 1.

    Cost: a draw or a log density O(steps · k) a chain.
    Source: Rabiner 1989; Murphy 2012, section 17.2.
    """

    arg_constraints = {"initial": constraints.simplex, "transition": constraints.simplex}
    pytree_data_fields = ("initial", "transition")
    pytree_aux_fields = ("steps", "inhomogeneous", "declared")

    def __init__(self, initial: jax.Array, transition: jax.Array, steps: int | None = None, *,
                 inhomogeneous: bool = False, validate_args: bool | None = None):
        check_flag(inhomogeneous, "MarkovChain(inhomogeneous)")
        check_flag(validate_args, "MarkovChain(validate_args)", optional=True)
        self.initial = as_array(initial, "MarkovChain(initial)")
        self.transition = as_array(transition, "MarkovChain(transition)")
        self.inhomogeneous = inhomogeneous
        self._set_length(steps)
        rank = 3 if inhomogeneous else 2
        if self.initial.ndim < 1 or self.transition.ndim < rank:
            raise ModelError(
                f"MarkovChain: expected initial (..., k) and transition "
                f"{'(..., steps, k, k)' if inhomogeneous else '(..., k, k)'}, "
                f"got {self.initial.shape} and {self.transition.shape}"
            )
        k = self.initial.shape[-1]
        if self.transition.shape[-2:] != (k, k):
            shape = self.transition.shape
            raise ModelError(f"MarkovChain: initial has {counted(k, 'state')}, so the shape of "
                             f"transition must end in ({k}, {k}), but it is {shape}. Give both the "
                             "same number of states")
        if inhomogeneous and (tables := self.transition.shape[-3]) != self.steps:
            raise ModelError(
                "MarkovChain(inhomogeneous=True): expected transition with one table per step, "
                f"(..., steps, k, k), got {counted(tables, 'table')} (between "
                f"{counted(tables + 1, 'step')}), shape "
                f"{self.transition.shape}. Table t is the transition from step t − 1 to step t, "
                "and table 0 is not used. To add table 0 to an array `moves` of tables between "
                "steps, use jnp.concatenate([moves[..., :1, :, :], moves], -3). Inside rows(), the "
                "number of steps comes from the data, so a fixed number of tables is refused. Make "
                "the tables an input, an argument without a default, with values of the shape (n, "
                "steps, k, k). Or compute them from an input or another chain"
            )
        batch = jax.lax.broadcast_shapes(self.initial.shape[:-1], self.transition.shape[:-rank])
        check_distributions("MarkovChain: initial", initial)
        check_distributions("MarkovChain: transition", transition)
        super().__init__(batch, (self.steps,), validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self):
        return constraints.independent(constraints.integer_interval(0, self.initial.shape[-1] - 1),
                                       1)

    @property
    def states(self) -> int:
        """k."""
        return self.initial.shape[-1]

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()):
        assert is_prng_key(key)
        shape = (*sample_shape, *self.batch_shape)
        first_key, later_key = jax.random.split(key)
        logits = jnp.broadcast_to(jnp.log(self.initial), (*shape, self.states))
        state = jax.random.categorical(first_key, logits)
        if self.steps == 1:
            return state[..., None]
        log_tables = jnp.log(self.transition)
        if self.inhomogeneous:
            log_tables = jnp.moveaxis(log_tables, -3, 0)[1:]

        def step(state: jax.Array, inputs: tuple):
            key, log_table = inputs
            table = jnp.broadcast_to(log_tables if log_table is None else log_table,
                                     (*shape, self.states, self.states))
            row = jnp.take_along_axis(table, state[..., None, None], -2)[..., 0, :]
            state = jax.random.categorical(key, row)
            return state, state

        keys = jax.random.split(later_key, self.steps - 1)
        _, states = jax.lax.scan(step, state, (keys, log_tables if self.inhomogeneous else None))
        return jnp.concatenate([state[..., None], jnp.moveaxis(states, 0, -1)], -1)

    def log_prob(self, value: jax.Array):
        if self._validate_args:
            self._validate_sample(value)
        value = jnp.asarray(value)
        if value.shape[-1:] != (self.steps,):
            raise ModelError(f"MarkovChain.log_prob: expected states (..., {self.steps}), one per "
                             f"step, got shape {value.shape}")
        valid = (value == jnp.floor(value)) & (value >= 0) & (value < self.states)
        return jnp.where(valid.all(-1), self._log_prob(jnp.where(valid, value, 0).astype(int)),
                         -jnp.inf)

    def _log_prob(self, value: jax.Array):
        shape = jax.lax.broadcast_shapes(value.shape[:-1], self.batch_shape)
        value = jnp.broadcast_to(value, (*shape, self.steps))
        initial = jnp.broadcast_to(self.initial, (*shape, self.states))
        log_prob = log_of(jnp.take_along_axis(initial, value[..., :1], -1)[..., 0])
        if self.steps == 1:
            return log_prob
        before, after = value[..., :-1], value[..., 1:]
        if self.inhomogeneous:
            table = jnp.broadcast_to(self.transition[..., 1:, :, :],
                                     (*shape, self.steps - 1, self.states, self.states))
            probs = jnp.take_along_axis(table, before[..., None, None], -2)[..., 0, :]
            probs = jnp.take_along_axis(probs, after[..., None], -1)[..., 0]
        else:
            flat = jnp.broadcast_to(self.transition.reshape(*self.transition.shape[:-2], -1),
                                    (*shape, self.states**2))
            probs = jnp.take_along_axis(flat, before * self.states + after, -1)
        return log_prob + log_of(probs).sum(-1)


def check_distributions(what: str, table: jax.Array) -> None:
    """Refuse a table of known numbers with a row that is no distribution."""
    if isinstance(table, jax.core.Tracer):
        return
    try:
        table = np.asarray(table, float)
    except (TypeError, ValueError):  # a place holder in a pytree
        return
    invalid = ~((table >= 0).all(-1) & (np.abs(table.sum(-1) - 1) <= SLACK))
    if invalid.any():
        row = tuple(int(i) for i in np.argwhere(invalid)[0])
        raise ModelError(
            f"{what}{f' row {listed(row)}' * bool(row)} is not a probability distribution: the sum "
            f"of {listed(table[row])} is {table[row].sum():.6g}. Give probabilities of at least 0 "
            "that sum to 1, for example by dividing each row by its sum"
        )


def stationary(transition: jax.Array):
    """The stationary distribution π = π A of a transition table A, (..., k, k) → (..., k);
    differentiable.

    Solved as π (I − A + 1) = 1, which has one solution where the chain has one class of states that
    it returns to.

    Raises:
        ModelError: known values of which there is no one solution: the chain never leaves a part of
            its states.

    Cost: O(k³). Source: Zucchini & MacDonald 2009, exercise 1.8.
    """
    transition = as_array(transition, "stationary(transition)")
    if transition.ndim < 2 or transition.shape[-2] != transition.shape[-1] or not transition.size:
        raise ModelError(f"stationary(transition): expected a square table, (..., states, states), "
                         f"got the shape {transition.shape}")
    k = transition.shape[-1]
    system = jnp.swapaxes(jnp.eye(k, dtype=transition.dtype) - transition + 1, -1, -2)
    solution = jnp.linalg.solve(system,
                                jnp.ones((*transition.shape[:-1], 1), transition.dtype))[..., 0]
    if not isinstance(solution, jax.core.Tracer) and not np.isfinite(np.asarray(solution)).all():
        raise ModelError("stationary(transition): the stationary distribution is not unique, "
                         "because the states form several groups that the chain never leaves. Give "
                         "the initial probabilities yourself, MarkovChain(initial, transition)")
    solution = jnp.maximum(solution, 0)
    return solution / solution.sum(-1, keepdims=True)
