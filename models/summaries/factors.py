"""Tables of latent factors: loadings, communalities and uniquenesses; item parameters."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np

from probml.interface.showing.estimates import Estimates, Quantity
from probml.interface.showing.summary import Table
from probml.numerics.process.libraries import pd


def canonical(loadings, precision):
    """Loadings (d, k) whose columns are orthogonal in units of the noise, the strongest first, the
    largest entry of each above 0: the same whatever rotation they are given in."""
    scaled = loadings * jnp.sqrt(jnp.broadcast_to(precision, loadings.shape[:1]))[:, None]
    turned = loadings @ jnp.linalg.eigh(scaled.T @ scaled)[1][:, ::-1]
    largest = jnp.take_along_axis(turned, jnp.abs(turned).argmax(0)[None], 0)
    return turned * jnp.where(largest < 0, -1.0, 1.0)


def factor_tables(estimates: Estimates, rotation: Callable | None = None) -> list[Table]:
    """Tables of factor_analysis and probabilistic_pca. Communality is the share of an item's
    variance that the factors explain, uniqueness the rest; both are the same under every rotation.

    Args:
        rotation: (loadings, noise variances) → rotated loadings.
    """
    d, k = estimates.values["loadings"].shape
    items = estimates.columns("x", d, ("loadings", 0))

    def parts(loadings, precision):
        common = (loadings**2).sum(-1)
        total = common + 1 / precision
        return jnp.stack([common / total, 1 - common / total], -1)

    turned = canonical if rotation is None else lambda loadings, precision: rotation(
        np.asarray(canonical(loadings, precision)), np.broadcast_to(1 / precision, (d,)))
    shares = estimates.across("", items, ["communality", "uniqueness"],
                              estimates.function(parts, "loadings", "precision"))
    table = estimates.across("", items, [f"factor {i + 1}" for i in range(k)],
                             estimates.function(turned, "loadings", "precision",
                                                traced=rotation is None))
    estimates.table_names["precision"] = "uniqueness"
    mean = estimates.of("mean")
    sd = estimates.function(lambda loadings, precision: jnp.sqrt(
        (loadings**2).sum(-1) + 1 / precision), "loadings", "precision")
    mean_sd = Quantity.stacked([mean, sd])
    return [Table.concatenated("Loadings", [table, shares], 1),
            estimates.across("Means and standard deviations", items, ["mean", "sd"], mean_sd)]


def item_tables(estimates: Estimates) -> list[Table]:
    """Tables of item_response: discrimination a and difficulty b of each item."""
    estimates.covered.add("easiness")
    d = estimates.values["difficulty"].shape[0]
    items = estimates.columns("y", d, ("difficulty", 0))
    a, b = estimates.of("discrimination"), estimates.of("difficulty")
    slopes = a.map(lambda array: np.broadcast_to(array, (d,)))
    return [estimates.across("Items", items, pd.Index(["discrimination (a)", "difficulty (b)"]),
                             Quantity.stacked([slopes, b]))]
