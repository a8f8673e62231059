"""Models of Statistical Rethinking as its NumPyro translation writes them, and what Bambi and brms make
of formulas, on small data."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import expit, logsumexp
from numpyro import handlers, plate, sample
from numpyro.infer.reparam import LocScaleReparam, TransformReparam
from written_elsewhere import table

RNG = np.random.default_rng(13)
CASES, case = table()
N = 8
X, Y, B, C = (RNG.normal(size=(N, 2)), RNG.normal(size=N), RNG.integers(2, size=N),
              RNG.poisson(2.0, size=N))
G = np.arange(N) % 3


@case(water_sand=np.arange(N) % 2, B=C % 3, shade=X[:, 0], blooms=Y)
def tulips(water_sand, B, shade, blooms=None):
    a = sample("a", dist.Normal(0.5, 0.25))
    bw, bs, bws = (sample(name, dist.Normal(0, 0.25)) for name in ("bw", "bs", "bws"))
    mu = numpyro.deterministic("mu", a + bw * (B - 1) + bs * shade + bws * (B - 1) * shade)
    sigma = sample("sigma", dist.Exponential(1))
    sample("blooms", dist.Normal(mu, sigma), obs=blooms)


@case(actor=G, block_id=np.arange(N) % 2, treatment=np.arange(N) % 4, pulled_left=B)
def chimpanzees_not_centred(actor, block_id, treatment, pulled_left=None):
    a_bar, sigma_a = sample("a_bar", dist.Normal(0, 1.5)), sample("sigma_a", dist.Exponential(1))
    sigma_g = sample("sigma_g", dist.Exponential(1))
    b = sample("b", dist.Normal(0, 0.5).expand([4]))
    z, x = sample("z", dist.Normal(0, 1).expand([3])), sample("x", dist.Normal(0, 1).expand([2]))
    logit_p = a_bar + z[actor] * sigma_a + x[block_id] * sigma_g + b[treatment]
    sample("pulled_left", dist.Binomial(logits=logit_p), obs=pulled_left)


@case(S=np.array([9, 7, 24]), density=np.array([10, 10, 25]), tank=np.arange(3))
def reed_frogs(tank, density, S=None):
    a_bar, sigma = sample("a_bar", dist.Normal(0, 1.5)), sample("sigma", dist.Exponential(1))
    a = sample("a", dist.Normal(a_bar, sigma), sample_shape=tank.shape)
    logit_p = a[tank]
    sample("S", dist.Binomial(density, logits=logit_p), obs=S)


@case(cafe=G, afternoon=B, wait=Y)
def cafes(cafe, afternoon, wait=None):
    a, b = sample("a", dist.Normal(5, 2)), sample("b", dist.Normal(-1, 0.5))
    sigma_cafe = sample("sigma_cafe", dist.Exponential(1).expand([2]))
    sigma = sample("sigma", dist.Exponential(1))
    rho = sample("Rho", dist.LKJ(2, 2))
    cov = jnp.outer(sigma_cafe, sigma_cafe) * rho
    a_cafe_b_cafe = sample("a_cafe,b_cafe", dist.MultivariateNormal(jnp.stack([a, b]), cov).expand([3]))
    mu = a_cafe_b_cafe[:, 0][cafe] + a_cafe_b_cafe[:, 1][cafe] * afternoon
    sample("wait", dist.Normal(mu, sigma), obs=wait)


@case(Dmat=np.abs(np.subtract.outer(np.arange(4.0), np.arange(4.0))), society=np.arange(4),
      P=np.array([7.0, 8, 9, 10]), T=np.array([13, 22, 24, 43]))
def islands(Dmat, P, society, T=None):
    a, b, g = (sample(name, dist.Exponential(1)) for name in ("a", "b", "g"))
    etasq, rhosq = sample("etasq", dist.Exponential(2)), sample("rhosq", dist.Exponential(0.5))
    SIGMA = etasq * jnp.exp(-rhosq * jnp.square(Dmat))
    SIGMA = SIGMA.at[jnp.diag_indices(Dmat.shape[0])].add(etasq + 0.01)
    k = sample("k", dist.MultivariateNormal(0, SIGMA))
    lam = a * P**b / g * jnp.exp(k[society])
    sample("T", dist.Poisson(lam), obs=T)


@case(R=C % 4, action=B, E=C % 3)
def trolley_with_a_monotonic_effect(R, action, E):
    """An ordered predictor: shares of a Dirichlet, summed up; cutpoints by a transform."""
    bA, bE = sample("bA", dist.Normal(0, 1)), sample("bE", dist.Normal(0, 1))
    delta = sample("delta", dist.Dirichlet(jnp.repeat(2.0, 2)))
    delta_j = jnp.pad(delta, (1, 0))
    phi = bE * jnp.sum(jnp.where(jnp.arange(3) <= E[..., None], delta_j, 0), -1) + bA * action
    cutpoints = sample("cutpoints", dist.TransformedDistribution(
        dist.Normal(0, 1.5).expand([3]), dist.transforms.OrderedTransform()))
    sample("R", dist.OrderedLogistic(phi, cutpoints), obs=R)


@case(R=C % 4, phi=Y)
def cutpoints_without_a_prior(R, phi):
    cutpoints = sample("cutpoints", dist.ImproperUniform(dist.constraints.ordered_vector, (),
                                                         event_shape=(3,)))
    sample("R", dist.OrderedLogistic(sample("b", dist.Normal(0, 1)) * phi, cutpoints), obs=R)


@case(D_obs=Y, D_sd=np.full(N, 0.3), A=X[:, 0], M_obs=X[:, 1], M_sd=np.full(N, 0.2))
def divorce_with_errors(D_obs, D_sd, A, M_obs, M_sd):
    a, bA, bM = (sample(name, dist.Normal(0, 0.5)) for name in ("a", "bA", "bM"))
    sigma = sample("sigma", dist.Exponential(1))
    M_est = sample("M_est", dist.Normal(0, 1).expand([N]))
    sample("M_obs", dist.Normal(M_est, M_sd), obs=M_obs)
    D_est = sample("D_est", dist.Normal(a + bA * A + bM * M_est, sigma))
    sample("D_obs", dist.Normal(D_est, D_sd), obs=D_obs)


HOLED = np.where(np.arange(N) % 3 == 1, np.nan, X[:, 0])


@case(B=HOLED, M=X[:, 1], K=Y)
def milk_with_imputed_cells(B, M, K):
    """McElreath 15.5, as NumPyro's translation has it: a flat vector put into the gaps."""
    a, nu = sample("a", dist.Normal(0, 0.5)), sample("nu", dist.Normal(0, 0.5))
    bB, bM = sample("bB", dist.Normal(0, 0.5)), sample("bM", dist.Normal(0, 0.5))
    sigma_B, sigma = sample("sigma_B", dist.Exponential(1)), sample("sigma", dist.Exponential(1))
    gone = np.isnan(B)
    B_impute = sample("B_impute", dist.Normal(0, 1).expand([int(gone.sum())]).mask(False))
    B_full = jnp.asarray(B).at[np.nonzero(gone)[0]].set(B_impute)
    sample("B", dist.Normal(nu, sigma_B), obs=B_full)
    sample("K", dist.Normal(a + bB * B_full + bM * M, sigma), obs=K)


@case(notes=C, cat=np.where(np.arange(N) % 4 == 1, -9, B))
def cats_and_birds(notes, cat):
    """15.8: whether there is a cat is unknown in some houses, mixed by hand."""
    alpha, beta = sample("alpha", dist.Normal(0, 1)), sample("beta", dist.Normal(0, 0.5))
    k = sample("k", dist.Beta(2, 2))
    known = cat != -9
    own = jnp.where(known, cat, 0)
    with plate("houses", len(notes)):
        with handlers.mask(mask=known):
            sample("cat|R==0", dist.Bernoulli(k), obs=own)
            sample("notes|R==0", dist.Poisson(jnp.exp(alpha + beta * own)), obs=notes)
        either = jnp.stack([jnp.log(k) + dist.Poisson(jnp.exp(alpha + beta)).log_prob(notes),
                            jnp.log1p(-k) + dist.Poisson(jnp.exp(alpha)).log_prob(notes)])
        with handlers.mask(mask=~known):
            numpyro.factor("notes|R==1", logsumexp(either, 0))


@case(y=C % 5)
def boxes(y):
    """16.2: five strategies, mixed by hand."""
    p = sample("p", dist.Dirichlet(jnp.repeat(4.0, 5)))
    theta = jnp.where(jnp.arange(5) == y[:, None], 0.9, 0.025)
    numpyro.factor("y", jnp.sum(logsumexp(jnp.log(p) + jnp.log(theta), -1)))


@case(nuts_opened=C, seconds=np.full(N, 20.0), age=np.linspace(0.2, 1, N))
def panda_nuts(nuts_opened, seconds, age):
    phi = sample("phi", dist.LogNormal(jnp.log(1), 0.1))
    k, theta = sample("k", dist.LogNormal(jnp.log(2), 0.25)), sample("theta", dist.LogNormal(jnp.log(5), 0.25))
    lam = seconds * phi * jnp.power(1 - jnp.exp(-k * age), theta)
    sample("nuts_opened", dist.Poisson(lam), obs=nuts_opened)


@case(giftsAB=C[:3], giftsBA=C[3:6], hidA=np.array([0, 0, 1]), hidB=np.array([1, 2, 2]))
def gifts_of_households(giftsAB, giftsBA, hidA, hidB):
    """14.7: generalised giving and dyads."""
    a = sample("a", dist.Normal(0, 1))
    rho_gr, sigma_gr = sample("Rho_gr", dist.LKJ(2, 4)), sample("sigma_gr", dist.Exponential(1).expand([2]))
    gr = sample("gr", dist.MultivariateNormal(0, jnp.outer(sigma_gr, sigma_gr) * rho_gr).expand([3]))
    z = sample("z", dist.Normal(0, 1).expand([2, 3]).to_event(1))
    root, sigma_d = sample("L_Rho_d", dist.LKJCholesky(2, 8)), sample("sigma_d", dist.Exponential(1))
    d = ((jnp.stack([sigma_d, sigma_d])[..., None] * root) @ z).T
    sample("giftsAB", dist.Poisson(jnp.exp(a + gr[hidA, 0] + gr[hidB, 1] + d[:, 0])), obs=giftsAB)
    sample("giftsBA", dist.Poisson(jnp.exp(a + gr[hidB, 0] + gr[hidA, 1] + d[:, 1])), obs=giftsBA)


@case(y=np.array([0, 0, 1, 3, 0, 2, 0, 1]), x=X[:, 0])
def monks(y, x):
    ap, al = sample("ap", dist.Normal(-1.5, 1)), sample("al", dist.Normal(1, 0.5))
    sample("y", dist.ZeroInflatedPoisson(expit(ap), rate=jnp.exp(al)), obs=y)


@case(admit=np.array([6, 1, 4]), applications=np.array([10, 5, 9]), gid=np.array([0, 1, 0]))
def admissions_beta_binomial(admit, applications, gid):
    a, phi = sample("a", dist.Normal(0, 1.5).expand([2])), sample("phi", dist.Exponential(1))
    theta = numpyro.deterministic("theta", phi + 2)
    pbar = expit(a[gid])
    sample("admit", dist.BetaBinomial(pbar * theta, (1 - pbar) * theta, applications), obs=admit)


# what formulas become


@case(x=X, g=G, y=np.abs(Y) + 0.1)
@handlers.reparam(config={"1|g": TransformReparam()})
def gamma_with_a_group(x, g, y):
    intercept, common = sample("Intercept", dist.Normal(0, 2.5)), sample("x", dist.Normal(0, 1).expand([2]))
    sd, alpha = sample("1|g_sigma", dist.HalfNormal(1.0)), sample("alpha", dist.HalfCauchy(1.0))
    offset = sample("1|g", dist.TransformedDistribution(
        dist.Normal(0, 1).expand([3]), dist.transforms.AffineTransform(0.0, sd)))
    mu = jnp.exp(intercept + (x - x.mean(0)) @ common + offset[g])
    sample("y", dist.Gamma(alpha, alpha / mu), obs=y)


@case(x=X, y=Y)
def distributional_regression(x, y):
    b, c = (sample(name, dist.Normal(0, 1).expand([2])) for name in ("b", "sigma_b"))
    with plate("obs", len(y)):
        sample("y", dist.Normal(x @ b, jnp.exp(x @ c)), obs=y)


@case(x=X, y=RNG.beta(2, 3, size=N))
def beta_regression(x, y):
    b, kappa = sample("b", dist.Normal(0, 1).expand([2]).to_event(1)), sample("kappa", dist.HalfCauchy(1))
    sample("y", dist.BetaProportion(expit(x @ b), kappa), obs=y)


@case(x=X, y=Y)
def regression_of_a_quantile(x, y):
    b, s = sample("b", dist.Normal(0, 1).expand([2])), sample("sigma", dist.HalfNormal(1))
    sample("y", dist.AsymmetricLaplaceQuantile(x @ b, s, 0.25), obs=y)


@case(x=X[:, 0], y=C % 3)
def stopping_ratios(x, y):
    """Ordinal, one grade after the other (brms's sratio)."""
    b, cuts = sample("b", dist.Normal(0, 1)), sample("threshold", dist.Normal(0, 2).expand([2]))
    stop = jax.nn.log_sigmoid(cuts - b * x[:, None])
    go = jax.nn.log_sigmoid(-(cuts - b * x[:, None]))
    logits = jnp.pad(jnp.cumsum(go, -1), ((0, 0), (1, 0))) + jnp.pad(stop, ((0, 0), (0, 1)))
    sample("y", dist.Categorical(logits=logits), obs=y)


@case(x=X[:, 0], y=np.where(B == 1, 0.0, np.abs(Y)))
def hurdle_gamma(x, y):
    b, shape, p = sample("b", dist.Normal(0, 1)), sample("shape", dist.HalfNormal(2)), sample("p", dist.Beta(1, 1))
    positive = dist.Gamma(shape, shape / jnp.exp(b * x)).log_prob(jnp.where(y == 0, 1.0, y))
    with plate("obs", len(y)):
        numpyro.factor("y", jnp.where(y == 0, jnp.log(p), jnp.log1p(-p) + positive))


@case(availability=np.array([[1, 1, 1], [1, 0, 1], [1, 1, 0], [1, 1, 1]]) > 0,
      cost=RNG.normal(size=(4, 3)), person=np.array([0, 0, 1, 1]), choice=np.array([0, 2, 1, 1]))
@handlers.reparam(config={"beta": LocScaleReparam(0.3)})
def mixed_logit(availability, cost, person, choice):
    """Choices of few among what is on offer, tastes of a person."""
    mu, sd = sample("mu", dist.Normal(0, 1)), sample("sd", dist.HalfNormal(1))
    asc = jnp.pad(sample("asc", dist.Normal(0, 1).expand([2])), (1, 0))
    with plate("persons", 2):
        beta = sample("beta", dist.Normal(mu, sd))
    utility = asc + beta[person][:, None] * cost
    with plate("choices", len(choice)):
        sample("choice", dist.Categorical(logits=jnp.where(availability, utility, -1e9)), obs=choice)


@case(a=np.array([0, 0, 1, 2]), b=np.array([1, 2, 2, 0]), ranks=np.array([[0, 1, 2], [2, 0, 1]]),
      won=np.array([1, 1, 0, 1]))
def pairs_and_rankings(a, b, ranks, won):
    """Bradley and Terry's pairs and Plackett and Luce's rankings of the same three."""
    skill = sample("skill", dist.ZeroSumNormal(1.0, event_shape=(3,)))
    sample("won", dist.Bernoulli(logits=skill[a] - skill[b]), obs=won)
    order = skill[ranks]
    rest = jnp.log(jnp.cumsum(jnp.exp(order[:, ::-1]), 1))[:, ::-1]
    numpyro.factor("ranks", (order - rest).sum())
