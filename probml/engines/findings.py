"""Findings: diagnostics of a fit, as values.

A finding has a code, the parameter that it is about, and numbers; its sentences are the templates
of this file. `Fit.warnings` are those that a user should act on, `Fit.findings` all.
docs/how_to/warnings.md has a section for each code.
"""

import enum
import math
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from probml.errors import ConvergenceWarning, ReliabilityWarning
from probml.typing import Json

Entry = tuple[int, ...]


ZERO_AT_ZERO = "with density 0 at 0, such as dist.LogNormal(0, 1)"


class Code(enum.Enum):
    """The kinds of findings, by value: `Code("boundary")`.

    Attributes:
        problem: one sentence with names and numbers, without its full stop. consequence: what it
            means for the answer. remedies: what to type, the most useful first.
        warning: the class of the Python warning that is issued; None: it is for information.
    """

    def __new__(cls, code: str, problem: str, consequence: str = "", remedies: tuple[str, ...] = (),
                warning: type[Warning] | None = ReliabilityWarning):
        self = object.__new__(cls)
        self._value_ = code
        self.problem, self.consequence, self.remedies = problem, consequence, remedies
        self.warning = warning
        return self

    problem: str
    consequence: str
    remedies: tuple[str, ...]
    warning: type[Warning] | None

    # Convergence

    MAX_ITERATIONS = (
        "max-iterations", "the iteration limit was reached before convergence",
        "The estimates are not yet at the optimum",
        ("raise max_iterations (EM, VB) or steps (MAP, SVI)", "raise tolerance"),
        ConvergenceWarning)
    OBJECTIVE_FELL = (
        "objective-fell", "the objective decreased in an iteration, although every iteration of "
        "this algorithm should increase it; the best estimates found are returned",
        "The estimates are not at an optimum",
        ("report the model as a bug of probml", "fit with probml.MAP()"), ConvergenceWarning)
    NO_ASCENT = (
        "no-ascent", "the optimiser found no step that increases the objective, although the "
        "gradient of the objective is not zero",
        "The objective may be unbounded, badly scaled, or not differentiable at the estimates",
        ("standardise the inputs",
         "use double precision, jax.config.update('jax_enable_x64', True)"), ConvergenceWarning)
    STEPS_TOO_LARGE = (
        "steps-too-large", "the step limit was reached; the objective no longer rises, but the "
        "parameters still fluctuate", "More steps with the same learning rate do not improve the "
        "estimates",
        ("lower the learning rate", "let the learning rate decay, "
         "MAP(optimizer=optax.adam(optax.cosine_decay_schedule(0.01, 3000)))",
         "use MAP() without an optimizer"), ConvergenceWarning)
    SLOW = (
        "slow-convergence", "the last iteration raised the objective by less than the tolerance, "
        "but further iterations would raise it by about {gain:.2g}",
        "The estimates are not yet at the optimum",
        ("lower the tolerance", "continue with fit(..., probml.MAP(), start=fit.params)"),
        ConvergenceWarning)
    SEPARATION = (
        "separation", "the likelihood has no maximum: it keeps rising with ever larger absolute "
                      "values of {names}",
        "This happens with complete or quasi-complete separation. Examples are a level with the "
        "same outcome in all its rows, counts that are all 0, or a class that never occurs",
        ("use a proper prior (one that integrates to 1), such as dist.Normal(0, 10), with "
         "prior=True (the default)", "drop the column or the level"),
        ConvergenceWarning)
    LIMIT = (
        "limit", "the likelihood has no maximum: it rises more and more slowly as {at} grows",
        "The data fit a limit of the model best, such as the Poisson limit of a negative binomial "
        "or the normal limit of Student's t",
        ("use the simpler model that is this limit",
         "use a proper prior for {at}, with prior=True (the default)"), ConvergenceWarning)
    SCALE_TO_ZERO = (
        "scale-to-zero", "the density has no maximum: it keeps rising as {at} goes to 0",
        "This happens if all effects can be equal, the rows can be fitted exactly, or a mixture "
        "component can shrink onto a single row. The returned estimates are arbitrary",
        ("fit with engine=probml.NUTS()",
         f"use a prior {ZERO_AT_ZERO}, with prior=True (the default)"),
        ConvergenceWarning)

    # The optimum

    BOUNDARY = (
        "boundary", "the estimate of {at} is at the boundary of its possible values ({end}{count})",
        "Most of the posterior mass lies away from the boundary, and standard errors are not "
        "defined at the boundary",
        ("fit with engine=probml.NUTS()", "use a prior whose density is 0 at the boundary"))
    ZERO_VARIANCE = (
        "zero-variance", "the estimate of {at} is at its boundary: the likelihood hardly changes "
        "if this standard deviation is 0{how}",
        "The data show no such variation between groups, or from step to step; lme4 reports this "
        "as 'boundary (singular) fit'",
        ("use the simpler model without this variation, which predicts the same",
         f"for an interval of {{at}} fit with engine=probml.NUTS() and a prior {ZERO_AT_ZERO}"))
    HEYWOOD = (
        "heywood-case", "the estimate of {at} is at its boundary: the likelihood hardly changes if "
        "this residual variance is 0{how} (a Heywood case)",
        "A residual variance of 0 means that the factors reproduce a column of the data exactly, "
        "which is rarely credible",
        ("use fewer factors", f"use a prior {ZERO_AT_ZERO}"))
    SINGULAR_CORRELATION = (
        "singular-correlation", "the estimate of {at} is at its boundary: the likelihood hardly "
        "changes if {what}",
        "The data do not support so many correlated effects; lme4 reports this as 'boundary "
        "(singular) fit'",
        ("drop one of the effects", "model the effects without correlations",
         "fit with engine=probml.NUTS()"))
    SPURIOUS_MAXIMUM = (
        "spurious-maximum", "hardly any random start reached the returned optimum. Instead, "
                            "{starts} starts reached another optimum, at which the log density is "
                            "lower by {lower:.2g} and {at} is {factor:.2g} times as large",
        "A few rows that agree by chance can cause such a maximum, and little posterior mass is "
        "near it",
        ("fit with engine=probml.NUTS()", f"use a prior for {{at}} {ZERO_AT_ZERO}"))
    EQUAL_ENTRIES = (
        "equal-entries", "the estimate of {at} is at its boundary: its entries {pairs} (counted "
        "from 0) are equal",
        "Possible causes are two mixture components that are the same, or an ordered category that "
        "the data never contain",
        ("use fewer components or levels", "fit with engine=probml.NUTS()",
         "use a prior that separates the entries"))
    NOT_IDENTIFIED = (
        "not-identified", "the maximum is one of many of the same height: the log density does not "
        "change if {direction}",
        "These parameters are not identified separately, and their estimates are arbitrary. A "
        "possible cause is a column that is constant or the sum of other columns",
        ("use an informative prior, such as dist.Normal(0, 1), with "
         "prior=True (the default)", "drop a collinear column"))
    NO_INFORMATION = (
        "no-information", "the maximum is one of many of the same height: the data contain no "
        "information about {names}", "The estimates of {names} are arbitrary",
        ("use an informative prior, such as dist.Normal(0, 1), with "
         "prior=True (the default)", "drop the parameters on which no observation "
                                                  "depends"))
    NO_VALUES = (
        "no-values", "all values of {at} are missing",
        "Parameters on which only {at} depends have their prior distributions",
        ("check the column", "drop the column"))
    PRIOR_BEYOND = (
        "prior-beyond-support", "{at} is the {argument} of '{site}', which must be {bounds}, but "
        "the prior of {at} also has other values",
        "The fit leaves these values out, as if the prior were truncated there; simulations from "
        "the prior do not",
        ("write a prior with the right support, such as dist.HalfNormal(10) for a positive "
         "parameter",))
    ONE_ROW_PER_GROUP = (
        "one-row-per-group", "no group of {at} has more than one row: {names} and {others} are not "
        "identified separately", "The data determine only the total variance; how it is divided "
        "between {names} and {others} is determined by the priors alone",
        ("give several rows for each group", "drop the effects {effects}"))
    COLLINEAR_EFFECTS = (
        "collinear-effects", "the data {problem}",
        "The standard deviations of these effects are determined by the priors alone",
        ("drop a column",))
    FEW_GROUPS = (
        "few-groups", "the number of entries (groups) of {at} is only {count:.3g}. Their standard "
                      "deviation {scale} is known only to a factor of about {factor:.2g}",
        "The standard errors of the effects are computed with {scale} fixed at its estimate, and "
        "are too small", ("fit with engine=probml.NUTS()",))
    SEVERAL_OPTIMA = (
        "several-optima", "the log density has several local maxima: from another start the "
        "optimiser reached a maximum {height}, at which {at} is {there:.3g} instead of {here:.3g}",
        "The estimates describe only one of these maxima",
        ("fit with engine=probml.NUTS()", "use a prior that excludes the other optima, such as "
                                   "dist.HalfNormal(1) for a positive parameter"))
    SEVERAL_MODES = (
        "several-modes", "the posterior has several modes. From another start the optimiser "
                         "reached a mode {away:.2g} standard deviations away, at which the log "
                         "density is lower by {lower:.2g} ({where})",
        "The approximation covers only one of these modes",
        ("fit with engine=probml.NUTS()", "use a prior that excludes the other optima, such as "
                                   "dist.HalfNormal(1) for a positive parameter"))
    ONE_MODE = (
        "one-mode", "the posterior has {count} modes, and the approximation covers only one of "
        "these",
        "The probability mass at the other modes is missing", ("fit with engine=probml.NUTS()",))
    RANGE_END = (
        "range-end", "{setting} {problem}",
        "The best value may lie outside the range", ("give a wider range",))
    ROUGH_INTEGRAL = (
        "rough-integral", "the integral over {names} ({method}) is inaccurate: {finer} changes the "
        "total log-likelihood by {gap:.2g}", "Estimates of variances may be biased, because the "
                                             "integral is computed from too few points",
        ("fit with engine=probml.NUTS()",))

    # The posterior

    K_HAT = (
        "k-hat", "the posterior differs strongly from the normal approximation at its mode (Pareto "
                 "k-hat, a measure of this difference, is {k:.2f}, above {limit:.2f})",
        "The result is unreliable: means and intervals may be wrong",
        ("fit with engine=probml.NUTS()",))
    FEW_EFFECTIVE = (
        "few-effective-draws", "the posterior differs strongly from the normal approximation at "
        "its mode ({draws} weighted draws have an effective sample size of {effective:.0f})",
        "The result is unreliable: means and intervals may be wrong",
        ("fit with engine=probml.NUTS()",))
    LONG_TAIL = (
        "long-tail", "the posterior of {at} has a long tail (Pareto k-hat, a measure of the tail, "
                     "is {k:.1f}). The weighted draws do not determine its standard deviation",
        "The result is unreliable: the standard deviation of {at} may be wrong",
        ("fit with engine=probml.NUTS()",))
    HEAVY_TAIL = (
        "heavy-tail", "the posterior of {at} has a heavy tail, like a Cauchy distribution",
        "The posterior mean and standard deviation of {at} may not exist",
        ("use the median and quantiles of {at}", "use a prior with lighter tails"))
    WIDER = (
        "wider-posterior", "the posterior of {at} is much wider than the normal approximation at "
        "its mode, and may have further modes", "The result is unreliable: means and intervals of "
        "{at} may be wrong", ("fit with engine=probml.NUTS()",))
    GUIDE_FAR = (
        "approximation-far", "the posterior differs strongly from {what} (Pareto k-hat, "
        "a measure of this difference, is {k:.1f}{worth})",
        "The result is unreliable: means may be wrong and intervals too narrow",
        ("fit with engine=probml.NUTS()", "in SVI, raise steps"))
    GUIDE_NOT_CONVERGED = (
        "guide-not-converged", "the variational approximation has not converged: {problem}",
        "Further steps would still change the estimates",
        ("raise steps", "use another optimizer"), ConvergenceWarning)
    INDUCING_POINTS = (
        "inducing-points", "the Gaussian process of {rows:,} rows is approximated by its values at "
        "{points:,} inducing points; the trace term of the variational bound is {left:.3g}",
        "The log-likelihood is a lower bound. If the trace term is large (a hundredth of the "
        "number of rows, or more), the noise is overestimated and predictions are too smooth",
        ("fit a random sample of at most 5,000 rows, for which nothing is approximated",))
    IMPROPER = (
        "improper", "the posterior is improper (the integral of its density is infinite). The "
                    "prior of {at} is flat, and between {near:g} and {far:g} standard deviations "
                    "from the mode the log density falls by only {fall:.2g}",
        "The posterior has no mean and no standard deviation; a possible cause is a column that "
        "separates the classes completely",
        ("use a proper prior, such as dist.Normal(0, 10)",))
    NO_MODE = (
        "no-mode", "no mode (maximum) of the posterior density was found in unbounded coordinates, "
                   "such as the logarithms of standard deviations ({problem})",
        "A possible cause is a standard deviation that can shrink to 0, of the prior of another "
        "parameter",
        ("fit with engine=probml.NUTS()",))
    MODE_FAR_FROM_MEAN = (
        "mode-far-from-mean", "the posterior mean of {at} is {away:.1f} posterior standard "
        "deviations away from the point estimate",
        "The posterior is skewed: the point estimate and its standard errors may mislead",
        ("fit with probml.Laplace()", "fit with engine=probml.NUTS()"))

    # Chains of a sampler

    STUCK_CHAIN = (
        "stuck-chain", "every proposal of chain {chains} was rejected, so that it never moved",
        "A possible cause is an initial value at which a standard deviation is nearly 0",
        ("give other initial values, fit(..., start=...)", "use a prior that excludes 0"))
    DIVERGENCES = (
        "divergences", "{count} of {draws} draws ended with a divergence (an inaccurate step) of "
                       "the sampler",
        "Regions of the posterior with strong curvature may be missing in the draws",
        ("raise target_accept (now {target:g}) towards 1",
         "use narrower priors for scales and heavy tails"))
    FEW_DIVERGENCES = (
        "few-divergences", "{count} of {draws} draws ended with a divergence (an inaccurate step) "
                           "of the sampler, which is too few to bias the results", "", (), None)
    E_BFMI = (
        "e-bfmi", "E-BFMI (energy Bayesian fraction of missing information, which is low if the "
                  "sampler moves too slowly through the tails) is {value:.2f}, below "
                  "{limit:g}", "Tails of the posterior may be missing in the draws",
        ("write group effects as mean + sd * z with z ~ Normal(0, 1) (non-centred "
         "parametrisation)", "use narrower priors for scales"))
    TREE_DEPTH = (
        "tree-depth", "{share:.0%} of the draws reached the maximum tree depth, {depth}, which "
                      "limits the number of steps of the sampler for a draw",
        "The posterior is long and narrow, and sampling is slow",
        ("centre and scale the inputs", "drop one of two nearly collinear parameters",
         "raise max_tree_depth"))
    R_HAT = (
        "r-hat", "the chains do not agree: R-hat of {at} is {value:.3f}, above {limit:.3f} (the "
        "mean is {least:.3g} in one chain and {greatest:.3g} in another)",
        "The posterior may have several modes or parameters that are not identified",
        ("raise warmup and draws", "use an informative prior"))
    ESS = (
        "ess", "the effective sample size of {at} (the number of independent draws that would be "
               "as accurate) is {effective:.0f}, less than {least} for each chain",
        "The mean and quantiles of {at} are inaccurate", ("raise draws",))
    FEW_DRAWS = (
        "few-draws", "{draws} draws of each chain are too few to assess whether the chains have "
        "converged",
        "Means, standard deviations and quantiles are inaccurate", ("raise draws, such as "
                                                                    "NUTS(draws=1000)",))
    DRAWS_TAIL = (
        "tail-of-draws", "the draws of {at} have a heavy tail (Pareto k-hat, a measure of the "
        "tail, is {k:.1f} for their squares)",
        "The mean and standard deviation of {at} are inaccurate", ("use the median and quantiles "
                                                                   "of {at}",))
    TIME_LIMIT = (
        "time-limit", "sampling stopped at the time limit seconds={seconds:g}, with {draws} of "
        "{asked} draws in each chain",
        "", ("raise seconds",), None)
    TIME_LIMIT_WARMUP = (
        "time-limit-in-warmup", "sampling stopped at the time limit seconds={seconds:g}, during "
        "warm-up",
        "The draws are not from the posterior", ("raise seconds", "use a simpler model"))

    # Information

    ONE_CHAIN = (
        "one-chain", "R-hat is not available: it compares chains, and there is only one chain", "",
        ("use chains=2 or more",), None)
    SAMPLED_AGAIN = ("sampled-again", "the sampler was run again with {how}, because of warnings "
                                      "about the first run ({why})", "", (), None)
    AGAIN_STOPPED = (
        "sampling-again-stopped", "the sampler was run again, because of warnings about the first "
                                  "run ({why}). The second run took too long and was stopped, so "
                                  "the draws and warnings of the first run are returned", "",
        (), None)
    AGAIN_LEFT = (
        "sampling-again-left", "the sampler was run again, because of warnings about the first run "
                               "({why}). The second run missed a region of the posterior that the "
                               "first run had found. The draws and warnings of the first "
                               "run are returned", "", (), None)
    CHAINS_MOVED = (
        "chains-moved", "{count} of the chains had stayed in a region with less than 0.1% of the "
                        "posterior mass. Each was restarted at the position of another chain",
        "", (), None)
    RELABELLED = (
        "relabelled", "the states of {names} are exchangeable (label switching), so they were "
        "renumbered to make the draws comparable (number of renumbered draws: {count})", "",
        ("NUTS(relabel=False) keeps the original numbers",), None)
    WEIGHTS_PASS = (
        "weights-pass", "the approximation passes its test (Pareto k-hat {k:.2f}; {draws} weighted "
                        "draws have an effective sample size of {effective:.0f})", "", (), None)
    NORMAL_COMPARED = (
        "normal-compared", "the posterior is approximated by a normal distribution, which agrees "
        "with the posterior density at {count} test points",
        "", (), None)
    NORMAL_UNTESTED = (
        "normal-not-compared", "the posterior is approximated by a normal distribution, which was "
        "not compared with the posterior density, because the data are read in "
        "batches", "", (), None)
    MODES_COMBINED = (
        "modes-combined", "the posterior has {count} modes; each mode contributes draws in "
        "proportion to its posterior mass", "",
        (), None)
    PREVIOUS_ENGINE = ("previous-engine", "{engine}() was tried first and was not used: {reason}",
                       "", (), None)
    POINT = (
        "point", "the result is a point estimate without a posterior, because {reason}", "",
        ("fit with probml.Laplace()", "fit with engine=probml.NUTS()"), None)
    IMPROVED = ("improved", "a second optimisation, started from {where}, raised the objective by "
                            "{gain:.2g}", "", (), None)
    SYMMETRY = ("symmetry", "the data determine {names} only up to a symmetry of the model, such "
                "as the sign of a factor, on which no prediction depends", "", (), None)
    RESTARTS = ("restarts", "best of {starts} random starts{where} ({reached} reached this "
                "optimum{others}){then}", "", (), None)
    INTEGRATED = ("integrated", "latent variables integrated out: {names} ({method})", "", (), None)
    BATCHES = ("batches", "each iteration used one batch of rows ({kind} updates, "
                          "batch_rows={rows})", "", (), None)
    WITHOUT_CLOSED_FORM = (
        "closed-form-left", "a closed-form step of EM (M-step) lowered the objective, so a "
                            "numerical optimiser (L-BFGS) was used for this step "
                            "instead", "", (), None)
    IN_DOUBLE = ("float32-to-float64", "computed in double precision (float64), because single "
                                       "precision (float32) is too inaccurate here: {reason}",
                 "", (), None)
    CHOSEN = ("chosen-by-evidence", "settings chosen by maximising the log evidence: {settings} "
                                    "(log evidence {found:.6g}; with the given {bound} it is "
                                    "{first:.6g})", "", (), None)
    NOTE = ("note", "{text}", "", (), None)


@dataclass(frozen=True)
class Finding:
    """A diagnostic of a fit.

    Attributes:
        code: see Code. parameter, entry: what it is about; "" and (): the whole fit.
        numbers: (name, value) of the fields of its sentences.
    """

    code: Code
    parameter: str = ""
    entry: Entry = ()
    numbers: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def of(cls, code: Code, parameter: str = "", entry: Entry = (), **numbers: object) -> "Finding":
        """A finding; `numbers` are the fields of its sentences.

        Args:
            parameter: a name, or that of an entry, "w[1, 2]".
        """
        name, _, index = parameter.partition("[")
        if index and not entry:
            parameter, entry = name, tuple(int(i) for i in index.rstrip("]").split(","))
        return cls(code, parameter, tuple(int(i) for i in entry), tuple(
            (key, _to_json_value(value)) for key, value in numbers.items()))

    @property
    def at(self) -> str:
        """The parameter and entry as messages show them."""
        index = f"[{', '.join(map(str, self.entry))}]" if self.entry else ""
        return f"'{self.parameter}{index}'"

    def called(self, name: str) -> "Finding":
        """The same finding with the name that tables have for the parameter, or its entry."""
        return replace(self, parameter=name, entry=())

    @property
    def problem(self) -> str:
        """The problem, in a sentence."""
        return self._filled(self.code.problem)

    @property
    def consequence(self) -> str:
        """The consequence for the result; "": none."""
        return self._filled(self.code.consequence)

    @property
    def remedies(self) -> tuple[str, ...]:
        """What a user can do, the most useful first."""
        return tuple(map(self._filled, self.code.remedies))

    @property
    def warns(self) -> bool:
        """Whether it is a warning, and not for information."""
        return self.code.warning is not None

    def _filled(self, template: str) -> str:
        return template.format(at=self.at, **dict(self.numbers))

    def __str__(self) -> str:
        parts = [self.problem, self.consequence] if self.consequence else [self.problem]
        text = "".join(f"{part[:1].upper()}{part[1:]}. " for part in parts)
        remedies = f"Remedies: {'; '.join(self.remedies)}. " if self.remedies else ""
        return f"{text}{remedies}[{self.code.value}]"

    def issue(self, what: str, stacklevel: int) -> None:
        """Issues it as a Python warning about `what`, if it is one."""
        kind = self.code.warning
        if kind is not None:
            kind = kind.kind if kind is ConvergenceWarning else kind
            warnings.warn(f"{what}: {self}", kind, stacklevel=stacklevel + 1)

    def record(self) -> dict[str, object]:
        """A record for JSON, with its sentences."""
        return {"code": self.code.value, "parameter": self.parameter, "entry": list(self.entry),
                "numbers": {key: list(value) if isinstance(value, tuple) else value
                            for key, value in self.numbers},
                "warning": self.warns, "message": str(self)}

    @classmethod
    def read(cls, record: Json) -> "Finding":
        """The finding of a record.

        Raises:
            TypeError: it is no record of a finding.
        """
        try:
            codes: Any = Code  # an enumeration is called by value
            return cls.of(codes(record["code"]), record["parameter"], tuple(record["entry"]),
                          **record["numbers"])
        except ValueError:  # of a later version
            return cls.of(Code.NOTE, text=str(record["message"]))
        except (KeyError, AttributeError) as error:
            raise TypeError("a warning in the file is damaged (save the fit again): "
                            f"{record!r:.60}") from error


def _to_json_value(value: object) -> object:
    """A number, text, or a tuple of them: hashable, and valid in JSON."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return tuple(map(_to_json_value, value))
    if isinstance(value, float) and math.isfinite(value):
        return float(f"{value:.6g}")
    return value
