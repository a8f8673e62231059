"""Readings of a function without rows(): one joint density, or a plate of its own as the rows
(find_rows.py).

A reading takes the place of the decorated function (`Bound.generative`), so that engines and
questions treat the model like any other.
"""

import contextlib
import functools
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.primitives import CondIndepStackFrame, Messenger

from probml.families import domains
from probml.interface.functions.cellwise_sums import sum_out_cells
from probml.interface.functions.discrete_scans import sum_out_scan
from probml.interface.functions.given.params import ParamsAsSites, ParamSpec, Scaled
from probml.interface.functions.given.values import as_given, with_known_values
from probml.interface.functions.marginal_weights import StateWeights
from probml.interface.functions.messages import prepare, trace_isolated
from probml.interface.functions.missing_cells import MaskMissing, sample_missing
from probml.interface.functions.states import log_of_events, zeros_of
from probml.interface.functions.steps.joint_loops import run_with_loop_sites
from probml.interface.functions.steps.loop_sites import LoopSites
from probml.interface.functions.steps.smoothed import SmoothedSteps, integrate_steps, smooth_steps
from probml.interface.functions.survey import observed_batch
from probml.jaxpr.levels import dependencies
from probml.jaxpr.program import jaxpr_of
from probml.language.named_rows import OBSERVED
from probml.language.settings import thaw
from probml.numerics.process.making import unchecked
from probml.typing import ArrayLike, Message, PyTree, SiteValues


@dataclass(eq=False)
class Reading:
    """A function as it is read: its names and its identity.

    Args:
        generative: the decorated function.
        arg_names: arguments that stay arguments, name of the input → name in the function.
        params: what numpyro.param holds in it, name → its shapes and constraint.
        batch: the plate's subsample_size, for engines that take rows in batches.
    """

    generative: Any
    arg_names: Mapping[str, str]
    params: Mapping[str, ParamSpec] = field(default_factory=dict, kw_only=True)
    batch: int | None = field(default=None, kw_only=True)
    is_joint: ClassVar[bool] = False
    found: ClassVar[bool] = False

    def __post_init__(self) -> None:
        generative = self.generative
        self.function = generative.function
        self.summary_tables, self.former = generative.summary_tables, generative.former
        self.identified_by = generative.identified_by
        self.__name__, self.__qualname__ = generative.__name__, generative.__qualname__
        self.__module__, self.__doc__ = generative.__module__, generative.__doc__

    @property
    def inputs(self) -> dict[str, str]:
        """Name of an input → name in the function."""
        return dict(self.arg_names)

    @property
    def arguments(self) -> tuple[str, ...]:
        return tuple(self.inputs)

    def __reduce__(self):
        return functools.partial(type(self), **{
            item.name: getattr(self, item.name) for item in fields(self)}), ()

    def call(self, arguments: SiteValues) -> object:
        """Run the function, its params as sites."""
        with ParamsAsSites(self.params):
            return self.generative.run(arguments, {})

    @property
    def key(self) -> tuple:
        """The class and all compared fields but the function: equal readings have equal keys."""
        parts = [getattr(self, item.name) for item in fields(self)[1:] if item.compare]
        return type(self), *(tuple(part.items()) if isinstance(part, Mapping) else part
                             for part in parts)


class ObservedSite(NamedTuple):
    """An observed site: its value, missing cells NaN, of a scan behind its steps; the number of its
    axes that are elements, the others being within one; and the plates, (name, axis from the right
    of the elements'); and whether its value is computed from latent sites, here at zero."""

    value: np.ndarray
    batch: int
    plates: tuple[tuple[str, int], ...]
    computed: bool

    @property
    def known(self) -> np.ndarray:
        """Which elements are observed, one after the other."""
        cells = np.isnan(self.value.astype(float))
        return ~cells.reshape(*cells.shape[: self.batch], -1).any(-1).ravel()


@dataclass(eq=False)
class JointReading(Reading):
    """One joint density: all observations are one row, whose log weight is the sum of their log
    densities; latent sites lie outside rows, as they do in the function.

    Args:
        given: inputs that are values of sites, name of the input → site.
        summed: discrete sites that are summed out cell by cell (cellwise_sums.py).
        masks: of the given sites with missing cells, which cells are observed, frozen; None: no
            cell of any site or argument is missing (missing_cells.py).
        unknown: arguments whose missing cells are latent numbers, name → (which, frozen; their
            support).
        loops: steps of Python loops that are one site, name of all → sites (steps/), of numpyro's
            scans none; None: each site is itself.
        integrated: these are integrated out (steps/gaussian_loops.py,
            steps/gaussian_scans.py).
        derived: names of what the function then computes.
        distinct: arguments of which the function asks which values there are, see find_rows.py.
        reason: why it has no rows, for messages.
    """

    given: Mapping[str, str] = field(default_factory=dict)
    summed: tuple[str, ...] = ()
    masks: Mapping[str, Hashable] | None = None
    unknown: Mapping[str, tuple[Hashable, str]] = field(default_factory=dict)
    loops: Mapping[str, tuple[str, ...]] | None = None
    integrated: bool = False
    derived: tuple[str, ...] = ()
    distinct: Mapping[str, tuple] = field(default_factory=dict)
    reason: str = field(default="", compare=False)
    is_joint: ClassVar[bool] = True

    @property
    def inputs(self) -> dict[str, str]:
        return {**self.arg_names, **self.given}

    @property
    def observed_cells(self) -> dict[str, np.ndarray]:
        """Which cells are observed, of each given site with missing cells."""
        return {name: thaw(mask) for name, mask in (self.masks or {}).items()}

    @property
    def steps(self) -> LoopSites:
        """The loops whose steps are one site."""
        return LoopSites(self.loops or {})

    def run(self, settings: Mapping[str, object], inputs: SiteValues,
            rows: int | None = None, weights: StateWeights | None = None) -> object:
        """Run the function, `weights` those of the states of discrete sites that are summed out."""
        call, observed = self._bound(settings, {name: value[0] for name, value in inputs.items()})
        with _WeighObserved(observed, weights=weights):
            if self.loops is not None and not self.steps.scans and not self.integrated:
                return run_with_loop_sites(call, self.steps, observed)
            if self.integrated:
                call = functools.partial(integrate_steps, call, self.steps, observed)
            return sum_out_cells(call, self.summed, observed, weights) if self.summed else call()

    def log_joint(self, settings: Mapping[str, object], inputs: SiteValues,
                  values: SiteValues, weights: StateWeights) -> jax.Array:
        """log p(observations, values), latent discrete sites summed out with log weights of their
        states; terms that do not depend on these are left out.

        Args:
            inputs: name of the input → value, without the one row. values: site → value.
        """
        if self.integrated and not self.summed:  # then nothing discrete is unseen
            return jnp.zeros(())
        with (unchecked(), handlers.block(), handlers.trace() as trace,
              handlers.substitute(data=dict(values))):
            self.run(settings, {name: jnp.asarray(value)[None] for name, value in inputs.items()},
                     weights=weights)
        return sum((jnp.sum(site["fn"].log_factor) for site in trace.values()
                    if isinstance(site.get("fn"), dist.Unit)), jnp.zeros(()))

    def smoothed(self, settings: Mapping[str, object], inputs: SiteValues,
                 values: SiteValues) -> SmoothedSteps:
        """Loops that are integrated out, given what is seen.

        Args:
            inputs: name of the input → value, without the one row. values: site → value.
        """
        call, observed = self._bound(settings, inputs)
        return smooth_steps(call, self.steps, observed, values)

    def _bound(self, settings: Mapping[str, object], inputs: SiteValues,
               run: Callable | None = None) -> tuple[Callable, dict[str, ArrayLike]]:
        """The function, or another way to `run` it, with its arguments, of which those that are
        traced know which values there were; and site → what is seen of it."""
        args = {name: as_given(value) for name, value in settings.items()}
        args |= {arg: inputs[name] for name, arg in self.arg_names.items()}
        args |= {arg: with_known_values(args[arg], values) for arg, values in self.distinct.items()
                 if isinstance(args[arg], jax.core.Tracer)}
        return (functools.partial(run or self.call, args),
                {site: inputs[name] for name, site in self.given.items()})

    def observed_at(self, settings: Mapping[str, object], inputs: SiteValues,
                    values: SiteValues) -> dict[str, Message]:
        """The messages of the observed sites at values of the others; none where a latent site is
        not among the values: it is summed or integrated out.

        Args:
            inputs: name of the input → value, without the one row.
        """
        step_names = {*self.steps.places, *self.steps.scans}
        if self.summed or self.integrated and not step_names <= set(values):
            return {}
        # NumPyro's scan takes a step of a value by a traced number
        step_values = jax.tree.map(jnp.asarray, self.steps.split_steps(values))
        call, observed = self._bound(settings, inputs)
        trace = stochastic_sites(call, observed, step_values)
        if any(not site["is_observed"] and name not in step_values for name, site in trace.items()):
            return {}
        return {name: site for name, site in trace.items() if site["is_observed"]}

    def element_logs(self, settings: Mapping[str, object], inputs: SiteValues,
                     values: SiteValues) -> dict[str, jax.Array]:
        """The log density of each element of every observed site, as `observed_at`."""
        return {name: log_of_events(site)
                for name, site in self.observed_at(settings, inputs, values).items()}

    def observed(self, settings: Mapping[str, object],
                 inputs: SiteValues) -> dict[str, ObservedSite]:
        """The observed sites, factors left out.

        Args:
            inputs: name of the input → value, without the one row.
        """
        call, observed = self._bound(settings, inputs, super().call)
        found = observed_sites(call, observed, {})
        needed = dependencies(jaxpr_of(lambda moved: [site["value"] for site in observed_sites(
            call, observed, {}, blank=lambda fn: zeros_of(fn) + moved).values()])(0))
        sites = {}
        for (name, site), latent in zip(found.items(), needed, strict=True):
            value, batch = np.asarray(site["value"]), observed_batch(site["fn"], site["value"])
            if name in self.observed_cells:
                value = np.where(self.observed_cells[name], value, np.nan)
            full_shape = (*batch, *value.shape[value.ndim - site["fn"].event_dim :])
            sites[name] = ObservedSite(np.broadcast_to(value, full_shape), len(batch), tuple(
                (frame.name, frame.dim) for frame in site["cond_indep_stack"]), bool(latent))
        return sites

    def call(self, arguments: SiteValues, params: bool = True) -> object:
        """Run the function, unseen cells of what is observed left out or latent.

        Args:
            params: as sites; else they stay params.
        """
        arguments = {**arguments, **{
            name: sample_missing(name, arguments[name], thaw(missing), support)
            for name, (missing, support) in self.unknown.items()}}
        with (contextlib.nullcontext() if self.masks is None
              else MaskMissing(self.observed_cells)):
            return super().call(arguments) if params else self.generative.run(arguments, {})

    def forward(self, settings: Mapping[str, object], inputs: SiteValues) -> PyTree:
        """Run the function as NumPyro's own inference meets it, params as params, its plates with a
        subsample_size in parts; but where discrete sites are summed out: there plates are whole.

        Args:
            inputs: name of the input → value, without the one row.
        """
        call, observed = self._bound(settings, inputs, functools.partial(self.call, params=False))
        with (handlers.condition(data=observed),
              _WeighObserved(observed, weighs=False, full=bool(self.summed))):
            return sum_out_cells(call, self.summed, observed) if self.summed else call()


def observed_sites(call: Callable[[], object], given: SiteValues, values: SiteValues,
                   **options: Any) -> dict[str, Message]:
    """The messages of what is observed, factors left out; `options` as of Fill."""
    return {name: site for name, site in stochastic_sites(call, given, values, **options).items()
            if site["is_observed"]}


def stochastic_sites(call: Callable[[], object], given: SiteValues, values: SiteValues,
                     **options: Any) -> dict[str, Message]:
    """The messages of what is sampled or observed, factors left out; `options` as of Fill."""
    with unchecked():
        trace = trace_isolated(call, given, values, sums=False, **options)
    return {name: site for name, site in trace.items() if site["type"] == "sample"
            and not isinstance(site["fn"], dist.Unit)}


def site_values(reading: JointReading, values: SiteValues) -> dict[str, ArrayLike]:
    """Values of parameters by the sites of a model: steps of a loop that are one site are stacked;
    steps that are integrated out, and computed values, are left out."""
    steps = reading.steps
    if reading.integrated:
        return {name: value for name, value in values.items()
                if name not in (*steps.groups, *steps.places, *reading.derived)}
    return steps.together(values)


class _WeighObserved(Messenger):
    """Turns observations into log weights of the one row; the function continues with the observed
    values. Discrete sites of scans are summed out.

    Args:
        given: values of sites that are data. weights: of the states of discrete sites.
        weighs: whether observations are turned into weights; full: whether plates are whole.
    """

    def __init__(self, given: SiteValues, weights: StateWeights | None = None,
                 weighs: bool = True, full: bool = True):
        super().__init__()
        self.given, self.weights, self.weighs, self.full = given, weights, weighs, full

    def process_message(self, msg: dict) -> None:
        if self.full:
            prepare(msg)
        if msg["type"] == "control_flow":
            msg["kwargs"]["substitute_stack"].append(("condition", self.given))
            sum_out_scan(msg, self.weights)
        if not self.weighs:
            return
        frames = [frame._replace(name="rows of its own") if frame.name == "rows" else frame
                  for frame in msg.get("cond_indep_stack") or ()]
        if msg["type"] in ("sample", "deterministic"):
            msg["cond_indep_stack"] = frames
        if msg["type"] != "sample":
            return
        if not (msg["is_observed"] or msg["name"] in self.given):
            if msg["scale"] is not None:
                msg |= {"fn": Scaled(msg["fn"], msg["scale"]), "scale": None}
            return
        fn = msg["fn"]
        value = self.given.get(msg["name"], msg["value"])
        log = (fn.log_factor if isinstance(fn, dist.Unit)
               else domains.log_prob_of_codes(fn, value))
        total = jnp.sum(log if msg["scale"] is None else msg["scale"] * log)
        msg |= {"fn": dist.Unit(total[None]), "value": None, "is_observed": True, "scale": None,
                "cond_indep_stack": [CondIndepStackFrame("rows", -1, 1)], OBSERVED: value}

    def postprocess_message(self, msg: dict) -> None:
        if OBSERVED in msg:
            msg["value"] = msg[OBSERVED]
