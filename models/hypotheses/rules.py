"""Association rules with what is known of them: posterior means and intervals of support,
confidence and lift.

Of n baskets n_ab have both sides of a rule a → b, n_a the left, n_b the right. The four cells
(both, left alone, right alone, neither) are multinomial with a Dirichlet(c, c, c, c) prior, so that

    confidence  p(b | a)                 ~ Beta(n_ab + c, n_a − n_ab + c)
    support     p(a, b)                  ~ Beta(n_ab + c, n − n_ab + 3c)
    lift        p(a, b) / (p(a) p(b))    a function of the cells: by draws of them

A rule seen in three baskets of three has confidence 1 by counting; here it is known to lie between
0.4 and 0.99.

Which sets are frequent is other programs' work (mlxtend.frequent_patterns.apriori, pyfim): theirs
are taken as they come.

Source: Agrawal, Imieliński & Swami (1993), "Mining association rules between sets of items in large
databases", for the rules; the posteriors are Beta–Binomial.
"""

import itertools
from collections.abc import Iterable, Mapping

import numpy as np
from scipy.stats import beta

from probml import DataError
from probml.dataset.frames import as_pandas
from probml.errors import listed, type_of
from probml.estimators.rules import hold, number, optional, several, within
from probml.language.language import check_seed
from probml.numerics.process.libraries import pd

DRAWS = 4000  # of the cells of a rule


def association_rules(baskets: "pd.DataFrame", itemsets: "pd.DataFrame", *,
                      concentration: float = 1.0, level: float = 0.95,
                      least_lift: float | None = None, seed: int = 0) -> "pd.DataFrame":
    """Association rules a → b of frequent itemsets, those with the highest confidence first.

    Args:
        baskets: a row a basket, a column an item, True (or 1) where it is in; none missing.
        itemsets: frequent sets of columns: collections of names, or a DataFrame with such in its
            column `itemsets`, as mlxtend has them (use_colnames=True).
        concentration: c, pseudo-baskets of each of the four cells.
        level: of the intervals.
        least_lift: only rules whose lift lies above it with this level's certainty: whose lower
            bound does.
        seed: of the draws.

    Returns:
        DataFrame: a row a rule, `left`, `right` (frozensets), `baskets` (n_ab), and the posterior
        mean of each of `support`, `confidence`, `lift` with its interval, `…_low`, `…_high`;
        `lift_above_1`, the posterior probability that both sides come together more often than by
        chance. Sorted by `lift_low`.

    Raises:
        DataError: a table or a set that is none. ModelError: a setting out of range.

    Cost: O(rules · (baskets + draws)).
    """
    hold("association_rules", concentration=(concentration, number(0.0, above=True)),
         level=(level, within(0.0, 1.0)), least_lift=(least_lift, optional(number(0.0))))
    seed = check_seed(seed, "association_rules")
    table, names = _basket_matrix(baskets)
    tail, random, records = (1 - level) / 2, np.random.default_rng(seed), []
    for members in _sets(itemsets, names):
        for left in _lefts(members):
            right = members - left
            a = table[:, [names[item] for item in sorted(left, key=str)]].all(1)
            b = table[:, [names[item] for item in sorted(right, key=str)]].all(1)
            cells = np.array([(a & b).sum(), (a & ~b).sum(), (~a & b).sum(), (~a & ~b).sum()])
            post = cells + concentration
            draws = random.dirichlet(post, DRAWS)
            lift = draws[:, 0] / (draws[:, :2].sum(1) * (draws[:, 0] + draws[:, 2]))
            betas = {"support": (post[0], post[1:].sum()), "confidence": (post[0], post[1])}
            record = {"left": left, "right": right, "baskets": int(cells[0])}
            for name, (yes, no) in betas.items():
                record[name] = yes / (yes + no)
                record[f"{name}_low"], record[f"{name}_high"] = beta.ppf([tail, 1 - tail], yes, no)
            record["lift"] = lift.mean()
            record["lift_low"], record["lift_high"] = np.quantile(lift, [tail, 1 - tail])
            record["lift_above_1"] = (lift > 1).mean()
            records.append(record)
    columns = ["left", "right", "baskets", *(f"{name}{end}" for name in ("support", "confidence",
               "lift") for end in ("", "_low", "_high")), "lift_above_1"]
    rules = pd.DataFrame(records, columns=columns)
    if least_lift is not None:
        rules = rules[rules["lift_low"] > least_lift]
    return rules.sort_values("lift_low", ascending=False, kind="stable", ignore_index=True)


def _basket_matrix(baskets) -> tuple[np.ndarray, dict]:
    baskets = as_pandas(baskets)
    if not hasattr(baskets, "columns"):
        raise DataError("association_rules: expected a DataFrame with one row per basket and one "
                        f"column per item, got {type_of(baskets)}. Convert it by "
                        "pandas.DataFrame(baskets)")
    table = np.asarray(baskets)
    try:
        numbers = table.astype(float)
    except (TypeError, ValueError):
        numbers = np.full(table.shape, np.nan)
    bad = ~((numbers == 0) | (numbers == 1))
    if bad.any() or not len(table):
        what = (f"row {np.argwhere(bad)[0, 0]} of column "
                f"{baskets.columns[np.argwhere(bad)[0, 1]]!r} has the value "
                f"{table[tuple(np.argwhere(bad)[0])]}, expected True, False, 1 or 0. Convert "
                f"the table, such as baskets > 0" if bad.any() else "the table has no rows. Give "
                                                                     "at least one basket")
        raise DataError(f"association_rules: {what}")
    return numbers.astype(bool), {name: j for j, name in enumerate(baskets.columns)}


def _sets(itemsets, names: dict) -> Iterable[frozenset]:
    candidates = itemsets
    if hasattr(itemsets, "columns"):
        if "itemsets" not in itemsets.columns:
            raise DataError("association_rules: the itemsets have the columns "
                            f"{listed(itemsets.columns)}, expected a column 'itemsets'. Pass the "
                            "result of mlxtend's apriori or fpgrowth")
        candidates = itemsets["itemsets"]
    sets = ("a list, tuple or set of sets of names", lambda v: isinstance(v, Iterable)
            and not isinstance(v, str | bytes | Mapping) and getattr(v, "ndim", 1) == 1)
    hold("association_rules", itemsets=(candidates, sets))
    candidates = list(candidates)
    for itemset in candidates:
        hold("association_rules", itemsets=(itemset, several("columns")))
    for itemset in dict.fromkeys(frozenset(itemset) for itemset in candidates):
        unknown = [item for item in itemset if item not in names]
        if unknown:
            raise DataError(f"association_rules: the set {set(itemset)} contains {unknown[0]!r}, "
                            f"which is not a column of the baskets. Call mlxtend's functions with "
                            f"use_colnames=True")
        if len(itemset) > 1:
            yield itemset


def _lefts(members: frozenset) -> Iterable[frozenset]:
    for size in range(1, len(members)):
        yield from map(frozenset, itertools.combinations(sorted(members, key=str), size))
