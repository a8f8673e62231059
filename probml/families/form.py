"""The base classes of the forms and conjugate priors of closed-form M-steps.

A **form** is the shape of an objective Q(c) = ⟨q, log factors⟩ + log prior as a function of one
quantity c: `Q(c) = ⟨natural, statistics(c)⟩ + constant`. It is read off from derivatives at a few
points, whatever likelihoods and priors were added up in Q, so that ties, several sites and flat
priors need no rule of their own. Its algebra:

    points, read, onward    where to differentiate, and the natural parameters that follow
    mode, value             argmax Q, and Q itself
    domain, event           where c lies, and how many of its axes are one value
    normalise, own_axes     which coordinates and shapes of a parameter keep the form
    copied_posterior        the posterior of c as arguments of a likelihood's predictive
    expectation             E[statistics(c)] under the posterior, of variational updates
    confined                natural parameters where some states of a table are impossible
    nodes, middle           values of c whose mean statistics are that expectation; a central value
    scale, student, ...     of variances: integrals over them and over locations

A **prior** names the form under which it is conjugate, and turns what was read into a NumPyro
distribution.

Coordinate maps: from a parameter to the quantity c in which a form holds, and back.

A chain of steps (name, amount), applied in order; `power` alone has an amount, and `times` (a
constant factor) is dropped where a form is closed under it.
"""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from probml.families import definite, domains
from probml.families.domains import Domain

Steps = tuple[tuple[str, float], ...]
_Map = Callable[[jax.Array, float], jax.Array]

# step → parameter to c, c to parameter, and where a parameter then lies (None: where c does)
_LINKS: dict[str, tuple[_Map, _Map, Domain | None]] = {
    "power": (lambda v, p: v**p, lambda v, p: v ** (1 / p), domains.POSITIVE),
    "complement": (lambda v, _: 1 - v, lambda v, _: 1 - v, None),
    "exp": (lambda v, _: jnp.exp(v), lambda v, _: jnp.log(v), domains.REAL),
    "log": (lambda v, _: jnp.log(v), lambda v, _: jnp.exp(v), domains.POSITIVE),
    "logistic": (lambda v, _: jax.nn.sigmoid(v), lambda v, _: jnp.log(v) - jnp.log1p(-v),
                 domains.REAL),
    "gram": (lambda v, _: v @ jnp.swapaxes(v, -1, -2), lambda v, _: jnp.linalg.cholesky(v),
             domains.LOWER_CHOLESKY),
    "inverse": (lambda v, _: definite.inverse(v), lambda v, _: definite.inverse(v), None),
}


def forward(value: jax.Array, steps: Steps) -> jax.Array:
    """Parameter → the quantity c of its form."""
    for step, amount in steps:
        value = _LINKS[step][0](value, amount)
    return value


def logarithm(value: jax.Array, steps: Steps) -> jax.Array:
    """Parameter → log c, of steps that are powers and exponentials: without c between, whose
    derivatives soon leave the range of float32."""
    log = None
    for step, amount in steps:
        if step == "exp":
            log = value if log is None else jnp.exp(log)
        else:
            log = amount * (jnp.log(value) if log is None else log)
    return jnp.log(value) if log is None else log


def backward(value: jax.Array, steps: Steps) -> jax.Array:
    """The quantity c → the parameter."""
    for step, amount in reversed(steps):
        value = _LINKS[step][1](value, amount)
    return value


def source(steps: Steps) -> Domain | None:
    """Where a parameter lies that these steps take to c; None: where c does."""
    return _LINKS[steps[0][0]][2] if steps else None


Natural = Mapping[str, jax.Array]


class Form:
    """The base of all forms. A new one gives `name`, `domain`, `keys`, `points`, `read`, `value`
    and `mode`, and the optional methods that it supports; the rest has safe defaults.

    Shapes: c is (..., *own axes), `event` of which belong together; points (p, *c), gradients the
    same; each natural parameter (..., its own axes).
    """

    name: str  # in reasons; in saved files nothing but the keys
    domain: Domain = domains.REAL  # of c
    keys: tuple[str, ...]  # of the natural parameters
    event = 0
    steady = False  # what is read does not depend on the point: one reading is enough
    joint = False  # all parameters in a location are read together, in which it is affine
    scaled = False  # closed under constant factors of c
    mirrored = False  # closed under 1 − c
    scale = False  # c is a variance, which normal locations may share

    def allows(self, steps: Steps) -> bool:
        """Whether a parameter that these steps map to c has the form."""
        return not steps

    def confined(self, natural: Natural, concentration: jax.Array) -> Natural:
        """The natural parameters where states of concentration 0 are impossible."""
        raise NotImplementedError

    def holds(self, other: "Form") -> bool:
        """Whether every objective of another form is also of this form."""
        return other is self

    def own_axes(self, states: int | None, event: tuple[int, ...]) -> tuple[int, ...]:
        """The trailing axes of one value of c in an argument of a site with such states or event
        shape."""
        return ()

    def normalise(self, steps: Steps) -> Steps | None:
        """Steps with powers merged and factors dropped, where the form is closed under them; None
        where it is not."""
        out: list[tuple[str, float]] = []
        for step, amount in steps:
            if step == "times":
                if not self.scaled:
                    return None
            elif step == "complement" and self.mirrored and not out:
                continue
            elif step == "power" and out and out[-1][0] == "power":
                out[-1] = ("power", out[-1][1] * amount)
                if out[-1][1] == 1.0:
                    out.pop()
            else:
                out.append((step, amount))
        return tuple(out) if self.allows(tuple(out)) else None

    def seen_from(self, steps: Steps) -> Domain:
        """The domain of a parameter that these steps map to c."""
        return source(steps) or self.domain

    def points(self, c: jax.Array, event: int) -> jax.Array:
        """Where to differentiate: (p, *c)."""
        raise NotImplementedError

    def read(self, points: jax.Array, gradients: jax.Array, event: int) -> dict[str, jax.Array]:
        """Natural parameters from ∇Q at the points."""
        raise NotImplementedError

    # (points, inverses, gradients, event) → the same from gradients in the inverse of c, where a
    # parameter is that. None: gradients are taken in c
    read_inverse: Callable[..., dict[str, jax.Array]] | None = None

    def value(self, natural: Natural, c: jax.Array, event: int) -> jax.Array:
        """Q(c) up to a constant."""
        raise NotImplementedError

    def value_from(self, natural: Natural, parameter: jax.Array, steps: Steps,
                   event: int) -> jax.Array:
        """Q at the c to which steps map a parameter, for derivatives in the parameter."""
        return self.value(natural, forward(parameter, steps), event)

    def mode(self, natural: Natural, fallback: jax.Array, event: int) -> jax.Array:
        """argmax Q; `fallback` without data."""
        raise NotImplementedError

    def onward(self, natural: Natural, c: jax.Array, event: int) -> jax.Array:
        """Where to read next."""
        return self.mode(natural, c, event)

    def readable(self, value: jax.Array) -> jax.Array | bool:
        """Whether the natural parameters can be read at a parameter's mode."""
        return True

    # (natural, prior, move) → arguments of a likelihood's `predictive` in the place of its own;
    # `move` takes values of the parameter's c to those of the argument's c. None: not known.
    copied_posterior: Callable[..., dict[str, jax.Array]] | None = None

    def expectation(self, natural: Natural, prior: "Prior") -> dict[str, jax.Array]:
        """E[statistic of c] under the posterior, by name, for mean-field updates (Winn & Bishop
        2005)."""
        raise NotImplementedError(f"the form {self.name} does not define expectation(), which "
                                  "variational Bayes (VB) needs")

    def nodes(self, natural: Natural, prior: "Prior") -> jax.Array:
        """Values of c, (j, *c), over which the mean of every statistic, and so of every function in
        their span, is its expectation under the posterior."""
        raise NotImplementedError(f"the form {self.name} does not define nodes(), which "
                                  "variational Bayes (VB) needs")

    def middle(self, natural: Natural, prior: "Prior") -> jax.Array:
        """A central value of the posterior of c, finite and inside the domain: where to read
        next."""
        raise NotImplementedError(f"the form {self.name} does not define middle(), which "
                                  "variational Bayes (VB) needs")

    # Of scales, which normal locations may share (normal–inverse-gamma, normal–inverse-Wishart).

    def spherical(self, sizes: jax.Array, natural: Natural) -> jax.Array:
        """The c that has such a size in every direction: of matrices a multiple of the identity."""
        return sizes

    def sizes(self, c: jax.Array) -> jax.Array:
        """The size of a c that is alike in every direction."""
        return c

    def student(self, natural: Natural, prior: "Prior", present: jax.Array) -> tuple[jax.Array,
                                                                                    jax.Array]:
        """Degrees of freedom of the Student t that integrates c out, and its squared scale ÷ the
        variance at the present c."""
        raise NotImplementedError

    def integrated(self, natural: Natural, slope: jax.Array) -> dict[str, jax.Array]:
        """Natural parameters with the locations integrated out whose normaliser has the derivative
        slope / c in c."""
        raise NotImplementedError


class Prior:
    """The conjugate role of a distribution: log density ⟨natural, statistics(c)⟩, c = steps(value).

    Args:
        form, steps: the form it has, in the coordinate in which it has it.
        event: axes of one value.
    """

    form: Form
    steps: Steps = ()
    event = 0
    # arguments with a value below 1 of which the density has no maximum, and where it is maximised
    concentrations: tuple[str, ...] = ()
    coordinate = ""

    def posterior(self, natural: Natural, event: int) -> dist.Distribution:
        """The posterior of the parameter from natural parameters."""
        raise NotImplementedError

    def shape(self, natural: Natural) -> jax.Array:
        """The shape or concentration of the posterior of c; of priors of scales."""
        raise NotImplementedError

    def log_density(self, distribution: dist.Distribution, value: jax.Array,
                    mode: bool) -> jax.Array:
        """The log density, −∞ outside; with `mode`, in the coordinate in which it is maximised."""
        return domains.supported(distribution, value)

    def widened(self, distribution: dist.Distribution, own: tuple[int, ...],
                shape: tuple[int, ...]) -> jax.Array | None:
        """The concentration of a table of `shape`, larger than a distribution's `own`, with 0 for
        the additional states, which are impossible; None where the prior has no concentration."""
        return None

    def of_concentration(self, concentration: jax.Array) -> dist.Distribution:
        """The distribution of such a concentration."""
        raise NotImplementedError


def ratio(above: jax.Array, below: jax.Array, fallback: jax.Array) -> jax.Array:
    """above / below, the fallback where below is no more than 0."""
    empty = below <= 0
    return jnp.where(empty, fallback, above / jnp.where(empty, 1.0, below))
