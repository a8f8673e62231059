"""Hidden Markov models: p(z, y) = p(z_1) ∏_t p(z_t | z_{t−1}) ∏_t p(y_t | z_t), and Markov chains
whose states are seen.

    z_1 ~ Categorical(π),  π ~ Dirichlet(a + 1, …), or π = πA, the stationary distribution of A
    z_t | z_{t−1} = i ~ Categorical(A_i),   A_i ~ Dirichlet(a, …, a + sticky at i, …, a)
    normal:       y_t | z_t = j ~ N(μ_j, diag(σ_j²)),  1/σ_jc ~ Exponential(s),
                  μ_j ~ N(m, diag(c²σ_j²))
    covariances:  y_t | z_t = j ~ N(μ_j, Σ_j),         Σ_j and μ_j as in gaussian_mixture
    categorical:  y_t | z_t = j ~ Categorical(θ_j),    θ_j ~ Dirichlet(α, …, α)
    bernoulli:    y_t | z_t = j ~ Bernoulli(θ_j),      θ_j ~ Beta(α, α), independent columns
    poisson:      y_t | z_t = j ~ Poisson(λ_j),        λ_j ~ Gamma(shape, rate), independent columns

A row is a sequence and time is the first axis of its events. The prior is proper and the same
whatever the data are. The density of a standard deviation vanishes at 0, log p(σ) = −s/σ − 2 log σ
+ constant, so that no state can collapse onto a few steps.

With the states seen everywhere, `markov_chain` is counting: the posterior of A_i is Dirichlet(a +
n_i1, …, a + n_ik), where n_ij is how often j followed i, and it is exact.

Sources: Rabiner (1989), "A tutorial on hidden Markov models and selected applications in speech
recognition"; Zucchini & MacDonald (2009), "Hidden Markov Models for Time Series", chapters 1–3
(stationary starts, Poisson states); Murphy (2012), "Machine Learning: a Probabilistic Perspective",
chapter 17; Fox et al. (2011), "A sticky HDP-HMM", for the sticky diagonal; MacKay (1997), "Ensemble
learning for hidden Markov models", and Paisley & Carin (2009), "Hidden Markov models with
stick-breaking priors", for more states than are needed.
"""

import contextlib

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro import plate, sample

import probml
from probml.errors import listed
from probml.models.frames.covariances import canonical
from probml.models.frames.measured import centre_of, from_data, scale_of
from probml.models.mixtures.gaussian_mixture import shapes
from probml.models.mixtures.weights import weights_prior
from probml.models.summaries.chains import chain_tables, hidden_markov_tables

# emission -> covariance of gaussian_mixture
_COVARIANCES = {name: name for name in ("full", "spherical", "tied", "tied diagonal",
                                        "tied spherical")}
EMISSIONS = ("normal", *_COVARIANCES, "categorical", "bernoulli", "poisson")


def canonical_emission(emission: str) -> str:
    """The name here of an emission in others' words: "diag" is "normal", "tied diag" is "tied
    diagonal"."""
    name = canonical(emission) if isinstance(emission, str) else emission
    return "normal" if name == "diagonal" else name


@probml.model
def hidden_markov(
    k: int, d: int = 1, emission: str = "normal", initial: str = "free", symbols: int = 2,
    concentration=1.0, sticky=0.0, alpha=1.0, centre=None, mean_scale=1000.0, scale=None, shape=2.0,
    rate=0.01, first=None, transitions: str = "even",
):
    """A hidden Markov model with k latent states, each with its own distribution of the observation
    at a step.

    Sites: `initial` (k,), absent where it is stationary; `transition` (k, k), row i is p(next | now
    = i); the emission's parameters, see below; and in every row `z` (steps,), the states, and `y`,
    (steps, d), or (steps,) for a categorical emission. Data are arrays (n, steps, d), or lists of
    arrays (steps_i, d) of different lengths; a missing cell of y or z is NaN.

    | emission | parameters |
    |---|---|
    | "normal" | `mean` (k, d), `scale` (k, d), standard deviations |
    | the other five words of gaussian_mixture | `mean` (k, d), `precision` as there |
    | "categorical" | `probs` (k, symbols) |
    | "bernoulli" | `probs` (k, d) |
    | "poisson" | `rate` (k, d), events a step |

    Args:
        k: states.
        d: columns of a step; a categorical emission has one.
        emission: one of the table.
        initial: "free", or "stationary": the chain has run for long when the sequence begins.
        symbols: size of the alphabet of a categorical emission, whose symbols are 0 … symbols − 1.
        concentration: a, pseudo-counts of each transition; one number or (k,). 1 is uniform.
        sticky: further pseudo-counts of staying in a state.
        alpha: pseudo-counts of each symbol, or of each outcome of a Bernoulli.
        centre: m, prior centre of the means, in the data's units; one number or (d,). "each" makes
            it a site `prior_centre` (d,), to be given in the data: models that differ in it alone
            compile once.
        mean_scale: c, prior standard deviation of a mean, in standard deviations of its state.
        scale: s > 0, in the data's units; one number or (d,): the size below which a standard
            deviation is unlikely. It is worth a step or two, so that a guess far too low does no
            harm. "each": a site `prior_scale` (d,).
        shape: pseudo-events of the Gamma prior of a Poisson rate.
        rate: pseudo-steps in which they came; the small default says next to nothing. "each": a
            site `prior_rate` (d,).
        first: pseudo-counts of each first state; one number or (k,). None: one more than
            `concentration`, so that their mode is the mean of what `concentration` leaves them,
            Laplace's rule: every sequence shows one first state, of which a mode under the uniform
            prior, 1, is sure where there is one sequence.
        transitions: "even"; "sparse", every row of `transition`, and `initial`, a Dirichlet of
            concentration a/k, or "sticks", Dirichlet processes of concentration a cut at k: with VB
            they empty the states that the sequences do not ask for, and k is then only the most
            there can be, an infinite hidden Markov model cut at k. Conjugate, as VB needs it, are
            all emissions but "normal".

    Raises:
        ModelError: an unknown emission, initial or transitions, several columns of symbols, or
            sticky sticks.
    """
    emission = canonical_emission(emission)
    _check(k, d, emission, initial)
    first = np.asarray(concentration, float) + 1.0 if first is None else first
    _positive("hidden_markov", concentration=concentration, scale=scale, mean_scale=mean_scale,
              alpha=alpha, shape=shape, rate=rate, first=first)
    if np.any(np.asarray(sticky, float) < 0):
        raise probml.ModelError(f"hidden_markov(sticky={sticky!r}): expected numbers of at least 0")
    if emission == "normal" or emission in _COVARIANCES:
        centre = centre_of("prior_centre", centre, d, "y")
        scale = scale_of("prior_scale", scale, d, "y")
    if emission == "poisson":
        rate = from_data("prior_rate", rate, d)
    start_prob, transition = _chain(k, initial, concentration, sticky, first, transitions)
    state = plate("state", k)
    if emission == "normal":
        with state:
            sd = sample("scale", dist.InverseGamma(1.0, scale).to_event(1))
            mean = sample("mean", dist.Normal(centre, mean_scale * sd).to_event(1))
    elif emission in _COVARIANCES:
        tied, prior, normal = shapes(_COVARIANCES[emission], "hidden_markov")
        with contextlib.nullcontext() if tied else state:
            precision = sample("precision", prior(scale))
        with state:
            mean = sample("mean", normal(centre, precision / mean_scale**2))
    else:
        priors = {
            "categorical": ("probs", lambda: dist.Dirichlet(jnp.full(symbols, alpha)),
                            dist.Categorical),
            "bernoulli": ("probs", lambda: dist.Beta(alpha, alpha).expand([d]).to_event(1),
                          lambda probs: dist.Bernoulli(probs).to_event(1)),
            "poisson": ("rate", lambda: dist.Gamma(jnp.full(d, shape), rate).to_event(1),
                        lambda rate: dist.Poisson(rate).to_event(1)),
        }
        name, prior, observation = priors[emission]
        with state:
            parameter = sample(name, prior())
    with probml.rows():
        z = sample("z", probml.MarkovChain(start_prob, transition))
        if emission == "normal":
            y_dist = dist.Normal(mean[z], sd[z]).to_event(1)
        elif emission in _COVARIANCES:
            y_dist = normal(mean[z], precision if tied else precision[z])
        else:
            y_dist = observation(parameter[z])
        sample("y", y_dist.to_event(1))


hidden_markov.summarized(hidden_markov_tables)


@probml.model
def markov_chain(k: int, concentration=1.0, sticky=0.0):
    """A Markov chain with k observed states: the posterior of its initial and transition
    probabilities is exact.

    Sites: `initial` (k,), `transition` (k, k), row i is p(next | now = i), and in every row `z`
    (steps,), the states; missing ones are NaN, and summed out by EM.

    Args:
        k: states.
        concentration: pseudo-counts of each first state and each transition; one number or (k,). 1
            is uniform.
        sticky: further pseudo-counts of staying in a state.
    """
    initial, transition = _chain(k, "free", concentration, sticky, concentration)
    with probml.rows():
        sample("z", probml.MarkovChain(initial, transition))


markov_chain.summarized(chain_tables)


def _chain(k: int, initial: str, concentration, sticky, first, transitions: str = "even"):
    """(initial (k,), transition (k, k)), sampled."""
    counts, start_prob = _as_vector(concentration, k), None
    row_prior = weights_prior(transitions, concentration, k, "hidden_markov", "transitions")
    if transitions == "sticks" and np.any(np.asarray(sticky) != 0):
        raise probml.ModelError(f"hidden_markov(transitions='sticks', sticky={sticky!r}): sticky= "
                                f"is not supported with transitions='sticks'. Omit sticky=, or use "
                                f"transitions='sparse'")
    if initial == "free":
        start_prob = sample("initial", dist.Dirichlet(_as_vector(first, k)) if transitions == "even"
                            else row_prior)
    if transitions != "sticks":
        base = counts / k if transitions == "sparse" else counts
        row_prior = dist.Dirichlet(base + jnp.asarray(sticky) * jnp.eye(k))
    with plate("state", k):
        transition = sample("transition", row_prior)
    return (probml.stationary(transition) if start_prob is None else start_prob), transition


def _as_vector(value, size: int):
    """One number, or an array or list of so many."""
    return jnp.broadcast_to(jnp.asarray(value, float), (size,))


def _positive(model: str, **settings) -> None:
    for name, value in settings.items():
        is_number = value is not None and not isinstance(value, str)
        if is_number and not (np.asarray(value, float) > 0).all():
            raise probml.ModelError(f"{model}({name}={value!r}): expected numbers above 0")


def _check(k: int, d: int, emission: str, initial: str) -> None:
    for name, size in (("k", k), ("d", d)):
        if not isinstance(size, int | np.integer) or size < 1:
            raise probml.ModelError(f"hidden_markov({name}={size!r}): expected an integer of at "
                                    f"least 1")
    if emission not in EMISSIONS:
        raise probml.ModelError(f"hidden_markov(emission={emission!r}): expected one of "
                                f"{listed(EMISSIONS)}")
    if initial not in ("free", "stationary"):
        raise probml.ModelError(f"hidden_markov(initial={initial!r}): expected 'free' or "
                                f"'stationary'")
    if emission == "categorical" and d != 1:
        raise probml.ModelError(
            f"hidden_markov(emission='categorical', d={d}): expected d=1, one column of symbols. "
            "For several columns write your own model function, with one sample statement for each "
            "column"
        )
