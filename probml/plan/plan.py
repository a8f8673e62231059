"""The plan of a fit or a question: which sites are data, which are summed or integrated out, in
which order and at what cost, and which data enter through sufficient statistics.

A Plan is static: it is decided on the host before any compile, is cached, and is the static
argument of every compiled program.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from probml.jaxpr.program import largest_array, largest_matrix
from probml.jaxpr.switches import Switches, find
from probml.latents.latent import Group, is_row_free
from probml.numerics.bundles import Bundle
from probml.numerics.identity import digest
from probml.plan.groupings import Grouping
from probml.structure.site import Site
from probml.structure.structure import Structure


@dataclass(frozen=True, eq=False)
class Variable:
    """A discrete site that is summed out: `values[s]` are the site's cells in joint state s."""

    name: str
    values: np.ndarray

    @property
    def states(self) -> int:
        return len(self.values)


BUDGET = 2**30  # bytes one row's largest table may take
TABLE = 2**20  # entries of a pooled argument table, over all its discrete parents
TABLES = 32  # bytes that an entry takes while its gradient is made
CHUNK = 2**18  # numbers that the evaluation of a chunk of rows should take, to stay in cache
ABREAST = 256  # rows of a chunk from which the fixed cost of an operation is negligible


@dataclass(frozen=True, eq=False)
class Plan:
    """How one pattern of data is treated under one structure.

    `pattern` is, of sites inside rows, "seen" (every cell is observed), "part" (some cells are),
    "partially_observed" (some vectors are, in part), "likelihood" (probabilities of the states) or
    "sampled" (latent numbers that a sampler moves; elsewhere they count as observed). `given` are
    the sites outside rows whose value is data; `targets` are latent sites that a question asks for.
    """

    structure: Structure
    pattern: Mapping[str, str]
    given: tuple[str, ...]
    targets: tuple[str, ...]
    variables: Mapping[str, Variable]
    observed: tuple[str, ...]
    pooled: tuple[str, ...]
    rowwise: tuple[str, ...]
    order: tuple[str, ...]
    global_order: tuple[str, ...]
    step_order: tuple[str, ...]  # the variables inside a step, but for the chains
    clique: tuple[str, ...]
    entries: int
    work: int  # entries of all tables a row
    width: int  # numbers that the evaluation of a row reads and writes
    latents: tuple[Group, ...] = ()  # latent numbers of a row that are integrated out
    # numbers outside rows that are integrated out, the grouping of most numbers first
    groupings: tuple[Grouping, ...] = ()

    @functools.cached_property
    def portable(self) -> str:
        """The digest of all fields, the same in every process.

        Raises:
            Nameless: see Structure.portable; a kind of latents is the user's own.
        """
        return digest(*(getattr(self, field.name) for field in dataclasses.fields(self)))

    @functools.cached_property
    def free(self) -> tuple[str, ...]:
        """The parameters: continuous sites outside rows that are not data, nor integrated out."""
        return tuple(name for name in self.structure.parameters if name not in self.given
                     and name not in self.effects)

    @functools.cached_property
    def effects(self) -> tuple[str, ...]:
        """The numbers outside rows that are integrated out."""
        return tuple(name for grouping in self.groupings for name in grouping.names)

    @functools.cached_property
    def grouped(self) -> tuple[str, ...]:
        """The sites in rows whose density depends on effects."""
        children = {c for name in self.effects for c in self.structure.children[name]}
        return tuple(name for name in self.observed if name in children)

    @functools.cached_property
    def globals(self) -> tuple[str, ...]:
        return tuple(name for name in self.variables if not self.structure.sites[name].rows)

    @functools.cached_property
    def outside(self) -> tuple[str, ...]:
        """The sites outside rows that have a value, and the factors there: what p(parameters) is
        made of, but for global variables."""
        sites = self.structure.sites
        codes = (name for name in self.given if sites[name].discrete and not sites[name].rows)
        values = (name for name in self.structure.parameters if name not in self.effects)
        return (*values, *codes, *self.structure.penalties)

    @functools.cached_property
    def mixed(self) -> tuple[str, ...]:
        """The sites of `outside` that depend on global variables (a spike and slab): tables over
        these, not part of the log prior."""
        return tuple(n for n in self.outside
                     if any(p in self.variables for p in self.structure.sites[n].parents))

    @functools.cached_property
    def row_globals(self) -> tuple[str, ...]:
        """The global variables on which rows depend, in order."""
        parents = {p for name in (*self.pooled, *self.rowwise, *self.integrated)
                   for p in self.discrete_parents(name)}
        return tuple(name for name in self.globals if name in parents)

    @functools.cached_property
    def integrated(self) -> tuple[str, ...]:
        """The sites in rows whose density depends on latents or effects: neither pooled nor
        row-wise, but part of a group's message, or of the likelihood of effects."""
        return (*(name for group in self.latents for name in group.sites), *self.grouped)

    @functools.cached_property
    def hidden(self) -> dict[str, Group]:
        """The latents, numbers and hidden cells, each with its group."""
        return {name: group for group in self.latents for name in (*group.names, *group.cellwise)}

    @functools.cached_property
    def cellwise(self) -> tuple[str, ...]:
        """The latents of rows that are hidden cells."""
        return tuple(name for group in self.latents for name in group.cellwise)

    @functools.cached_property
    def continuous_latents(self) -> tuple[str, ...]:
        """The latents of rows that are continuous."""
        return tuple(name for group in self.latents for name in group.names)

    @functools.cached_property
    def sampled(self) -> tuple[str, ...]:
        """The sites inside rows of which unseen numbers have coordinates of the density, parents
        first."""
        return tuple(name for name in self.structure.sites if self.pattern.get(name) == "sampled")

    @functools.cached_property
    def poolable_groups(self) -> tuple[Group, ...]:
        """The groups whose programs depend on nothing of a row but latents and variables: their
        sufficient statistics are of fixed size."""
        sites = self.structure.sites

        def entries(group: Group) -> int:
            n_latent, cells = (sum(math.prod(sites[name].cells) for name in names)
                               for names in (group.names, group.sites))
            states = math.prod(self.variables[v].states for v in self.group_scope(group))
            return cells * (1 + n_latent) ** 2 * states

        allowed = {*self.hidden, *self.variables}
        return tuple(group for group in self.latents if group.kind.pools and entries(group) <= TABLE
                     and is_row_free(self.structure, group.sites, allowed))

    @functools.cached_property
    def scattered(self) -> tuple[str, ...]:
        """The sites of the groups without such statistics, and those that depend on effects."""
        unpooled = (group for group in self.latents if group not in self.poolable_groups)
        return (*(name for group in unpooled for name in group.sites), *self.grouped)

    def groups(self, name: str) -> tuple[Group, ...]:
        """The groups to whose latents a site belongs, or on whose latents it depends."""
        names = (name, *self.structure.named[name].parents)
        return tuple(dict.fromkeys(self.hidden[n] for n in names if n in self.hidden))

    def group_scope(self, group: Group) -> tuple[str, ...]:
        """The variables on which the message of a group depends."""
        return tuple(dict.fromkeys(p for name in group.sites for p in self.discrete_parents(name)))

    def timed(self, group: Group) -> bool:
        """Whether a group's latents are states of a sequence."""
        return any(self.structure.sites[name].time is not None for name in group.names)

    def discrete_parents(self, name: str) -> tuple[str, ...]:
        """The discrete parents over whose states a site's arguments are tabulated: variables and,
        if pooled, observed ones."""
        sites = self.structure.sites
        return tuple(
            parent
            for parent in self.structure.named[name].parents
            if parent in self.variables
            or (name in self.pooled and sites[parent].rows and sites[parent].discrete)
        )

    def scope(self, name: str) -> tuple[str, ...]:
        """The variables of a site's factor; of one that depends on latents, theirs too."""
        itself = (name,) if name in self.variables else ()
        direct = (*(p for p in self.discrete_parents(name) if p in self.variables), *itself)
        indirect = [v for group in (self.groups(name) if self.latents else ())
                    for v in self.group_scope(group)]
        return tuple(dict.fromkeys((*direct, *indirect))) if indirect else direct

    @functools.cached_property
    def chains(self) -> tuple[str, ...]:
        """The latent Markov chains, which are summed out along time."""
        return tuple(name for name in self.variables if self.structure.sites[name].chain)

    @functools.cached_property
    def counted(self) -> tuple[str, ...]:
        """The completely observed Markov chains: their transitions are counted."""
        return tuple(name for name in self.observed if name in self.structure.markov)

    @functools.cached_property
    def steps(self) -> frozenset[str]:
        """The sites whose factors are those of single steps."""
        sites = self.structure.sites
        return frozenset(n for n in (*self.pooled, *self.rowwise) if sites[n].time is not None
                         and n not in self.counted)

    @functools.cached_property
    def along(self) -> tuple[str, ...]:
        """The row's own variables on which steps depend."""
        timed_targets = tuple(name for name in self.targets
                              if self.structure.named[name].time is not None)
        reached = {p for name in (*self.steps, *timed_targets) for p in self.scope(name)}
        return tuple(v for v in self.variables if v in reached
                     and self.structure.sites[v].time is None)

    def cells(self, name: str, states: np.ndarray) -> np.ndarray:
        """The user's cells of a variable in its joint states: (rows,), or (rows, steps) along a
        chain → (rows, *cells)."""
        values, time = self.variables[name].values[states], self.structure.sites[name].time
        return values if time is None else np.moveaxis(np.squeeze(values, 2 + time), 1, 1 + time)

    @functools.cached_property
    def partially_observed(self) -> tuple[str, ...]:
        """Pooled sites with partially observed vectors: the missing coordinates are integrated
        out."""
        return tuple(name for name in self.pooled if self.pattern.get(name) == "partially_observed")

    @functools.cached_property
    def partly(self) -> dict[int, tuple[str, ...]]:
        """Scalar variables observed in some rows, by their number of states: their data are one
        array."""
        groups: dict[int, list[str]] = {}
        for name, variable in self.variables.items():
            is_scalar = (variable.values.size == variable.states
                         and self.structure.sites[name].time is None)
            if self.pattern.get(name) == "part" and is_scalar:
                groups.setdefault(variable.states, []).append(name)
        return {states: tuple(names) for states, names in groups.items()}

    @functools.cached_property
    def switches(self) -> dict[str, Switches]:
        """The row-wise sites that depend on the states of some parents only through comparisons
        with data of the row."""
        by_site, sites = {}, self.structure.sites
        for name in (n for n in self.rowwise if n not in self.chains):
            program, inputs = self.structure.programs[name]
            parents = {p: self.variables[p].states for p in self.discrete_parents(name)}
            row_inputs = {*self.structure.named[name].inputs,
                          *(p for p in inputs if p in sites and sites[p].rows), *parents}
            switches = find(program, inputs, parents,
                            [p for p in inputs if p not in row_inputs]) if parents else None
            if switches is not None:
                by_site[name] = switches
        return by_site

    @functools.cached_property
    def ordered(self) -> tuple[str, ...]:
        """The row-wise sites whose log density summed over rows is two running sums, looked up at
        every state (e_step.add_ordered_sites)."""
        is_simple = self.complete and not (self.chains or self.steps or self.sampled)
        return tuple(name for name, switch in self.switches.items() if is_simple
                     and switch.order is not None)

    @functools.cached_property
    def without_ordered(self) -> "Plan":
        """The plan without the `ordered` sites."""
        return dataclasses.replace(self, rowwise=tuple(name for name in self.rowwise
                                                       if name not in self.ordered))

    @functools.cached_property
    def batched_sites(self) -> tuple[tuple[str, ...], ...]:
        """The pooled sites in groups that are evaluated together: the same program and the same
        kind of use."""
        groups: dict = {}
        for name in self.pooled:
            key, parents = self.structure.program_key(name), self.discrete_parents(name)
            variable, spread = (name in self.variables,
                                tuple(p for p in parents if p in self.variables))
            is_direct = all(self.variables[p].states == self.structure.sites[p].states
                            for p in (*spread, *(name,) * variable))
            is_single = key is None or not is_direct or name in self.centred
            states = tuple(p in self.variables for p in parents)
            groups.setdefault(name if is_single else (key, variable, states), []).append(name)
        return tuple(map(tuple, groups.values()))

    @functools.cached_property
    def twins(self) -> tuple[tuple[str, ...], ...]:
        """The free parameters in groups whose priors are evaluated as one: the same program, of
        parameters or of nothing."""
        groups: dict = {}
        for name in self.free:
            key = self.structure.program_key(name)
            site = self.structure.sites[name]
            is_simple = key is not None and site.domain.fixed and not any(
                self.structure.sites[p].discrete for p in site.parents
            )
            groups.setdefault(key if is_simple else name, []).append(name)
        return tuple(map(tuple, groups.values()))

    @functools.cached_property
    def bundles(self) -> tuple[Bundle, ...]:
        """The free parameters in groups of one support and one kind of value, to be moved and
        compared as one array."""
        groups: dict = {}
        for name in self.free:
            site = self.structure.sites[name]
            rank = site.domain.rank or 0
            key = ((site.domain, site.shape[len(site.shape) - rank :])
                   if site.domain.fixed else name)
            groups.setdefault(key, []).append(name)
        shapes = {name: self.structure.sites[name].shape for name in self.free}
        events = [key[1] if isinstance(key, tuple) else None for key in groups]
        return tuple(Bundle(tuple(g), tuple(shapes[n] for n in g), e)
                     for g, e in zip(groups.values(), events, strict=True))

    @functools.cached_property
    def centred(self) -> tuple[str, ...]:
        """The pooled sites whose data are centred on their column means."""
        return tuple(name for name in self.observed if self.structure.sites[name].traits.normal
                     and name in self.pooled)

    @property
    def complete(self) -> bool:
        """Nothing inside rows is summed or integrated out, and no effects of groups: pooled
        statistics are then the same at every parameter value."""
        return not (self.partially_observed or self.latents
                    or self.groupings) and all(name in self.globals
                                                       for name in self.variables)

    @property
    def observed_rows(self) -> bool:
        """Whether all of a row is observed and nothing in it is summed or integrated out, sampled,
        or shared by the steps of a sequence."""
        return not (self.variables or self.partially_observed or self.latents or self.groupings
                    or self.sampled or self.steps)

    @property
    def additive(self) -> bool:
        """Rows enter through pooled statistics alone, the same at every parameter value: those of
        parts of the data add up."""
        return not (self.partially_observed or self.variables or self.rowwise or self.latents
                    or self.groupings)

    @functools.cached_property
    def largest_matrix(self) -> int:
        """Columns of the largest matrix that an evaluation factorises: of a site, or of effects of
        groups that are integrated out together; 0: none."""
        sites, first = self.structure.sites, self.groupings[0] if self.groupings else None
        return max(
            0, *(largest_matrix(program) for program, _ in self.structure.programs.values()),
            *(site.event[-1] for site in sites.values() if _factorised(site)),
            *([] if first is None else [first.cells, sum(g.size for g in self.groupings[1:])]))

    @functools.cached_property
    def matrices(self) -> tuple[str, int, int]:
        """The site whose matrices, of all of its components, take the most multiplications to
        factorise; how many these are, and their columns; ("", 0, 0): there is none."""
        sites, largest = self.structure.sites, ("", 0, 0)
        for name in (*self.pooled, *self.structure.parameters):
            site = sites[name]
            if _factorised(site):
                states = math.prod(sites[p].states or 1 for p in self.discrete_parents(name))
                candidate = (name, states * math.prod(site.lattice), site.event[-1])
                largest = max(largest, candidate, key=lambda entry: entry[1] * entry[2] ** 3)
        return largest

    @property
    def factorising(self) -> int:
        """The most multiplications in one factorisation of a site's matrices, all of its components
        together."""
        _, count, columns = self.matrices
        return count * columns**3

    @functools.cached_property
    def table_entries(self) -> int:
        """About how many table entries, or nodes, each number of a row is multiplied with."""
        names = (*self.along, *self.chains, *self.chains) if self.chains else ()
        return max(self.work, math.prod(self.variables[name].states for name in names),
                   *(group.kind.breadth for group in self.latents))

    @functools.cached_property
    def largest_array(self) -> int:
        """Entries of the largest array that the programs of a row's arguments and weights make."""
        return max(0, *(largest_array(program) for program, _ in self.structure.programs.values()))

    @property
    def effort(self) -> int:
        """About how many numbers the evaluation of a row, or of a step of it, takes."""
        return max(self.work, self.width, 1)

    @functools.cached_property
    def brought(self) -> int:
        """How many input numbers of a row the row-wise sites read."""
        keys = {i for name in self.rowwise for i in self.structure.named[name].inputs}
        return sum(math.prod(s) for i, s, _ in self.structure.specs if i in keys and None not in s)

    def chunk_rows(self, copies: int = 1) -> int:
        """Rows of a chunk that stay in cache where `copies` (restarts) are worked on at once."""
        fitting = max(BUDGET // (TABLES * max(self.work, 1)), 1)
        by_width, by_tables = (2 ** round(math.log2(CHUNK / max(numbers, 1)))
                               for numbers in (max(self.width, self.brought), self.work))
        return int(np.clip(min(by_width, max(by_tables, ABREAST)), min(16, fitting),
                           min(8192, max(2**15 // copies, 128))))


def lacks_prior(plan: Plan, prior: bool) -> bool:
    """Whether some parameter has no proper prior in the objective."""
    return not prior or any(plan.structure.sites[name].entry.improper for name in plan.free)


def _factorised(site: Site) -> bool:
    """Whether matrices of a site are factorised: its own, or those of its distribution."""
    return bool(site.event) and (len(site.event) == 2 or site.traits.fill is not None)
