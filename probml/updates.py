"""Which update each parameter gets, and the M-step that performs them.

From the levels of every distribution argument, parameters are gathered into blocks whose objective has a known form
(families): gaussian blocks first, then variances and probability tables, then whatever is left, by L-BFGS. A form is
read off from derivatives of the one objective ⟨q, log factors⟩ + log prior, so that ties, shared parameters and
several sites need no case of their own.
"""

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from numpyro.distributions import biject_to

from probml import families
from probml.factors import Expected, Known, Rows, accumulate, log_prior, row_surrogate, surrogate
from probml.levels import Level
from probml.plan import Plan

DENSE = 2048  # entries of a jointly quadratic block
KINKED = ("Laplace", "AsymmetricLaplace")  # densities without a derivative at their middle: no Newton steps
NEWTON = 40  # Newton's steps at the most
ROUNDS = 2  # readings of a form: the second is taken at the first one's mode, free of cancellation


@dataclass(frozen=True)
class Block:
    """Parameters that are updated together.

    `form` is None for the general path. `steps` take the parameter to the quantity c in which the form holds.
    `event` counts the axes of c that belong together. `stacked`: c is all the block's parameters as one vector.
    """

    names: tuple[str, ...]
    form: str | None
    steps: tuple[tuple[str, float], ...]
    event: int
    stacked: bool
    conjugate: bool
    rowwise: bool
    why: str

    def describe(self, plan: Plan, prior: bool) -> str:
        sites = plan.structure.sites
        kinds = "/".join(dict.fromkeys(sites[name].kind for name in self.names))
        targets = ", ".join(dict.fromkeys(sites[user].kind for user in self._users(plan)))
        if self.form is None:
            return f"L-BFGS on {'the rows' if self.rowwise else 'pooled statistics'}: {self.why}"
        if not self.conjugate and prior:
            method = "Newton" if self.event == 0 and sites[self.names[0]].kind not in KINKED else "L-BFGS"
            return f"{method} on pooled statistics, started at the closed-form maximum: {self.why}"
        if self.form == "gaussian" and self.rowwise:
            return f"weighted least squares ({kinds}–{targets}), closed form"
        name = f"{kinds}–{targets}" if prior else f"{targets} maximum likelihood"
        return f"{name}, closed form" + (f" in {'·'.join(step for step, _ in self.steps)}" if self.steps else "")

    def _users(self, plan: Plan):
        return [s for s in users(plan) if any(name in uses for name in self.names for uses in plan.structure.sites[s].uses.values())]


def users(plan: Plan) -> tuple[str, ...]:
    """The sites whose density the parameters enter: data, summed-out sites, and other parameters' priors."""
    return (*plan.pooled, *plan.rowwise, *plan.globals, *plan.structure.parameters)


def forward(value: jax.Array, steps) -> jax.Array:
    """Parameter → the quantity c of its form."""
    for step, amount in steps:
        value = {
            "power": lambda v, p: v**p,
            "complement": lambda v, _: 1 - v,
            "exp": lambda v, _: jnp.exp(v),
            "log": lambda v, _: jnp.log(v),
            "logistic": lambda v, _: jax.nn.sigmoid(v),
            "softmax": lambda v, _: jax.nn.softmax(v, -1),
            "gram": lambda v, _: v @ jnp.swapaxes(v, -1, -2),
            "inverse": lambda v, _: jnp.linalg.inv(v),
        }[step](value, amount)
    return value


def backward(value: jax.Array, steps) -> jax.Array:
    """The quantity c → the parameter."""
    tiny = jnp.finfo(value.dtype).tiny
    for step, amount in reversed(steps):
        value = {
            "power": lambda v, p: v ** (1 / p),
            "complement": lambda v, _: 1 - v,
            "exp": lambda v, _: jnp.log(v),
            "log": lambda v, _: jnp.exp(v),
            "logistic": lambda v, _: jnp.log(v) - jnp.log1p(-v),
            "softmax": lambda v, _: jnp.log(jnp.maximum(v, tiny)),
            "gram": lambda v, _: jnp.linalg.cholesky(v),
            "inverse": lambda v, _: jnp.linalg.inv(v),
        }[step](value, amount)
    return value


def _normalise(steps, form: str):
    """Merge powers, drop constant factors where the form is closed under them; None where it is not."""
    out: list[tuple[str, float]] = []
    for step, amount in steps:
        if step == "times":
            if form not in ("inverse_gamma", "inverse_wishart", "gaussian"):
                return None
        elif step == "complement" and form == "beta" and not out:
            continue
        elif step == "power" and out and out[-1][0] == "power":
            out[-1] = ("power", out[-1][1] * amount)
            if out[-1][1] == 1.0:
                out.pop()
        else:
            out.append((step, amount))
    if form == "inverse_gamma" and any(step not in ("power", "exp") for step, _ in out):
        return None
    if form in ("dirichlet", "inverse_wishart") and len(out) > 1:
        return None
    return tuple(out)


def _domain(form: str, steps) -> str:
    """The support on which a form holds, seen from the parameter."""
    first = steps[0][0] if steps else ""
    return {"logistic": "real", "softmax": "real", "exp": "real", "power": "positive", "log": "positive", "gram": "lower_cholesky"}.get(
        first, families.FORMS[form].domain
    )


def _argument_shape(site, rank: int) -> tuple[int, ...]:
    """The trailing axes of a probability table or a scatter matrix of a site."""
    return (site.states,) if rank == 1 else (site.event[-1],) * 2


def _read_uses(plan: Plan, name: str):
    """The form and steps that every use of a parameter agrees on, the sites, or the reason why there is none."""
    sites = plan.structure.sites
    form, steps, places, moved = None, None, [], True
    for user in users(plan):
        site = sites[user]
        mine = {argument: uses[name] for argument, uses in site.uses.items() if name in uses}
        if not mine:
            continue
        if len(mine) > 1:
            return None, None, places, moved, f"'{name}' enters two arguments of '{user}'"
        argument, use = next(iter(mine.items()))
        if site.family is None:
            return None, None, places, moved, f"'{user}' ({site.kind}) has no kernel"
        its_form, its_steps = site.family.canonical[argument]
        rank = site.family.argument_event[argument]
        if its_form in ("dirichlet", "inverse_wishart") and sites[name].shape[-rank:] != _argument_shape(site, rank):
            return None, None, places, moved, f"its last axes are not those of the {argument} of '{user}'"
        if its_form == "gaussian":
            if use.level > Level.AFFINE or any(step not in ("times", "complement") for step, _ in use.coordinate):
                return None, None, places, moved, f"not affine in the {argument} of '{user}'"
            moved &= use.level == Level.MOVED and site.family.event == 0
            full = ()
        else:
            if use.level != Level.MOVED:
                return None, None, places, moved, f"{use.level.name.lower()} in the {argument} of '{user}'"
            full = _normalise((*use.coordinate, *its_steps), its_form)
            if full is None:
                return None, None, places, moved, f"no closed form for the coordinate of '{name}' in the {argument} of '{user}'"
        if form is not None and (form, steps) != (its_form, full):
            return None, None, places, moved, f"its uses call for two forms: {form} and {its_form}"
        if sites[name].domain not in ("simplex", "positive_definite", "lower_cholesky"):
            scalar = families.FORMS[its_form].domain in ("real", "positive", "unit_interval") or full and full[0][0] == "softmax"
            if not scalar:
                return None, None, places, moved, f"its support is not that of the {argument} of '{user}'"
        elif sites[name].domain != _domain(its_form, full):
            return None, None, places, moved, f"its support ({sites[name].domain}) is not that of the {argument} of '{user}'"
        form, steps = its_form, full
        places.append(user)
    if form is None:  # the data do not depend on it: its posterior is its prior
        role = families.prior(sites[name].kind)
        own = (role.form, role.steps) if role is not None else (None, None)
        return *own, places, False, "" if role else "the data do not depend on it"
    return form, steps, places, moved, ""


@functools.lru_cache(maxsize=512)
def blocks(plan: Plan, prior: bool) -> tuple[tuple[Block, ...], ...]:
    """The stages of the M-step: blocks in one stage do not interact and are read together."""
    sites = plan.structure.sites
    gaussian: list[set[str]] = []
    singles, general = [], []
    found = {name: _read_uses(plan, name) for name in plan.free}
    roles = {name: families.prior(sites[name].kind) for name in plan.free}
    flat = {name for name in plan.free if not prior or sites[name].kind == "ImproperUniform"}
    matching = {
        n
        for n in plan.free
        if (n in flat and found[n][0] and sites[n].domain == _domain(*found[n][:2]))
        or (n not in flat and roles[n] is not None and (roles[n].form, roles[n].steps) == found[n][:2])
    }
    for name in plan.free:
        form, steps, places, moved, why = found[name]
        rowwise = any(name in uses for s in plan.rowwise for uses in sites[s].uses.values())
        conjugate = form is not None and name in matching
        why = why or ("" if conjugate else f"its prior {sites[name].kind} is not conjugate")
        if form == "gaussian" and conjugate:
            others = {n for n in plan.free if found[n][0] == "gaussian" and n in matching}
            linked = {name} | {other for other in others if _linked(plan, name, other)}
            joined = [group for group in gaussian if group & linked]
            gaussian = [group for group in gaussian if not group & linked] + [linked.union(*joined)]
        elif form == "gaussian":
            event, stacked = _shape(plan, (name,), moved, sites[name].kind != "MultivariateNormal")
            general.append(Block((name,), form, (), event, stacked, False, rowwise, why))
        elif form is not None:
            event = {"dirichlet": 1, "inverse_wishart": 2}.get(form, 0)
            block = Block((name,), form, steps, event, False, conjugate, rowwise, why)
            (singles if conjugate else general).append(block)
        else:
            general.append(Block((name,), None, (), 0, False, False, rowwise, why))
    stages: list[list[Block]] = []
    together: list[Block] = []
    for group in gaussian:
        names = tuple(name for name in plan.free if name in group)
        rowwise = any(name in uses for name in names for s in plan.rowwise for uses in sites[s].uses.values())
        event, stacked = _shape(plan, names, found[names[0]][3], names[0] in flat or sites[names[0]].kind == "Normal")
        size = sum(math.prod(sites[name].shape) for name in names) if stacked else sites[names[0]].shape[-1] if event else 1
        if size <= DENSE:
            together.append(Block(names, "gaussian", (), event, stacked, True, rowwise, ""))
        else:
            general += [Block((n,), None, (), 0, False, False, rowwise, f"{size} coefficients are too many for one solve") for n in names]
    stages = [stage for stage in (together, singles, *([block] for block in general)) if stage]
    return tuple(tuple(stage) for stage in stages)


def _shape(plan: Plan, names: tuple[str, ...], moved: bool, elementwise: bool) -> tuple[int, bool]:
    """Whether a quadratic is separable (event 0), couples the last axis only (1), or everything (stacked)."""
    site, size = plan.structure.sites[names[0]], sum(math.prod(plan.structure.sites[n].shape) for n in names)
    if len(names) > 1 or not site.shape:
        return int(len(names) > 1), len(names) > 1
    if moved and elementwise:
        return 0, False
    if len(site.independent + site.event) == 1 and (moved or len(site.batch) == 0 or size > DENSE or _vector(plan, names[0])):
        return 1, False
    return 1, True


def _vector(plan: Plan, name: str) -> bool:
    """Every use is a copy into the location of a vector distribution: a plate's cells do not mix."""
    uses = [u[name] for s in users(plan) for u in plan.structure.sites[s].uses.values() if name in u]
    return all(use.level == Level.MOVED for use in uses)


def _linked(plan: Plan, a: str, b: str) -> bool:
    """Two gaussian parameters meet in the location of one site, or one is the location of the other's prior."""
    sites = plan.structure.sites
    if any(b in uses for uses in sites[a].uses.values()) or any(a in uses for uses in sites[b].uses.values()):
        return True
    return any(a in uses and b in uses for user in users(plan) for uses in sites[user].uses.values())


class Objective:
    """Q(params) = ⟨q, log factors⟩ + log prior, as a function of some blocks' quantities c, with its derivatives.

    The part of pooled sites is a function of small tables; the part of row-wise sites is a pass over the chunks, made
    only where a block touches one.
    """

    def __init__(self, plan: Plan, expected: Expected, params: Mapping, known: Known, chunks: Rows, prior: bool, mode: bool = True):
        self.mode = mode  # priors in the coordinates that are maximised, or their own densities
        self.priors = plan.structure.parameters if prior else ()
        self.plan, self.expected, self.params, self.known, self.chunks, self.prior = plan, expected, dict(params), known, chunks, prior

    def _pooled(self, unpack, c):
        params = {**self.params, **unpack(c)}
        value = surrogate(self.plan, self.expected, params, self.known)
        return value + log_prior(self.plan, params, self.known, self.mode, self.priors) if self.priors else value

    def gradients(self, unpack, points, rowwise: bool):
        """∇Q(unpack(c)) at several points c, stacked on a leading axis."""
        total = jax.vmap(jax.grad(lambda c: self._pooled(unpack, c)))(points)
        if rowwise:

            def chunk(pair):
                rows, taps = pair
                part = jax.grad(lambda c: row_surrogate(self.plan, taps, {**self.params, **unpack(c)}, self.known, rows))
                return jax.vmap(part)(points), ()

            total = jax.tree.map(jnp.add, total, _over(chunk, self.chunks, self.expected.taps))
        return total

    def value_and_gradient(self, unpack, c, rowwise: bool):
        value, gradient = jax.value_and_grad(lambda c: self._pooled(unpack, c))(c)
        if rowwise:

            def chunk(pair):
                rows, taps = pair
                return jax.value_and_grad(lambda c: row_surrogate(self.plan, taps, {**self.params, **unpack(c)}, self.known, rows))(c), ()

            more = _over(chunk, self.chunks, self.expected.taps)
            value, gradient = value + more[0], jax.tree.map(jnp.add, gradient, more[1])
        return value, gradient


class _Pair(tuple):
    """Rows with their taps, so that `accumulate` chunks both."""

    @property
    def weights(self):
        return self[0].weights


jax.tree_util.register_pytree_node(_Pair, lambda p: (tuple(p), None), lambda _, c: _Pair(c))


def _over(chunk, rows, taps):
    return accumulate(chunk, _Pair((rows, taps)))[0]


def maximise(
    plan: Plan,
    expected: Expected,
    params: Mapping,
    known: Known,
    chunks: Rows,
    prior: bool,
    steps: int = 20,
    closed: bool = True,
    only_forms: bool = False,
) -> dict[str, jax.Array]:
    """The M-step: every block in turn (ECM, Meng & Rubin 1993), closed forms exactly, the rest by a few L-BFGS steps.

    Args:
        only_forms: leave the blocks without a form alone.
        closed: use the forms; without them every block climbs, which is what a run falls back on if a form misled it.
    """
    params = dict(params)
    for stage in blocks(plan, prior):
        objective = Objective(plan, expected, params, known, chunks, prior)
        if not closed:
            params.update(_ascend(objective, stage, steps))
        elif all(block.form and block.conjugate for block in stage):
            params.update(modes(params, stage, read(objective, stage)))
        elif stage[0].form:
            params.update(_ascend_form(objective, stage[0], steps))
        elif not only_forms:
            params.update(_ascend(objective, stage, steps))
    return params


def _ascend_form(objective: Objective, block: Block, steps: int) -> dict[str, jax.Array]:
    """A prior that is not conjugate: the form without it is read off, and form + prior is maximised by itself.

    The search starts at the better of the present point and the form's own maximum; no row is touched.
    """
    plan, params, known = objective.plan, objective.params, objective.known
    objective.priors = tuple(name for name in objective.priors if name not in block.names)
    natural = read(objective, [block])[0]
    form = families.FORMS[block.form]

    def value(point):
        there = {**params, **point}
        log = log_prior(plan, there, known, objective.mode, block.names)
        if not objective.prior:  # the support still holds
            log = jnp.where(log == -jnp.inf, -jnp.inf, 0.0)
        return form.value(natural, pack({**params, **point}, block), block.event) + log

    present = {name: params[name] for name in block.names}
    peak = modes(params, [block], [natural])
    better = jnp.isfinite(value(peak)) & (value(peak) > value(present))
    start = jax.tree.map(lambda a, b: jnp.where(better, a, b), peak, present)
    maps = transforms(plan, params, known, list(block.names))
    origin = {name: maps[name].inv(start[name]) for name in block.names}

    def loss(u):
        return -value({name: maps[name](u[name]) for name in block.names})

    site = plan.structure.sites[block.names[0]]
    if block.event == 0 and not site.event and site.kind not in KINKED:
        best = _newton(loss, origin)
    else:
        best = lbfgs(jax.value_and_grad(loss), origin, steps, 1e-14)[0]
    return {name: maps[name](best[name]) for name in block.names}


def _newton(loss, start):
    """Minimise a sum of functions of one number each, all at once: Newton's steps, bounded, downhill where the curvature is negative.

    Keeps the start if that is better: then the objective of the whole never falls.
    """
    gradient = jax.grad(loss)

    def step(carry):
        u, _, count = carry
        slope, curvature = jax.jvp(gradient, (u,), (jax.tree.map(jnp.ones_like, u),))

        def move(x, g, h):
            step = jnp.where(h > 0, -g / jnp.where(h > 0, h, 1.0), -jnp.sign(g) * jnp.minimum(jnp.abs(g), 0.5))
            return jnp.clip(step, -1.0 - jnp.abs(x), 1.0 + jnp.abs(x))

        moves = jax.tree.map(move, u, slope, curvature)
        size = jnp.max(jnp.stack([jnp.max(jnp.abs(m) / (1 + jnp.abs(x))) for m, x in zip(*map(jax.tree.leaves, (moves, u)), strict=True)]))
        return jax.tree.map(jnp.add, u, moves), size, count + 1

    def more(carry):
        _, size, count = carry
        return (count < NEWTON) & (size > 4 * jnp.finfo(size.dtype).eps)

    dtype = jax.tree.leaves(start)[0].dtype
    best, _, _ = jax.lax.while_loop(more, step, (start, jnp.full((), jnp.inf, dtype), 0))
    good = loss(best) <= loss(start)
    return jax.tree.map(lambda a, b: jnp.where(good, a, b), best, start)


def pack(params: Mapping, block: Block) -> jax.Array:
    """The block's quantity c at the present parameters."""
    if block.stacked:
        return jnp.concatenate([params[name].reshape(-1) for name in block.names])
    return forward(params[block.names[0]], block.steps)


def unpack(params: Mapping, block: Block, c: jax.Array) -> dict[str, jax.Array]:
    if not block.stacked:
        return {block.names[0]: backward(c, block.steps)}
    out, start = {}, 0
    for name in block.names:
        size = params[name].size
        out[name] = c[start : start + size].reshape(params[name].shape)
        start += size
    return out


def read(objective: Objective, stage, rounds: int | None = None) -> list[dict[str, jax.Array]]:
    """Read the natural parameters of every block's form, all blocks of a stage with one differentiation."""
    params, forms = objective.params, [families.FORMS[block.form] for block in stage]
    rowwise = any(block.rowwise for block in stage)

    def together(cs):
        return {name: value for block, c in zip(stage, cs, strict=True) for name, value in unpack(params, block, c).items()}

    def once(at):
        points = [form.points(c, block.event) for form, c, block in zip(forms, at, stage, strict=True)]
        most = max(len(p) for p in points)
        padded = [jnp.concatenate([p, jnp.broadcast_to(p[:1], (most - len(p), *p.shape[1:]))]) for p in points]
        slopes = objective.gradients(together, padded, rowwise)
        natural = [form.read(p, g[: len(p)], block.event) for form, p, g, block in zip(forms, points, slopes, stage, strict=True)]
        return [form.mode(n, c, block.event) for form, n, c, block in zip(forms, natural, at, stage, strict=True)], natural

    at = [pack(params, block) for block in stage]
    rounds = rounds or (1 if rowwise else ROUNDS)
    if rounds == 1:
        return once(at)[1]
    blank = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(once, at)[1])
    return jax.lax.fori_loop(0, rounds, lambda _, carry: once(carry[0]), (at, blank))[1]


def modes(params: Mapping, stage, natural) -> dict[str, jax.Array]:
    """The parameters at the modes of forms that were read."""
    out = {}
    for block, n in zip(stage, natural, strict=True):
        present = pack(params, block)
        out.update(unpack(params, block, families.FORMS[block.form].mode(n, present, block.event)))
    return out


def _ascend(objective: Objective, stage, steps: int) -> dict[str, jax.Array]:
    """L-BFGS on a block in its unconstrained coordinate; never lowers the objective."""
    plan, params = objective.plan, objective.params
    names = [name for block in stage for name in block.names]
    rowwise = any(block.rowwise for block in stage)
    maps = transforms(plan, params, objective.known, names)
    start = {name: maps[name].inv(params[name]) for name in names}

    def loss(u):
        value, gradient = objective.value_and_gradient(lambda u: {n: maps[n](u[n]) for n in names}, u, rowwise)
        return -value, jax.tree.map(jnp.negative, gradient)

    best, *_ = lbfgs(loss, start, steps, 1e-12)
    return {name: maps[name](best[name]) for name in names}


def transforms(plan: Plan, params: Mapping, known: Known, names) -> dict:
    """The one-to-one maps from unconstrained coordinates to the supports of the parameters."""
    env = {**params, **known.given}
    return {name: biject_to(plan.structure.distribution(name, env).support) for name in names}


def lbfgs(value_and_gradient, start, steps: int | jax.Array, tolerance: float, trail: int = 0):
    """Minimise by optax's L-BFGS with a backtracking line search; returns (best point, its value, iterations, values, gradient).

    Args:
        value_and_gradient: point → (value, gradient).
        tolerance: stop when the value falls by less than this, relative to 1 + |value|.
        trail: how many values to keep; the first is the start's.
    """
    import optax  # late: not every model climbs

    value0, gradient0 = value_and_gradient(start)
    curvature = optax.scale_by_lbfgs(memory_size=10)
    norm = optax.tree.norm(gradient0)

    def step(carry):
        point, value, gradient, memory, _, count, values = carry
        direction, memory = curvature.update(gradient, memory, point)
        slope = -optax.tree.vdot(direction, gradient)
        direction = jax.tree.map(lambda d, g: jnp.where(slope < 0, -d, -g), direction, gradient)
        slope = jnp.where(slope < 0, slope, -optax.tree.vdot(gradient, gradient))
        first = jnp.where(count == 0, jnp.minimum(1.0, 1.0 / jnp.maximum(optax.tree.norm(gradient), 1e-30)), 1.0)

        def shrink(trial):
            size, _, _, _ = trial
            there = jax.tree.map(lambda p, d: p + size * d, point, direction)
            new, slopes = value_and_gradient(there)
            return size * 0.3, there, new, slopes

        def rejected(trial):
            size, _, new, _ = trial
            return ~(new <= value + 1e-4 * (size / 0.3) * slope) & (size > 1e-10)

        _, there, new, slopes = jax.lax.while_loop(rejected, shrink, shrink((first, point, value, gradient)))
        improved = new < value
        keep = functools.partial(jnp.where, improved)
        fall = jnp.where(improved, value - new, 0.0)
        return (
            jax.tree.map(keep, there, point),
            keep(new, value),
            jax.tree.map(keep, slopes, gradient),
            memory,
            fall,
            count + 1,
            values.at[count + 1].set(keep(new, value)),
        )

    def more(carry):
        _, value, gradient, _, fall, count, _ = carry
        small = fall <= tolerance * (1 + jnp.abs(value))
        return (count < steps) & ~((count > 0) & small) & (optax.tree.norm(gradient) > 1e-14 * (1 + norm))

    values = jnp.full(trail + 1, jnp.nan, value0.dtype).at[0].set(value0)
    carry = (start, value0, gradient0, curvature.init(start), jnp.full((), jnp.inf, value0.dtype), 0, values)
    point, value, gradient, _, _, count, values = jax.lax.while_loop(more, step, carry)
    return point, value, count, values, gradient
