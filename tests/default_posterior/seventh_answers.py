"""Questions about new rows after a fit of a model of seventh_models.py by default, and their answers
by draws of NumPyro's NUTS.

    python tests/default_posterior/seventh_answers.py        # computes and stores seventh_answers.json

`ask` takes a fit; `of` takes draws (n, …) by site, in float64, and returns an array whose mean over
draws is the answer (of "log" in the name: the logarithm of the mean).
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.special as sp
import scipy.stats as st
from collection import logistic

STORED = Path(__file__).with_suffix(".json")
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(40)
WEIGHTS = WEIGHTS / WEIGHTS.sum()


class Question(NamedTuple):
    """A question about new rows.

    Attributes:
        model: its name in seventh_models.py.
        ask: fit → the answer.
        of: draws → the answer of each draw.
        close: how far off the answer may be, of probabilities in absolute numbers, of means in shares.
    """

    model: str
    ask: Callable[[Any], np.ndarray]
    of: Callable[[Mapping[str, np.ndarray]], np.ndarray]
    close: float = 0.03


QUESTIONS: dict[str, Question] = {}


def about(model: str, ask: Callable, close: float = 0.03) -> Callable:
    """A decorator that adds a question; the function is its answer by draws."""
    def add(of: Callable) -> Callable:
        QUESTIONS[of.__name__] = Question(model, ask, of, close)
        return of
    return add


def column(values: np.ndarray) -> np.ndarray:
    """Draws beside rows: (n, 1)."""
    return np.asarray(values)[:, None]


def normal(seed: int, count: int) -> np.ndarray:
    """Of each draw a standard normal number, of a group that was not there."""
    return np.random.default_rng(seed).normal(size=count)


# ---- means and probabilities ----------------------------------------------------------------------

HURDLE = {"shop": [0, 3, 5], "discount": [0.1, 0.5, 0.9]}


@about("items_behind_a_hurdle", lambda fit: fit.predict(HURDLE, "items"))
def mean_behind_a_hurdle(d):
    rate = np.exp(column(d["b"][:, 0]) + column(d["b"][:, 1]) * HURDLE["discount"])
    return logistic(column(d["a"]) + d["u"][:, HURDLE["shop"]]) * rate / -np.expm1(-rate)


@about("items_behind_a_hurdle", lambda fit: np.exp(fit.log_prob({**HURDLE, "items": [0, 2, 4]})), 0.02)
def probabilities_behind_a_hurdle(d):
    rate = np.exp(column(d["b"][:, 0]) + column(d["b"][:, 1]) * HURDLE["discount"])
    comes = logistic(column(d["a"]) + d["u"][:, HURDLE["shop"]])
    own = comes * st.poisson.pmf([0, 2, 4], rate) / -np.expm1(-rate)
    return np.where(np.array([True, False, False]), 1 - comes, own)


FIELDS = {"field": [1, 4], "nutrient": [-1.0, 1.0]}


@about("eggs_and_survival_of_fields", lambda fit: fit.predict(FIELDS, "eggs"), 0.06)  # few draws
def mean_of_eggs(d):
    return np.exp(column(d["a"][:, 0]) + column(d["b"][:, 0]) * FIELDS["nutrient"] + d["u"][:, [1, 4], 0])


@about("eggs_and_survival_of_fields", lambda fit: fit.predict_proba(FIELDS, "alive")[:, 1])
def share_of_survivors(d):
    return logistic(column(d["a"][:, 1]) + column(d["b"][:, 1]) * FIELDS["nutrient"] + d["u"][:, [1, 4], 1])


AGES = np.array([0.2, 0.7])
STATES = {"age": AGES, "basis": np.maximum(AGES[:, None] - np.linspace(0.15, 0.85, 5), 0), "village": [2, 5]}


@about("states_by_a_broken_line", lambda fit: fit.predict_proba(STATES, "state"))
def probabilities_of_states(d):
    eta = (column(d["b"]) * AGES + (column(d["wiggle"]) * d["w"]) @ STATES["basis"].T
           + column(d["tau"]) * d["u"][:, [2, 5]])
    below = logistic(sp.logit(np.cumsum(d["share"], 1)[:, None, :2]) - eta[..., None])
    return np.diff(below, prepend=0, append=1)


PLANTS = {"plot": [0, 3], "year": [2, 6], "area": [1.0, 2.0], "moist": [np.nan, 1.0]}


@about("plants_with_missing_moisture", lambda fit: fit.predict(PLANTS, "plants"), 0.06)
def plants_of_a_dry_record(d):
    eta = column(d["a"]) + d["u"][:, [0, 3]] + d["v"][:, [2, 6]]
    return np.array([1.0, 2.0]) * np.exp(eta + np.stack([d["b"] ** 2 / 2, d["b"]], 1))


SMOKERS = {"town": [0, 4, 2], "fev": [3.0, 2.4, 2.0]}


@about("smoking_with_missing_answers", lambda fit: fit.predict_proba(SMOKERS, "smoke"))
def smoking_by_breath(d):
    mean = d["mean"][:, None] + d["u"][:, [0, 4, 2], None]
    log = np.log(d["shares"])[:, None] + st.norm.logpdf(np.array(SMOKERS["fev"])[:, None], mean,
                                                        d["sigma"][:, None, None])
    return log  # the answer is their softmax, averaged over draws by the share of each: see stored()


@about("smoking_with_missing_answers", lambda fit: fit.log_prob({**SMOKERS, "smoke": [np.nan] * 3}))
def log_breath_alone(d):
    return np.exp(smoking_by_breath(d)).sum(-1)


HOLED = {"school": [0, 1], "right": [[1, 1, np.nan, np.nan, 0], [0, np.nan, 0, 1, np.nan]]}


@about("items_of_two_schools_with_holes", lambda fit: fit.log_prob(HOLED))
def log_of_answers_with_holes(d):
    right = np.array(HOLED["right"])
    able = column(d["shift"]) * np.array([0, 1]) + NODES[:, None, None]
    p = logistic(d["slope"][:, None] * (able[..., None] - d["hard"][:, None]))
    own = np.where(np.isnan(right), 1.0, np.where(right == 1, p, 1 - p)).prod(-1)
    return np.tensordot(WEIGHTS, own, 1)


BASKETS = {"shop": [0, 2, 4], "euro": [14.0, 22.0, 18.0]}


@about("baskets_small_and_big", lambda fit: fit.log_prob(BASKETS))
def log_of_baskets(d):
    big = logistic(d["l"])[:, [0, 2, 4]]
    own = st.gamma.pdf(np.array(BASKETS["euro"])[:, None], d["shape"][:, None],
                       scale=(d["mean"] / d["shape"])[:, None])
    return (1 - big) * own[..., 0] + big * own[..., 1]


@about("baskets_small_and_big", lambda fit: fit.predict({"shop": [0, 9], "euro": [np.nan] * 2}, "euro",
                                                        unknown="new"), 0.06)
def mean_basket_of_a_new_shop(d):
    new = d["m"] + d["tau"] * normal(1, len(d["m"]))
    big = logistic(np.stack([d["l"][:, 0], new], 1))
    return (1 - big) * d["mean"][:, :1] + big * d["mean"][:, 1:]


GAMES = {"home": [0, 3], "away": [2, 4], "round_": [4, 1]}


@about("teams_whose_form_walks", lambda fit: fit.predict_proba(GAMES, "won")[:, 1])
def home_wins(d):
    move = np.concatenate([np.zeros_like(d["move"][:, :1]), np.cumsum(d["move"], 1)], 1)
    form = d["first"][:, None] + d["step"][:, None, None] * move
    return logistic(column(d["edge"]) + form[:, [4, 1], [0, 3]] - form[:, [4, 1], [2, 4]])


@about("slopes_with_student_errors_and_gaps",
       lambda fit: np.exp(fit.log_prob({"ring": [0, 9], "dose": [0.5, 1.0], "y": [2.0, 3.0]}, unknown="new")))
def density_of_a_new_ring(d):
    z = np.random.default_rng(2).normal(size=(50, len(d["b"]), 2))
    new = d["b"] + np.einsum("nij,snj->sni", d["sd"][..., None] * d["lower"], z)
    known = st.t.pdf(2.0, d["df"], d["u"][:, 0, 0] + 0.5 * d["u"][:, 0, 1], d["sigma"])
    return np.stack([known, st.t.pdf(3.0, d["df"], new[..., 0] + new[..., 1], d["sigma"]).mean(0)], 1)


@about("pairs_of_which_one_is_lost",
       lambda fit: fit.predict({"clinic": [0, 3], "both": [[2.0, np.nan], [0.0, np.nan]]}, "both")[:, 1])
def the_lost_part_of_a_pair(d):
    """Given the first part, whose density weighs the draws: see stored()."""
    x, mean = np.array([2.0, 0.0]), d["mu"][:, None] + d["u"][:, [0, 3], None]
    slope = d["lower"][:, 1, 0] * d["sd"][:, 1] / d["sd"][:, 0]
    return mean[..., 1] + column(slope) * (x - mean[..., 0])


def first_part(d):
    return st.norm.pdf(np.array([2.0, 0.0]), d["mu"][:, :1] + d["u"][:, [0, 3]], d["sd"][:, :1])


def answer(name: str, d: Mapping[str, np.ndarray]) -> np.ndarray:
    """The answer by draws; new rows that are partly observed weigh them."""
    own = QUESTIONS[name].of(d)
    if name == "smoking_by_breath":
        joint = np.exp(own).mean(0)
        return joint / joint.sum(-1, keepdims=True)
    if name == "the_lost_part_of_a_pair":
        weight = first_part(d)
        return (own * weight).mean(0) / weight.mean(0)
    return np.log(own.mean(0)) if name.startswith("log_") else own.mean(0)


def main() -> None:
    import jax
    import new_truths

    jax.config.update("jax_enable_x64", True)
    kept: dict[str, Mapping[str, np.ndarray]] = {}
    found = {}
    for name, question in QUESTIONS.items():
        if question.model not in kept:
            draws, _ = new_truths.sampler(question.model)(0.99)
            kept[question.model] = {site: np.reshape(values, (-1, *values.shape[2:]))
                                    for site, values in draws.items()}
        found[name] = new_truths.rounded(answer(name, kept[question.model]), 5)
    lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in found.items()]
    STORED.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
