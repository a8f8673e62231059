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
        if self.model.is_joint and (known is None or known.factor):
            summed = (step_posteriors.posterior_of_step(self, site)
                      or marginal_weights.posterior_of_summed_site(self, site))
            if summed is not None:
                return summed
        found = self._site(site)
        site = found.name  # the present name of a renamed site
        if found.kind == DETERMINISTIC:
            remedy = (f"fit.predict(data, '{site}')" if found.rows
                      else self._expression_outside_rows(site))
            raise Refusal(f"'{site}' is computed from other sites (deterministic), so its "
                          f"posterior has no closed form. Use {remedy}")
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
        values = {name: sites[name].valued(np.asarray(value)) for name, value in draws.items()}
        values |= {name: np.asarray(value)
                   for name, value in outside.drawn(self, draws).items()}
        row_draws = simulation.within(self, draws, self.belief.rows(n, seed), seed)
        values |= step_posteriors.draw_steps(self, draws, n, seed)
        return by_old_names(values | self._drawn_in_rows(draws, n) | row_draws, self.model.renamed)

    def _drawn_in_rows(self, draws: Mapping[str, jax.Array], n: int) -> dict[str, np.ndarray]:
        """Draws, (n, rows, ...), of the deterministics in the rows of a function without rows(), in
        which these were found, for the fitted data."""
        sites = self.structure.sites
        names = tuple(site.name for site in self.structure.deterministics.values() if site.rows
                      and not any(sites[parent].rows for parent in site.parents))
        if not (names and self.model.generative.found and self.data is not None):
            return {}
        table = self.data.table
        drawn = simulate_draws(self.structure, names, draws, self._known().given, table.inputs,
                               jax.random.key(0), table.rows, n, self.data.steps)
        return {name: np.asarray(value) for name, value in drawn.items()}

    def _draws(self, n: int, seed: int) -> dict[str, jax.Array]:
        """Draws of the sites outside rows alone, discrete ones as codes."""
        return self.belief.draw(self._plan, self._known(), n, seed)

    def _probabilities(self, data: dataset.Data, site: str | Sequence[str] | None, plug_in: bool,
                       given: str) -> PyTree:
        if site is not None and not isinstance(site, str):
            for name in site:
                self._checked_row_site(name)
            if data.structure.losses:
                return {name: self._probabilities(data, name, plug_in, given) for name in site}
            answers = asking.answer(self, data, [("probability", name) for name in site], plug_in,
                                    self._checked_view(given))[1]
            return {name: answers["probability", name] for name in site}
        name = self._checked_row_site(site or self._site_to_predict(data))
        table = self._weighted_values(data, name, plug_in, given)
        if table is not None:
            return self._one_hot_observed(data, name,
                                          table.probabilities(self.structure.sites[name]))
        return asking.answer(self, data, [("probability", name)], plug_in,
                             self._checked_view(given))[1]["probability", name]

    def _weighted_values(self, data: dataset.Data, name: str, plug_in: bool,
                 given: str) -> weighted.Table | None:
        """The values of a site and their weights, where factors depend on it; None: none does."""
        all_steps = self._checked_view(given) == queries.ALL
        return weighted.table_of(self, data, name, plug_in) if all_steps else None

    @staticmethod
    def _one_hot_observed(data: dataset.Data, name: str, p: np.ndarray) -> np.ndarray:
        """Probabilities of a scalar site, one-hot where it is observed."""
        column = data.table.columns.get(name)
        if column is None:
            return p
        one_hot = (column.values[..., None] == np.arange(p.shape[-1])).astype(p.dtype)
        return (one_hot if column.observed is None
                else np.where(column.observed[..., None], one_hot, p))

    def _summed_probabilities(self, data: dataset.Data, site: str | Sequence[str] | None) -> PyTree:
        """Probabilities of a discrete site that a model without rows, one joint density, sums
        out."""
        if site is not None and not isinstance(site, str):
            return {name: self._summed_probabilities(data, name) for name in site}
        joint = [s.name for s in data.structure.sites.values() if s.discrete and not s.rows]
        if joint and site in (None, *joint):
            name = site or joint[0]
            raise Refusal(f"predict_proba(data, '{name}'): '{name}' is outside rows(), but "
                          f"predict_proba is for sites inside rows(). Use posterior('{name}') for "
                          f"the fitted data, or decode(data)")
        summed = marginal_weights.find_summed_sites(data).summed
        names = list(summed)
        name = site or (names[0] if len(names) == 1 else "")
        if name not in summed:
            raise Refusal(f"predict_proba(site={site!r}): model '{self.model.name}' has no plate "
                          "of independent rows, so predict_proba is only for discrete sites "
                          f"that are summed out: {names or 'none'}. "
                          f"{'Name one of these, or use' if names else 'Use'} posterior(site). For "
                          "probabilities of rows write `with probml.rows():` instead of a "
                          "numpyro.plate")
        return marginal_weights.compute_probabilities(self, data, summed, name)

    def _decode_joint_density(self, data: dataset.Data,
                              sites: Sequence[str] | None) -> dict[str, np.ndarray]:
        """The most probable values of the discrete sites that a model without rows, one joint
        density, sums out."""
        joint = [s.name for s in data.structure.sites.values() if s.discrete and not s.rows]
        if joint:
            return joint_states.outside(self, data, joint if sites is None else list(sites))
        summed = marginal_weights.find_summed_sites(data).summed
        targets = summed if sites is None else list(sites)
        unknown = next((name for name in targets if name not in summed), None)
        if unknown is not None or not targets:
            raise Refusal(f"decode(sites={sites!r}): model '{self.model.name}' has no plate of "
                          f"independent rows, so decode gives only the values of discrete sites "
                          f"that are summed out: {listed(summed)}. "
                          f"{'Name only these' if summed else MARK_ROWS}")
        return marginal_weights.decode_summed_sites(self, data, summed, targets)

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

    def _site_to_predict(self, data: dataset.Data, continuous: bool = False) -> str:
        sites = [s for s in self.structure.sites.values() if s.rows
                 and data.pattern.get(s.name) != "seen" and not s.factor]
        candidates = [s.name for s in sites if s.states] or [s.name for s in sites if continuous
                                                             or s.finite]
        latent = [name for name in candidates if name not in data.pattern]
        if not candidates and sites and not continuous:
            first_site = sites[0]
            raise ModelError(
                f"'{first_site.name}' ({first_site.kind}) is continuous, so it has no states with "
                f"probabilities, and model '{self.model.name}' has no latent discrete site. Use "
                f"predict(data, '{first_site.name}')"
            )
        if not sites:
            observed = [name for name in data.pattern if self.structure.sites[name].rows]
            raise ModelError("every value of these rows is observed, so there is nothing to "
                             "predict. Omit from the data the column that you want to predict, "
                             f"one of {listed(observed)}")
        if len(latent or candidates) != 1:
            raise ModelError(f"{counted(len(candidates), 'site')} are latent or missing, "
                             f"{listed(candidates)}. Name the one that is to be predicted, "
                             f"site='{candidates[0]}'")
        return (latent or candidates)[0]

    def _predicted(self, data: dataset.Data, name: str, plug_in: bool, given: str,
                   interval: float | None) -> PyTree:
        if interval is not None:
            return intervals.interval(self, data, name, interval, plug_in, given)
        target = self._site(name)
        if target.kind == DETERMINISTIC:
            self._checked_view(given)
            return self._deterministic_means(data, [name], plug_in, given)[name]
        if target.states is not None:
            return tables.to_labels(self._probabilities(data, name, plug_in, given).argmax(-1),
                                    self.names.get(name))
        if not target.rows:
            raise ModelError(f"predict: site '{name}' is outside rows(), so it has the same value "
                             f"for all rows. Use {self._expression_outside_rows(name)}")
        if not self.structure.has_mean(name):
            return intervals.median(self, data, name, plug_in, given)
        table = self._weighted_values(data, name, plug_in, given)
        if table is not None:
            return table.mean()
        data = self._without_own_value(data, name)
        answers = asking.answer(self, data, [("mean", name)], plug_in, self._checked_view(given))[1]
        mean = answers["mean", name]
        if np.isfinite(mean).all():
            return mean
        return intervals.median(self, data, name, plug_in, given)

    def _without_own_value(self, data: dataset.Data, name: str) -> dataset.Data:
        """The rows without the observed values of a site whose mean is computed, where its parents
        in the row are observed too: its value would inform the parameters a second time."""
        parents = (p for p in self.structure.named[name].parents if self.structure.sites[p].rows)
        if data.pattern.get(name) != "seen" or any(data.pattern.get(p) != "seen" for p in parents):
            return data
        return data.without([name])

    def _refuse_partial_path(self, plan: planning.Plan, targets: tuple[str, ...]) -> None:
        """Refuse a maximum along time over some of the latent sites there, the rest summed out: it
        has no recursion."""
        timed = [name for name in targets if name in (*plan.chains, *plan.step_order)]
        needed = (*plan.chains, *plan.along) if timed and plan.chains else ()
        missing = [name for name in needed if name not in targets
                   and plan.pattern.get(name) != "seen"]
        if missing:
            raise Refusal(
                f"decode(sites=[{listed(targets)}]): the most probable path of '{timed[0]}' cannot "
                f"be computed without that of '{missing[0]}'. Decode them together, "
                f"sites=[{listed([*targets, *missing])}], or use predict_proba for the "
                "probabilities of each step"
            )

    def _variables_to_maximise(self, data: dataset.Data, plan: planning.Plan,
                               targets: tuple[str, ...],
                               all_latent: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The variables to maximise over jointly, and the leaves, whose maxima are conditional on
        them.

        Args:
            all_latent: maximise over all latent sites of a row.
        """
        sites = self.structure.sites
        cells = tuple(v for group in plan.latents for v in group.cellwise if v in targets
                      and not group.names)
        variables = tuple(v for v in plan.variables if v in targets or all_latent and sites[v].rows)
        self._refuse_dependent_cells(plan, targets)
        others = (name for name in targets if name not in (*variables, *cells)
                  and data.pattern.get(name) != "seen")
        return (*variables, *cells), tuple(name for name in others if all(
            p in variables for p in sites[name].parents if p in plan.variables))

    def _refuse_dependent_cells(self, plan: planning.Plan, targets: tuple[str, ...]) -> None:
        """Refuse a maximum over latent cells whose parents are summed or integrated out, and one
        over their children: neither factorises over cells."""
        one_cell = len(targets) == 1 and math.prod(self.structure.sites[targets[0]].cells) == 1
        for group in plan.latents if not one_cell else ():  # of one cell its own probabilities do
            name = next((name for name in group.cellwise if name in targets), None)
            if name is not None and group.names:
                raise Refusal(f"decode: the values of '{name}' in a row depend on "
                              f"'{group.names[0]}', which is latent and continuous, so their "
                              f"jointly most probable values cannot be computed. Use "
                              f"predict_proba(data, '{name}') for the probabilities of each value")
            above = next((v for v in plan.group_scope(group) if v not in targets), None)
            if name is not None and above is not None:
                raise Refusal(f"decode: '{name}' depends on '{above}', so the most probable values "
                              f"of '{name}' cannot be computed without those of '{above}'. Decode "
                              f"both, sites=[{listed([*targets, above])}], or use "
                              f"predict_proba(data, '{name}')")
            child = next((n for n in targets if n not in plan.hidden
                          and plan.pattern.get(n) != "seen" and not set(group.cellwise).isdisjoint(
                              self.structure.sites[n].parents)), None)
            if child is not None:
                raise Refusal(f"decode: '{child}' depends on '{group.cellwise[0]}', which has "
                              f"several values in each row, and both are missing, so their jointly "
                              f"most probable values cannot be computed. Use predict_proba for "
                              f"each site, or decode(data, sites=['{group.cellwise[0]}'])")

    def _cell_estimates(self, data: dataset.Data, plug_in: bool) -> dict[str, np.ndarray]:
        """The estimates of missing cells: the most probable state, the mean, or the median where
        there is no finite mean."""
        values, requests, medians, sites = {}, [], [], self.structure.sites
        for name, site in sites.items():
            if (not site.rows or data.pattern.get(name) == "seen"
                    or site.traits.ancillary is not None and not self.structure.has_total(name)
                    or site.factor):
                continue
            if not site.states and not self.structure.has_mean(name):
                medians.append(name)
            elif (table := self._weighted_values(data, name, plug_in, queries.ALL)) is not None:
                values[name] = table.probabilities(site).argmax(-1) if site.states else table.mean()
            else:
                requests.append(("probability" if site.states else "mean", name))
        answers = asking.answer(self, data, requests, plug_in)[1] if requests else {}
        for (question, name), answer in answers.items():
            values[name] = answer.argmax(-1) if question == "probability" else answer
            if question == "mean" and not sites[name].event and not np.isfinite(answer).all():
                medians.append(name)
        return values | {name: intervals.median(self, data, name, plug_in, queries.ALL)
                         for name in medians}

    def _imputed(self, data: dataset.Data, plug_in: bool) -> dict[str, np.ndarray]:
        imputed, estimates = {}, self._cell_estimates(data, plug_in)
        for site in (site for site in self.structure.sites.values() if site.rows):
            column, filled = data.table.columns.get(site.name), estimates.get(site.name)
            if column is not None and column.likelihood is None:
                if filled is not None and column.values.dtype.kind in "iu":
                    filled = shortest(filled)  # NumPy would join counts and means as float64
                # without an estimate it remains missing
                filled = column.values if column.observed is None else np.where(
                    column.observed, column.values, np.nan if filled is None else filled
                )
            if filled is not None:
                imputed[site.name] = tables.to_labels(filled, self.names.get(site.name))
        return imputed | self._deterministic_means(
            data, [s.name for s in self.structure.deterministics.values() if s.rows], plug_in
        )

    def _deterministic_means(self, data: dataset.Data, names: Sequence[str], plug_in: bool,
                             given: str = queries.ALL) -> dict[str, np.ndarray]:
        """The means of deterministics inside rows over the latent discrete sites of the row and the
        posterior; of one with other latent parents, over simulated rows."""
        means = {}
        for name in names:
            if not self._site(name).rows:
                raise ModelError(f"predict: '{name}' is computed outside rows(), so it is the same "
                                 f"for every row. Use fit.params['{name}']")
            if any(not self._is_observed_or_summed(data, parent)
                   for parent in self.structure.deterministics[name].parents):
                means[name] = intervals.simulated_mean(self, data, name, plug_in)
        requests = [("mean", name) for name in names if name not in means]
        answers = asking.answer(self, data, requests, plug_in, given)[1] if requests else {}
        return {name: means[name] if name in means else answers["mean", name] for name in names}

    def _is_observed_or_summed(self, data: dataset.Data, name: str) -> bool:
        """Whether a site lies outside rows, is observed in every row, or can be summed out."""
        site = self.structure.sites[name]
        return not site.rows or site.states is not None or data.pattern.get(name) == "seen"

    def _simulated(self, data: dataset.Data, key: jax.Array, seed: int,
                   plug_in: bool) -> dict[str, np.ndarray]:
        """Rows drawn given their observed cells, each with its own draw of the parameters; after
        asking.GROUPS rows the draws repeat."""
        values = weighted.resampled(self, data, seed, plug_in)
        values = self._drawn_rows(data, key, seed, plug_in) if values is None else values
        n, named = data.table.rows, data.structure.named
        values = {name: tables.to_labels(np.asarray(values[name]), self.names.get(name))
                  for name in named if name in values}
        for name, value in self.model.interventions:
            fixed, labels = np.asarray(thaw(value)), self.names.get(name)
            fixed = np.broadcast_to(fixed, (n, *fixed.shape))
            values[name] = fixed if labels is None else tables.to_labels(
                fixed - self._lowest_value(name), labels)
        return values

    def _drawn_rows(self, data: dataset.Data, key: jax.Array, seed: int,
                    plug_in: bool) -> dict[str, np.ndarray]:
        """Drawn values of the sites of rows, discrete ones as codes, and, of a model with factors
        in rows, their log weights, under LOG_WEIGHT."""
        plan, back, belief, states, logs = asking.joint_draws(self, data,
                                                              derive_key(key, Use.BELIEF),
                                                              seed,
                                                              plug_in)
        n, sites = data.table.rows, self.structure.sites
        if plan.variables or plan.latents:
            asking.warn(self, back(logs))
        codes = {name: data.with_observed_codes(name, plan.cells(name, back(states[name], name)))
                 for name in plan.variables}
        codes |= {name: data.with_observed_codes(name, back(states[name], name))
                  for name in plan.hidden}
        values = {name: codes[name] for name in codes if sites[name].rows}
        named = data.structure.named
        if any(site.rows and site.name not in codes for site in named.values()):
            # by NumPy, which saves seven small programs for each shape
            params = {k: np.asarray(v)[np.arange(n) % len(v)] for k, v in belief.params.items()}
            columns = {name: (c.values, c.observed) for name, c in data.table.columns.items()
                       if name not in codes and c.likelihood is None}
            given, noise_key = self._known().given, derive_key(key, Use.NOISE)
            values = simulate_rows(self.structure, params, given, codes, columns, data.table.inputs,
                                   noise_key, n, data.steps)
        return values

    def _lowest_value(self, name: str) -> int:
        """The lowest state of a site, also of one that do() has set."""
        site = trace(self.model.plain, self.shapes).sites.get(name)
        return 0 if site is None else site.low
