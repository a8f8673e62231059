"""Small queries of discrete states, computed on the host: one small compiled program, the same for
all queries, gives the factors; NumPy sums only those that the query needs.

Variables that are neither queried nor observed, nor ancestors of such variables, sum to one and are
omitted (barren nodes, Shachter 1986). Tables are sliced at observed states, so that variables
d-separated by the evidence are summed separately.
"""

import math
from collections.abc import Iterable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from probml.device.rows import Chunk, Known, Rows
from probml.elimination import host
from probml.elimination.elimination import MIN_NAMES_FOR_LEVELS
from probml.errors import Refusal, counted
from probml.numerics.compiling import ASKED, jit
from probml.plan.plan import BUDGET, TABLES, Plan
from probml.queries.queries import Belief, parts_of

Asked = Sequence[tuple[str, str | tuple[str, ...]]]
ENTRIES = 2**21  # of all tables, up to which NumPy takes less time than compiling a small program
# the same where the program has many variables or large tables
MAX_ENTRIES_OF_LARGE_PROGRAMS = 2**27
MAX_ENTRIES = 2**31  # maximum entries where no program fits into memory: some minutes
MAX_SECONDS = 2.0  # seconds that NumPy may take for the tables of a large network
MAX_PATTERN_ROWS = 64  # maximum rows that are grouped by their pattern of evidence
QUESTIONS = 8  # maximum of min(queries, rows); above it a compiled program is used
# number of variables, summed over the patterns of evidence, up to which each pattern is summed
# separately (50 µs per variable); of a large network 16 times as many
PATTERNS = 2**10


def _factors(plan: Plan, belief: Belief, known: Known,
             rows: Rows) -> dict[tuple[int, tuple[str, ...]], jax.Array]:
    """The factors by number and names, which are static for JAX as keys."""
    factors = parts_of(plan, belief, known, rows.first).rows
    return {(i, factor.names): factor.log for i, factor in enumerate(factors)}


_small = jit(_factors, static_argnums=0, seldom=ASKED, on_host=True)
# compiling 1,000 tables takes half a minute
_large = jit(_factors, static_argnums=0, seldom=MAX_SECONDS, on_host=True)


def answer(plan: Plan, ask: Asked, belief: Belief, known: Known, rows: Rows,
           count: int) -> tuple[np.ndarray, dict] | None:
    """As queries.answer, of the `count` rows that are not padding: log p(row), (count,), and query
    → posterior probabilities; None where a compiled program is expected to be faster.

    Raises:
        Refusal: both the compiled program and these sums exceed the limits of memory and time.
    """
    is_large = len(plan.order) > MIN_NAMES_FOR_LEVELS or plan.work > ENTRIES
    is_cheap = plan.work * count <= ENTRIES and min(len(ask), count) <= QUESTIONS
    scopes = [site if isinstance(site, tuple) else (site,) for _, site in ask]
    if (not (is_cheap or is_large and count <= MAX_PATTERN_ROWS) or rows.chunks > 1
        or not _sums_states(plan, [question for question, _ in ask], scopes)):
        return None
    chunk = jax.tree.map(np.asarray, rows).first  # NumPy arrays, so that nothing is compiled
    tables = (_large if is_large else _small)(plan, belief, known, rows)
    factors = [host.Table(np.asarray(log, float)[:count], names)
               for (_, names), log in tables.items()]
    needed = _relevant(plan, _with_evidence(plan, known, chunk, count), scopes)
    groups = host.condition_on_known([f for f in factors if needed.issuperset(f.names)], count,
                                     PATTERNS * (1 + 15 * is_large))
    cost = sum(_cost(group, scopes) for group in groups)
    if cost > (MAX_ENTRIES_OF_LARGE_PROGRAMS if is_large else ENTRIES):
        if TABLES * plan.work <= BUDGET:
            return None
        if cost > MAX_ENTRIES:
            raise Refusal(
                f"model '{plan.structure.model.name}': for {counted(count, 'row')} this query "
                f"would sum over tables of {cost:.3g} entries ({8 * cost:.3g} bytes), more than "
                f"the limit of {MAX_ENTRIES:.3g} entries. Query fewer sites or fewer rows at once, "
                "give values of more sites, or use simulate(), which answers by Monte Carlo")
    return _answers(plan, groups, dict(zip(ask, scopes, strict=True)), count)


def _answers(plan: Plan, groups: Iterable[host.Rows], scope_of: dict,
             count: int) -> tuple[np.ndarray, dict]:
    """log p(row) of all rows, and query → results, (count, *cells, states), or (count, *states) of
    joint probabilities."""
    results: dict = {}
    for group in groups:
        for question, values in _summed(plan, group, scope_of).items():
            result = results.setdefault(question, np.zeros((count, *values.shape[1:])))
            result[group.indices] = values
    dtype, sites = jnp.result_type(float), plan.structure.sites
    log_prob = results.pop(None, np.zeros(count)).astype(dtype)
    return log_prob, {question: table.astype(dtype).reshape(
        count, *(sites[question[1]].cells if question[0] == "probability" else ()),
        *table.shape[1:]) for question, table in results.items()}


def _sums_states(plan: Plan, questions: Sequence[str], scopes: Sequence[tuple[str, ...]]) -> bool:
    """Whether the queries are only for probabilities of variables with one cell, in a model without
    chains, latents or groupings."""
    structured = plan.chains or plan.steps or plan.latents or plan.groupings
    sites, scalars = plan.structure.sites, plan.variables
    return not structured and {"probability", "joint"}.issuperset(questions) and all(
        name in scalars and math.prod(sites[name].cells) == 1
        for scope in scopes for name in scope)


def _with_evidence(plan: Plan, known: Known, chunk: Chunk, count: int) -> set[str]:
    """The variables with evidence in some row: observed, restricted, or with an observed child that
    is not a variable."""
    evidence = {*plan.globals, *known.allowed, *chunk.likelihood}
    for name in plan.observed:
        evidence.update(plan.scope(name) if name not in plan.variables else ())
    for name in plan.variables:
        if name in chunk.values:
            seen = chunk.observed.get(name)
            evidence.update([name] if seen is None or np.asarray(seen)[:count].any() else [])
    for states, names in plan.partly.items():
        observed = np.asarray((np.asarray(chunk.codes[states])[:count] >= 0).any(0))
        evidence.update(name for name, is_seen in zip(names, observed, strict=True) if is_seen)
    return evidence


def _relevant(plan: Plan, known: Iterable[str], scopes: Iterable[Sequence[str]]) -> set[str]:
    """The variables `known` and those of `scopes`, with all their ancestors."""
    relevant: set[str] = set()
    stack = [*known, *(name for scope in scopes for name in scope)]
    while stack:
        name = stack.pop()
        if name not in relevant:
            relevant.add(name)
            stack += [p for p in plan.structure.sites[name].parents if p in plan.variables]
    return relevant


def _cost(group: host.Rows, scopes: Sequence[tuple[str, ...]]) -> int:
    """Number of table entries that the queries create for a group of rows: one elimination for all
    single sites, one for each joint query."""
    joints = [tuple(n for n in scope if n not in group.states)
              for scope in scopes if len(scope) > 1]
    return sum(host.entries(group.factors, host.order_of(group.factors, last))
               for last in ((), *joints))


def _summed(plan: Plan, group: host.Rows, scope_of: dict) -> dict:
    """For a group of rows: query → probabilities, (rows, *states), and None → log p(row)."""
    singles = [scope[0] for scope in scope_of.values() if len(scope) == 1
               and scope[0] not in group.states]
    log_prob, marginals = host.marginals(group.factors, host.order_of(group.factors), singles)
    count, sizes = len(group.indices), {n: v.states for n, v in plan.variables.items()}
    results: dict = {None: log_prob}
    for question, scope in scope_of.items():
        keep = tuple(name for name in scope if name not in group.states)
        if len(keep) > 1:
            _, probs = host.posterior(host.remainder(
                group.factors, host.order_of(group.factors, keep), keep, sizes))
        elif keep:
            probs = marginals[keep[0]] if keep[0] in marginals else host.marginals(
                group.factors, host.order_of(group.factors), keep)[1][keep[0]]
        else:
            probs = np.isfinite(log_prob).astype(float)
        table = np.zeros((count, *(sizes[name] for name in scope)))
        index = tuple(group.states.get(name, slice(None)) for name in scope)
        if any(name in group.states for name in scope):
            # rows and observed states are looked up together, and their axis leads
            table[(np.arange(count), *index)] = probs
        else:
            table[:] = probs
        results[question] = table
    return results
