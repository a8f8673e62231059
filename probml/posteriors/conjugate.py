"""A posterior in closed form: independent blocks, the gaussian ones given the scales they share;
marginals, draws, predictives."""

import math
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from probml.device.rows import Known
from probml.factors.naturals import argument_table
from probml.families import registry
from probml.jaxpr.levels import Level
from probml.numerics.bundles import Bundle
from probml.plan.blocks import Block, backward, forward, unpack
from probml.plan.plan import Plan
from probml.posteriors.coupling import Posterior, coupling, equilibrated, prior_spread
from probml.updates.least_squares import covariance_root, lower

COLUMNS = 1024  # coefficients up to which a regression's predictive variance is summed exactly


class Marginals:
    """The distributions of a posterior, given its plan and blocks (static) and its arrays."""

    def __init__(self, plan: Plan, known: Known, stages: tuple[tuple[Block, ...], ...],
                 posterior: Posterior):
        self.plan, self.known, self.posterior = plan, known, posterior
        self.blocks = [block for stage in stages for block in stage]
        self.natural = dict(zip((block.names for block in self.blocks), posterior.natural,
                                strict=True))
        self.of = {name: block for block in self.blocks for name in block.names}

    def scale_of(self, name: str) -> str | None:
        """The scale parameter that a location's posterior is conditional on."""
        block = self.of[name]
        return next((c for c in coupling(self.plan, block) if c),
                    None) if block.form == "gaussian" else None

    def covariance(self, block: Block) -> jax.Array:
        """A gaussian block's conditional variance (event 0) or covariance (event 1) at the
        reference scales."""
        if "root" in self.natural[block.names]:
            half = covariance_root(self.natural[block.names]["root"])
            return half @ half.T
        precision = self.natural[block.names]["precision"]
        if block.event == 0:
            return 1.0 / precision
        unit, scale = equilibrated(precision)
        inverse = jnp.linalg.inv(unit)
        return 0.5 * (inverse + jnp.swapaxes(inverse, -1, -2)) * scale[..., :, None] * scale[
            ..., None, :
        ]

    def root(self, block: Block) -> jax.Array:
        """The Cholesky factor of a gaussian block's covariance (event 1) at the reference
        scales."""
        if "root" in self.natural[block.names]:
            return lower(covariance_root(self.natural[block.names]["root"]))
        return jnp.linalg.cholesky(self.covariance(block))

    def _slices(self, block: Block) -> dict[str, slice]:
        out, start = {}, 0
        for name in block.names:
            size = math.prod(self.plan.structure.sites[name].shape)
            out[name] = slice(start, start + size)
            start += size
        return out

    def location(self, name: str) -> tuple[jax.Array, jax.Array]:
        """Mean and conditional variance (or covariance over the last axis) of a location at the
        reference scales."""
        block, site = self.of[name], self.plan.structure.sites[name]
        loc, covariance = self.natural[block.names]["loc"], self.covariance(block)
        if block.stacked:
            part = self._slices(block)[name]
            loc, covariance = loc[part], covariance[part, part]
            if len(site.shape) != 1:
                return loc.reshape(site.shape), jnp.diagonal(covariance).reshape(site.shape)
        return loc, covariance

    def aligned(self, scale: str, name: str) -> tuple[jax.Array, jax.Array]:
        """Degrees of freedom and widening of the Student t that integrates a scale out, at the
        elements of a location."""

        def spread(params):
            moved = prior_spread(self.plan, self.known, params, name)
            return moved**2 if self.plan.structure.sites[name].family.name == "Normal" else moved

        return self._student(scale, spread)

    def _student(self, scale: str, spread) -> tuple[jax.Array, jax.Array]:
        """Degrees of freedom, and the factor from variances at the reference scales to squared
        scales of the Student t.

        Args:
            spread: parameters → variances (or covariances), each a multiple of one element of the
                scale block's c.
        """
        block, natural = self.of[scale], self.natural[(scale,)]
        shape = registry.prior(self.plan.structure.sites[scale].kind).shape(natural)
        present = forward(self.posterior.params[scale], block.steps)

        def move(values):
            if block.form == "inverse_gamma":
                return spread({**self.posterior.params, scale: backward(values, block.steps)})
            eye = jnp.broadcast_to(jnp.eye(natural["Psi"].shape[-1]), natural["Psi"].shape)
            return spread({**self.posterior.params,
                           scale: backward(eye * values[..., None, None], block.steps)})[..., 0, 0]

        unit = move(jnp.ones_like(shape))
        if block.form == "inverse_gamma":
            return 2 * move(shape) / unit, move(natural["B"] / (shape * present)) / unit
        df = shape - natural["Psi"].shape[-1] + 1
        total = jnp.trace(natural["Psi"], axis1=-2, axis2=-1) / jnp.trace(present, axis1=-2,
                                                                          axis2=-1)
        return move(df) / unit, move(total / df) / unit

    def distribution(self, name: str) -> dist.Distribution:
        """The marginal posterior of a parameter, as a NumPyro distribution."""
        block, site = self.of[name], self.plan.structure.sites[name]
        if block.form != "gaussian":
            return registry.prior(site.kind).posterior(self.natural[block.names], block.event)
        loc, covariance = self.location(name)
        matrix = covariance.ndim > loc.ndim
        scale = self.scale_of(name)
        tril = None
        # its product with itself would have lost half the digits
        if matrix and "root" in self.natural[block.names]:
            tril = lower(
                covariance_root(self.natural[block.names]["root"])[self._slices(block)[name]]
            )
        if scale is None and tril is not None:
            return dist.MultivariateNormal(loc, scale_tril=tril)
        if scale is None:
            return dist.MultivariateNormal(loc, covariance) if matrix else dist.Normal(
                loc, jnp.sqrt(covariance)
            )
        hyper = self.aligned(scale, name)
        df, widen = hyper
        # elements of several scales
        if matrix and block.stacked and math.prod(self.plan.structure.sites[scale].shape) > 1:
            covariance, matrix = jnp.diagonal(covariance), False
        if not matrix:
            return dist.StudentT(df, loc, jnp.sqrt(covariance * widen))
        if self.of[scale].form == "inverse_gamma":  # one scale for the whole vector
            df, widen = df.reshape(-1)[0], widen.reshape(-1)[0]
        if tril is not None:
            return dist.MultivariateStudentT(df, loc, tril * jnp.sqrt(widen))
        return dist.MultivariateStudentT(df, loc,
                                         jnp.linalg.cholesky(covariance * widen[..., None, None]))

    def _widened(self, block: Block, params: Mapping) -> jax.Array:
        """Standard deviations at other scales ÷ those at the reference scales, for every element of
        a block of Normals.

        Elements of different scales are independent given them, so that a covariance is scaled by
        rows and columns.
        """
        ratios = []
        for name in block.names:
            now, then = (prior_spread(self.plan, self.known, p, name)
                         for p in (params, self.posterior.params))
            ratios.append(now / then)
        return jnp.concatenate([r.reshape(-1) for r in ratios]) if block.stacked else ratios[0]

    def _bundled(self) -> list[tuple[Bundle, dist.Distribution]]:
        """The posteriors of all blocks but the gaussian ones, those of one kind and event as
        one."""
        sites, groups = self.plan.structure.sites, {}
        for block in self.blocks:
            if block.form != "gaussian":
                shape = sites[block.names[0]].shape
                event = shape[len(shape) - block.event :]
                groups.setdefault((sites[block.names[0]].kind, block.form, block.event, event),
                                  []).append(block.names[0])
        out = []
        for (kind, _, rank, event), names in groups.items():
            bundle = Bundle(tuple(names), tuple(sites[name].shape for name in names), event)
            leaves = self.natural[(names[0],)]
            natural = {leaf: bundle.join({name: self.natural[(name,)][leaf] for name in names})
                       for leaf in leaves}
            out.append((bundle, registry.prior(kind).posterior(natural, rank)))
        return out

    def means(self) -> dict[str, jax.Array]:
        """The posterior mean of every parameter."""
        out = {}
        for bundle, posterior in self._bundled():
            out |= bundle.part(posterior.mean, jax.lax.split)
        for block in (block for block in self.blocks if block.form == "gaussian"):
            out |= {name: self.location(name)[0].reshape(self.plan.structure.sites[name].shape)
                    for name in block.names}
        return out

    def draw(self, key: jax.Array) -> dict[str, jax.Array]:
        """One joint draw: scales and tables first, then the locations given the scales."""
        out = dict(self.posterior.params)
        for i, (bundle, posterior) in enumerate(self._bundled()):
            out |= bundle.part(posterior.sample(jax.random.fold_in(key, len(self.blocks) + i)),
                               jax.lax.split)
        drawn = {name: out[name] for name in out}
        for i, block in enumerate(self.blocks):
            if block.form != "gaussian":
                continue
            loc, covariance = self.natural[block.names]["loc"], self.covariance(block)
            noise = jax.random.normal(jax.random.fold_in(key, i), loc.shape, loc.dtype)
            scale = self.scale_of(block.names[0])
            wide = None
            if scale is not None:
                first = block.names[0]
                if self.plan.structure.sites[first].family.name == "MultivariateNormal":
                    now, then = (prior_spread(self.plan, self.known, p, first)
                                 for p in (drawn, self.posterior.params))
                    ratio = jnp.trace(covariance, axis1=-2, axis2=-1) / jnp.trace(then, axis1=-2,
                                                                                  axis2=-1)
                    covariance, wide = now * ratio[..., None, None], None
                else:
                    wide = self._widened(block, drawn)
            if block.event == 0:
                step = jnp.sqrt(covariance) * noise
            else:
                root = (self.root(block) if "root" in self.natural[block.names]
                        else jnp.linalg.cholesky(covariance))
                step = (root @ noise[..., None])[..., 0]
            value = loc + (step if wide is None else wide * step)
            if block.stacked:
                for name, part in self._slices(block).items():
                    out[name] = value[part].reshape(self.plan.structure.sites[name].shape)
            else:
                out[block.names[0]] = value
        return out

    def log_density(self, params: Mapping[str, jax.Array]) -> jax.Array:
        """log p(params | data) of the closed form."""
        total = jnp.zeros(())
        for bundle, posterior in self._bundled():
            total += posterior.log_prob(bundle.join(params)).sum()
        for block in (block for block in self.blocks if block.form == "gaussian"):
            first, loc, wide = block.names[0], self.natural[block.names]["loc"], 1.0
            value = (jnp.concatenate([params[n].reshape(-1) for n in block.names]) if block.stacked
                     else params[first])
            if self.scale_of(first) is not None:
                if self.plan.structure.sites[first].family.name == "MultivariateNormal":
                    now, then = (prior_spread(self.plan, self.known, p, first)
                                 for p in (params, self.posterior.params))
                    ratio = jnp.trace(self.covariance(block), axis1=-2,
                                      axis2=-1) / jnp.trace(then, axis1=-2, axis2=-1)
                    total += dist.MultivariateNormal(loc, now * ratio[..., None, None]).log_prob(
                        value
                    ).sum()
                    continue
                wide = self._widened(block, params)
            away = (value - loc) / wide
            if "root" in self.natural[block.names]:
                root = self.natural[block.names]["root"]
                logs = jnp.log(jnp.diagonal(root)) - jnp.log(wide) - 0.5 * (root @ away) ** 2
                total += jnp.sum(logs - 0.5 * math.log(2 * math.pi))
                continue
            precision = self.natural[block.names]["precision"]
            if block.event == 0:
                total += jnp.sum(0.5 * jnp.log(precision) - jnp.log(wide) - 0.5 * precision
                                 * away**2 - 0.5 * math.log(2 * math.pi))
                continue
            # By the precision, not by its inverse: near a flat direction (collinear columns) the
            # inverse has lost the others
            unit, scale = equilibrated(precision)
            root = jnp.log(jnp.diagonal(jnp.linalg.cholesky(unit), axis1=-2, axis2=-1)) - jnp.log(
                scale * wide
            )
            square = away * (precision @ away[..., None])[..., 0]
            total += jnp.sum(root - 0.5 * square - 0.5 * math.log(2 * math.pi))
        return total

    # Posterior predictives: one row at a time, exact where the row uses every parameter element
    # once.

    def shares(self, name: str) -> bool:
        """Whether cells of one row may use the same parameter element: their predictives would not
        multiply."""
        site = self.plan.structure.sites[name]
        if math.prod(site.lattice) == 1:
            return False
        for parameter in dict.fromkeys(p for uses in site.uses.values() for p in uses
                                       if p in self.of):
            shape = self.plan.structure.sites[parameter].shape
            block = self.of[parameter]
            tail = shape[: len(shape) - (len(site.event) if block.form == "gaussian"
                                         else block.event)]
            if tail[len(tail) - len(site.lattice) :] != site.lattice:
                return True
        return False

    def integrable(self, name: str) -> bool:
        """Whether a table of state probabilities is linear in the parameters: its posterior mean is
        then its predictive."""
        site = self.plan.structure.sites[name]
        argument = site.arguments[0]
        uses = [use for p, use in site.uses.get(argument, {}).items() if p in self.plan.free]
        return not uses or (argument == "probs"
                            and all(use.level <= Level.AFFINE and not _bent(use) for use in uses))

    def predictive(self, name: str) -> dict[str, jax.Array] | None:
        """The posterior predictive of a pooled site, one row at a time: arguments of its family's
        `predictive` over its table, (*parent states, lattice cells, ...), or None without closed
        form."""
        plan, site, sure = self.plan, self.plan.structure.sites[name], self.posterior.params
        if site.chain:
            return self._counted(name)
        if not hasattr(site.family, "predictive"):
            return None
        if not hasattr(site.family, "scatter"):
            return self._moved(name)
        centres = [p for p in site.uses.get("loc", {}) if p in plan.free]
        scales = [p for a in site.family.scatter for p in site.uses.get(a, {}) if p in plan.free]
        vector = site.family.event == 1
        variance = self._moved_variance(name, centres) if centres else 0.0
        if len(scales) > 1 or variance is None or (
            scales and vector and self.of[scales[0]].form != "inverse_wishart"
        ):
            return None

        def spread(params):
            arguments = argument_table(plan, params, self.known, name)
            return site.family.distribution(arguments).covariance_matrix if vector else arguments[
                "scale"
            ] ** 2

        loc, total = argument_table(plan, sure, self.known, name)["loc"], spread(sure) + variance
        out = {"loc": loc}
        if scales:
            out["df"], widen = self._student(scales[0], spread)
            total = total * (widen[..., None, None] if vector else widen)
        out |= {"scale_tril": jnp.linalg.cholesky(total)} if vector else {"scale": jnp.sqrt(total)}
        shape = loc.shape[: loc.ndim - vector]
        return {
            a: jnp.broadcast_to(
                v, shape + v.shape[v.ndim - {"scale_tril": 2, "loc": int(vector)}.get(a, 0) :]
            ) if a != "loc" else v
            for a, v in out.items()
        }

    def _counted(self, name: str) -> dict[str, jax.Array] | None:
        """Of a chain that is counted: its tables' Dirichlet concentrations, where every cell of a
        table is a parameter's own."""
        plan, site, found = self.plan, self.plan.structure.sites[name], {}
        for argument, own in (("initial", 1), ("transition", 2)):
            unknown = [p for p in site.uses.get(argument, {}) if p in self.of]
            if not unknown:
                continue
            block, use = self.of[unknown[0]], site.uses[argument][unknown[0]]
            copied = block.form == "dirichlet" and use.level == Level.MOVED and not use.coordinate
            if len(unknown) > 1 or not copied or plan.structure.sites[unknown[0]].shape[-own:] != (
                site.states,
            ) * own:
                return None

            def move(values, argument=argument, parameter=unknown[0]):
                return argument_table(plan, {**self.posterior.params, parameter: values},
                                      self.known, name)[argument]

            role = registry.prior(plan.structure.sites[unknown[0]].kind)
            found[argument] = registry.FORMS["dirichlet"].moved(self.natural[block.names], role,
                                                                move)["concentration"]
        return found

    def _moved(self, name: str) -> dict[str, jax.Array] | None:
        """A site's arguments over its table, the one that is a copy of a parameter by the posterior
        of that parameter."""
        plan, site, sure = self.plan, self.plan.structure.sites[name], self.posterior.params
        unknown = [(argument, p) for argument, uses in site.uses.items() for p in uses
                   if p in self.of]
        if len(unknown) != 1 or unknown[0][0] not in site.family.canonical:
            return None
        (argument, parameter), *_ = unknown
        (form, steps), block, use = (site.family.canonical[argument], self.of[parameter],
                                     site.uses[argument][parameter])
        if block.form != form or use.level != Level.MOVED or (
            use.coordinate and form != "inverse_gamma"
        ):
            return None

        def move(values):
            return forward(argument_table(plan, {**sure, parameter: backward(values, block.steps)},
                                          self.known, name)[argument], steps)

        arguments = argument_table(plan, sure, self.known, name)
        role = registry.prior(plan.structure.sites[parameter].kind)
        found = registry.FORMS[form].moved(self.natural[block.names], role, move)
        return {**{a: v for a, v in arguments.items() if a != argument}, **found}

    def columns(self, block: Block) -> dict[str, jax.Array] | None:
        """The parameters of a gaussian block at mean + each column of the root of its covariance:
        (columns, ...), at reference scales."""
        loc, covariance = self.natural[block.names]["loc"], self.covariance(block)
        if loc.size > COLUMNS:
            return None
        if block.event == 0:
            steps = jnp.diag(jnp.sqrt(covariance).reshape(-1)).reshape(loc.size, *loc.shape)
        else:
            roots = self.root(block).reshape(-1, *covariance.shape[-2:])  # (plates, d, d)
            plates = jnp.eye(len(roots), dtype=loc.dtype)
            steps = jnp.einsum("ab,bij->ajbi", plates, roots).reshape(loc.size, *loc.shape)
        return jax.vmap(lambda c: unpack(self.posterior.params, block, c))(loc + steps)

    def affine(self, name: str) -> dict[str, dict[str, jax.Array]] | None:
        """What factors need for the predictive of a row-wise Normal whose location is affine in one
        gaussian block: settings of the parameters, at the block's columns, and with the scale's c
        at 1, at its shape, at the Student widening and at its reference.

        A site of several cells has one scale parameter for all (their predictive is one vector's),
        or one for each: then no two cells share a coefficient, whose prior would have to scale with
        both, and their predictives multiply.
        """
        site = self.plan.structure.sites[name]
        if site.family is None or site.family.name != "Normal":
            return None
        centres = {self.of[p].names for p in site.uses.get("loc", {}) if p in self.of}
        scales = [p for p in site.uses.get("scale", {}) if p in self.of]
        cells = math.prod(site.lattice)
        if cells > 1 and any(math.prod(self.plan.structure.sites[p].shape) not in (1, cells)
                             for p in scales):
            return None
        if (len(centres) != 1 or len(scales) > 1
            or self.natural[next(iter(centres))].keys() & {"precision", "root"} == set()):
            return None
        columns, settings = self.columns(self.of[next(iter(centres))[0]]), {}
        if columns is None or (scales and self.of[scales[0]].form != "inverse_gamma"):
            return None
        for scale in scales:
            block, natural = self.of[scale], self.natural[(scale,)]
            shape = registry.prior(self.plan.structure.sites[scale].kind).shape(natural)
            present = forward(self.posterior.params[scale], block.steps)
            points = jnp.stack([jnp.ones_like(shape), shape, natural["B"] / (shape * present),
                                present])
            settings = {scale: backward(points, block.steps)}
        return {"columns": columns, "scales": settings}

    def _moved_variance(self, name: str, centres: list[str]):
        """Var[loc] over the site's table, for locations that are copies of one parameter's
        elements."""
        uses = self.plan.structure.sites[name].uses["loc"]
        if len(centres) > 1 or uses[centres[0]].level != Level.MOVED or uses[centres[0]].coordinate:
            return None
        first, vector = centres[0], self.plan.structure.sites[name].family.event == 1
        loc, variance = self.location(first)

        def moved(value):
            return argument_table(self.plan, {**self.posterior.params, first: value}, self.known,
                                  name)["loc"]

        if variance.ndim == loc.ndim:
            one = moved(variance)
            return one[..., None] * jnp.eye(one.shape[-1]) if vector else one
        return jax.vmap(moved, in_axes=-1, out_axes=-1)(variance) if vector else None


def linear(plan: Plan, fitted: Plan, name: str) -> bool:
    """Whether the mean of a site without states is linear in the parameters: it is then the mean at
    their posterior means."""
    site = plan.structure.named[name]
    if site.states is not None or not any(p in fitted.free for uses in site.uses.values()
                                          for p in uses):
        return True
    of = site.arguments if name in plan.structure.deterministics else getattr(site.family,
                                                                              "mean_of", None)
    uses = [use for argument in of or () for p, use in site.uses.get(argument, {}).items()
            if p in fitted.free]
    return of is not None and all(use.level <= Level.AFFINE and not _bent(use) for use in uses)


def _bent(use) -> bool:
    return any(step not in ("complement", "times") for step, _ in use.coordinate)
