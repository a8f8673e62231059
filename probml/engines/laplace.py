"""Laplace: a normal distribution at the posterior mode, with the curvature there."""

from dataclasses import dataclass, replace
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from probml.engines.engine import Engine, Outcome, Problem, Status
from probml.engines.map import MAP
from probml.engines.sampling.reliance import doubts
from probml.engines.sampling.states import settled
from probml.engines.start import begin, ridges
from probml.engines.start.start import check_distinct
from probml.errors import ModelError, Refusal
from probml.evidence import density
from probml.language import given
from probml.numerics import curvature
from probml.plan import decide
from probml.posteriors.drawn import Normal
from probml.posteriors.posterior import OWN

SHORT = 1e-3  # standard deviations from the mode that are worth a word
# nats that the density falls one standard deviation away, where a normal's falls by 0.5: below
# which, on either side and on average of both, the curvature told no width
LEAST, EVEN = 0.02, 0.1
NORMAL = 0.2, 1.5  # and within which it is normal


@dataclass(frozen=True)
class Laplace(Engine):
    """Laplace's approximation: u ~ N(û, H⁻¹) in unbounded coordinates u, û the mode of the density
    of u and H = −∂² log p(u | data) (Tierney & Kadane 1986).

    `params` is the mode, in the parameters' own coordinates; it differs from MAP()'s, which
    maximises the density of these themselves, where a parameter is bounded. Everything asked is
    averaged over the normal.

    Args:
        over: names of the parameters that vary, such as those of a network's last layer; the others
            stay at MAP()'s mode. None: all.

    `status` says where the posterior is no such normal: one standard deviation away, and in the
    tails (PSIS k-hat, Yao et al. 2018).

    Raises:
        ModelError: `over` names no parameter. Refusal: more than 1,024 parameters that vary; a
            density without a mode, or whose curvature there is not its width.

    Cost: a climb, 6 d gradients for d parameters that vary, d³, at most 400 evidences; some 8 d
        gradients more where widths are many digits apart (a level and a slope beside a year);
        after five seconds a clock, in a terminal or a notebook.
    """

    over: tuple[str, ...] | None = None

    def __post_init__(self):
        if self.over is not None:
            names = given.names(self.over, "Laplace(over)", "parameters", "('weights1', 'bias1')")
            object.__setattr__(self, "over", names)

    statistics: ClassVar = True

    def refuse(self, problem: Problem) -> None:
        """Laplace refuses more parameters than a matrix of second derivatives has room for, and
        names it does not know."""
        plan = problem.plan
        check_distinct(problem.data, plan)
        unknown = next((name for name in self.over or () if name not in plan.free), None)
        if unknown is not None:
            raise ModelError(f"Laplace(over=...): '{unknown}' is no parameter of model "
                             f"'{plan.structure.model.name}': {list(plan.free)}")
        size = sum(int(np.prod(plan.structure.sites[name].shape)) for name in self.over
                   or plan.free)
        if size > curvature.MOST:
            raise Refusal(
                f"Laplace cannot fit {problem}: it has {size} "
                f"parameters, more than the {curvature.MOST} whose "
                "second derivatives it takes. Take Laplace(over=...) of some of them",
                ("SVI", "NUTS")
            )

    @property
    def integrates(self) -> bool:
        return self.over is None

    @property
    def approximates(self) -> bool:
        return self.integrates

    @property
    def squares(self) -> bool:
        return self.over is None

    def run(self, problem: Problem) -> Outcome:
        plan, rows, known, seed = problem.plan, problem.rows, problem.known, problem.seed
        if self.over is not None and set(self.over) != set(plan.free):
            return self._part(problem)
        params = begin.rough(problem)
        others = begin.elsewhere(plan, known, seed, problem.start)
        # the mode itself, and one standard deviation to either side in every coordinate
        unit = np.eye(density.size(plan, known))
        spread = np.concatenate([0 * unit[:1], unit, -unit])
        begun = begin.measured(plan, (), params, known, rows, spread, others)
        begin.check(plan, begun, params, known, "Laplace")
        begun, left = begin.settled(plan, begun, known, rows, spread, others)
        near, (begun, left) = begun, ridges.told(problem, begun, left, spread)
        # a ridge costs digits that float32 has not
        adrift = begun is not near and begun.frame.centre.dtype == np.float32
        normal = normal_at(begun)
        low = float(np.min(np.asarray(begun.frame.curvature)))
        if not bool(begun.climbed) or low <= 0 or not np.isfinite(low):
            worst = ("its curvature is not positive in every direction" if bool(begun.climbed)
                     else "the climb found no end")
            if not jax.config.jax_enable_x64:
                worst += (", in float32: jax.config.update('jax_enable_x64', True) tells small "
                          "ones from none")
            raise Refusal(
                f"Laplace cannot fit {problem}: its density of unbounded "
                f"coordinates has no mode ({worst}): "
                "a scale that stands in another parameter's prior can shrink for ever", ("NUTS",)
            )
        shape = _shape(problem, begun)
        normal = jax.device_get(normal)
        point = jax.device_get(normal._replace(factor=normal.factor * 0).draw(plan, known, 1, OWN))
        history = np.asarray(begun.trail)
        history, params = (history[np.isfinite(history)],
                           {name: value[0] for name, value in point.items()})
        notes = ((f"its centre is {left:.2g} standard deviations from the mode",)
                 if left > SHORT else ())
        notes += begin.other_modes(plan, begun, known) + shape + doubts(problem, normal)
        return Outcome(params, history, Status.APPROXIMATED, len(history) - 1, notes,
                       posterior=settled(plan, normal, known, rows, seed), adrift=adrift)

    def _part(self, problem: Problem) -> Outcome:
        """The normal of some parameters, the others given at the mode of all."""
        plan, known = problem.plan, problem.known
        top = MAP().run(problem)
        mode = {name: jnp.asarray(value) for name, value in top.params.items()}
        others = {name: value for name, value in mode.items() if name not in self.over}
        some = decide.make(plan.structure, plan.pattern, (*plan.given, *others))
        given = known._replace(given={**known.given, **others})
        start = {name: np.asarray(mode[name]) for name in self.over}
        found = Laplace().run(replace(problem, plan=some, known=given, start=start))
        if found.posterior.chains is not None:
            raise Refusal(f"Laplace(over=...): {problem} has discrete "
                          f"sites outside rows; take all parameters")
        owner = np.concatenate([np.full(spec.size, name in self.over)
                                for name, spec in sorted(density.shapes(plan, known).items())])
        loc, root = (np.asarray(density.flat(plan, mode, known)).copy(),
                     np.asarray(found.posterior.factor))
        loc[owner] = found.posterior.loc
        factor = np.zeros((len(loc), root.shape[-1]), loc.dtype)
        factor[owner] = root if root.ndim == 2 else np.diag(root)
        params = {**{name: np.asarray(value) for name, value in mode.items()}, **found.params}
        return found._replace(params=params, posterior=Normal(loc, np.zeros_like(loc), factor))


def normal_at(begun: begin.Begin) -> Normal:
    """The normal distribution with the frame's centre and curvature."""
    centre = begun.frame.centre
    return Normal(centre, jnp.zeros_like(centre), begun.frame.root)


def _shape(problem: Problem, begun: begin.Begin) -> tuple[str, ...]:
    """What is to be said of a density that is no normal's one standard deviation from its mode.

    Raises:
        Refusal: it hardly falls there, so that its curvature tells nothing of its width, as where
            it rises for ever.
    """
    plan, values = problem.plan, np.asarray(begun.starts.value, float)
    d = len(values) // 2
    # a frame that is flat somewhere was looked at a tenth of the way
    share = 1.0 if bool(np.all(np.asarray(begun.frame.curvature) > curvature.FLAT)) else 0.01
    falls = np.nan_to_num(values[0] - values[1:].reshape(2, d), nan=np.inf) / share
    rounding = 4 * np.finfo(begun.starts.value.dtype).eps * abs(values[0]) / share
    owners = density.owners(plan, problem.known)
    lost = np.minimum(falls.min(0) / LEAST, falls.mean(0) / EVEN)
    flat = int(np.argmin(lost))
    if lost[flat] + rounding / LEAST < 1:
        raise Refusal(
            f"Laplace cannot fit {problem}: one standard deviation from where its climb ended, in "
            f"the direction of '{owners[flat]}', its density falls by "
            f"{falls[:, flat].min():.2g} nats, where a normal's falls by 0.5: the curvature there "
            f"is not its width, as where it rises for ever (classes that are separated, under a "
            f"flat prior). Give '{owners[flat].partition('[')[0]}' a prior that holds it",
            ("NUTS",)
        )
    low, high = NORMAL
    odd = [j for j in range(d) if falls[:, j].min() + rounding < low
           or falls[:, j].max() - rounding > high]
    if not odd:
        return ()
    worst = max(odd, key=lambda j: abs(falls[:, j] - 0.5).max())
    down, up = sorted(falls[:, worst])
    return (f"not normal along '{owners[worst]}': one standard deviation to either side its "
            f"density falls by {down:.2g} and {up:.2g} nats, not 0.5; NUTS() tells its shape",)
