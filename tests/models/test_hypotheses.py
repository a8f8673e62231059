"""Bayes factors held to published numbers, to integrals and to exact evidences of our own models;
tests held to SciPy."""

import math
import tracemalloc

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.integrate import quad

from probml import DataError, ModelError
from probml.models import association_rules, dependence, screen, two_samples
from probml.models.hypotheses import samples, screening, tables

R = np.random.default_rng(0)
DOLLS = np.array([[50, 48], [21, 41]])  # R's BayesFactor::raceDolls
SLEEP = (np.array([0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]),
         np.array([1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]))  # R's sleep


# Tables


def test_the_bayes_factor_of_a_table_is_that_of_the_package_bayesfactor():
    """Its manual: contingencyTableBF(raceDolls, "indepMulti", "cols") gives 1.814856."""
    assert tables.log_bayes_factor(DOLLS, "columns") == pytest.approx(math.log(1.814856), abs=1e-6)
    assert tables.log_bayes_factor(DOLLS.T, "rows") == pytest.approx(math.log(1.814856), abs=1e-6)


def log_evidence(y, a):
    """A Dirichlet–multinomial but for the multinomial coefficient, as products of a Pólya urn."""
    total, seen = 0.0, np.zeros_like(a)
    for cell in np.repeat(np.arange(len(y)), y):
        total += math.log((a[cell] + seen[cell]) / (a.sum() + seen.sum()))
        seen[cell] += 1
    return total


def test_the_joint_bayes_factor_is_a_ratio_of_two_urns():
    y = np.array([[3, 0, 2], [1, 4, 1]])
    apart = (log_evidence(y.sum(1), np.full(2, 3.0 - 2)) + log_evidence(y.sum(0), np.full(3, 1.0)))
    assert tables.log_bayes_factor(y) == pytest.approx(log_evidence(y.ravel(), np.ones(6)) - apart,
                                                       rel=1e-12)


def test_of_poisson_counts_the_total_tells_too():
    y, b = np.array([[3, 1], [2, 5]]), 0.3

    def total(a):
        return stats.nbinom(a, b / (1 + b)).logpmf(y.sum())

    expected = tables.log_bayes_factor(y) + total(4.0) - total(3.0)
    found = tables.log_bayes_factor(y, "poisson", rate=b)
    assert found == pytest.approx(expected, rel=1e-12)


def test_the_tests_of_a_table_are_those_of_scipy():
    found = dependence(DOLLS, permutations=4000)
    pearson = stats.chi2_contingency(DOLLS, correction=False)
    ratio = stats.chi2_contingency(DOLLS, correction=False, lambda_="log-likelihood")
    for name, peer in (("chi-squared", pearson), ("likelihood ratio", ratio)):
        assert found.loc[name, "statistic"] == pytest.approx(peer.statistic, rel=1e-12)
        assert found.loc[name, "p_value"] == pytest.approx(peer.pvalue, rel=1e-12)
    # Fisher's exact test orders tables by probability, here as χ² does
    exact = stats.fisher_exact(DOLLS).pvalue
    assert found.loc["permutation", "p_value"] == pytest.approx(exact, abs=0.03)
    factor = found.loc["Gunel–Dickey", "log_bayes_factor"]
    assert found.loc["Gunel–Dickey", "probability"] == pytest.approx(1 / (1 + math.exp(-factor)))


def test_rows_without_a_count_are_left_out_of_the_tests():
    with_empty = dependence(np.vstack([DOLLS, [0, 0]]), permutations=50)
    assert with_empty.loc["chi-squared", "degrees"] == 1


@pytest.mark.parametrize(("table", "words"), [
    ([[1, 2]], "at least 2 rows and 2 columns, got the shape"),
    ([[1, -2], [3, 4]], "the table is -2 in row 0, column 1"),
    ([[1, 2.5], [3, 4]], "the table is 2.5 in row 0, column 1"),
    ([[0, 0], [0, 0]], "at least one count above 0"),
    ([["a", "b"], ["c", "d"]], "Pass a table of counts"),
])
def test_what_is_no_table_of_counts_is_refused_by_its_cell(table, words):
    with pytest.raises(DataError, match=words):
        dependence(table)


def test_an_unknown_sampling_and_too_weak_a_prior_are_refused():
    with pytest.raises(ModelError, match="sampling='both'.*'joint', 'rows', 'columns', 'poisson'"):
        dependence(DOLLS, "both")
    with pytest.raises(ModelError, match="concentration=0.2.*Numbers of at least 1"):
        dependence(DOLLS, concentration=0.2)


# Two samples


def test_the_bayes_factor_of_pairs_is_that_of_the_package_bayesfactor():
    """Its manual: ttestBF(sleep, paired = TRUE) gives 17.25888."""
    found = two_samples(*SLEEP, paired=True, permutations=1000)
    assert found.loc["Bayes", "log_bayes_factor"] == pytest.approx(math.log(17.25888), abs=1e-6)
    peer = stats.ttest_rel(*SLEEP)
    assert found.loc["Student", "p_value"] == pytest.approx(peer.pvalue, rel=1e-12)
    assert found.attrs["difference"] == pytest.approx(-1.58)


def test_the_bayes_factor_of_groups_is_the_integral_over_the_shift():
    """Of Student's t: noncentral under a shift δ ~ Cauchy(0, r)."""
    x, y = SLEEP
    t, n = stats.ttest_ind(x, y).statistic, 5.0
    shifted = quad(lambda d: stats.nct(18, d * math.sqrt(n)).pdf(t)
                   * stats.cauchy(scale=0.5).pdf(d), -6, 6, limit=200)[0]
    shifted += quad(lambda d: stats.nct(18, d * math.sqrt(n)).pdf(t)
                    * stats.cauchy(scale=0.5).pdf(d), -12, -6)[0]
    expected = math.log(shifted / stats.t(18).pdf(t))
    found = two_samples(x, y, width=0.5, permutations=100)
    assert found.loc["Bayes", "log_bayes_factor"] == pytest.approx(expected, abs=2e-5)
    assert found.loc["Welch", "p_value"] == pytest.approx(
        stats.ttest_ind(x, y, equal_var=False).pvalue)
    assert found.loc["rank", "p_value"] == pytest.approx(stats.mannwhitneyu(x, y).pvalue)


def test_permutations_of_many_numbers_do_not_lie_in_memory_at_once():
    x, y = np.random.default_rng(0).normal(size=(2, 50_000))
    tracemalloc.start()
    try:
        few = two_samples(x, y, permutations=200)
        assert tracemalloc.get_traced_memory()[1] < 200 * 100_000 * 8
    finally:
        tracemalloc.stop()
    assert 0.001 < few.loc["permutation", "p_value"] <= 1


def test_far_groups_have_a_finite_factor():
    assert 100 < samples.log_bayes_factor(80.0, 50.0, 98.0) < 250
    assert -6 < samples.log_bayes_factor(0.0, 1e4, 1e4) < -3


def test_groups_that_cannot_be_compared_are_refused():
    with pytest.raises(DataError, match="samples of the same"):
        two_samples([1.0, 2.0], [1.0, 2.0, 3.0], paired=True)
    with pytest.raises(DataError, match="at least 2 observed numbers in y, got 1"):
        two_samples([1.0, 2.0], [1.0, np.nan])
    with pytest.raises(DataError, match="all numbers within each sample are equal"):
        two_samples([1.0, 1.0], [2.0, 2.0])
    with pytest.raises(DataError, match="all numbers within each sample are equal"):
        two_samples([0.1] * 3, [0.2] * 3)  # whose means are rounded
    with pytest.raises(ModelError, match="width=0"):
        two_samples([1.0, 2.0], [2.0, 1.0], width=0)


# Screening


def test_a_screen_finds_what_tells_and_not_what_does_not():
    random = np.random.default_rng(0)
    y = random.integers(2, size=200)
    X = pd.DataFrame({"noise": random.normal(size=200), "number": y + random.normal(size=200),
                      "word": np.where(random.random(200) < 0.8, y, 1 - y).astype(str),
                      "coin": random.integers(2, size=200), "same": 3.0})
    found = screen(X, y)
    assert set(found.index[:2]) == {"number", "word"}
    assert (found["probability"][:2] > 0.999).all() and (found["probability"][3:] <= 0.5).all()
    assert found.loc["word", "kind"] == "categories" and found.loc["number", "kind"] == "number"
    assert found.loc["same", "log_bayes_factor"] == 0


def test_what_every_row_has_of_its_own_is_no_evidence():
    """A category that was met once says nothing of another row; how often each was met is not what
    is asked."""
    random = np.random.default_rng(0)
    y = random.integers(2, size=200)
    X = pd.DataFrame({"id": [f"u{i}" for i in range(200)], "day": pd.date_range("2026", periods=200),
                      "side": random.choice(["left", "right"], 200)})
    found = screen(X, y)
    assert found.loc["id", "log_bayes_factor"] == 0
    assert found.loc["day", "kind"] == "number" and found.loc["day", "log_bayes_factor"] < 0
    counts = pd.crosstab(X["side"], y).to_numpy()
    given = [math.lgamma(a + 1) + math.lgamma(b + 1) - math.lgamma(a + b + 2)
             for a, b in (*counts, counts.sum(0))]  # of y's, whose share is uniform
    assert found.loc["side", "log_bayes_factor"] == pytest.approx(given[0] + given[1] - given[2])


def test_a_screen_reads_numbers_however_they_are_held_and_refuses_infinite_ones():
    random = np.random.default_rng(0)
    x = random.normal(size=(30, 2))
    right = screen(x, x @ [1.0, 2.0])
    held = screen(pd.DataFrame(x.astype(object)), pd.array(x @ [1.0, 2.0], "Float64"))
    pd.testing.assert_frame_equal(held, right)
    x[3, 1] = np.inf
    with pytest.raises(DataError, match="column 1 is infinite in row 3"):
        screen(x, x[:, 0])


def test_information_is_that_of_the_counts_and_of_a_normal_pair():
    from sklearn.metrics import mutual_info_score

    random = np.random.default_rng(1)
    a, b = random.integers(3, size=80), random.integers(4, size=80)
    found = screen(pd.DataFrame({"a": a.astype(str)}), b.astype(str))
    assert found["information"].iloc[0] == pytest.approx(mutual_info_score(a, b), rel=1e-10)
    x = random.normal(size=60)
    y = x + random.normal(size=60)
    r2 = np.corrcoef(x, y)[0, 1] ** 2
    assert screen(x[:, None], y)["information"].iloc[0] == pytest.approx(-0.5 * np.log1p(-r2))


def test_the_factor_of_a_pair_of_numbers_is_the_integral_over_g():
    """Liang et al. (2008), equations 6 and 11 with a = 3."""
    random = np.random.default_rng(2)
    x = random.normal(size=30)
    y = 0.5 * x + random.normal(size=30)
    r2, n = np.corrcoef(x, y)[0, 1] ** 2, 30
    integral = quad(lambda g: (1 + g) ** ((n - 2) / 2) * (1 + g * (1 - r2)) ** (-(n - 1) / 2)
                    * 0.5 * (1 + g) ** -1.5, 0, np.inf, limit=400)[0]
    found = screen(x[:, None], y)["log_bayes_factor"].iloc[0]
    assert found == pytest.approx(math.log(integral), rel=1e-6)


def test_a_normal_with_a_normal_gamma_prior_is_a_chain_of_students():
    z, total, past = np.array([0.3, -1.0, 2.0]), 0.0, []
    for value in z:
        n, mean = len(past), np.mean(past) if past else 0.0
        square = ((np.array(past) - mean) ** 2).sum() if past else 0.0
        strength, shape = 1.0 + n, 1.0 + n / 2
        rate = 1.0 + 0.5 * square + 0.5 * n * mean**2 / strength
        total += stats.t(2 * shape, n * mean / strength,
                         np.sqrt(rate * (strength + 1) / (shape * strength))).logpdf(value)
        past.append(value)
    assert screening.log_normal_gamma(z) == pytest.approx(total, rel=1e-12)


# Rules


def baskets():
    random = np.random.default_rng(0)
    bread = random.random(300) < 0.5
    butter = np.where(bread, random.random(300) < 0.8, random.random(300) < 0.2)
    return pd.DataFrame({"bread": bread, "butter": butter, "milk": random.random(300) < 0.4})


def test_rules_have_the_posterior_of_their_counts():
    table = baskets()
    found = association_rules(table, [("bread", "butter"), ("bread", "milk"), ("bread",)])
    assert len(found) == 4 and set(found["left"].iloc[0] | found["right"].iloc[0]) == {"bread",
                                                                                      "butter"}
    rule = found[found["left"] == frozenset({"bread"})].iloc[0]
    yes, all_left = (table.bread & table.butter).sum(), table.bread.sum()
    assert rule.baskets == yes
    assert rule.confidence == pytest.approx((yes + 1) / (all_left + 2))
    assert rule.confidence_low == pytest.approx(stats.beta(yes + 1, all_left - yes + 1).ppf(0.025))
    counted = yes * 300 / (all_left * table.butter.sum())
    assert rule.lift_low < counted < rule.lift_high and rule.lift_above_1 > 0.999
    milk = found[found["right"] == frozenset({"milk"})].iloc[0]
    assert 0.01 < milk.lift_above_1 < 0.99
    sure = association_rules(table, [("bread", "butter"), ("bread", "milk")], least_lift=1.0)
    assert len(sure) == 2


def test_lift_intervals_hold_the_truth_as_often_as_they_say():
    """Cells drawn from the prior, counts from the cells: 90% intervals hold the lift in 90%."""
    random, held = np.random.default_rng(3), 0
    for i in range(100):
        p = random.dirichlet(np.ones(4))
        cells = random.multinomial(40, p)
        a = np.repeat([1, 1, 0, 0], cells)
        b = np.repeat([1, 0, 1, 0], cells)
        found = association_rules(pd.DataFrame({"a": a, "b": b}), [("a", "b")], level=0.9, seed=i)
        lift = p[0] / (p[:2].sum() * (p[0] + p[2]))
        held += found["lift_low"].iloc[0] < lift < found["lift_high"].iloc[0]
    assert 82 < held < 98


def test_sets_of_mlxtend_are_taken_and_strangers_refused():
    table = baskets()
    sets = pd.DataFrame({"support": [0.4], "itemsets": [frozenset({"milk", "bread"})]})
    assert len(association_rules(table, sets)) == 2
    with pytest.raises(DataError, match="contains 'tea', which is not a column"):
        association_rules(table, [("bread", "tea")])
    with pytest.raises(DataError, match="row 2 of column 'milk' has the value 7"):
        association_rules(table.astype(int).assign(milk=[0, 1, 7, *[0] * 297]), [("bread", "milk")])


def test_sums_of_rows_and_columns_are_no_counts():
    table = pd.crosstab(R.integers(0, 2, 50), R.integers(0, 3, 50), margins=True)
    with pytest.raises(DataError, match="last row and column .* are the sums"):
        dependence(table)


def test_screens_and_rules_take_tables_of_any_library():
    polars = pytest.importorskip("polars")
    table = pd.DataFrame({"a": R.normal(size=40), "b": R.integers(0, 2, 40)})
    ours, other = (screen(each, table["a"] + 1.0) for each in (table, polars.from_pandas(table)))
    pd.testing.assert_frame_equal(ours, other)
    baskets = pd.DataFrame(R.random((30, 2)) < 0.5, columns=["p", "q"])
    pd.testing.assert_frame_equal(association_rules(baskets, [{"p", "q"}]),
                                  association_rules(polars.from_pandas(baskets), [{"p", "q"}]))
