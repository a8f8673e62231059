"""Kinds of latent numbers of a row: the protocol of their integrals.

A group is integrated out at once: latents that depend on one another, or on which one observed site
depends. All methods are about one row at one joint state of the discrete sites on which the group
depends; factors/integrated.py maps them over rows and states. So a message is a log factor over
discrete neighbours like any other.
"""

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax
import numpyro.distributions as dist

from probml.structure.structure import Structure
from probml.typing import PyTree

# a site → its data in a row: its cells as its family has them, and which of them are observed
# (None: all)
Seen = Mapping[str, tuple[jax.Array, jax.Array | None]]

# key of an environment: settings of parameters, name → (s, ...), over which log densities are
# averaged; no name of a site
SETTINGS = "settings of parameters"
# key of an environment: weights of the elements of an expectation over hidden cells (Group.asked)
WEIGHTS = "weights of what is asked"


@dataclass(frozen=True, eq=False)
class Group:
    """Latents that are integrated out together.

    `names` are the latents, of which some cells may be observed; `sites` all whose density depends
    on one: the latents themselves and their observed children; both parents first. `cellwise` are
    latent discrete sites of several cells that are summed out within the integral, cell by cell
    (hidden_cells.py); `asked` is the function whose expectation is taken there.
    """

    kind: Any  # a Kind; of one row a Latent
    names: tuple[str, ...]
    sites: tuple[str, ...]
    cellwise: tuple[str, ...] = ()
    asked: Any = None

    @property
    def name(self) -> str:
        """The key of its expectations."""
        return (*self.names, *self.cellwise)[0]


class Moments(NamedTuple):
    """Mean and covariance of the latents of a group given a row.

    `mean`: (p,), the latents' concatenated cells; `root`: (p, p), rootᵀ root their covariance.
    """

    mean: jax.Array
    root: jax.Array


class Kind(Protocol):
    """A method of integrating a group out. Immutable, without state."""

    # whether second moments of rows are all that an M-step needs, and that the integral does where
    # it is exact
    pools: bool
    exact: bool  # whether its integral is one in closed form

    @property
    def averages(self) -> bool:
        """Whether it can integrate log densities that are averaged over SETTINGS: the E-step of
        variational Bayes."""

    @property
    def breadth(self) -> int:
        """Values of the latents at which a row is evaluated at once."""

    @property
    def finer(self) -> "Kind | None":
        """A more accurate version, by which a fit estimates its error; None: there is none."""

    @property
    def tolerance(self) -> float:
        """The change of a row's log evidence by `finer` from which on the approximation is reported
        as inaccurate."""

    @property
    def description(self) -> str:
        """How `explain` describes it."""

    def why_not(self, structure: Structure, group: Group) -> str | None:
        """None where this kind can integrate the group out, else the reason in words."""


class Latent(Kind, Protocol):
    """A kind of numbers of a row, as functions of one row at one state; that of numbers along time,
    as functions of one step, is linear_chain.py.

    Two kinds have more where the programs of a group depend on nothing of a row but its latents:
    second moments of rows are sufficient (gaussian.Gaussian), or all rows may share the nodes at
    which they are evaluated (quadrature.Quadrature.shared_nodes)."""

    def message(self, structure: Structure, group: Group, env: Mapping, seen: Seen) -> jax.Array:
        """log ∫ p(latents, observed sites | env), in nats, differentiable in all of `env`."""

    def conditional(self, structure: Structure, group: Group, env: Mapping,
                    seen: Seen) -> dist.Distribution:
        """The latents given the data of the row: Moments, or Nodes (quadrature.py)."""

    def row_posterior(self, structure: Structure, group: Group, env: Mapping,
                      seen: Seen) -> dist.Distribution:
        """The part of a row's posterior that `expected` takes."""

    def draw(self, structure: Structure, group: Group, env: Mapping, seen: Seen,
             key: jax.Array) -> jax.Array:
        """A draw of the latents given the data of the row, (p,)."""

    def expected(self, structure: Structure, group: Group, env: Mapping, seen: Seen,
                 moments: PyTree) -> jax.Array:
        """E[log p(latents, observed sites | env)] over latents of these moments: the objective of
        an M-step."""


def slices_of_latents(structure: Structure, names: Sequence[str]) -> dict[str, slice]:
    """The place of each latent among concatenated cells."""
    cuts = list(itertools.accumulate((math.prod(structure.sites[name].cells) for name in names),
                                     initial=0))
    return {name: slice(*pair) for name, pair in zip(names, itertools.pairwise(cuts), strict=True)}


def is_row_free(structure: Structure, names: Iterable[str], besides: Collection[str]) -> bool:
    """Whether the programs of some sites depend on nothing of a row but the sites `besides`."""
    sites = structure.sites
    return not any(sites[name].inputs or any(sites[p].rows and p not in besides
                                             for p in sites[name].parents) for name in names)


def placed(structure: Structure, group: Group, flat: jax.Array) -> dict[str, jax.Array]:
    """Concatenated cells of the latents, (p,) → each latent in the layout that programs take."""
    return {name: structure.sites[name].place(flat[part])
            for name, part in slices_of_latents(structure, group.names).items()}


def mean_over_settings(env: Mapping, function: Callable[[Mapping], PyTree]) -> jax.Array:
    """function(env), or its mean over the settings of parameters that `env` has."""
    settings = env.get(SETTINGS)
    if not settings:
        return function(env)
    found = jax.vmap(lambda setting: function({**env, **setting}))(settings)
    return jax.tree.map(lambda leaf: leaf.mean(0), found)
