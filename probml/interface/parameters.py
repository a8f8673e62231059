"""The posterior of the parameters of a fit: marginals and draws."""

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from probml.engines.engine import short_name
from probml.errors import ModelError, Refusal
from probml.families.finite import Shifted
from probml.interface.argument_checks import checked_verbs
from probml.interface.functions import marginal_weights
from probml.interface.functions.steps import step_posteriors
from probml.interface.record import Record
from probml.language.language import LONGEST, check_seed
from probml.language.renamed import by_old_names
from probml.numerics.precision import in_its_own
from probml.queries import outside, row_draws
from probml.queries.simulation import simulate_draws
from probml.structure import deterministics


@in_its_own
@checked_verbs
@dataclass(frozen=True, eq=False)
class Parameters(Record):
    """Posterior marginals and draws of the sites outside rows."""

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
        if found.kind == deterministics.KIND:
            instead = (f"fit.predict(data, '{site}')" if found.rows
                       else self._expression_outside_rows(site))
            raise Refusal(f"'{site}' is computed from other sites (deterministic): its posterior "
                          f"has no closed form; use {instead}")
        if found.rows:
            raise ModelError(f"site '{site}' is inside rows(): use predict_proba(data, '{site}') "
                             f"for the posterior of every row")
        plan, table = self._plan, self.belief.table
        if found.discrete and table is not None:
            if site not in plan.variables:
                raise Refusal(f"'{site}' ({found.kind}): no observed site depends on it, and it "
                              f"has infinitely many values")
            axis = plan.globals.index(site)
            joint = jnp.exp(table).sum(tuple(i for i in range(table.ndim) if i != axis))
            # (joint states, *cells, states)
            cells = jax.nn.one_hot(plan.variables[site].values, found.finite)
            probs = jnp.tensordot(joint, cells, 1)
            probs = probs / probs.sum(-1, keepdims=True)
            return Shifted(probs, found.low) if found.low else dist.Categorical(probs=probs)
        found = self.belief.marginal(plan, self._known(), site) if site in self.point else None
        if found is None:
            raise Refusal(f"'{site}': {short_name(self.engine)} has no closed-form posterior for "
                          f"it. Use {self._expression_outside_rows(site)}", ("Exact", "Laplace"))
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
            raise Refusal(f"{short_name(self.engine)} gives point estimates, not a posterior: see "
                          f"fit.params", ("NUTS", "Laplace"))
        if not isinstance(n, Integral) or not 1 <= n <= LONGEST:
            raise ModelError(f"draws(n={n!r:.60}): expected an integer from 1 to {LONGEST:,}")
        draws, sites = self._draws(int(n), check_seed(seed, "draws")), self.structure.sites
        found = {name: sites[name].valued(np.asarray(value)) for name, value in draws.items()}
        found |= {name: np.asarray(value)
                  for name, value in outside.drawn(self, draws).items()}
        inside = row_draws.within(self, draws, self.belief.rows(n, seed), seed)
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
