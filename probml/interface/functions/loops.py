"""numpyro's scan with discrete states that nobody sees → its evidence, by the forward algorithm.

Let c be what one step hands to the next, z the discrete sites of a step. Where c depends on the
step's own z and not on the one it was handed (a chain of first order),

    α_1(z) = p(z, y_1 | c_0),  α_t(z') = Σ_z α_{t−1}(z) p(z', y_t | c_{t−1}(z)),  p(y) = Σ_z α_T(z)

Cost: steps × K² evaluations of the step's body, K joint states (Rabiner 1989).
"""

import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.contrib.control_flow.scan import PytreeTrace

from probml.errors import ModelError
from probml.families import finite
from probml.jaxpr import levels


class Summed:
    """What a scan leaves behind that was summed out: nothing may look at it."""

    def __init__(self, name: str):
        self.name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__") and attribute != "__jax_array__":
            raise AttributeError(attribute)
        raise ModelError(
            f"site '{self.name}' is discrete, stands in a scan and is summed out there, so what "
            f"the scan returns is no number: observe all that depends on it inside the scan's body"
        )


def summed_out(msg: dict) -> None:
    """A control-flow message whose body has discrete sites that are unseen → one factor, named
    after the first of them; others stay as they are."""
    if len(msg["args"]) != 5:  # cond
        return
    body, init, xs, length, reverse = msg["args"]
    given = dict(item for kind, values in msg["kwargs"]["substitute_stack"] if kind == "condition"
                 for item in values.items())
    first = jax.tree.map(lambda leaf: leaf[0], xs)
    hidden = _hidden(body, init, first)
    hidden = {name: found for name, found in hidden.items() if name not in given}
    if not hidden:
        return
    name = next(iter(hidden))
    grid = np.array(list(itertools.product(*(range(low, low + count)
                                             for low, count in hidden.values()))))
    if math.prod(count for _, count in hidden.values()) > 2**12:
        raise ModelError(f"site '{name}' in a scan: {len(grid)} joint states a step are too many "
                         f"to be summed out")

    def step(carry, x, states):
        """(log p of a step's sites, carry to the next step) at one setting of the hidden ones."""
        values = {site: states[i] for i, site in enumerate(hidden)}
        with handlers.block(), handlers.trace() as trace, handlers.substitute(data=values):
            after, _ = body(carry, x)
        total = jnp.zeros(())
        for site in trace.values():
            if site["type"] != "sample":
                continue
            if not site["is_observed"] and site["name"] not in hidden:
                raise ModelError(f"site '{site['name']}' is continuous and unseen in a scan with "
                                 f"the discrete '{name}': only one kind can be unseen there")
            fn, scale = site["fn"], site["scale"]
            log = fn.log_factor if isinstance(fn, dist.Unit) else fn.log_prob(site["value"])
            total += jnp.sum(log if scale is None else scale * log)
        return total, jax.tree.map(jnp.asarray, after)

    states = jnp.asarray(grid)
    init = jax.tree.map(jnp.asarray, init)
    _check_order(step, init, first, states[0], name)
    if length is None:
        length = len(jax.tree.leaves(xs)[0])
    order = slice(None, None, -1) if reverse else slice(None)
    xs = jax.tree.map(lambda leaf: jnp.asarray(leaf)[order], xs)
    log, carry = jax.vmap(step, (None, None, 0))(init, jax.tree.map(lambda leaf: leaf[0], xs),
                                                states)

    def onward(held, x):
        log, carry = held
        moves, after = jax.vmap(jax.vmap(step, (None, None, 0)), (0, None, None))(carry, x, states)
        log = jax.scipy.special.logsumexp(log[:, None] + moves, axis=0)
        # from any state before: it is the same
        return (log, jax.tree.map(lambda leaf, old: leaf[0].astype(old.dtype), after, carry)), None

    if length > 1:
        (log, _), _ = jax.lax.scan(onward, (log, carry),
                                   jax.tree.map(lambda leaf: leaf[1:], xs), length=length - 1)
    numpyro.factor(name, jax.scipy.special.logsumexp(log))
    left = Summed(name)
    shapes = jax.eval_shape(lambda: _plain(body, init, first))
    carry, ys = jax.tree.map(lambda _: left, shapes)
    msg["value"] = ((length, None, carry), (PytreeTrace({}), ys))


def _plain(body, carry, x) -> Any:
    with handlers.block(), handlers.seed(rng_seed=0):
        return body(carry, x)


def _hidden(body, carry, x) -> dict[str, tuple[int, int]]:
    """The discrete sites of a body that are unseen: name → (least value, how many)."""
    found: dict[str, tuple[int, int]] = {}

    def run():
        with handlers.block(), handlers.trace() as trace, handlers.seed(rng_seed=0):
            body(carry, x)
        for name, site in trace.items():
            fn = site.get("fn")
            if (site["type"] != "sample" or site["is_observed"] or isinstance(fn, dist.Unit)
                or not fn.support.is_discrete):
                continue
            if fn.batch_shape + fn.event_shape:
                raise ModelError(
                    f"site '{name}' in a scan has the shape {fn.batch_shape + fn.event_shape}: a "
                    f"discrete site that is summed out there is one value a step"
                )
            ends = _ends(fn)
            if ends is None:
                raise ModelError(f"site '{name}' ({type(fn).__name__}) in a scan is unseen and has "
                                 f"no finite list of values")
            found[name] = ends
        return 0

    jax.eval_shape(run)
    return found


def _ends(fn: dist.Distribution) -> tuple[int, int] | None:
    logits = getattr(fn, "logits", None)
    if type(fn).__name__.startswith("Categorical") and logits is not None:
        return 0, logits.shape[-1]
    ends = finite.ends(fn)
    if ends is None or any(isinstance(end, jax.core.Tracer) for end in ends):
        return None
    return finite.listed(np.asarray(ends[0]), np.asarray(ends[1]))


def _check_order(step, carry, x, state, name: str) -> None:
    """Refuse a chain of higher order: what a step hands on depends on what it was handed."""
    flat, tree = jax.tree.flatten(carry)

    def after(*leaves):
        return jax.tree.leaves(step(jax.tree.unflatten(tree, leaves), x, state)[1])

    depends = levels.dependencies(jax.make_jaxpr(after)(*flat))
    if any(depends):
        raise ModelError(
            f"site '{name}' in a scan is summed out by the forward algorithm, which takes a chain "
            f"of first order: what a step hands on must depend on its own discrete sites and not "
            f"on what it was handed. Hand on the newest state alone, or hold the older ones as "
            f"one site of more states"
        )
