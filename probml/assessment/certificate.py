"""Model.check: simulation-based calibration of a user's model and engine.

Parameters θ* are drawn from the prior, rows from the model given θ*, and the engine finds the
posterior given these rows. If model and engine are right, the rank of θ* among draws of that
posterior is uniform over simulations, for every function of θ and rows.
"""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from probml.assessment import simulated
from probml.assessment.pages.html import noted, records_of, table
from probml.dataset import dataset
from probml.device import load
from probml.engines import NUTS, Exact
from probml.engines.engine import Engine, Problem, checked, planned, refusal
from probml.errors import DataError, counted
from probml.language.language import Bound
from probml.numerics.process.libraries import pd
from probml.plan.plan import Plan
from probml.posteriors import diagnostics
from probml.posteriors.relabelling import Exchange, exchanges
from probml.queries.simulation import without_masked
from probml.structure.structure import Structure

RANKED_DRAWS = 99  # among which the true value is ranked, so that there are 100 ranks
# probability that a right model and engine are rejected, over all quantities together
LEVEL = 0.001
MIN_EXPECTED_COUNT = 10  # of a bin of the chi-square test
MIN_EFFECTIVE_DRAWS = 20  # of a simulation, below which its ranks are coarse
MAX_FAILED_SHARE = 0.05  # of the simulations
LIKELIHOOD = "log likelihood"


@dataclass(frozen=True, eq=False, repr=False)
class Certificate:
    """The result of simulation-based calibration.

    Attributes:
        model, engine: their names.
        rows: of each simulated data set.
        levels: a pandas table, simulations × quantities: the rank of the true value among the
            draws, as a number in (0, 1).
        table: a pandas table, a row a quantity: `p_value` of the chi-square test that its levels
            are uniform, and the coverage of central 50%, 80% and 90% intervals.
        prior_predictive: a pandas table: prior predictive distributions of the observed sites, with
            the data where they were given.
        effective: effective draws of each simulation's posterior, the fewest of all quantities.
        failures: number of a simulation → its error.
        bins: of the test.
    """

    model: str
    engine: str
    rows: int
    levels: "pd.DataFrame"
    table: "pd.DataFrame"
    prior_predictive: "pd.DataFrame"
    effective: np.ndarray
    failures: dict[int, str]
    notes: tuple[str, ...]
    bins: int

    @property
    def simulations(self) -> int:
        return len(self.levels) + len(self.failures)

    @property
    def threshold(self) -> float:
        """The p-value below which a quantity is rejected: 0.001, Bonferroni-corrected."""
        return LEVEL / len(self.table)

    @property
    def rejected(self) -> dict[str, str]:
        """Quantity whose ranks are not uniform → the fault of its posterior, in words."""
        wrong = self.table.index[self.table["p_value"] < self.threshold]
        return {name: _describe_fault(self.levels[name].to_numpy()) for name in wrong}

    @property
    def passed(self) -> bool:
        """Whether no quantity is rejected, and at most 5% of the simulations failed."""
        return not self.rejected and len(self.failures) <= MAX_FAILED_SHARE * self.simulations

    def __str__(self) -> str:
        rejected = self.rejected
        frame = self.table.copy()
        frame["p_value"] = frame["p_value"].map(lambda p: f"{p:.2g}")
        for name in ("50%", "80%", "90%"):
            frame[name] = frame[name].map(lambda share: f"{share:.0%}")
        frame["verdict"] = [rejected.get(name, "uniform") for name in frame.index]
        style = {"index_names": False, "max_rows": None, "line_width": None}
        lines = [
            f"simulation-based calibration of {self.model} with {self.engine}: "
            f"{'passed' if self.passed else 'NOT passed'}",
            f"{counted(self.simulations, 'data set')} of {counted(self.rows, 'row')} were "
            "simulated from the prior. The ranks of the true values among the posterior draws "
            f"should be uniform. A chi-squared test with {self.bins} bins gives p_value and "
            f"rejects if p < "
            f"{self.threshold:.2g}. The columns 50%, 80% and 90% give the share of true values "
            "inside the central posterior intervals of these probabilities:",
            frame.to_string(**style),
            "prior predictive distribution:",
            self.prior_predictive.to_string(float_format=lambda x: f"{x:.3g}", na_rep="", **style),
        ]
        if self.failures:
            first = next(iter(self.failures.values()))
            lines.append(
                f"In {counted(len(self.failures), 'simulation')} the fit failed. The first error: "
                f"{first}"
            )
        return "\n".join((*lines, *self.notes))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        headline = str(self).partition("\n")[0]
        tables = (table(records_of(self.table), "quantities"),
                  table(records_of(self.prior_predictive), "prior predictive distribution of the "
                                                           "data"))
        kind = "good" if self.passed else "warn"
        return noted(f'<p class="{kind}">{"✓" if self.passed else "⚠"} {escape(headline)}</p>'
                     f"{''.join(tables)}")


def _describe_fault(levels: np.ndarray) -> str:
    """The fault of a posterior whose levels are not uniform: Talts et al., figures 3 to 6."""
    n = len(levels)
    shift = (levels.mean() - 0.5) * np.sqrt(12 * n)
    spread = ((levels - 0.5) ** 2).mean() - 1 / 12
    spread *= np.sqrt(180 * n)
    if abs(shift) > max(3.0, abs(spread)):
        return f"the posterior is too {'low' if shift > 0 else 'high'}"
    if abs(spread) > 3:
        return f"the posterior is too {'narrow' if spread > 0 else 'wide'}"
    return "the ranks are not uniform"


def check(
    model: Bound,
    data: object = None,
    engine: object = None,
    simulations: int = 200,
    seed: int = 0,
    *,
    rows: int | None = None,
    steps: int | None = None,
    simulator: Bound | None = None,
    progress: bool = False,
) -> Certificate:
    """See Model.check."""
    engine = None if engine is None else checked(engine, "check")
    if engine is not None and engine.capabilities.finds == "point":
        raise simulated.no_posterior(engine)
    parsed, has_data = simulated.template(model, data, rows, steps)
    plan = parsed.plan()
    if engine is None:
        engine = Exact() if refusal(Exact(), parsed) is None else NUTS()
    with contextlib.suppress(DataError):  # of placeholders
        engine.refuse(Problem(parsed, plan))
    truth, columns = simulated.simulated(parsed, plan, int(simulations), seed, simulator)
    sets = [simulated.fill_template(parsed, {name: values[i] for name, values in columns.items()})
            for i in range(simulations)]
    sampler, method = engine.for_simulations()
    plan = planned(sets[0], sampler)  # as a fit has it
    engine.refuse(Problem(sets[0], plan))
    fits, failures = simulated.fit_all(sampler, sets, plan, truth, seed, RANKED_DRAWS, progress)
    valid = [i for i in range(simulations) if i not in failures]
    loaded, known = load.load(sets[valid[0]], plan)
    exchange = [] if plan.complete else exchanges(
        plan, {name: fits[valid[0]].values[name][-1] for name in plan.free}, known, loaded)
    levels, effective = _levels(parsed.structure, plan, exchange, truth, fits, valid, seed)
    return _certificate(model, engine, method, parsed, levels, effective, failures,
                        _prior_predictive(parsed, columns, has_data), exchange, simulator)


# Ranks


def quantities(structure: Structure, exchange: list[Exchange],
               values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Label → (n,) of every scalar quantity that is ranked, from name → (n, ...).

    Parameters of exchangeable states are sorted along the axis of the states, so that the result
    does not depend on their order; of those with two such axes (transitions) the diagonal and the
    off-diagonal entries are sorted.
    """
    result = {}
    for name, value in values.items():
        value, labels = np.asarray(value), None
        for group in exchange:
            axes = dict(group.axes).get(name, ())
            if len(axes) == 1:
                value = np.sort(value, 1 + axes[0])
            elif len(axes) == 2:
                pairs = np.moveaxis(value, (1 + axes[0], 1 + axes[1]), (1, 2))
                diag = np.eye(group.states, dtype=bool)
                value = np.concatenate([np.sort(pairs[:, diag], 1), np.sort(pairs[:, ~diag], 1)], 1)
                kinds = [f"stay {i}" for i in range(group.states)] + [
                    f"move {i}" for i in range(group.states * (group.states - 1))
                ]
                tails = [f", {', '.join(map(str, i))}" if i else ""
                         for i in np.ndindex(value.shape[2:])]
                labels = [f"{name}[{k}{tail}]" for k in kinds for tail in tails]
        if labels is None:
            triangle = structure.sites[name].domain.triangular
            mask = np.tril(np.ones(value.shape[-2:], bool)) if triangle else None
            index = [i for i in np.ndindex(value.shape[1:]) if mask is None or mask[i[-2:]]]
            prefix = "sorted " if any(name in dict(group.axes) for group in exchange) else ""
            result |= {f"{name}[{prefix}{', '.join(map(str, i))}]"
                       if i else name: value[(slice(None), *i)] for i in index}
        else:
            result |= dict(zip(labels, value.reshape(len(value), -1).T, strict=True))
    return result


def _levels(
    structure: Structure, plan: Plan, exchange: list, truth: Mapping,
    fits: Mapping[int, simulated.Drawn], valid: list[int], seed: int
) -> "tuple[pd.DataFrame, np.ndarray]":
    """The rank of the true value among the draws, plus a uniform number, divided by the number of
    ranks: uniform in (0, 1); and effective draws.

    Draws of a chain are thinned evenly to their effective number.
    """
    random = np.random.default_rng([seed, 5])
    true = quantities(structure, exchange, truth)
    names = [name for name in true]
    drawn = [{**quantities(structure, exchange, {n: fits[i].values[n] for n in truth}),
              LIKELIHOOD: fits[i].likelihood} for i in valid]
    true[LIKELIHOOD] = np.array([fits[i].true_likelihood if i in fits else np.nan
                                 for i in range(len(next(iter(true.values()))))])
    if all(np.isfinite(true[LIKELIHOOD][i]) for i in valid):
        names.append(LIKELIHOOD)
    # (simulations, draws, quantities)
    all_draws = np.stack([np.stack([draws[name] for name in names], -1) for draws in drawn])
    size = all_draws.shape[1]
    effective = np.full(len(valid), size)
    if any(fits[i].chain for i in valid):
        with np.errstate(invalid="ignore"):
            # (simulations, quantities)
            ess = diagnostics.effective(np.moveaxis(all_draws, 1, 0)[None])
        effective = np.clip(np.nan_to_num(np.nanmin(np.where(np.isnan(ess), size, ess), 1)), 2,
                            size).astype(int)
    levels = np.empty((len(valid), len(names)))
    for row, (i, draws) in enumerate(zip(valid, all_draws, strict=True)):
        count = min(effective[row], RANKED_DRAWS)
        thinned = draws[np.linspace(0, size - 1, count).round().astype(int)]
        truths = np.array([true[name][i] for name in names])
        rank = (thinned < truths).sum(0) + random.integers(0, (thinned == truths).sum(0) + 1)
        levels[row] = (rank + random.random(len(names))) / (count + 1)
    return pd.DataFrame(levels, pd.Index(valid, name="simulation"), names), effective


def _certificate(model: Bound, engine: Engine, method: object, data: dataset.Data,
                 levels: "pd.DataFrame", effective: np.ndarray, failures: dict[int, str],
                 predictive: object, exchange: Any, simulator: Any) -> Certificate:
    from scipy.stats import chisquare

    n = len(levels)
    bins = next(b for b in (20, 10, 5, 4, 2) if n >= MIN_EXPECTED_COUNT * b or b == 2)
    records = {}
    for name in levels.columns:
        level = levels[name].to_numpy()
        counts = np.bincount(np.minimum((level * bins).astype(int), bins - 1), minlength=bins)
        coverage = {f"{share:.0%}": float((np.abs(level - 0.5) < share / 2).mean())
                    for share in (0.5, 0.8, 0.9)}
        records[name] = {"p_value": float(chisquare(counts).pvalue), **coverage}
    notes = [f"the states of '{e.site}' are exchangeable, so their parameters were sorted before "
             f"the true values were ranked" for e in exchange]
    if simulator is not None:
        notes.append(f"the data sets and the true values were simulated from {simulator!r}")
    if (coarse := float((effective < MIN_EFFECTIVE_DRAWS).mean())) > 0.05:
        notes.append(
            f"in {coarse:.0%} of the posteriors the effective sample size is below "
            f"{MIN_EFFECTIVE_DRAWS}, so the ranks are inaccurate. Give the engine more draws"
        )
    table = pd.DataFrame.from_dict(records, orient="index")
    if method:
        notes.append(f"fit of each data set: {method}, thinned to at most {RANKED_DRAWS} draws")
    return Certificate(repr(model), repr(engine), data.table.rows, levels, table,
                       predictive,
                       effective, failures, tuple(notes), bins)


def _prior_predictive(data: dataset.Data, columns: Mapping[str, np.ndarray],
                      has_data: bool) -> "pd.DataFrame":
    """Prior predictive checks of each observed site: the distribution of single values, and the
    rank of the data's mean among the simulated ones.

    Of a site with states, a row for the share of each state.
    """
    records, data = {}, without_masked(data, {})
    for name, values in columns.items():
        site, column = data.structure.sites[name], data.table.columns[name]
        mask = np.ones(values.shape[1:], bool) if column.observed is None else column.observed
        drawn = values[:, mask].astype(float)  # (simulations, seen cells)
        actual = column.values[mask].astype(float)
        if site.states is not None:
            labels = data.labels.get(name, tuple(range(site.states)))
            parts = {f"{name} = {label}": (drawn == s, actual == s)
                     for s, label in enumerate(labels)}
        else:
            parts = {name: (drawn, actual)}
        for label, (draws, obs) in parts.items():
            means = draws.mean(1)
            stat = means if site.states is not None else draws
            low, middle, high = np.quantile(stat, (0.05, 0.5, 0.95))
            record = {"mean": stat.mean(), "sd": stat.std(), "5%": low, "50%": middle, "95%": high}
            if has_data:
                record |= {"data": obs.mean(), "means below": (means < obs.mean()).mean() + 0.5
                           * (means == obs.mean()).mean()}
            records[label] = record
    return pd.DataFrame.from_dict(records, orient="index")
