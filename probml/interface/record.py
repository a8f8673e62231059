"""The fields of a fit, and the properties that are computed from them alone."""

import functools
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any, Self

import jax

from probml.dataset import dataset, frames, read
from probml.dataset.checks import digits
from probml.dataset.coding.indices import REFUSE
from probml.device.rows import Known
from probml.engines.engine import Engine, Status
from probml.engines.findings import Finding
from probml.engines.ladder import parse_engine
from probml.errors import (
    ConvergenceWarning,
    ModelError,
    Refusal,
    counted,
    listed,
    present,
    untraced,
)
from probml.factors.digits import is_imprecise
from probml.fits import fitting
from probml.interface.functions.read_function import read_function
from probml.language.language import Bound
from probml.language.renamed import by_old_names, warn
from probml.language.settings import freeze
from probml.numerics.precision import TooFewDigits, in_its_own
from probml.numerics.transfer import placed_all, read_only
from probml.plan import decide
from probml.plan import plan as planning
from probml.posteriors.posterior import Point, Posterior
from probml.queries import outside, step_posteriors
from probml.queries.fitted import Fitted
from probml.structure.structure import Structure
from probml.structure.trace import trace
from probml.typing import ArrayLike, SiteValues


@in_its_own
@dataclass(frozen=True, eq=False)
class Record(Fitted):
    """The model and the outcome of an engine; immutable. See Fit for the attributes."""

    @classmethod
    def of(cls, model: Bound, found: fitting.InferenceResult,
           columns: Mapping[str, tuple] = MappingProxyType({}),
           seed: int | None = None) -> Self:
        """The record of an engine's outcome; warns where it did not converge, raises where a scale
        collapsed to 0.

        Args:
            columns: of frames.columns_of. seed: of the random choices.
        """
        data, engine, outcome = found.data, found.engine, found.outcome
        if outcome.status is Status.COLLAPSED:
            raise Refusal(
                f"{type(engine).__name__} of model '{model.name}' collapsed: a standard deviation "
                "(scale) went to 0, or the objective was not finite. Possible causes: a component "
                "with a single row, a column that is constant or collinear with others, or data "
                "that are impossible under the model. Drop such columns, or use fewer components "
                "or more restarts. Or " + f"fit with the prior, {type(engine).__name__}(prior=True"
                "), and " * (getattr(engine, "prior", True) is False)
                + "give scales a prior with density 0 at 0 (LogNormal, InverseGamma, "
                "InverseWishart)"
            )
        if outcome.status.code is not None:
            outcome = outcome._replace(findings=(Finding.of(outcome.status.code),
                                                 *outcome.findings))
        for finding in outcome.findings:
            finding.issue(f"{type(engine).__name__} of model '{model.name}'", stacklevel=3)
        return cls(
            outcome.state.model or model,
            {name: read_only(value) for name, value in outcome.params.items()},
            data.shapes,
            repr(engine),
            read_only(outcome.history),
            outcome.status,
            outcome.iterations,
            outcome.log_evidence,
            outcome.findings,
            data.labels,
            found.given,
            tuple(sorted(found.pattern.items())),
            found.posterior,
            None,
            found.kept,
            data if isinstance(data, dataset.Data) and (
                (outcome.posterior.varies and not outcome.posterior.exact) or model.is_joint
                or model.generative.found) else None,
            None if outcome.held_out is None else read_only(outcome.held_out),
            found.double,
            outcome.bound,
            engine,
            {name: column_names for name, column_names in columns.items() if name in model.inputs
             or name in found.pattern},
            seed,
            fitted_rows=found.fitted_rows,
            evidence_error=outcome.evidence_error,
            weighted=found.weighted,
        )

    def __getstate__(self) -> dict[str, Any]:
        """The state to pickle: without the rows of a point, and without an engine that cannot be
        pickled, such as one with an optimiser made of closures; its name stays."""
        state = {name: value for name, value in self.__dict__.items()
                 if name not in ("_static_part", "_estimator")}
        state["fitted_rows"] = None
        try:
            pickle.dumps(self.by)
        except (AttributeError, TypeError, pickle.PicklingError):
            state["by"] = None
        return state

    @functools.cached_property
    def params(self) -> dict[str, ArrayLike]:
        """Parameters and deterministics outside rows, name → array: see Fit."""
        return by_old_names({**self.point, **step_posteriors.compute_step_means(self),
                             **outside.point(self)}, self.model.renamed)

    @property
    def certain(self) -> bool:
        """Whether the fit is a point, without a posterior."""
        return not self.belief.varies and self.belief.table is None

    @property
    def made_by(self) -> Engine | None:
        """The engine; of a fit from a file, one made from its representation there; None: it cannot
        be made from that."""
        try:
            return self.by or parse_engine(self.engine)
        except ModelError:
            return None

    @property
    def drawn(self) -> Posterior | None:
        """The posterior, if it is not in closed form; None: it is, or is a point."""
        return self.belief if self.belief.varies and not self.belief.exact else None

    @property
    def converged(self) -> bool:
        """Whether the engine converged."""
        ended = self.outcome in (Status.CONVERGED, Status.EXACT, Status.KNOWN, Status.SAMPLED,
                                 Status.APPROXIMATED, Status.WEIGHTED, Status.EARLY)
        return ended and not any(finding.code.warning is ConvergenceWarning
                                 for finding in self.findings)

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """The findings that need action, with a code, the parameter, numbers and remedies."""
        return tuple(finding for finding in self.findings if finding.warns)

    @property
    def ending(self) -> str:
        """How the engine ended, and the findings for information, in a line."""
        name = self.engine.partition("(")[0]
        steps = f", {counted(self.iterations, 'iteration')}"
        steps *= self.iterations > 0 and self.certain
        engine = f" ({name}{steps})"
        if self.outcome is Status.WEIGHTED:
            engine = "" if name == "Laplace" else f" at the optimum found by {name}"
        elif self.outcome is Status.KNOWN or name in self.outcome.headline:
            engine = ""
        notes = "".join(f"; {finding.problem}" for finding in self.findings if not finding.warns)
        return f"{self.outcome.headline}{engine}{notes}"

    @property
    def status(self) -> str:
        """How the engine ended, the findings, and the problem of each warning, in a line."""
        return self.ending + "".join(f". Warning [{finding.code.value}]: {finding.problem}"
                                     for finding in self.warnings)

    @property
    def structure(self) -> Structure:
        """Sites, parents and plates of the model, traced with the shapes of the data."""
        return trace(self.model, self.shapes)

    def labels(self, site: str) -> tuple:
        """The labels of a discrete site's states, in code order; 0 … states−1 where the data had
        none. Of an input that is an index, the labels of the entries that it indexes.

        Raises:
            ModelError: no such site, one without states, an input that is no index.
        """
        if isinstance(site, str) and site in self.model.inputs:
            return self._index_labels(site)
        self._site(site, discrete=True)
        return self.names.get(site, tuple(range(present(self.structure.sites[site].finite))))

    def _index_labels(self, name: str) -> tuple:
        if name in self.names:
            return self.names[name]
        index = self.structure.indexed.get(name) if self.shapes else None
        if index is None or index.high is None or index.low is None:
            indexed = ([other.name for other in self.structure.indexed.values()]
                       if self.shapes else [])
            raise ModelError(f"labels('{name}'): the input '{name}' is not an index into an array "
                             f"of known length. Use a site with a finite list of states, or an "
                             f"index: {indexed or 'none'}")
        return tuple(range(index.low, index.high + 1))

    @property
    def _plan(self) -> planning.Plan:
        structure = self.structure if self.learnt is None else trace(self.learnt, self.shapes)
        return decide.make(structure, dict(self.pattern), tuple(self.given),
                           lenient=not self.pattern)

    def _known(self) -> Known:
        return Known(placed_all(dict(self.given)), {}, {})

    @functools.cached_property
    def _static_part(self) -> "StaticPart":
        return StaticPart(self)

    def _site(self, name: str, discrete: bool = False):
        sites = self.structure.named
        if not isinstance(name, str):
            raise ModelError(f"expected the name of a site, got {name!r:.60}. Use one of the sites "
                             f"of model '{self.model.name}', {listed(sites)}")
        if name in dict(self.model.interventions):
            raise ModelError(f"do() set site '{name}' to a known value in every row, so there is "
                             "nothing to predict. Name another site, or use the Fit on which do() "
                             "was called")
        if name not in sites and name in self.model.renamed:
            warn("the parameter", name, self.model.renamed[name], 4)
            name = self.model.renamed[name]
        if name not in sites:
            raise ModelError(f"model '{self.model.name}' has no site '{name}'. Use one of its "
                             f"sites, {listed(sites)}")
        if discrete and sites[name].finite is None:
            remedy = ("use impute(data) or simulate(..., given=data)" if sites[name].rows
                      else f"use {self._expression_outside_rows(name)}")
            raise ModelError(f"site '{name}' ({sites[name].kind}) has no finite list of states, so "
                             f"it has no labels, no table and no probabilities of states. Instead "
                             f"{remedy}")
        return sites[name]

    def _expression_outside_rows(self, name: str) -> str:
        """The expression by which a user reads the value of a site outside rows."""
        return f"fit.params['{name}']" if self.certain else f"fit.draws(1000)['{name}']"

    def _read_rows(self, verb: str, data: object, unknown: str = REFUSE) -> dataset.Data:
        """The data of a question about rows, for which the model needs some."""
        self.structure.need_rows(verb)
        return self._read(data, unknown=unknown)

    def _read(self, data: object, rows: int | None = None, steps: int | None = None,
              unknown: str = REFUSE) -> dataset.Data:
        untraced("the fit", self.point)
        data = frames.aligned(data, self.columns)
        parsed = read.read(self.model, read_function(self.model, data).data, self.names, rows,
                           self.shapes, steps, unknown)
        return refuse_precision_loss(parsed, self.point if self.outcome is Status.KNOWN else {})


def refuse_precision_loss(data: dataset.Data,
                          given: SiteValues = MappingProxyType({})) -> dataset.Data:
    """The data, unchanged.

    Args:
        given: parameters that the user gave, so that no fit has checked their precision.

    Raises:
        TooFewDigits: float32 does not represent the data; the calling method repeats in float64.
    """
    if not jax.config.jax_enable_x64 and (digits.find_precision_loss(data) is not None
                                          or is_imprecise(data, given)):
        raise TooFewDigits
    return data


class StaticPart:
    """A Fit without its arrays, as the static part of a pytree; compared by value.

    The data (`data`) and sufficient statistics (`kept`) are dropped: they belong to the Fit that an
    engine made, not to a transformation of its arrays.
    """

    def __init__(self, fit: Record):
        self.fit = replace(fit, point={}, belief=Point(), kept=None, data=None, by=None, units={},
                           errors={}, fitted_rows=None)
        static = {f.name: getattr(self.fit, f.name) for f in fields(fit)}
        self.key = freeze(static | {"class": type(fit).__name__})

    def __eq__(self, other: object):
        return isinstance(other, StaticPart) and self.key == other.key

    def __hash__(self):
        return hash(self.key)

    def __repr__(self):
        return f"{self.fit.model!r} by {self.fit.engine}"
