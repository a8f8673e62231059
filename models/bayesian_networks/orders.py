"""How probable every arc is, averaged over all graphs: exactly, over orders of the columns.

With β_i(S) = exp(score of column i with parents S) and graphs weighted by the number of orders that
agree with them,

    α_i(U) = Σ_{S ⊆ U} β_i(S)                       what i may depend on if U stands before it
    L(U) = Σ_{i ∈ U} α_i(U∖i) L(U∖i),  L(∅) = 1     all orders of U first
    R(U) = Σ_{i ∉ U} α_i(U) R(U∪i),    R(all) = 1   all orders of the others after U
    p(parents of i = S | data) = β_i(S) Σ_{U ⊇ S, i ∉ U} L(U) R(U∪i) / L(all)

in logarithms; each sum over subsets or supersets is taken column by column.

Sources: Koivisto & Sood (2004), "Exact Bayesian structure discovery in Bayesian networks"; Koivisto
(2006), "Advances in exact Bayesian structure discovery in Bayesian networks", for all arcs at once.
"""

from collections.abc import Iterable, Mapping

import numpy as np

from probml import ModelError
from probml.models.bayesian_networks.arc_lists import refuse_counts, rules_of
from probml.models.bayesian_networks.scores import Scores, score_for
from probml.models.bayesian_networks.search import (
    MAX_EXACT_COLUMNS,
    UNFIT,
    Rules,
    as_masks,
    without,
    without_column,
)
from probml.models.bayesian_networks.variables import read, use_one_of
from probml.numerics.process.libraries import pd

SCORES = ("bdeu", "k2", "bic")  # those that are log evidences, the last roughly


def edge_probabilities(
    data,
    score: str | None = None,
    *,
    strength: float = 1.0,
    states: Mapping | None = None,
    kinds: Mapping | None = None,
    whitelist: Iterable[tuple[str, str]] = (),
    blacklist: Iterable[tuple[str, str]] = (),
    max_parents: int | None = None,
) -> "pd.DataFrame":
    """The posterior probability of every arc, averaged over all graphs.

    The prior: all orders of the columns are as probable, and given one all sets of parents before a
    column. A graph is as probable, before, as it has orders: sparse ones more than dense ones, and
    graphs that imply the same independences not all the same. An arc and the one turned may both be
    probable: their sum is how probable it is that the two are joined.

    Args:
        data: complete data, as in learn_structure.
        score: "bdeu" or "k2", log evidences; "bic", about one, for continuous columns too.
            None: "bdeu" where all columns are discrete, else "bic".
        strength, states, kinds, whitelist, blacklist, max_parents: as in learn_structure.

    Returns:
        DataFrame (parent, child), 0 on the diagonal, in column order. `attrs["status"]` as
        learn_structure has it.

    Raises:
        DataError: data that cannot be scored. ModelError: another score, an unknown name, arcs that
        contradict each other, more than 20 columns.

    Cost: d 2^(d−1) families, each counted in O(rows), and d² 2^d sums: a second or less for 12
    columns, four times as much for every two more.
    """
    refuse_counts("edge_probabilities", {"max_parents": max_parents})
    variables = read(data, states, kinds)
    score = score_for(variables, score)
    if not isinstance(score, str) or score not in SCORES:
        raise ModelError(f"edge_probabilities(score={score!r}): the score must be the log "
                         f"probability of the data under a graph; {use_one_of(SCORES, score)}")
    size = len(variables.names)
    if size > MAX_EXACT_COLUMNS:
        raise ModelError(f"edge_probabilities: {size} columns have 2^{size} = {2 ** size:,} "
                         f"subsets, expected at most {MAX_EXACT_COLUMNS} columns. Choose fewer "
                         f"columns, or call learn_structure on bootstrap samples of the rows and "
                         f"count how often each edge occurs")
    scores = Scores(variables, score, strength)
    rules = rules_of(variables, whitelist, blacklist, max_parents, "edge_probabilities")
    table = pd.DataFrame(_arcs(scores, rules), variables.names, variables.names)
    table.index.name, table.columns.name = "parent", "child"
    table.attrs["status"] = variables.status
    return table


def _arcs(scores: Scores, rules: Rules) -> np.ndarray:
    size = scores.size
    subsets, all_sets = np.arange(1 << size - 1), np.arange(1 << size)
    log_beta = np.stack([_families(scores, rules, child, subsets) for child in range(size)])
    log_alpha = np.stack([_log_sum_over_sets(values, size - 1, above=False) for values in log_beta])
    log_l, log_r = np.full((2, 1 << size), -np.inf)
    log_l[0] = log_r[-1] = 0.0
    level = np.bitwise_count(all_sets)
    for k in range(1, size + 1):
        before, after = np.flatnonzero(level == k), np.flatnonzero(level == size - k)
        for child in range(size):
            members = before[before >> child & 1 == 1]
            log_l[members] = np.logaddexp(log_l[members], log_l[members ^ 1 << child]
                                          + log_alpha[child, without_column(members, child)])
            members = after[after >> child & 1 == 0]
            log_r[members] = np.logaddexp(log_r[members], log_r[members | 1 << child]
                                          + log_alpha[child, without_column(members, child)])
    if log_l[-1] == -np.inf:
        raise ModelError(UNFIT.replace("learn_structure", "edge_probabilities"))
    probs = np.zeros((size, size))
    for child in range(size):
        sets = without(subsets, child)
        log_lr = _log_sum_over_sets(log_l[sets] + log_r[sets | 1 << child], size - 1, above=True)
        posterior = np.exp(log_beta[child] + log_lr - log_l[-1])  # of each set of parents
        for j in range(size):
            probs[j, child] = posterior[sets >> j & 1 == 1].sum()
    return np.minimum(probs, 1.0)


def _families(scores: Scores, rules: Rules, child: int, subsets: np.ndarray) -> np.ndarray:
    """(2^(d−1),) the score of a column with each set of parents; −inf where the rules forbid it."""
    sets = without(subsets, child)
    must, may = (as_masks(arcs)[child] for arcs in (rules.forced, rules.allowed))
    legal = ((np.bitwise_count(subsets) <= rules.max_parents)
             & (sets & ~may == 0) & (sets & must == must))
    values = np.full(len(subsets), -np.inf)
    values[legal] = scores.families([child] * int(legal.sum()), sets[legal].tolist())
    return values


def _log_sum_over_sets(logs: np.ndarray, size: int, above: bool) -> np.ndarray:
    """log Σ exp over all subsets, or supersets (`above`), of each set."""
    sums = logs.copy()
    for j in range(size):
        b = sums.reshape(-1, 2, 1 << j)
        target, source = (0, 1) if above else (1, 0)
        b[:, target] = np.logaddexp(b[:, target], b[:, source])
    return sums
