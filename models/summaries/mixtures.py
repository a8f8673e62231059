"""Tables of mixtures, discriminants, naive Bayes and latent classes: shares, means, standard
deviations, correlations and probabilities, by component or class.

Variables are rows and components columns, as mclust and poLCA print them.
"""

from collections.abc import Sequence
from functools import partial

import jax.numpy as jnp
import numpy as np

from probml.errors import ModelError, listed
from probml.interface.showing.estimates import Estimates, Quantity
from probml.interface.showing.summary import Table
from probml.models.frames.covariances import COVARIANCES, canonical
from probml.numerics.process.libraries import pd
from probml.typing import DataLike

CATEGORIES = "Probabilities of categories"


def groups(estimates: Estimates, site: str, size: int, unlabelled: str = "component") -> DataLike:
    """The components, or classes where they have labels."""
    named = len(estimates.fit.names.get(site, ())) == size
    return estimates.labels(site, size, "class" if named else unlabelled)


def shares(estimates: Estimates, index: "pd.Index", name: str = "weights",
           heading: str = "Mixing proportions") -> Table:
    """A row per component."""
    return estimates.across(heading, index, ["share"], estimates.of(name))


def by_group(estimates: Estimates, heading: str, variables: Sequence, index: "pd.Index",
             quantity: Quantity) -> Table:
    """Variables in rows, components in columns, of an array (components, variables)."""
    table = quantity.map(lambda array: np.reshape(array, (len(index), -1)).T)
    return estimates.across(heading, variables, index, table)


def _deviations(shape: int, precision):
    """Standard deviations of a precision matrix (shape 2), vector (1) or number (0)."""
    if shape < 2:
        return precision**-0.5
    return jnp.sqrt(jnp.diagonal(jnp.linalg.inv(precision), axis1=-2, axis2=-1))


def _correlations(pairs, precision):
    covariance = jnp.linalg.inv(precision)
    sd = jnp.sqrt(jnp.diagonal(covariance, axis1=-2, axis2=-1))
    return (covariance / sd[..., :, None] / sd[..., None, :])[..., pairs[0], pairs[1]]


def scatter(estimates: Estimates, variables: list, index: "pd.Index", name: str = "precision",
            covariance: str = "full") -> list[Table]:
    """Standard deviations and correlations of a precision of one of gaussian_mixture's shapes.

    Raises:
        ModelError: an unknown shape, of a model that has not been traced yet.
    """
    tied, kind = covariance.startswith("tied"), covariance.removeprefix("tied").strip() or "full"
    shape = {"full": 2, "diagonal": 1, "spherical": 0}.get(kind)
    if shape is None:
        raise ModelError(f"covariance={covariance!r:.60}: expected one of {listed(COVARIANCES)}")
    columns = pd.Index(["all"], name=index.name) if tied else index
    rows = ["every variable"] if shape == 0 and len(variables) > 1 else variables
    tables = [by_group(estimates, "Standard deviations", rows, columns,
                       estimates.function(partial(_deviations, shape), name))]
    if shape == 2 and len(variables) > 1:
        pairs = np.triu_indices(len(variables), 1)
        labels = [f"{variables[i]}, {variables[j]}" for i, j in zip(*pairs, strict=True)]
        tables.append(by_group(estimates, "Correlations", labels, columns,
                               estimates.function(partial(_correlations, pairs), name)))
    return tables


def gaussian_tables(estimates: Estimates) -> list[Table]:
    """Tables of gaussian_mixture: proportions, means, standard deviations, correlations."""
    k, d = estimates.values["mean"].shape
    index, variables = (groups(estimates, "z", k),
                        estimates.columns("x", d, ("mean", 1)))
    heading = "Mixing proportions" if index.name == "component" else "Class proportions"
    return [shares(estimates, index, heading=heading),
            by_group(estimates, "Means", variables, index, estimates.of("mean")),
            *scatter(estimates, variables, index, "precision",
                     canonical(estimates.settings["covariance"]))]


def nested_tables(estimates: Estimates) -> list[Table]:
    """Tables of mixture_of_mixtures: components in classes."""
    classes, k, d = estimates.values["mean"].shape
    outer = groups(estimates, "class", classes, "class")
    index = pd.MultiIndex.from_product([outer, range(k)], names=["class", "component"])
    variables = estimates.columns("x", d, ("mean", 2))
    return [shares(estimates, outer, heading="Class proportions"),
            estimates.across("Mixing proportions by class", outer,
                             pd.Index(range(k), name="component"), estimates.of("shares")),
            by_group(estimates, "Means", variables, index, estimates.of("mean")),
            *scatter(estimates, variables, index, "precision",
                     canonical(estimates.settings["covariance"]))]


def _inverse_root(value):
    return value**-0.5


# kind of a feature → its parameters: (site's ending, heading, function of it)
_NUMBERS = {
    "normal": (("mean", "Means", None), ("precision", "Standard deviations", _inverse_root)),
    "poisson": (("rate", "Poisson rates", None),),
    "exponential": (("rate", "Exponential rates", None),),
    "bernoulli": (("probs", "Probabilities of 1", None),),
    "geometric": (("probs", "Probabilities of stopping", None),),
    "multinomial": (("probs", "Probabilities of each column", None),),
}


def naive_bayes_tables(estimates: Estimates) -> list[Table]:
    """Tables of naive_bayes, also of latent classes and mixtures of columns of several kinds."""
    settings = estimates.settings
    target, size = settings["target"], settings["classes"]
    index = groups(estimates, target, size, "class" if target == "class" else "component")
    heading = "Class proportions" if index.name == "class" else "Mixing proportions"
    out = [shares(estimates, index, heading=heading)]
    parts: dict[str, list[tuple[list, Quantity]]] = {}
    tables = []
    for name, feature in settings["features"].items():
        kind = (feature if isinstance(feature, str) else feature[0]
                if isinstance(feature, tuple | list) else "categorical")
        if kind == "categorical":
            tables.append(_categories(estimates, name, index))
            continue
        shape = estimates.values[f"{name}_{_NUMBERS[kind][0][0]}"].shape[1:]
        variables = estimates.columns(name, int(np.prod(shape, dtype=int)))
        for ending, title, function in _NUMBERS[kind]:
            site = f"{name}_{ending}"
            values = estimates.of(site) if function is None else estimates.function(function, site)
            flat = values.map(lambda each: np.reshape(each, (size, -1)))
            parts.setdefault(title, []).append((variables, flat))
    for title, blocks in parts.items():
        joined = Quantity.concatenated([each for _, each in blocks], 1)
        out.append(by_group(estimates, title, [v for names, _ in blocks for v in names], index,
                            joined))
    if tables:
        out.append(Table.concatenated(CATEGORIES, tables))
    return out


def _categories(estimates: Estimates, name: str, index: "pd.Index") -> Table:
    """P(column = category | class): rows (column, category)."""
    shape = estimates.values[f"{name}_probs"].shape[1:]
    states, count = shape[-1], int(np.prod(shape[:-1], dtype=int))
    columns = estimates.columns(name, count)
    known = estimates.categories.get(name)
    if known is None:
        known = [tuple(estimates.labels(name, states, "category"))] * count
    rows = pd.MultiIndex.from_tuples(
        [(column, label) for column, own in zip(columns, known, strict=True)
         for label in (*own, *["(another)"] * (states - len(own)))], names=["column", "category"])
    estimates.table_names[f"{name}_probs"] = CATEGORIES
    return by_group(estimates, "", rows, index, estimates.of(f"{name}_probs"))


def topic_tables(estimates: Estimates, top: int = 10) -> list[Table]:
    """Tables of latent_dirichlet: the most probable words of each topic."""
    topic = np.asarray(estimates.values["topic"])
    estimates.covered.update(("topic", "share"))
    order = np.argsort(-topic, 1)[:, :top]
    names = estimates.columns("word", topic.shape[1], ("topic", 1))
    mean = np.asarray(estimates.values["share"]).mean(0)
    index = pd.Index(range(len(topic)), name="topic")
    return [Table("Topics", pd.DataFrame(
        {"share": mean, "most probable words": [", ".join(str(names[j]) for j in row)
                                                for row in order]}, index=index))]
