"""Item response: n persons answer items, each by one ability z ~ N(0, 1) that is integrated out.

    logit p(y_ij = 1 | z_i) = a_j z_i + c_j           two parameters an item (2PL)
    logit p(y_ij = 1 | z_i) = a z_i + c_j             one discrimination for all (1PL, Rasch)

The ability is a number of the row, and the function says no more of it: the integral is by
quadrature (latents/quadrature.py), unseen answers drop out, and everything asked of a fit is exact
to the nodes: abilities `impute(data)["ability"]` (expected a posteriori), `conditional`, draws.
A difficulty is −c_j / a_j. a is positive: turn items round on which the able answer 0.

Sources: Rasch (1960); Birnbaum (1968); Bock & Lieberman (1970), "Fitting a response model for n
dichotomously scored items".
"""

import numpyro.distributions as dist
from numpyro import deterministic, sample

import probml
from probml.errors import listed
from probml.models.summaries.factors import item_tables

MODELS = ("1pl", "2pl")


@probml.model
def item_response(items: int, kind: str = "2pl", spread: float = 1.0, easiness_scale: float = 5.0):
    """Answers 0 and 1 to items. Sites: `discrimination` (items,), of "1pl" (), `easiness` (items,),
    c; in every row `ability` () and `y` (items,). Computed: `difficulty` (items,).

    Args:
        items: how many.
        kind: "2pl", a discrimination an item, or "1pl", one for all.
        spread: of the logarithm of a discrimination, whose prior median is 1.
        easiness_scale: prior standard deviation of c.

    Raises:
        ModelError: another kind.
    """
    if kind not in MODELS:
        raise probml.ModelError(f"item_response(kind={kind!r}): expected one of {listed(MODELS)}")
    shape = [items] if kind == "2pl" else []
    prior = dist.LogNormal(0.0, spread)
    a = sample("discrimination", prior.expand(shape).to_event(1) if shape else prior)
    easy = sample("easiness", dist.Normal(0.0, easiness_scale).expand([items]).to_event(1))
    deterministic("difficulty", -easy / a)
    with probml.rows():
        ability = sample("ability", dist.Normal(0.0, 1.0))
        sample("y", dist.Bernoulli(logits=a * ability[..., None] + easy).to_event(1))


item_response.summarized(item_tables)
