"""Models of NumPyro's folder of examples, written anew on small data: annotation, recapture, hidden
Markov models, baseball and the rest of those that need no download."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import nn
from jax.scipy.special import expit, logit
from numpyro import handlers, plate, sample
from numpyro.contrib.control_flow import scan
from numpyro.infer.reparam import LocScaleReparam, TransformReparam
from numpyro.ops.indexing import Vindex
from written_elsewhere import table

RNG = np.random.default_rng(0)
CASES, case = table()

# Annotation (Paun et al. 2018): items, annotators at positions, classes

POSITIONS = np.array([0, 0, 1, 2])
NOTES = np.array([[0, 0, 1, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 0, 0], [1, 1, 0, 1]])
annotated = {"positions": POSITIONS, "annotations": NOTES}
few_of_them = {"positions": POSITIONS[:3], "annotations": NOTES[:3, :3]}


def sizes(positions, annotations):
    return int(np.max(positions)) + 1, int(np.max(annotations)) + 1, *annotations.shape


@case(plain={"annotations": NOTES}, annotations=NOTES)
def multinomial_annotation(annotations):
    classes, (items, per) = int(np.max(annotations)) + 1, annotations.shape
    with plate("class", classes):
        zeta = sample("zeta", dist.Dirichlet(jnp.ones(classes)))
    pi = sample("pi", dist.Dirichlet(jnp.ones(classes)))
    with plate("item", items, dim=-2):
        c = sample("c", dist.Categorical(pi))
        with plate("position", per):
            sample("y", dist.Categorical(zeta[c]), obs=annotations)


@case(plain=annotated, **annotated)
def dawid_skene(positions, annotations):
    annotators, classes, items, per = sizes(positions, annotations)
    with plate("annotator", annotators, dim=-2), plate("class", classes):
        beta = sample("beta", dist.Dirichlet(jnp.ones(classes)))
    pi = sample("pi", dist.Dirichlet(jnp.ones(classes)))
    with plate("item", items, dim=-2):
        c = sample("c", dist.Categorical(pi))
        with plate("position", per):
            sample("y", dist.Categorical(Vindex(beta)[positions, c, :]), obs=annotations)


@case(plain=few_of_them, **few_of_them)
def mace(positions, annotations):
    annotators, classes, items, per = sizes(positions, annotations)
    with plate("annotator", annotators):
        epsilon = sample("epsilon", dist.Dirichlet(jnp.full(classes, 10.0)))
        theta = sample("theta", dist.Beta(0.5, 0.5))
    with plate("item", items, dim=-2):
        c = sample("c", dist.Categorical(logits=jnp.zeros(classes)))
        with plate("position", per):
            s = sample("s", dist.Bernoulli(1 - theta[positions]))
            probs = jnp.where(s[..., None] == 0, nn.one_hot(c, classes), epsilon[positions])
            sample("y", dist.Categorical(probs), obs=annotations)


def padded(x):
    return jnp.pad(x, [(0, 0)] * (jnp.ndim(x) - 1) + [(0, 1)])


@case(plain=annotated, **annotated)
def hierarchical_dawid_skene(positions, annotations):
    annotators, classes, items, per = sizes(positions, annotations)
    with plate("class", classes):
        zeta = sample("zeta", dist.Normal(0, 1).expand([classes - 1]).to_event(1))
        omega = sample("omega", dist.HalfNormal(1).expand([classes - 1]).to_event(1))
    with plate("annotator", annotators, dim=-2), plate("class", classes):
        with handlers.reparam(config={"beta": LocScaleReparam(0)}):
            beta = padded(sample("beta", dist.Normal(zeta, omega).to_event(1)))
    pi = sample("pi", dist.Dirichlet(jnp.ones(classes)))
    with plate("item", items, dim=-2):
        c = sample("c", dist.Categorical(pi))
        with plate("position", per):
            sample("y", dist.Categorical(logits=Vindex(beta)[positions, c, :]), obs=annotations)


@case(plain={"annotations": NOTES}, annotations=NOTES)
def item_difficulty(annotations):
    classes, (items, per) = int(np.max(annotations)) + 1, annotations.shape
    with plate("class", classes):
        eta = sample("eta", dist.Normal(0, 1).expand([classes - 1]).to_event(1))
        chi = sample("chi", dist.HalfNormal(1).expand([classes - 1]).to_event(1))
    pi = sample("pi", dist.Dirichlet(jnp.ones(classes)))
    with plate("item", items, dim=-2):
        c = sample("c", dist.Categorical(pi))
        with handlers.reparam(config={"theta": LocScaleReparam(0)}):
            theta = padded(sample("theta", dist.Normal(eta[c], chi[c]).to_event(1)))
        with plate("position", per):
            sample("y", dist.Categorical(logits=theta), obs=annotations)


@case(plain=annotated, **annotated)
def logistic_random_effects(positions, annotations):
    annotators, classes, items, per = sizes(positions, annotations)
    with plate("class", classes):
        zeta = sample("zeta", dist.Normal(0, 1).expand([classes - 1]).to_event(1))
        omega = sample("omega", dist.HalfNormal(1).expand([classes - 1]).to_event(1))
        chi = sample("chi", dist.HalfNormal(1).expand([classes - 1]).to_event(1))
    with plate("annotator", annotators, dim=-2), plate("class", classes):
        with handlers.reparam(config={"beta": LocScaleReparam(0)}):
            beta = padded(sample("beta", dist.Normal(zeta, omega).to_event(1)))
    pi = sample("pi", dist.Dirichlet(jnp.ones(classes)))
    with plate("item", items, dim=-2):
        c = sample("c", dist.Categorical(pi))
        with handlers.reparam(config={"theta": LocScaleReparam(0)}):
            theta = padded(sample("theta", dist.Normal(0, chi[c]).to_event(1)))
        with plate("position", per):
            logits = Vindex(beta)[positions, c, :] - theta
            sample("y", dist.Categorical(logits=logits), obs=annotations)


# Autoregression, by a scan and by a Python loop

SERIES = RNG.normal(size=9).round(2)


@case(y=SERIES)
def autoregression(y):
    a = [sample(f"a{i}", dist.Normal(0, 1)) for i in range(3)]
    sigma = sample("sigma", dist.HalfNormal(1))

    def step(carry, y):
        one, two = carry
        v = sample("y", dist.Normal(a[0] + a[1] * one + a[2] * two, sigma), obs=y)
        return (v, one), v

    scan(step, (y[1], y[0]), y[2:])


@case(y=SERIES)
def autoregression_unrolled(y):
    a = [sample(f"a{i}", dist.Normal(0, 1)) for i in range(3)]
    sigma, before, last, means = sample("sigma", dist.HalfNormal(1)), y[0], y[1], []
    for t in range(2, len(y)):
        mean = a[0] + a[1] * last + a[2] * before
        before, last = last, sample(f"y_{t}", dist.Normal(mean, sigma), obs=y[t])
        means.append(mean)
    numpyro.deterministic("means", jnp.stack(means))


# Baseball (Efron and Morris 1975)

AT_BATS, HITS = np.array([45, 45, 44, 40, 45]), np.array([18, 17, 16, 9, 12])
batting = {"at_bats": AT_BATS, "hits": HITS}


@case(**batting)
def fully_pooled(at_bats, hits=None):
    phi = sample("phi", dist.Uniform(0, 1))
    with plate("players", at_bats.shape[0]):
        return sample("obs", dist.Binomial(at_bats, probs=phi), obs=hits)


@case(**batting)
def not_pooled(at_bats, hits=None):
    players = at_bats.shape[0]
    with plate("players", players):
        phi = sample("phi", dist.Beta(jnp.ones(players), jnp.ones(players)))
        return sample("obs", dist.Binomial(at_bats, probs=phi), obs=hits)


@case(**batting)
def partially_pooled(at_bats, hits=None):
    m, kappa = sample("m", dist.Uniform(0, 1)), sample("kappa", dist.Pareto(1.0, 1.5))
    with plate("players", at_bats.shape[0]):
        phi = sample("phi", dist.Beta(m * kappa, (1 - m) * kappa))
        return sample("obs", dist.Binomial(at_bats, probs=phi), obs=hits)


@case(**batting)
def partially_pooled_with_logit(at_bats, hits=None):
    loc, scale = sample("loc", dist.Normal(-1, 1)), sample("scale", dist.HalfCauchy(1))
    with plate("players", at_bats.shape[0]):
        alpha = sample("alpha", dist.Normal(loc, scale))
        return sample("obs", dist.Binomial(at_bats, logits=alpha), obs=hits)


@case(x=RNG.normal(size=(6, 2)), y=RNG.normal(size=(6, 1)), settings={"hidden": 3})
def network_of_random_weights(x, y, hidden):
    w1 = sample("w1", dist.Normal(jnp.zeros((x.shape[1], hidden)), 1.0))
    w2 = sample("w2", dist.Normal(jnp.zeros((hidden, hidden)), 1.0))
    w3 = sample("w3", dist.Normal(jnp.zeros((hidden, 1)), 1.0))
    out = jnp.tanh(jnp.tanh(x @ w1) @ w2) @ w3
    precision = sample("precision", dist.Gamma(3.0, 1.0))
    with plate("data", x.shape[0]):
        sample("y", dist.Normal(out, 1.0 / jnp.sqrt(precision)).to_event(1), obs=y)


# Capture and recapture (Cormack, Jolly and Seber)

CAUGHT = np.array([[1, 0, 1, 0], [0, 1, 1, 0], [0, 0, 1, 1]])
SEX = np.array([0.0, 1.0, 1.0])
caught = {"capture_history": CAUGHT, "sex": SEX}


def recaptured(capture_history, rho, survival):
    """The scan that all five models share; survival() may sample in every step."""
    animals = capture_history.shape[0]

    def step(carry, y):
        before, z = carry
        phi = survival()
        with plate("animals", animals, dim=-1), handlers.mask(mask=before):
            alive = before * phi * z + (1 - before)
            z = sample("z", dist.Bernoulli(dist.util.clamp_probs(alive)),
                       infer={"enumerate": "parallel"})
            sample("y", dist.Bernoulli(dist.util.clamp_probs(rho * z)), obs=y)
        return (before | y.astype(bool), z), None

    start = capture_history[:, 0].astype(bool), jnp.ones(animals, int)
    scan(step, start, jnp.swapaxes(capture_history[:, 1:], 0, 1))


@case(**caught)
def recapture_fixed(capture_history, sex):
    phi, rho = sample("phi", dist.Uniform(0, 1)), sample("rho", dist.Uniform(0, 1))
    recaptured(capture_history, rho, lambda: phi)


@case(**caught)
def recapture_by_time(capture_history, sex):
    rho = sample("rho", dist.Uniform(0, 1))
    recaptured(capture_history, rho, lambda: sample("phi", dist.Uniform(0, 1)))


@case(**caught)
def recapture_random_by_time(capture_history, sex):
    mean, sigma = sample("phi_mean", dist.Uniform(0, 1)), sample("phi_sigma", dist.Uniform(0, 10))
    rho = sample("rho", dist.Uniform(0, 1))

    def survival():
        with handlers.reparam(config={"phi_logit": LocScaleReparam(0)}):
            return expit(sample("phi_logit", dist.Normal(logit(mean), sigma)))

    recaptured(capture_history, rho, survival)


@case(**caught)
def recapture_by_sex(capture_history, sex):
    male, female = sample("phi_male", dist.Uniform(0, 1)), sample("phi_female", dist.Uniform(0, 1))
    phi, rho = sex * male + (1 - sex) * female, sample("rho", dist.Uniform(0, 1))
    recaptured(capture_history, rho, lambda: phi)


@case(**caught)
def recapture_by_sex_and_time(capture_history, sex):
    beta, rho = sex * sample("beta", dist.Normal(0, 10)), sample("rho", dist.Uniform(0, 1))
    recaptured(capture_history, rho, lambda: expit(beta + sample("gamma", dist.Normal(0, 10))))


# Hidden Markov models of tones

TONES = np.array([[[1, 0], [0, 0], [1, 1]], [[0, 1], [1, 1], [0, 0]]])
LENGTHS = np.array([3, 2])
heard = {"sequences": TONES, "lengths": LENGTHS, "settings": {"hidden": 2}}


def tones(sequences, lengths, start, emit):
    """The scan that the models share; emit(carry, y) samples the sites of a step."""
    n = sequences.shape[0]

    def step(carry, y):
        held, t = carry
        with plate("sequences", n, dim=-2), handlers.mask(mask=(t < lengths)[..., None]):
            held = emit(held, y)
        return (held, t + 1), None

    scan(step, (start, 0), jnp.swapaxes(sequences, 0, 1))


def rows_of(name, hidden, more=()):
    rows = dist.Dirichlet(0.9 * jnp.eye(hidden) + 0.1)
    return sample(name, rows.expand_by(more).to_event(1 + len(more)))


def keys_of(shape):
    return sample("probs_y", dist.Beta(1.0, 2.0).expand(shape).to_event(len(shape)))


@case(**heard)
def tones_of_a_state(sequences, lengths, hidden):
    probs_x, probs_y = rows_of("probs_x", hidden), keys_of([hidden, sequences.shape[-1]])

    def emit(x, y):
        x = sample("x", dist.Categorical(probs_x[x]))
        with plate("tones", sequences.shape[-1], dim=-1):
            sample("y", dist.Bernoulli(probs_y[x.squeeze(-1)]), obs=y)
        return x

    tones(sequences, lengths, jnp.zeros((len(sequences), 1), int), emit)


@case(**heard)
def tones_of_a_state_and_the_last(sequences, lengths, hidden):
    keys = sequences.shape[-1]
    probs_x, probs_y = rows_of("probs_x", hidden), keys_of([hidden, 2, keys])

    def emit(held, y):
        x = sample("x", dist.Categorical(probs_x[held[0]]))
        with plate("tones", keys, dim=-1) as each:
            sample("y", dist.Bernoulli(probs_y[x, held[1], each]), obs=y)
        return x, y

    n = len(sequences)
    tones(sequences, lengths, (jnp.zeros((n, 1), int), jnp.zeros((n, keys), int)), emit)


@case(**heard)
def tones_of_two_chains(sequences, lengths, hidden):
    keys = sequences.shape[-1]
    probs_w, probs_x = rows_of("probs_w", hidden), rows_of("probs_x", hidden)
    probs_y = keys_of([hidden, hidden, keys])

    def emit(held, y):
        w = sample("w", dist.Categorical(probs_w[held[0]]))
        x = sample("x", dist.Categorical(probs_x[held[1]]))
        with plate("tones", keys, dim=-1) as each:
            sample("y", dist.Bernoulli(probs_y[w, x, each]), obs=y)
        return w, x

    start = jnp.zeros((len(sequences), 1), int)
    tones(sequences, lengths, (start, start), emit)


@case(**heard)
def tones_of_a_dynamic_network(sequences, lengths, hidden):
    keys = sequences.shape[-1]
    probs_w, probs_x = rows_of("probs_w", hidden), rows_of("probs_x", hidden, (hidden,))
    probs_y = keys_of([hidden, hidden, keys])

    def emit(held, y):
        w = sample("w", dist.Categorical(probs_w[held[0]]))
        x = sample("x", dist.Categorical(Vindex(probs_x)[w, held[1]]))
        with plate("tones", keys, dim=-1) as each:
            sample("y", dist.Bernoulli(probs_y[w, x, each]), obs=y)
        return w, x

    start = jnp.zeros((len(sequences), 1), int)
    tones(sequences, lengths, (start, start), emit)


@case(x=RNG.normal(size=(7, 2)))
def funnel_below_data(x):
    """Neal's funnel, its leaves observed with noise."""
    y = sample("y", dist.Normal(0, 3))
    with handlers.reparam(config={"v": TransformReparam()}):
        v = sample("v", dist.TransformedDistribution(
            dist.Normal(jnp.zeros(2), 1), dist.transforms.AffineTransform(0, jnp.exp(y / 2))))
    with plate("n", len(x)):
        sample("x", dist.Normal(v, 1.0).to_event(1), obs=x)
