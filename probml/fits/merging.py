"""The sufficient statistics that a fit of complete data retains, about a common centre, or second
moments; and their sum over parts of the data.

They are on the host in float64, whatever the precision of the fit: in float32 a sum of 2^24 does
not change when 1 is added.

The identity of a fit in its checkpoint: its model, data, engine, start and seed, in words.
"""

import re
from collections.abc import Mapping
from importlib.metadata import version
from typing import NamedTuple, Self

import jax
import numpy as np
from jax.typing import ArrayLike

from probml.dataset.dataset import Data
from probml.dataset.measures import merged, values_of
from probml.dataset.moments import Moments as Cells
from probml.device.few import Moments, add_moments
from probml.device.rows import Known, Summary
from probml.engines.engine import Engine, short_name
from probml.errors import MARK_ROWS, DataError, ModelError, Refusal, listed, present, shortly
from probml.language.language import Bound
from probml.numerics.identity import Nameless, digest
from probml.numerics.outside.checkpoint import Checkpoint, Journal
from probml.numerics.outside.processes import gathered
from probml.numerics.transfer import rounded
from probml.queries.fitted import Fitted
from probml.structure.site import Site
from probml.structure.structure import Structure
from probml.typing import SiteValues


class RetainedStatistics(NamedTuple):
    """The engine of a fit, the statistics of its rows, and the values about which they are centred.

    Attributes:
        running: the statistics are expected ones, of latent variables at earlier points: a step
            continues from them (further.py), and parts cannot be added.
        measured: column → its moments, of those on which data-dependent priors depend.
    """

    engine: Engine
    summary: Summary | Moments  # of an additive plan; of a likelihood of second moments alone
    known: Known
    running: bool = False
    measured: Mapping[str, Cells | None] = {}

    @classmethod
    def of(cls, engine: Engine, summary: Summary | Moments, known: Known,
           running: bool = False, measured: Mapping[str, Cells | None] = {}) -> Self:
        """The statistics on the host, in float64."""
        summary, known = jax.tree.map(_double, jax.device_get((summary, known)))
        return cls(engine, summary, known, running, measured)

    def with_rows_of(self, other: "RetainedStatistics", sites: Mapping[str, Site]) -> Self:
        """With the values of data-dependent priors (dataset/measures.py) of the rows of both; of
        running statistics these stay those of the first rows."""
        if self.running or not self.measured:
            return self
        measured = merged(self.measured, other.measured)
        given = {**self.known.given, **{
            name: value.astype(np.asarray(self.known.given[name]).dtype)
            for name, value in values_of(sites, measured).items()}}
        return self._replace(known=self.known._replace(given=given), measured=measured)


StatisticsWithPattern = tuple[RetainedStatistics, Mapping[str, str]]  # of some rows


def check_mergeable(a: Fitted, b: Fitted) -> None:
    """Refuse fits whose statistics cannot be added.

    Raises:
        Refusal: one of the fits has retained no statistics.
        ModelError: the parts were fitted by other models, engines, labels or given values.
    """
    check_has_statistics(a)
    check_has_statistics(b)
    compared = {"model": (a.model, b.model), "engine": (a.kept.engine, b.kept.engine),
                "labels": (a.names, b.names)}
    for label, (one, other) in compared.items():
        if one != other:
            raise ModelError(f"merge: expected two fits with the same {label}, got {shortly(one)} "
                             f"and {shortly(other)}. Fit both with the same {label}"
                             + ", as pandas Categoricals of the same categories"
                             * (label == "labels"))
    for name in a.columns.keys() & b.columns.keys():
        if a.columns[name] != b.columns[name]:
            raise DataError(f"merge: '{name}' has the columns {listed(a.columns[name])} in one "
                            f"fit and {listed(b.columns[name])} in the other. Fit both with the "
                            f"same columns in the same order")
    measured = values_of(a.structure.sites, {**a.kept.measured, **b.kept.measured})
    if different := [k for k in {**a.given, **b.given} if (k in a.given) != (k in b.given)
                     or k not in measured and not np.array_equal(a.given[k], b.given[k])]:
        raise ModelError(f"merge: the two fits were given different values of {listed(different)} "
                         f"(sites outside rows()). Fit both with the same values")


def check_has_statistics(fit: Fitted) -> None:
    """Refuse a fit without statistics.

    Raises:
        Refusal: something was summed or integrated out, or evaluated row by row, or the fit came
            from a file.
    """
    if fit.model.is_joint:
        raise Refusal(f"merge: model '{fit.model.name}' has no plate of independent rows, so fits "
                      f"to different rows cannot be merged. {MARK_ROWS}")
    if fit.kept is None or fit.kept.running:
        raise Refusal(
            f"the fit of model '{fit.model.name}' by {short_name(fit.engine)} has no sufficient "
            "statistics (sums of the data), so it cannot be merged or updated. Either a latent "
            "variable (not in the data) was summed or integrated out, or a site has no sufficient "
            "statistics. Or the parameters were given by at(), or the fit was loaded from a file. "
            "Fit all rows together. Or, if the latent sites are discrete, fit by EM() and update "
            "by fit.running(fitted_rows).update(new_rows)")


def merge_statistics(structure: Structure, one: StatisticsWithPattern,
                     other: StatisticsWithPattern) -> StatisticsWithPattern:
    """The statistics and pattern of two parts of the data together, about the mean of their
    centres; with the engine of the first."""
    (a, first), (b, second) = one, other
    a = a.with_rows_of(b, structure.sites)
    pattern = merge_patterns(first, second)
    if isinstance(a.summary, Moments) or isinstance(b.summary, Moments):
        mixed = next((name for name, state in pattern.items() if state != "seen"), None)
        if mixed is not None:
            raise Refusal(f"merge: site '{mixed}' is observed in one fit and missing in the other, "
                          f"so the sufficient statistics of the two cannot be added. Fit all rows "
                          f"together")
        assert isinstance(a.summary, Moments) and isinstance(b.summary, Moments)
        return a._replace(summary=add_moments(a.summary, b.summary), running=False), pattern
    sites, parts, known = structure.sites, (a.summary, b.summary), (a.known, b.known)
    total = parts[0].weights + parts[1].weights
    shares = [part.weights / np.maximum(total, np.finfo(float).tiny) for part in parts]
    names = list({**known[1].centre, **known[0].centre})
    centre = {name: _centre(name, known, shares) for name in names}
    with jax.enable_x64(True):  # families recentre statistics by JAX
        sums = jax.device_get([
            {
                name: present(sites[name].traits.recentre)(leaf, info.centre[name] - centre[name])
                if name in info.centre else leaf
                for name, leaf in part.statistics.items()
            }
            for part, info in zip(parts, known, strict=True)
        ])
    shared = sums[0].keys() & sums[1].keys()
    statistics = {**sums[0], **sums[1],
                  **{name: jax.tree.map(np.add, sums[0][name], sums[1][name]) for name in shared}}
    spread = {name: _spread(name, known, shares) for name in names}
    summary = Summary(statistics, parts[0].base + parts[1].base, total)
    return a._replace(summary=summary, known=Known(a.known.given, centre, spread)), pattern


def merge_patterns(first: Mapping[str, str], second: Mapping[str, str]) -> dict[str, str]:
    """The pattern of observed cells of two parts together."""
    return {name: first[name] if first.get(name) == second.get(name) else "part"
            for name in {**first, **second}}


def _double(leaf: np.ndarray) -> np.ndarray:
    return np.asarray(leaf, float) if np.issubdtype(np.asarray(leaf).dtype, np.floating) else leaf


def _centre(name: str, known: tuple[Known, Known], shares: list) -> np.ndarray:
    """The centre of the statistics of two parts together."""
    centres = [part.centre[name] for part in known if name in part.centre]
    mean = centres[0] if len(centres) == 1 else shares[0] * centres[0] + shares[1] * centres[1]
    return rounded(mean)


def _spread(name: str, known: tuple[Known, Known], shares: list) -> np.ndarray:
    """Standard deviations of two parts together."""
    if not all(name in part.centre for part in known):
        return next(part.sd[name] for part in known if name in part.centre)
    difference = known[0].centre[name] - known[1].centre[name]
    within = sum(s * part.sd[name] ** 2 for s, part in zip(shares, known, strict=True))
    return np.sqrt(within + shares[0] * shares[1] * difference**2)


DIGEST_DIGITS = 12  # of a digest in messages


def open_journal(checkpoint: Checkpoint, model: Bound, data: Data, engine: Engine | None,
                 weights: np.ndarray | None, seed: int, start: SiteValues) -> Journal:
    """The checkpoint of a fit, opened.

    Raises:
        DataError: the file is that of a fit of other data.
        ModelError: the file is that of another model, engine, seed or start, or no checkpoint;
            raised in all of several processes if it is so in one.

    Cost: one pass over the rows in memory, for their digest; of a source its profile is digested.
    """
    try:
        code = model.portable
    except Nameless:
        code = model.identity
    double = "float64" if jax.config.jax_enable_x64 else "float32"
    start_items = [(name, np.asarray(start[name])) for name in sorted(start)]
    has_shares = data.survey is not None and bool(data.survey.shares)
    return Journal(checkpoint, {
        "model": f"{model!r} ({digest(code)[:DIGEST_DIGITS]})",
        # without the addresses of functions, which differ between processes
        "engine": "the first that can fit the model" if engine is None else re.sub(
            r" at 0x[0-9a-f]+", "", repr(engine)),
        "data": f"{data.extent} numbers ({_digest_rows(data, weights)})",
        "seed": str(seed),
        "start": f"{sorted(start)} ({digest(start_items)[:DIGEST_DIGITS]})",
        "precision": double,
        "version": f"probml {version('probml')}, JAX {jax.__version__}",
    }, **({"every": gathered} if has_shares else {}))


def _digest_rows(data: Data, weights: np.ndarray | None) -> str:
    """A digest of all data and weights; of a source that of its profile."""
    table = data.table

    def readable(leaf: ArrayLike) -> object:
        array = np.asarray(leaf)
        return repr(array.tolist()) if array.dtype.hasobject else array

    columns = {name: (c.values, c.observed, c.likelihood) for name, c in table.columns.items()}
    contents = [table.rows, weights, repr(sorted(table.labels.items())), *jax.tree.map(
        readable, (columns, dict(table.inputs), dict(table.values)))]  # in the order of the names
    if data.survey is not None:
        profile = data.survey.profile
        contents += [profile.rows, sorted((name, list(m)) for name, m in profile.moments.items())]
    return digest(*contents)[:DIGEST_DIGITS]
