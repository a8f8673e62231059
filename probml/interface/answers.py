"""The posterior of the parameters of a fit, marginals and draws; and the computations that several
methods share: predictions, probabilities, imputation and simulation of rows that have been read."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from probml.assessment import intervals
from probml.dataset import dataset, tables
from probml.dataset.frames import shortest
from probml.engines.engine import short_name
from probml.errors import MARK_ROWS, ModelError, Refusal, counted, listed
from probml.families.finite import Shifted
from probml.interface.argument_checks import checked_verbs
from probml.interface.functions import marginal_weights
from probml.interface.record import Record
from probml.language.language import check_seed
from probml.language.renamed import by_old_names
from probml.language.settings import thaw
from probml.numerics.precision import in_its_own
from probml.numerics.transfer import Use, derive_key
from probml.plan import plan as planning
from probml.queries import asking, joint_states, outside, queries, simulation, step_posteriors
from probml.queries.simulation import simulate_draws, simulate_rows
from probml.queries.weighting import weighted
from probml.structure.recorder import DETERMINISTIC
from probml.structure.trace import trace
from probml.typing import PyTree


@in_its_own
@checked_verbs
@dataclass(frozen=True, eq=False)
class Answers(Record):
    """The posterior of the parameters, and the computations that several methods of Fit share, from
    data that have been read, with labels."""

    def posterior(self, site: str) -> dist.Distribution:
        """The marginal posterior of a parameter, or of a discrete site outside rows, as a NumPyro
        distribution; in a function without rows(), of a site in plates or steps that is summed or
        integrated out, the marginals of all its cells. Of effects of groups, with a point estimate,
        it is conditional on all other parameters; their standard errors in `summary` include the
        uncertainty of the coefficients.

        Raises:
            Refusal: the engine found a point, not a posterior in closed form.
            ModelError: the site is unknown or lies inside rows().
        """
        known = self.structure.sites.get(site)  # sites summed out jointly have the name of one
        if self.model.whole and (known is None or known.factor):
            summed = (step_posteriors.posterior_of_step(self, site)
                      or marginal_weights.posterior_of_summed_site(self, site))
            if summed is not None:
                return summed
        found = self._site(site)
        site = found.name  # the present name of a renamed site
        if found.kind == DETERMINISTIC:
            instead = (f"fit.predict(data, '{site}')" if found.rows
                       else self._expression_outside_rows(site))
            raise Refusal(f"'{site}' is computed from other sites (deterministic), so its "
                          f"posterior has no closed form. Use {instead}")
        if found.rows:
            raise ModelError(f"posterior('{site}'): '{site}' is inside rows(), so it has one "
                             f"posterior for each row. Use predict_proba(data, '{site}')")
        plan, table = self._plan, self.belief.table
        if found.discrete and not {site} & {*plan.variables, *self.given, *self.point}:
            reason, draw = (("inform it only through its parents", "from the draws of "
                            f"{listed(found.parents)}, fit.draws(1000)") if found.parents else (
                "do not inform it", f"by model.simulate(1, parameters=True)['{site}']"))
            raise Refusal(f"posterior('{site}'): no observed site depends on '{site}' "
                          f"({found.kind}), so the data {reason}. It has infinitely many "
                          f"values, which are not returned as a table. Draw it {draw}")
        if found.discrete and table is not None:
            axis = plan.globals.index(site)
            joint = jnp.exp(table).sum(tuple(i for i in range(table.ndim) if i != axis))
            # (joint states, *cells, states)
            cells = jax.nn.one_hot(plan.variables[site].values, found.finite)
            probs = jnp.tensordot(joint, cells, 1)
            probs = probs / probs.sum(-1, keepdims=True)
            return Shifted(probs, found.low) if found.low else dist.Categorical(probs=probs)
        found = self.belief.marginal(plan, self._known(), site) if site in self.point else None
        if found is None:
            raise Refusal(f"posterior('{site}'): {short_name(self.engine)} has no closed form of "
                          f"the posterior of '{site}'. Use "
                          f"{self._expression_outside_rows(site)}", ("Exact", "Laplace"))
        return found

    def draws(self, n: int, seed: int = 0) -> dict[str, np.ndarray]:
        """Joint draws from the posterior of the parameters and of deterministics outside rows, name
        → (n, ...); of latent variables inside the fitted rows, (n, rows, ...); and of the steps of
        loops that are integrated out, with deterministics computed from them. Latent variables are
        drawn given the draw of the parameters.

        Args:
            n: how many; of a posterior in draws these, none twice unless n exceeds their number.
            seed: a whole number, a JAX key, or a NumPy generator.

        Raises:
            Refusal: the engine found a point. ModelError: no number of draws.
        """
        if self.certain:
            raise Refusal(f"{short_name(self.engine)} gives point estimates, which have no draws. "
                          "Use the estimates, fit.params, or use another engine, such as "
                          "{engines}", ("NUTS", "Laplace"))
        draws, sites = self._draws(int(n), check_seed(seed, "draws")), self.structure.sites
        found = {name: sites[name].valued(np.asarray(value)) for name, value in draws.items()}
        found |= {name: np.asarray(value)
                  for name, value in outside.drawn(self, draws).items()}
        inside = simulation.within(self, draws, self.belief.rows(n, seed), seed)
        found |= step_posteriors.draw_steps(self, draws, n, seed)
        return by_old_names(found | self._drawn_in_rows(draws, n) | inside, self.model.renamed)

    def _drawn_in_rows(self, draws: Mapping[str, jax.Array], n: int) -> dict[str, np.ndarray]:
        """Draws, (n, rows, ...), of the deterministics in the rows of a function without rows(), in
        which these were found, for the fitted data."""
        sites = self.structure.sites
        names = tuple(site.name for site in self.structure.deterministics.values() if site.rows
                      and not any(sites[parent].rows for parent in site.parents))
        if not (names and self.model.generative.found and self.data is not None):
            return {}
        table = self.data.table
        found = simulate_draws(self.structure, names, draws, self._known().given, table.inputs,
                               jax.random.key(0), table.rows, n, self.data.steps)
        return {name: np.asarray(value) for name, value in found.items()}

    def _draws(self, n: int, seed: int) -> dict[str, jax.Array]:
        """Draws of the sites outside rows alone, discrete ones as codes."""
        return self.belief.draw(self._plan, self._known(), n, seed)

    def _probabilities(self, held: dataset.Data, site: str | Sequence[str] | None, plug_in: bool,
                       given: str) -> PyTree:
        if site is not None and not isinstance(site, str):
            for name in site:
                self._checked_row_site(name)
            if held.structure.losses:
                return {name: self._probabilities(held, name, plug_in, given) for name in site}
            out = asking.answer(self, held, [("probability", name) for name in site], plug_in,
                                self._checked_view(given))[1]
            return {name: out["probability", name] for name in site}
        name = self._checked_row_site(site or self._site_to_predict(held))
        table = self._weighted_values(held, name, plug_in, given)
        if table is not None:
            return self._one_hot_observed(held, name,
                                          table.probabilities(self.structure.sites[name]))
        return asking.answer(self, held, [("probability", name)], plug_in,
                             self._checked_view(given))[1]["probability", name]

    def _weighted_values(self, held: dataset.Data, name: str, plug_in: bool,
                 given: str) -> weighted.Table | None:
        """The values of a site and their weights, where factors depend on it; None: none does."""
        whole = self._checked_view(given) == queries.ALL
        return weighted.table_of(self, held, name, plug_in) if whole else None

    @staticmethod
    def _one_hot_observed(held: dataset.Data, name: str, p: np.ndarray) -> np.ndarray:
        """Probabilities of a scalar site, one-hot where it is observed."""
        column = held.table.columns.get(name)
        if column is None:
            return p
        hot = (column.values[..., None] == np.arange(p.shape[-1])).astype(p.dtype)
        return hot if column.seen is None else np.where(column.seen[..., None], hot, p)

    def _summed_probabilities(self, held: dataset.Data, site: str | Sequence[str] | None) -> PyTree:
        """Probabilities of a discrete site that a model without rows, one joint density, sums
        out."""
        if site is not None and not isinstance(site, str):
            return {name: self._summed_probabilities(held, name) for name in site}
        joint = [s.name for s in held.structure.sites.values() if s.discrete and not s.rows]
        if joint and site in (None, *joint):
            name = site or joint[0]
            raise Refusal(f"predict_proba(data, '{name}'): '{name}' is outside rows(), but "
                          f"predict_proba is for sites inside rows(). Use posterior('{name}') for "
                          f"the fitted data, or decode(data)")
        met = marginal_weights.find_summed_sites(held).met
        names = list(met)
        name = site or (names[0] if len(names) == 1 else "")
        if name not in met:
            raise Refusal(f"predict_proba(site={site!r}): model '{self.model.name}' has no plate "
                          "of independent rows, so predict_proba is only for discrete sites "
                          f"that are summed out: {names or 'none'}. "
                          f"{'Name one of these, or use' if names else 'Use'} posterior(site). For "
                          "probabilities of rows write `with probml.rows():` instead of a "
                          "numpyro.plate")
        return marginal_weights.compute_probabilities(self, held, met, name)

    def _decode_joint_density(self, held: dataset.Data,
                              sites: Sequence[str] | None) -> dict[str, np.ndarray]:
        """The most probable values of the discrete sites that a model without rows, one joint
        density, sums out."""
        joint = [s.name for s in held.structure.sites.values() if s.discrete and not s.rows]
        if joint:
            return joint_states.outside(self, held, joint if sites is None else list(sites))
        summed = marginal_weights.find_summed_sites(held).met
        wanted = summed if sites is None else list(sites)
        unknown = next((name for name in wanted if name not in summed), None)
        if unknown is not None or not wanted:
            raise Refusal(f"decode(sites={sites!r}): model '{self.model.name}' has no plate of "
                          f"independent rows, so decode gives only the values of discrete sites "
                          f"that are summed out: {listed(summed)}. "
                          f"{'Name only these' if summed else MARK_ROWS}")
        return marginal_weights.decode_summed_sites(self, held, summed, wanted)

    def _checked_view(self, given: str) -> str:
        views = (queries.ALL, queries.FILTERED, queries.PREDICTED)
        if not isinstance(given, str) or given not in views:
            raise ModelError(f"given={given!r:.80}: expected one of {listed(views)}")
        if given != queries.ALL and not self.structure.chains:
            raise ModelError(f"given={given!r}: model '{self.model.name}' has no MarkovChain and "
                             f"so no time steps. Omit given=")
        return given

    def _checked_row_site(self, name: str) -> str:
        if not self._site(name, discrete=True).rows:
            raise ModelError(f"site '{name}' is outside rows(), so it has one value for all rows, "
                             f"not one per row. Use posterior('{name}')")
        return name

    def _site_to_predict(self, held: dataset.Data, continuous: bool = False) -> str:
        sites = [s for s in self.structure.sites.values() if s.rows
                 and held.pattern.get(s.name) != "seen" and not s.factor]
        candidates = [s.name for s in sites if s.states] or [s.name for s in sites if continuous
                                                             or s.finite]
        wholly = [name for name in candidates if name not in held.pattern]
        if not candidates and sites and not continuous:
            found = sites[0]
            raise ModelError(
                f"'{found.name}' ({found.kind}) is continuous, so it has no states with "
                f"probabilities, and model '{self.model.name}' has no latent discrete site. Use "
                f"predict(data, '{found.name}')"
            )
        if not sites:
            seen = [name for name in held.pattern if self.structure.sites[name].rows]
            raise ModelError("every value of these rows is observed, so there is nothing to "
                             "predict. Omit from the data the column that you want to predict, "
                             f"one of {listed(seen)}")
        if len(wholly or candidates) != 1:
            raise ModelError(f"{counted(len(candidates), 'site')} are latent or missing, "
                             f"{listed(candidates)}. Name the one that is to be predicted, "
                             f"site='{candidates[0]}'")
        return (wholly or candidates)[0]

    def _predicted(self, held: dataset.Data, name: str, plug_in: bool, given: str,
                   interval: float | None) -> PyTree:
        if interval is not None:
            return intervals.interval(self, held, name, interval, plug_in, given)
        found = self._site(name)
        if found.kind == DETERMINISTIC:
            self._checked_view(given)
            return self._deterministic_means(held, [name], plug_in, given)[name]
        if found.states is not None:
            return tables.to_labels(self._probabilities(held, name, plug_in, given).argmax(-1),
                                    self.names.get(name))
        if not found.rows:
            raise ModelError(f"predict: site '{name}' is outside rows(), so it has the same value "
                             f"for all rows. Use {self._expression_outside_rows(name)}")
        if not self.structure.has_mean(name):
            return intervals.median(self, held, name, plug_in, given)
        table = self._weighted_values(held, name, plug_in, given)
        if table is not None:
            return table.mean()
        held = self._without_own_value(held, name)
        answers = asking.answer(self, held, [("mean", name)], plug_in, self._checked_view(given))[1]
        mean = answers["mean", name]
        if np.isfinite(mean).all():
            return mean
        return intervals.median(self, held, name, plug_in, given)

    def _without_own_value(self, held: dataset.Data, name: str) -> dataset.Data:
        """The rows without the observed values of a site whose mean is computed, where its parents
        in the row are observed too: its value would inform the parameters a second time."""
        parents = (p for p in self.structure.named[name].parents if self.structure.sites[p].rows)
        if held.pattern.get(name) != "seen" or any(held.pattern.get(p) != "seen" for p in parents):
            return held
        return held.without([name])

    def _refuse_partial_path(self, plan: planning.Plan, wanted: tuple[str, ...]) -> None:
        """Refuse a maximum along time over some of the latent sites there, the rest summed out: it
        has no recursion."""
        inner = [name for name in wanted if name in (*plan.chains, *plan.step_order)]
        needed = (*plan.chains, *plan.along) if inner and plan.chains else ()
        lacking = [name for name in needed if name not in wanted
                   and plan.pattern.get(name) != "seen"]
        if lacking:
            raise Refusal(
                f"decode(sites=[{listed(wanted)}]): the most probable path of '{inner[0]}' cannot "
                f"be computed without that of '{lacking[0]}'. Decode them together, "
                f"sites=[{listed([*wanted, *lacking])}], or use predict_proba for the "
                "probabilities of each step"
            )

    def _variables_to_maximise(self, held: dataset.Data, plan: planning.Plan,
                               wanted: tuple[str, ...],
                               every: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The variables to maximise over jointly, and the leaves, whose maxima are conditional on
        them.

        Args:
            every: maximise over all latent sites of a row.
        """
        sites = self.structure.sites
        cells = tuple(v for group in plan.latents for v in group.cellwise if v in wanted
                      and not group.names)
        variables = tuple(v for v in plan.variables if v in wanted or every and sites[v].rows)
        self._refuse_dependent_cells(plan, wanted)
        rest = (name for name in wanted if name not in (*variables, *cells)
                and held.pattern.get(name) != "seen")
        return (*variables, *cells), tuple(name for name in rest if all(
            p in variables for p in sites[name].parents if p in plan.variables))

    def _refuse_dependent_cells(self, plan: planning.Plan, wanted: tuple[str, ...]) -> None:
        """Refuse a maximum over latent cells whose parents are summed or integrated out, and one
        over their children: neither factorises over cells."""
        single = len(wanted) == 1 and math.prod(self.structure.sites[wanted[0]].cells) == 1
        for group in plan.latents if not single else ():  # of one cell its own probabilities do
            name = next((name for name in group.cellwise if name in wanted), None)
            if name is not None and group.names:
                raise Refusal(f"decode: the values of '{name}' in a row depend on "
                              f"'{group.names[0]}', which is latent and continuous, so their "
                              f"jointly most probable values cannot be computed. Use "
                              f"predict_proba(data, '{name}') for the probabilities of each value")
            above = next((v for v in plan.group_scope(group) if v not in wanted), None)
            if name is not None and above is not None:
                raise Refusal(f"decode: '{name}' depends on '{above}', so the most probable values "
                              f"of '{name}' cannot be computed without those of '{above}'. Decode "
                              f"both, sites=[{listed([*wanted, above])}], or use "
                              f"predict_proba(data, '{name}')")
            below = next((n for n in wanted if n not in plan.hidden
                          and plan.pattern.get(n) != "seen" and not set(group.cellwise).isdisjoint(
                              self.structure.sites[n].parents)), None)
            if below is not None:
                raise Refusal(f"decode: '{below}' depends on '{group.cellwise[0]}', which has "
                              f"several values in each row, and both are missing, so their jointly "
                              f"most probable values cannot be computed. Use predict_proba for "
                              f"each site, or decode(data, sites=['{group.cellwise[0]}'])")

    def _cell_estimates(self, held: dataset.Data, plug_in: bool) -> dict[str, np.ndarray]:
        """The estimates of missing cells: the most probable state, the mean, or the median where
        there is no finite mean."""
        out, ask, medians, sites = {}, [], [], self.structure.sites
        for name, site in sites.items():
            if (not site.rows or held.pattern.get(name) == "seen"
                    or site.traits.ancillary is not None and not self.structure.has_total(name)
                    or site.factor):
                continue
            if not site.states and not self.structure.has_mean(name):
                medians.append(name)
            elif (table := self._weighted_values(held, name, plug_in, queries.ALL)) is not None:
                out[name] = table.probabilities(site).argmax(-1) if site.states else table.mean()
            else:
                ask.append(("probability" if site.states else "mean", name))
        answers = asking.answer(self, held, ask, plug_in)[1] if ask else {}
        for (question, name), answer in answers.items():
            out[name] = answer.argmax(-1) if question == "probability" else answer
            if question == "mean" and not sites[name].event and not np.isfinite(answer).all():
                medians.append(name)
        return out | {name: intervals.median(self, held, name, plug_in, queries.ALL)
                      for name in medians}

    def _imputed(self, held: dataset.Data, plug_in: bool) -> dict[str, np.ndarray]:
        out, estimates = {}, self._cell_estimates(held, plug_in)
        for site in (site for site in self.structure.sites.values() if site.rows):
            column, filled = held.table.columns.get(site.name), estimates.get(site.name)
            if column is not None and column.likelihood is None:
                if filled is not None and column.values.dtype.kind in "iu":
                    filled = shortest(filled)  # NumPy would join counts and means as float64
                # without an estimate it remains missing
                filled = column.values if column.seen is None else np.where(
                    column.seen, column.values, np.nan if filled is None else filled
                )
            if filled is not None:
                out[site.name] = tables.to_labels(filled, self.names.get(site.name))
        return out | self._deterministic_means(
            held, [s.name for s in self.structure.deterministics.values() if s.rows], plug_in
        )

    def _deterministic_means(self, held: dataset.Data, names: Sequence[str], plug_in: bool,
                             given: str = queries.ALL) -> dict[str, np.ndarray]:
        """The means of deterministics inside rows over the latent discrete sites of the row and the
        posterior; of one with other latent parents, over simulated rows."""
        out = {}
        for name in names:
            if not self._site(name).rows:
                raise ModelError(f"predict: '{name}' is computed outside rows(), so it is the same "
                                 f"for every row. Use fit.params['{name}']")
            if any(not self._is_observed_or_summed(held, parent)
                   for parent in self.structure.deterministics[name].parents):
                out[name] = intervals.simulated_mean(self, held, name, plug_in)
        rest = [("mean", name) for name in names if name not in out]
        found = asking.answer(self, held, rest, plug_in, given)[1] if rest else {}
        return {name: out[name] if name in out else found["mean", name] for name in names}

    def _is_observed_or_summed(self, held: dataset.Data, name: str) -> bool:
        """Whether a site lies outside rows, is observed in every row, or can be summed out."""
        site = self.structure.sites[name]
        return not site.rows or site.states is not None or held.pattern.get(name) == "seen"

    def _simulated(self, held: dataset.Data, key: jax.Array, seed: int,
                   plug_in: bool) -> dict[str, np.ndarray]:
        """Rows drawn given their observed cells, each with its own draw of the parameters; after
        asking.GROUPS rows the draws repeat."""
        values = weighted.resampled(self, held, seed, plug_in)
        values = self._drawn_rows(held, key, seed, plug_in) if values is None else values
        n, named = held.table.rows, held.structure.named
        values = {name: tables.to_labels(np.asarray(values[name]), self.names.get(name))
                  for name in named if name in values}
        for name, value in self.model.interventions:
            done, labels = np.asarray(thaw(value)), self.names.get(name)
            done = np.broadcast_to(done, (n, *done.shape))
            values[name] = done if labels is None else tables.to_labels(
                done - self._lowest_value(name), labels)
        return values

    def _drawn_rows(self, held: dataset.Data, key: jax.Array, seed: int,
                    plug_in: bool) -> dict[str, np.ndarray]:
        """Drawn values of the sites of rows, discrete ones as codes, and, of a model with factors
        in rows, their log weights, under LOG_WEIGHT."""
        plan, back, belief, states, log = asking.drawn(self, held, derive_key(key, Use.BELIEF),
                                                       seed,
                                                       plug_in)
        n, sites = held.table.rows, self.structure.sites
        if plan.variables or plan.latents:
            asking.warn(self, back(log))
        fixed = {name: held.with_observed_codes(name, plan.cells(name, back(states[name], name)))
                 for name in plan.variables}
        fixed |= {name: held.with_observed_codes(name, back(states[name], name))
                  for name in plan.hidden}
        values = {name: fixed[name] for name in fixed if sites[name].rows}
        named = held.structure.named
        if any(site.rows and site.name not in fixed for site in named.values()):
            # by NumPy, which saves seven small programs for each shape
            params = {k: np.asarray(v)[np.arange(n) % len(v)] for k, v in belief.params.items()}
            columns = {name: (c.values, c.seen) for name, c in held.table.columns.items()
                       if name not in fixed and c.likelihood is None}
            given, last = self._known().given, derive_key(key, Use.NOISE)
            values = simulate_rows(self.structure, params, given, fixed, columns, held.table.inputs,
                                   last, n, held.steps)
        return values

    def _lowest_value(self, name: str) -> int:
        """The lowest state of a site, also of one that do() has set."""
        found = trace(self.model.plain, self.shapes).sites.get(name)
        return 0 if found is None else found.low
