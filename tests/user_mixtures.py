"""Models with unseen discrete sites as users paste them: mixtures, classes, annotators,
networks."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
from numpyro import factor, plate, sample

import probml
from user_truth import Case


@probml.model
def ordered_mixture():
    w = sample("w", dist.Dirichlet(jnp.full(2, 2.0)))
    mu = sample("mu", dist.TransformedDistribution(dist.Normal(0, 3).expand([2]).to_event(1),
                                                   dist.transforms.OrderedTransform()))
    sigma = sample("sigma", dist.InverseGamma(3.0, 2.0))
    with probml.rows():
        z = sample("z", dist.Categorical(w))
        sample("y", dist.Normal(mu[z], sigma))


@probml.model
def same_family():
    """The mixture inside the distribution: nothing discrete is unseen."""
    w = sample("w", dist.Dirichlet(jnp.full(2, 2.0)))
    mu = sample("mu", dist.Normal(jnp.array([-2.0, 2.0]), 2.0).to_event(1))
    sigma = sample("sigma", dist.InverseGamma(3.0, 2.0))
    with probml.rows():
        sample("y", dist.MixtureSameFamily(dist.Categorical(w), dist.Normal(mu, sigma)))


@probml.model
def general_mixture():
    p = sample("p", dist.Beta(2.0, 2.0))
    mu, rate = sample("mu", dist.Normal(3.0, 1.0)), sample("rate", dist.Gamma(2.0, 1.0))
    with probml.rows():
        parts = [dist.Exponential(rate), dist.LogNormal(mu, 0.3)]
        sample("y", dist.MixtureGeneral(dist.Categorical(probs=jnp.stack([p, 1 - p])), parts))


def two_humps(rng):
    return {"y": np.concatenate([rng.normal(-2, 0.7, 30), rng.normal(2, 0.7, 40)])}


@probml.model
def zero_inflated_by_hand(x):
    p, b = sample("p", dist.Beta(2, 2)), sample("b", dist.Normal(0, 1).expand([2]).to_event(1))
    with probml.rows():
        fishing = sample("fishing", dist.Bernoulli(p))
        sample("fish", dist.Poisson(jnp.where(fishing == 1, jnp.exp(b[0] + b[1] * x), 1e-6)))


def fish(rng):
    x = rng.normal(size=80)
    return {"x": x, "fish": rng.poisson(np.exp(1 + 0.5 * x)) * (rng.random(80) > 0.3)}


@probml.model
def regressions_mixed(x):
    w = sample("w", dist.Dirichlet(jnp.full(2, 2.0)))
    with plate("parts", 2):
        a, b = sample("a", dist.Normal(0, 3)), sample("b", dist.Normal(0, 3))
        sigma = sample("sigma", dist.InverseGamma(3.0, 1.0))
    with probml.rows():
        z = sample("z", dist.Categorical(w))
        sample("y", dist.Normal(a[z] + b[z] * x, sigma[z]))


def crossing(rng):
    x, z = rng.uniform(-2, 2, 80), rng.integers(0, 2, 80)
    return {"x": x, "y": np.where(z == 1, 1 + 2 * x, -1 - x) + 0.4 * rng.normal(size=80)}


@probml.model
def good_and_bad_points(x):
    """Outliers (Hogg, Bovy & Lang 2010): a point is of the line, or of a wide background."""
    a, b = sample("a", dist.Normal(0, 3)), sample("b", dist.Normal(0, 3))
    bad = sample("bad", dist.Beta(1.5, 6.0))
    with probml.rows():
        out = sample("out", dist.Bernoulli(bad))
        sample("y", dist.Normal((1 - out) * (a + b * x), jnp.where(out == 1, 10.0, 0.5)))


def with_outliers(rng):
    x = rng.normal(size=50)
    y = 1 + 2 * x + 0.5 * rng.normal(size=50)
    return {"x": x, "y": np.where(np.arange(50) % 9 == 0, 10 * rng.normal(size=50), y)}


@probml.model
def latent_classes():
    w = sample("w", dist.Dirichlet(jnp.full(2, 2.0)))
    with plate("class", 2):
        p = sample("p", dist.Beta(2.0, 2.0).expand([4]).to_event(1))
    with probml.rows():
        z = sample("z", dist.Categorical(w))
        sample("item", dist.Bernoulli(p[z]).to_event(1))


@probml.model
def latent_classes_by_plate():
    w = sample("w", dist.Dirichlet(jnp.full(2, 2.0)))
    with plate("items", 4, dim=-1), plate("class", 2, dim=-2):
        p = sample("p", dist.Beta(2.0, 2.0))
    with probml.rows():
        z = sample("z", dist.Categorical(w))
        with plate("item_of_row", 4):
            sample("item", dist.Bernoulli(p[z, jnp.arange(4)[:, None]]))


def items(rng):
    z = rng.integers(0, 2, 60)
    return {"item": (
        rng.random((60, 4)) < np.array([[0.9, 0.8, 0.2, 0.3], [0.2, 0.3, 0.9, 0.7]])[z]
    ).astype(int)}


@probml.model
def dawid_skene_wide():
    """A row is an item, its columns are the annotators."""
    prevalence = sample("prevalence", dist.Dirichlet(jnp.full(2, 2.0)))
    with plate("annotator", 3, dim=-1), plate("truth", 2, dim=-2):
        table = sample("table", dist.Dirichlet(jnp.full(2, 2.0)))
    with probml.rows():
        c = sample("c", dist.Categorical(prevalence))
        for j in range(3):
            sample(f"vote{j}", dist.Categorical(table[c, j]))


def votes(rng):
    c = (rng.random(50) < 0.4).astype(int)
    return {f"vote{j}": np.where(rng.random(50) < 0.8, c, 1 - c) for j in range(3)}


@probml.model
def dawid_skene_long(item, annotator):
    """A row is a vote; what an item is stands outside rows."""
    prevalence = sample("prevalence", dist.Dirichlet(jnp.full(2, 2.0)))
    with plate("annotators", 3, dim=-1), plate("truth", 2, dim=-2):
        table = sample("table", dist.Dirichlet(jnp.full(2, 2.0)))
    with plate("items", 6):
        c = sample("c", dist.Categorical(prevalence))
    with probml.rows():
        sample("vote", dist.Categorical(table[c[item], annotator]))


def long_votes(rng):
    item, annotator = (m.ravel() for m in np.meshgrid(np.arange(6), np.arange(3), indexing="ij"))
    c = np.array([0, 0, 1, 0, 1, 1])[item]
    return {"item": item, "annotator": annotator, "vote": np.where(rng.random(18) < 0.85, c, 1 - c)}


@probml.model
def clusters_of_groups(group):
    """Groups fall into classes; rows read the class of their group."""
    mu = sample("mu", dist.Normal(0, 5).expand([2]).to_event(1))
    with plate("groups", 5):
        c = sample("c", dist.Bernoulli(0.5))
    with probml.rows():
        sample("y", dist.Normal(mu[c[group]], 1.0))


def clustered(rng):
    group = np.repeat(np.arange(5), 6)
    return {"group": group, "y": np.array([-3.0, 3, 3, -3, 3])[group] + rng.normal(size=30)}


@probml.model
def naive_bayes_partly_labelled():
    w = sample("w", dist.Dirichlet(jnp.full(2, 2.0)))
    with plate("class", 2):
        m, s = sample("m", dist.Normal(0, 3)), sample("s", dist.InverseGamma(3.0, 2.0))
        p = sample("p", dist.Beta(2, 2))
    with probml.rows():
        kind = sample("kind", dist.Categorical(w))
        sample("height", dist.Normal(m[kind], s[kind]))
        sample("striped", dist.Bernoulli(p[kind]))


def zoo_frame(rng):
    kind = rng.integers(0, 2, 60)
    height = np.where(kind == 1, 3.0, 0.0) + rng.normal(size=60)
    height[5] = np.nan
    striped = pd.array((rng.random(60) < np.where(kind == 1, 0.8, 0.1)).astype(object),
                       dtype="boolean")
    striped[7] = pd.NA
    named = np.array(["ass", "zebra"], object)[kind]
    named[::2] = None
    return pd.DataFrame({"kind": named, "height": height, "striped": striped})


def zoo_arrays(frame):
    kind = frame["kind"].map({"ass": 0.0, "zebra": 1.0}).to_numpy(float)
    return {"kind": kind, "height": frame["height"].to_numpy(),
            "striped": frame["striped"].to_numpy(float, na_value=np.nan)}


@probml.model
def gaussian_network():
    """season → rain; height of the river given rain and the river upstream."""
    p = sample("p", dist.Beta(2, 2))
    with plate("seasons", 2):
        wet = sample("wet", dist.Beta(2, 2))
    a, b, s = (sample("a", dist.Normal(0, 3)), sample("b", dist.Normal(0, 3)),
               sample("s", dist.InverseGamma(3.0, 2.0)))
    with probml.rows():
        season = sample("season", dist.Bernoulli(p))
        rain = sample("rain", dist.Bernoulli(wet[season]))
        upstream = sample("upstream", dist.Normal(2.0 * rain, 1.0))
        sample("river", dist.Normal(a * rain + b * upstream, s))


def river(rng):
    season = rng.integers(0, 2, 60)
    rain = (rng.random(60) < np.where(season == 1, 0.8, 0.2)).astype(float)
    upstream = 2 * rain + rng.normal(size=60)
    y = rain + 0.5 * upstream + 0.5 * rng.normal(size=60)
    return {"season": season, "rain": np.where(np.arange(60) % 3 == 0, np.nan, rain),
            "upstream": upstream, "river": y}


@probml.model
def topics():
    """A small latent Dirichlet allocation: a row is a document of four words, its topics' shares
    are outside rows."""
    shares = sample("shares", dist.Dirichlet(jnp.full(2, 2.0)))
    with plate("topic", 2):
        words = sample("words", dist.Dirichlet(jnp.full(5, 1.5)))
    with probml.rows():
        with plate("position", 4):
            z = sample("z", dist.Categorical(shares))
            sample("word", dist.Categorical(words[z]))


@probml.model
def one_topic_a_document():
    shares = sample("shares", dist.Dirichlet(jnp.full(2, 2.0)))
    with plate("topic", 2):
        words = sample("words", dist.Dirichlet(jnp.full(5, 1.5)))
    with probml.rows():
        z = sample("z", dist.Categorical(shares))
        with plate("position", 4):
            sample("word", dist.Categorical(words[z]))


@probml.model
def topics_by_index(document):
    """A row is a word; the shares of its document are read by an index."""
    with plate("documents", 4):
        shares = sample("shares", dist.Dirichlet(jnp.full(2, 2.0)))
    with plate("topic", 2):
        words = sample("words", dist.Dirichlet(jnp.full(5, 1.5)))
    with probml.rows():
        z = sample("z", dist.Categorical(shares[document]))
        sample("word", dist.Categorical(words[z]))


def documents(rng):
    z = rng.integers(0, 2, 20)
    return {"word": np.stack([
        rng.choice(5, 4, p=[[0.5, 0.3, 0.1, 0.05, 0.05], [0.05, 0.05, 0.1, 0.3, 0.5]][k]) for k in z
    ])}


def loose_words(rng):
    document = np.repeat(np.arange(4), 10)
    table = np.array([[0.5, 0.3, 0.1, 0.05, 0.05], [0.05, 0.05, 0.1, 0.3, 0.5]])
    z = (rng.random(40) < np.array([0.9, 0.1, 0.5, 0.8])[document]).astype(int)
    return {"document": document, "word": np.array([rng.choice(5, p=table[k]) for k in z])}


@probml.model
def shared_parent():
    """Two unseen discrete sites of one unseen parent."""
    p = sample("p", dist.Dirichlet(jnp.full(2, 3.0)))
    a_table, b_table = (jnp.array([[0.8, 0.2], [0.3, 0.7]]),
                        jnp.array([[0.6, 0.3, 0.1], [0.1, 0.2, 0.7]]))
    mu = sample("mu", dist.Normal(jnp.array([-3.0, 3.0]), 1.0).to_event(1))
    nu = sample("nu", dist.Normal(jnp.array([-4.0, 0.0, 4.0]), 1.0).to_event(1))
    with probml.rows():
        root = sample("root", dist.Categorical(p))
        a = sample("a", dist.Categorical(a_table[root]))
        b = sample("b", dist.Categorical(b_table[root]))
        sample("x", dist.Normal(mu[a], 1.0))
        sample("y", dist.Normal(nu[b] + 0.5 * a, 1.0))


def siblings(rng):
    root = rng.integers(0, 2, 60)
    a = (rng.random(60) < np.array([0.2, 0.7])[root]).astype(int)
    b = np.array([rng.choice(3, p=[[0.6, 0.3, 0.1], [0.1, 0.2, 0.7]][r]) for r in root])
    return {"x": np.array([-3.0, 3])[a] + rng.normal(size=60),
            "y": np.array([-4.0, 0, 4])[b] + 0.5 * a + rng.normal(size=60)}


@probml.model
def gated_experts(x):
    gate = sample("gate", dist.Normal(0, 2).expand([2]).to_event(1))
    with plate("experts", 2):
        a, b = sample("a", dist.Normal(0, 3)), sample("b", dist.Normal(0, 3))
    with probml.rows():
        z = sample("z", dist.Bernoulli(logits=gate[0] + gate[1] * x))
        sample("y", dist.Normal(a[z] + b[z] * x, 0.5))


@probml.model
def capture_recapture():
    """Data augmentation (Royle & Dorazio 2008): rows are animals seen, and others that may not
    exist."""
    psi, p = sample("psi", dist.Beta(1.5, 1.5)), sample("p", dist.Beta(1.5, 1.5))
    with probml.rows():
        real = sample("real", dist.Bernoulli(psi))
        sample("caught", dist.Binomial(5, probs=p * real))


@probml.model
def occupancy():
    psi, p = sample("psi", dist.Beta(1.5, 1.5)), sample("p", dist.Beta(1.5, 1.5))
    with probml.rows():
        occupied = sample("occupied", dist.Bernoulli(psi))
        with plate("visit", 3):
            sample("detected", dist.Bernoulli(p * occupied))


def visits(rng):
    return {"detected": ((rng.random((50, 1)) < 0.6) & (rng.random((50, 3)) < 0.5)).astype(int)}


def captures(rng):
    return {"caught": np.concatenate([rng.binomial(5, 0.4, 20), np.zeros(20, int)])}


@probml.model
def hardy_weinberg():
    """Blood groups: two unseen alleles, a seen phenotype by a table that is given."""
    q = sample("q", dist.Dirichlet(jnp.full(3, 2.0)))
    group = np.zeros((3, 3, 4))  # alleles A, B, O; groups A, B, AB, O
    for i, j, g in [(0, 0, 0), (0, 2, 0), (2, 0, 0), (1, 1, 1), (1, 2, 1), (2, 1, 1), (0, 1, 2),
                    (1, 0, 2), (2, 2, 3)]:
        group[i, j, g] = 1.0
    with probml.rows():
        mother, father = sample("mother", dist.Categorical(q)), sample("father",
                                                                       dist.Categorical(q))
        sample("group", dist.Categorical(jnp.asarray(group)[mother, father]))


@probml.model
def unseen_total():
    """Counts of an unseen number of at most four: a finite support that is not Categorical."""
    p = sample("p", dist.Beta(2.0, 2.0))
    with probml.rows():
        n = sample("n", dist.DiscreteUniform(1, 4))
        sample("heads", dist.Binomial(5, probs=p * n / 5.0))


@probml.model
def penalised_mixture():
    """An unseen site with a factor that speaks of it: an energy, not a distribution."""
    w = sample("w", dist.Beta(2.0, 2.0))
    mu = sample("mu", dist.Normal(0, 3).expand([2]).to_event(1))
    factor("apart", 0.1 * jnp.square(mu[0] - mu[1]) * (-0.1))
    with probml.rows():
        z = sample("z", dist.Bernoulli(w))
        factor("field", 0.5 * z)
        sample("y", dist.Normal(mu[z], 1.0))


@probml.model
def full_covariances():
    w = sample("w", dist.Dirichlet(jnp.full(2, 2.0)))
    with plate("component", 2):
        mean = sample("mean", dist.Normal(0, 5).expand([2]).to_event(1))
        cov = (sample("cov", dist.InverseWishart(5.0, 2.0 * jnp.eye(2)))
               if hasattr(dist, "InverseWishart") else None)
        if cov is None:
            precision = sample("precision", dist.Wishart(5.0, 0.3 * jnp.eye(2)))
            cov = jnp.linalg.inv(precision)
    with probml.rows():
        z = sample("z", dist.Categorical(w))
        sample("x", dist.MultivariateNormal(mean[z], covariance_matrix=cov[z]))


def clouds(rng):
    z = rng.integers(0, 2, 70)
    x = np.array([[0.0, 0], [4, 3]])[z] + rng.multivariate_normal([0, 0], [[1, 0.5], [0.5, 1]], 70)
    x[::11, 0] = np.nan
    return {"x": x}


@probml.model
def poisson_mixture_by_where():
    low, high = sample("low", dist.Gamma(2.0, 1.0)), sample("high", dist.Gamma(8.0, 1.0))
    p = sample("p", dist.Beta(2, 2))
    with probml.rows():
        z = sample("z", dist.Bernoulli(p))
        rate = jax.lax.select(z == 1, high + jnp.zeros_like(z, float),
                              low + jnp.zeros_like(z, float))
        sample("n", dist.Poisson(rate))


@probml.model
def spike_and_slab(x):
    with plate("columns", 3):
        used = sample("used", dist.Bernoulli(0.5))
        b = sample("b", dist.Normal(0, jnp.where(used == 1, 3.0, 0.1)))
    with probml.rows():
        sample("y", dist.Normal(x @ b, 1.0))


@probml.model
def model_choice(x):
    used = sample("used", dist.Bernoulli(0.5))
    a, b = sample("a", dist.Normal(0, 2)), sample("b", dist.Normal(0, 2))
    with probml.rows():
        sample("y", dist.Normal(a + used * b * x, 1.0))


def weak_line(rng):
    x = rng.normal(size=30)
    return {"x": x, "y": 1 + 0.6 * x + rng.normal(size=30)}


def few_used(rng):
    x = rng.normal(size=(40, 3))
    return {"x": x, "y": x @ [2.0, 0, 0] + rng.normal(size=40)}


CASES = [
    Case(spike_and_slab(), few_used, {"used": 2}),
    Case(model_choice(), weak_line, {"used": 2}),
    Case(ordered_mixture(), two_humps, {"z": 2}),
    Case(same_family(), two_humps),
    Case(general_mixture(), lambda rng: {
        "y": np.concatenate([rng.exponential(1.0, 30), rng.lognormal(3.0, 0.3, 30)])
    }),
    Case(zero_inflated_by_hand(), fish, {"fishing": 2}),
    Case(regressions_mixed(), crossing, {"z": 2}),
    Case(good_and_bad_points(), with_outliers, {"out": 2}),
    Case(latent_classes(), items, {"z": 2}),
    Case(latent_classes_by_plate(), items, {"z": 2}),
    Case(dawid_skene_wide(), votes, {"c": 2}),
    Case(dawid_skene_long(), long_votes, {"c": 2}),
    Case(clusters_of_groups(), clustered, {"c": 2}),
    Case(naive_bayes_partly_labelled(), zoo_frame, {"kind": 2}, plain=zoo_arrays),
    Case(gaussian_network(), river, {"rain": 2}),
    Case(topics(), documents, {"z": 2}),
    Case(one_topic_a_document(), documents, {"z": 2}),
    Case(topics_by_index(), loose_words, {"z": 2}),
    Case(shared_parent(), siblings, {"root": 2, "a": 2, "b": 3}),
    Case(gated_experts(), crossing, {"z": 2}),
    Case(capture_recapture(), captures, {"real": 2}),
    Case(occupancy(), visits, {"occupied": 2}),
    Case(hardy_weinberg(), lambda rng: {"group": rng.choice(4, 80, p=[0.4, 0.1, 0.05, 0.45])},
         {"mother": 3, "father": 3}),
    Case(unseen_total(), lambda rng: {"heads": rng.binomial(5, 0.3, 40)}, {"n": range(1, 5)}),
    Case(penalised_mixture(), two_humps, {"z": 2}),
    Case(full_covariances(), clouds, {"z": 2}),
    Case(poisson_mixture_by_where(),
         lambda rng: {"n": np.concatenate([rng.poisson(1, 30), rng.poisson(9, 30)])}, {"z": 2}),
]
