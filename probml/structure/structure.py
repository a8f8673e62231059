"""The structure of a model: its sites with their plates and parents, and the traced program that
computes the arguments of each site.

The user's function is traced once, for a single row, with the value of every site as an input. The
jaxpr shows which site depends on which, how arguments depend on parameters (levels.py), and
contains for each site a small program of its arguments, to be vmapped over rows and over the states
of discrete parents.

A model with chains is traced for chains of one step: the program of a site along time is that of
one step, to be run for every step. Two more traces find the time axis and verify that a step
depends on no other step.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from probml.errors import MARK_ROWS, ModelError, Refusal, present
from probml.families import domains
from probml.families.finite import mean_of
from probml.jaxpr import levels
from probml.jaxpr.memo import memo
from probml.jaxpr.program import ClosedJaxpr, Literal, evaluate, jaxpr_of, one_way
from probml.jaxpr.switches import SETTING
from probml.language.language import Bound
from probml.numerics.identity import digest
from probml.numerics.process.libraries import networkx
from probml.numerics.process.making import unchecked
from probml.numerics.transfer import as_array
from probml.structure import indices
from probml.structure.site import Site
from probml.structure.sites import sites_of

MAX_REMEMBERED = 2**14  # what methods found of a site of a structure


def _evaluated(program: tuple[ClosedJaxpr, tuple[str, ...]],
               env: Mapping[str, jax.Array]) -> list[jax.Array]:
    """Returns the results of a program whose inputs have these names."""
    closed, takes = program
    return evaluate(closed, *(jnp.asarray(env[key], aval.dtype)
                              for key, aval in zip(takes, closed.in_avals, strict=True)))


@dataclass(frozen=True, eq=False)
class Structure:
    """The sites of a model, and the traced programs of their arguments.

    Attributes:
        sites: by name, in the order of the function.
        programs: site or deterministic → (closed jaxpr of its arguments or its value, names of the
            jaxpr's inputs).
        specs: of the model's inputs, (name, shape of a row, NumPy dtype kind).
        declared: number of steps of the chains, if the model states it.
        deterministics: by name.
        totals: site whose total is data of each row → (program of the total, names of its inputs).
    """

    model: Bound
    sites: dict[str, Site]
    programs: dict[str, tuple[ClosedJaxpr, tuple[str, ...]]]
    specs: tuple = ()
    declared: int | None = None
    deterministics: dict[str, Site] = dataclasses.field(default_factory=dict)
    totals: dict[str, tuple[ClosedJaxpr, tuple[str, ...]]] = dataclasses.field(
        default_factory=dict)

    def arguments(self, name: str, env: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        """Returns the arguments of a site's base distribution for one row, in NumPyro's layout.

        Args:
            env: parents of the site: parameters and sites in NumPyro's layout for one row, inputs
                with one row. A function under SETTING, env → values of the arguments, replaces the
                program, for example with one setting of its switches.
        """
        outputs = env[SETTING](env) if SETTING in env else _evaluated(self.programs[name], env)
        return {key: as_array(value)
                for key, value in zip(self.sites[name].arguments, outputs, strict=True)}

    def computed(self, name: str, env: Mapping[str, jax.Array]) -> jax.Array:
        """Returns the value of a deterministic, for one row if it is inside rows, in NumPyro's
        layout; env as in `arguments`."""
        return _evaluated(self.programs[name], env)[0]

    @functools.cached_property
    def portable(self) -> str:
        """A digest of the model, its inputs, and what may be replaced in a structure after tracing:
        uses of parameters, labels, domains and families.

        Raises:
            Nameless: the model has no digest (see Bound.portable), or a family is user-defined.
        """
        sites = []
        for site in self.named.values():
            # without a family arguments are numbered in an order that NumPyro does not fix
            uses = sorted((argument if site.family else "", sorted(of.items()))
                          for argument, of in site.uses.items())
            kinds = (type(of) for of in (site.entry.likelihood, site.entry.prior) if of is not None)
            sites.append((site.name, uses, site.labels, type(site.domain), *kinds))
        return digest(self.model, self.specs, self.declared, sites)

    @functools.cached_property
    def one_way(self) -> bool:
        """Whether some argument has no forward-mode derivative, and so no Hessian."""
        return any(one_way(program) for program, _ in self.programs.values())

    @functools.cached_property
    def derived(self) -> tuple[str, ...]:
        """Names of the deterministics outside rows."""
        return tuple(site.name for site in self.deterministics.values() if not site.rows)

    @functools.cached_property
    def named(self) -> dict[str, Site]:
        """The sites, then the deterministics, by name."""
        return {**self.sites, **self.deterministics}

    @memo(MAX_REMEMBERED)
    def program_key(self, name: str) -> tuple | None:
        """Returns a key that is equal for two sites whose arguments are the same program, applied
        to different parameters and discrete parents; None if a site cannot share its program.

        Sites with equal keys are stacked and evaluated together, so that a network of 400 nodes
        compiles as fast as one with a few nodes of different kinds.
        """
        (program, input_names), site = self.programs[name], self.sites[name]
        shareable = all(t in self.sites and (self.sites[t].discrete or not self.sites[t].rows)
                        for t in input_names)
        if not shareable or site.family is None and site.rows:
            return None
        kinds = tuple((self.sites[t].rows, self.sites[t].discrete, self.sites[t].states)
                      for t in input_names)
        consts = tuple(np.asarray(c).tobytes() for c in program.consts
                       if not jnp.issubdtype(c.dtype, jax.dtypes.prng_key))
        kind = (site.kind, site.family, str(site.treedef), site.arguments, site.rows)
        layout = (*kind, site.batch, site.independent, site.event, site.axes, site.row_axis)
        order = tuple(input_names.index(p) for p in site.parents)
        return str(program.jaxpr), consts, kinds, layout, order

    @memo(MAX_REMEMBERED)
    def row_uses(self, name: str) -> dict[str, dict[str, levels.Use]]:
        """Returns how the arguments of a site, or the value of a deterministic, depend on
        continuous sites inside rows: argument → site → use."""
        program, input_names = self.programs[name]
        tracked = {i: t for i, t in enumerate(input_names) if t in self.sites and self.sites[t].rows
                   and not self.sites[t].discrete}
        owners = self.sites[name].arguments if name in self.sites else ("value",)
        return dict(zip(owners, levels.classify(program, tracked), strict=True))

    def constant(self, name: str, argument: str | None) -> np.ndarray | None:
        """Returns the value of an argument that is a constant of the program; otherwise None.
        Nothing is computed."""
        if argument not in self.sites[name].arguments:
            return None
        program, _ = self.programs[name]
        atom = program.jaxpr.outvars[self.sites[name].arguments.index(argument)]
        constants = dict(zip(program.jaxpr.constvars, program.consts, strict=True))
        value = atom.val if isinstance(atom, Literal) else constants.get(atom)
        return None if value is None else np.asarray(value)

    def cells(self, name: str, env: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        """Returns the arguments of a site with a family, in the user's layout: argument → (lattice
        cells, event axes of the argument); env as in `arguments`."""
        site, arguments = self.sites[name], {}
        for key, value in self.arguments(name, env).items():
            tail = site.traits.argument_event[key]
            if key == "loc" and tail == len(site.event) == 1:  # it may be one for all elements
                value = jnp.broadcast_to(value, (*value.shape[:-1], *site.event))
            arguments[key] = site.layout(value, tail)
        return arguments

    def distribution(self, name: str, env: Mapping[str, jax.Array]) -> dist.Distribution:
        """Returns the site's base distribution for one row, in NumPyro's layout.

        Args:
            env: as in `arguments`, and the inputs on which its total depends, if it has one.

        Raises:
            ModelError: a total count depends on another site.
        """
        site, arguments = self.sites[name], self.arguments(name, env)
        if site.traits.ancillary is not None:
            if not self.has_total(name):
                raise ModelError(
                    f"the mean of site '{name}' ({site.kind}) cannot be computed, because its "
                    f"{site.traits.ancillary} depends on values that new rows do not have. Make "
                    f"the total an input (an argument of the function), or use simulate() to draw "
                    f"values of '{name}'"
                )
            arguments[present(site.traits.ancillary)] = _evaluated(self.totals[name], env)[0]
        with unchecked():
            if site.family is not None:
                return site.family.distribution(arguments)
            return site.distribution(list(arguments.values()))

    def has_total(self, name: str) -> bool:
        """Whether the total of a site depends on inputs alone."""
        return name in self.totals and not any(key in self.sites for key in self.totals[name][1])

    def row_inputs(self, name: str) -> tuple[str, ...]:
        """Returns the inputs on which the distribution of a site in one row depends, its total
        included."""
        _, takes = self.totals.get(name, (None, ()))
        total_inputs = (key for key in takes if key not in self.sites)
        return tuple(dict.fromkeys((*self.named[name].inputs, *total_inputs)))

    @memo(MAX_REMEMBERED)
    def bounds(self, name: str) -> dict[str, tuple[ClosedJaxpr, tuple[str, ...]]]:
        """Returns the bounds of a site's support that depend on other sites or inputs: attribute of
        the support → (program, names of its inputs)."""
        program, input_names = self.programs[name]
        layout: list[str] = []

        def support_bounds(*values: jax.Array):
            distribution = self.distribution(name, dict(zip(input_names, values, strict=True)))
            bounds = domains.of(distribution.support).bounds
            layout[:] = list(bounds)
            return [jnp.asarray(bound) for bound in bounds.values()]

        closed = jaxpr_of(support_bounds)(*(jax.ShapeDtypeStruct(a.shape, a.dtype)
                                            for a in program.in_avals))
        needs = levels.dependencies(closed)
        parts = [levels.restrict(closed, [i]) for i in range(len(layout))]
        return {key: (part, tuple(input_names[t] for t in positions))
                for key, (part, positions), need in zip(layout, parts, needs, strict=True) if need}

    @memo(MAX_REMEMBERED)
    def has_mean(self, name: str) -> bool:
        """Whether the mean is known of a site's distribution; True also where
        `distribution` raises, so that the user gets its message."""
        if self.sites[name].traits.ancillary is not None:
            return True
        site, (program, _) = self.sites[name], self.programs[name]

        def mean(*arguments):
            by_name = dict(zip(site.arguments, arguments, strict=True))
            fn = (site.distribution(list(arguments)) if site.family is None
                  else site.family.distribution(by_name))
            return mean_of(fn)

        try:
            jax.eval_shape(mean, *(jax.ShapeDtypeStruct(a.shape, a.dtype)
                                   for a in program.out_avals))
        except (NotImplementedError, AttributeError):
            return False
        return True

    @functools.cached_property
    def parameters(self) -> tuple[str, ...]:
        """Names of the continuous sites outside rows."""
        return tuple(site.name for site in self.sites.values() if not site.rows
                     and not site.discrete and not site.factor)

    @functools.cached_property
    def reaching(self) -> tuple[str, ...]:
        """Names of the parameters that predictions for rows need: those on which rows depend,
        directly or through discrete sites, whose probabilities may depend on other priors."""
        stack = [p for site in self.named.values() if site.rows for p in site.parents]
        mixed = [n for n in self.parameters
                 if any(self.sites[p].discrete for p in self.sites[n].parents)]
        stack += [p for name in (*mixed, *self.penalties, *self.derived)
                  for p in (name, *self.named[name].parents)]
        reached: set[str] = set()
        while stack:
            name = stack.pop()
            if name in reached:
                continue
            reached.add(name)
            stack += (self.sites[name].parents if name in self.sites and self.sites[name].discrete
                      else ())
        return tuple(name for name in self.parameters if name in reached)

    @functools.cached_property
    def losses(self) -> tuple[str, ...]:
        """Names of the factors (numpyro.factor) inside rows: log weights of rows, which need not be
        normalised."""
        return tuple(site.name for site in self.sites.values() if site.rows and site.factor)

    @memo(MAX_REMEMBERED)
    def without(self, names: tuple[str, ...]) -> "Structure":
        """Returns the structure without some of its factors."""
        return dataclasses.replace(self, sites={
            name: site for name, site in self.sites.items() if name not in names})

    @functools.cached_property
    def penalties(self) -> tuple[str, ...]:
        """Names of the factors outside rows, which are added to the log prior."""
        return tuple(site.name for site in self.sites.values() if not site.rows and site.factor)

    @functools.cached_property
    def prior_factors(self) -> tuple[str, ...]:
        """Those of `penalties` that depend on a parameter: its prior is not as sampled."""
        return tuple(name for name in self.penalties if self.sites[name].parents)

    @functools.cached_property
    def labels(self) -> dict[str, tuple]:
        """Site → labels of its states, for sites with declared labels."""
        return {name: site.labels for name, site in self.sites.items() if site.labels is not None}

    def need_rows(self, verb: str) -> None:
        """Check that the model has rows.

        Raises:
            Refusal: it has none.
        """
        if self.model.is_joint:
            raise Refusal(
                f"{verb} gives a result for each row, but model '{self.model.name}' has no plate "
                f"of independent rows, because {self.model.generative.reason}. {MARK_ROWS}. "
                f"Without rows(), draws(n), posterior(site), simulate() and, of the fitted data, "
                f"impute(data) and simulate(given=data) are available")

    def need_likelihood(self, verb: str) -> None:
        """Check that the density of a row is normalised.

        Raises:
            Refusal: there is a factor inside rows(), or the model has no rows.
        """
        self.need_rows(verb)
        if self.losses:
            raise Refusal(
                f"{verb} needs the likelihood of a row, a density that integrates to 1. The factor "
                f"'{self.losses[0]}' of model '{self.model.name}' (numpyro.factor inside rows()) "
                "multiplies the density of a row by exp(factor), so its integral is unknown. The "
                "methods log_prob, predict, predict_proba, decode and simulate of a Fit support "
                f"factors. For {verb} replace the factor by a site, such as "
                "dist.Bernoulli(logits=...) or dist.LeftTruncatedDistribution(...)"
            )

    @functools.cached_property
    def chains(self) -> tuple[str, ...]:
        return tuple(site.name for site in self.sites.values() if site.chain)

    @functools.cached_property
    def markov(self) -> tuple[str, ...]:
        """Names of the chains with discrete states."""
        return tuple(name for name in self.chains if self.sites[name].discrete)

    @functools.cached_property
    def timed(self) -> tuple[str, ...]:
        """Names of the inputs with a time axis, which is the first axis of a row."""
        return tuple(name for name, shape, _ in self.specs if shape[:1] == (None,))

    @property
    def indexed(self) -> dict[str, indices.Index]:
        """The inputs, or cells of inputs, that are used as indices, with the indexed axes of
        parameters and the range of valid codes."""
        return self._indices.indexed

    @property
    def formulas(self) -> tuple[indices.Formula, ...]:
        """Indices that are computed from inputs by more than a shift; their range is checked on
        data."""
        return self._indices.formulas

    @functools.cached_property
    def _indices(self) -> indices.IndexUsage:
        return (indices.index_usage(self.programs, self.sites, self.specs) if self.specs
                else indices.IndexUsage({}, ()))

    def unfolded(self, steps: int | None) -> dict[str, Site]:
        """Returns sites and deterministics with chains of so many steps, for running the user's
        function."""
        if not self.chains:
            return self.named
        sites, _, computed = sites_of(self.model, self.specs, bool(jax.config.jax_enable_x64),
                                      present(steps))
        return {**sites, **computed}

    @functools.cached_property
    def network(self) -> tuple[str, ...]:
        """Names of the scalar discrete sites inside rows, if at least two of them have children;
        otherwise none.

        Their missing cells differ from row to row in too many patterns to compile a program for
        each.
        """
        names = () if self.chains else tuple(s.name for s in self.sites.values() if s.rows
                                             and s.states and math.prod(s.cells) == 1)
        return names if sum(bool(self.children[name]) for name in names) > 1 else ()

    @functools.cached_property
    def children(self) -> dict[str, tuple[str, ...]]:
        """Site → names of the sites that depend on it."""
        by_parent: dict[str, list[str]] = {name: [] for name in self.sites}
        for site in self.sites.values():
            for parent in site.parents:
                by_parent[parent].append(site.name)
        return {name: tuple(children) for name, children in by_parent.items()}

    def graph(self) -> "networkx.DiGraph":
        graph = networkx.DiGraph()
        for site in self.sites.values():
            graph.add_node(site.name, rows=site.rows, family=site.kind, shape=site.cells,
                           plates=tuple(n for n, _ in site.plates))
        graph.add_edges_from((parent, site.name) for site in self.sites.values()
                             for parent in site.parents)
        return graph
