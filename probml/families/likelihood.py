"""The base class of likelihoods (arguments, natural parameters, log density, optional properties),
and `Entry`, the properties of one NumPyro distribution: its likelihood, its role as a prior, and
its peculiarities.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax.typing import ArrayLike

from probml.families import domains
from probml.families.domains import Domain
from probml.families.form import Form, Prior, Steps
from probml.families.location_scale import LocationScale
from probml.typing import PyTree

Arguments = Mapping[str, jax.Array]


class Likelihood:
    """The base of all likelihoods; itself that of a site of an unknown distribution.

    A new one gives `name`, `argument_event`, `natural` and `log_density`. Shapes:
    an argument over a table of p states and c cells is (p, c, *own axes), natural parameters
    likewise, x and `seen` (rows b, c, *event), `seen` None where all is; log densities (b, p),
    summed over cells. The gradient of the evidence in the natural parameters is the pooled
    expected sufficient statistics: so must log_density be −∞ and never NaN outside the support,
    with finite gradients. Args of the optional ones as of these.
    """

    name = ""  # NumPyro's class without Probs or Logits
    event = 0  # axes of one value
    argument_event: Mapping[str, int] = {}  # argument → its own axes
    # argument → the form of an objective in it, and the steps from it to the form's c (form.py)
    canonical: Mapping[str, tuple[Form, Steps]] = {}

    nominal = False  # whether its values are states without an order
    indicator = False  # whether its probability is that of the second of two states
    normal = False  # whether it is normal about `loc`: data and location are then centred
    rowwise = False  # whether it has no sufficient statistics of fixed size
    held: tuple[str, ...] = ()  # natural parameters that are constants of its base measure
    scatter: tuple[str, ...] = ()  # the arguments that scale it
    scaling = True  # its scatter and loc are in units of the values
    terms: tuple[str, ...] = ()  # arguments as large as terms of its density that cancel
    mean_of: tuple[str, ...] | None = None  # the arguments in which its mean is linear
    ancillary: str | None = None  # an argument that is data of each row
    limit: str | None = None  # the argument that is the largest value
    checked: Domain | None = None  # where data must lie, if not in the support NumPyro states

    def arguments(self, base: dist.Distribution) -> dict[str, ArrayLike]:
        """The arguments as the user gave them: of a probability or its logit that of its class."""
        return {name: getattr(base, name) for name in self.argument_event
                if name in base.arg_constraints}

    def states(self, arguments: Arguments) -> int | None:
        """How many values it has, if it is a table of states."""
        return None

    def distribution(self, arguments: Arguments) -> dist.Distribution:
        """NumPyro's distribution again."""
        return getattr(dist, self.name)(**arguments)

    def natural(self, arguments: Arguments, centre: PyTree) -> dict[str, jax.Array]:
        """Natural parameters; `centre` (c,) was subtracted from the data."""
        raise NotImplementedError

    def log_density(self, natural: Arguments, x: jax.Array, seen: jax.Array | None) -> jax.Array:
        """Σ over seen cells of log p(x), (b, p)."""
        raise NotImplementedError

    def check(self, where: str, arguments: dict[str, jax.Array], steps: int | None) -> None:
        """Refuse arguments whose values are known and impossible, or so along so many steps.

        Args:
            arguments: those that are known.

        Raises:
            ModelError: naming `where`, what is wrong and what is expected.
        """

    def zero(self, natural: Arguments) -> dict[str, jax.Array]:
        """Natural parameters of 0, at which a density is its base measure."""
        return {name: leaf if name in self.held else jax.tree.map(jnp.zeros_like, leaf)
                for name, leaf in natural.items()}

    # Optional methods; None: not available.

    # (arguments, in the place of one its posterior, `Form.copied_posterior`; x, seen) → the
    # density with that parameter integrated out, cell by cell
    predictive: Callable[..., jax.Array] | None = None
    # (arguments over a table, x, seen) → Σ over seen cells of that, (b, p), of many cells; None
    # where it is no faster
    predictive_sum: Callable[..., jax.Array | None] | None = None
    # (arguments) → (..., c, k) probabilities of its states
    probabilities: Callable[..., jax.Array] | None = None
    # (distribution, value, x, seen) → x with its unseen coordinates given the seen ones
    fill: Callable[..., jax.Array] | None = None
    # (statistics, shift) → the statistics of shifted values
    recentre: Callable[..., dict] | None = None
    # (arguments) → the scale of each cell
    smallest: Callable[..., jax.Array] | None = None
    # (arguments, x, seen) → log densities of cells, each with arguments of its own
    direct: Callable[..., jax.Array] | None = None
    # (arguments, value) → log p of a value outside rows, where NumPyro's makes a longer program;
    # of a density on all numbers, and no conjugate prior's own
    density: Callable[..., jax.Array] | None = None
    # (anchor, arguments, x) → what has the form that its density has not, lies below it and
    # touches it at the arguments `anchor`, so that an M-step may maximise it instead
    minorant: Callable[..., jax.Array] | None = None


UNKNOWN = Likelihood()


@dataclass(frozen=True)
class Entry:
    """One distribution, in any of the classes that NumPyro has for it."""

    types: tuple[type, ...] = ()
    likelihood: Likelihood | None = None  # its kernel; None: NumPyro's own log_prob, row by row
    prior: Prior | None = None  # its conjugate role, if it has one
    improper: bool = False  # a density without a finite integral: flat
    kinked: bool = False  # no derivative at its centre: no Newton steps
    domains: tuple[type[Domain], ...] = ()  # of its own, by their `canonical` constraint
    # in unbounded coordinates, of a distribution that is both and no more (location_scale.py)
    location_scale: Callable[[dist.Distribution], LocationScale] | None = None
    coupled: bool = False  # whether that scale is a matrix
    # (distribution, value) → its log density, where NumPyro's formula loses precision
    log_prob: Callable[[dist.Distribution, jax.Array], jax.Array] | None = None
    # an equal distribution, where NumPyro's draws and moments lose precision too
    sharp: Callable[[dist.Distribution], dist.Distribution] | None = None
    interior: bool = False  # 0 or infinite on the edge of its support, where no data may lie

    def log_density(self, distribution: dist.Distribution, value: jax.Array,
                    mode: bool) -> jax.Array:
        """log p of a value outside rows, −∞ outside its support; `mode` as in Prior."""
        if self.prior is not None:
            return self.prior.log_density(distribution, value, mode)
        return domains.supported(distribution, value)


NOTHING = Entry()  # of an unknown distribution
