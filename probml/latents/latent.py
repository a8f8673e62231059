"""What a kind of latent is: unseen numbers of a row, and what engines and questions need of them.

A group is what one row integrates over at once: latents that look at one another, or at which one
seen site looks. All verbs are about one row at one joint state of the discrete sites beside the
group; factors/integrated.py takes them over rows and states. So a message is a log factor over
discrete neighbours like any other, and engines know nothing of it.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax

from probml.structure.structure import Structure

# a site → what is seen of it in a row: its cells as its family has them, and which of them are
# seen (None: all)
Seen = Mapping[str, tuple[jax.Array, jax.Array | None]]

# under which an environment may hold settings of parameters, name → (s, ...), over which log
# densities are averaged; no name of a site
SETTINGS = "settings of parameters"
# under which it may hold weights of what is asked of hidden cells (Group.asked), flat
WEIGHTS = "weights of what is asked"


@dataclass(frozen=True, eq=False)
class Group:
    """Latents that are integrated out together.

    `names` are the latents, of which some cells may be seen; `sites` all whose density looks at
    one, the latents themselves and the seen sites below; both parents first. `cellwise` are hidden
    discrete sites of several cells that are summed out within the integral, cell by cell
    (hidden_cells.py); `asked` is what an expectation is taken of there.
    """

    kind: Any  # a Kind; of one row a Latent
    names: tuple[str, ...]
    sites: tuple[str, ...]
    cellwise: tuple[str, ...] = ()
    asked: Any = None

    @property
    def name(self) -> str:
        """By which its expectations are filed."""
        return (*self.names, *self.cellwise)[0]


class Moments(NamedTuple):
    """The latents of a group given a row: what of their joint distribution an M-step needs.

    `mean`: (p,), the latents' cells behind one another; `root`: (p, p), rootᵀ root their
    covariance.
    """

    mean: jax.Array
    root: jax.Array


class Kind(Protocol):
    """A kind of group: how it is integrated out. Immutable, of no state."""

    # whether second moments of rows are all that an M-step needs, and that the integral does where
    # it is exact
    pools: bool
    exact: bool  # whether its integral is one in closed form

    @property
    def averages(self) -> bool:
        """Whether it is taken at log densities averaged over SETTINGS, where an environment has
        them: the E-step of variational Bayes."""

    @property
    def breadth(self) -> int:
        """Values of the latents at which a row is evaluated at once."""

    @property
    def finer(self) -> "Kind | None":
        """The same, nearer to the integral, by which a fit judges it; None: nothing is nearer."""

    @property
    def tolerance(self) -> float:
        """The change of a row's log evidence by `finer` from which on the approximation is reported
        as inaccurate."""

    @property
    def description(self) -> str:
        """How `explain` describes it."""

    def claims(self, structure: Structure, group: Group) -> str | None:
        """None where the integral is this kind's, else the reason in words."""


class Latent(Kind, Protocol):
    """A kind of numbers of a row, which knows one row at one state; that of numbers along time,
    which knows one step, is chains/linear_chain.py."""

    def message(self, structure: Structure, group: Group, env: Mapping, seen: Seen) -> jax.Array:
        """log ∫ p(latents, seen sites | env), in nats, differentiable in all of `env`."""

    def conditional(self, structure: Structure, group: Group, env: Mapping, seen: Seen) -> Any:
        """The latents given what is seen: Moments, or Nodes (quadrature.py), which average."""

    def row_posterior(self, structure: Structure, group: Group, env: Mapping, seen: Seen) -> Any:
        """What `expected` needs of a row's posterior: all of it, or less."""

    def draw(self, structure: Structure, group: Group, env: Mapping, seen: Seen,
             key: jax.Array) -> jax.Array:
        """A draw of the latents given what is seen, (p,)."""

    def expected(self, structure: Structure, group: Group, env: Mapping, seen: Seen,
                 moments: Any) -> jax.Array:
        """E[log p(latents, seen sites | env)] over latents of these moments: what an M-step
        climbs."""


class Sharing(Latent, Protocol):
    """A kind that evaluates a row at nodes, which may be those of every row where a group takes
    nothing of a row but its latents (factors/shared_nodes.py)."""

    def everywhere(self, structure: Structure, group: Group, env: Mapping,
                   cells: int) -> tuple[jax.Array, jax.Array] | None:
        """Values of the latent that serve every row, three times as many as a third of them, (m,),
        and the logarithms of what each stands for, with the latent's own density; None: there are
        none.

        Args:
            cells: seen cells of a row.
        """


class Pooling(Latent, Protocol):
    """A kind of which second moments of rows are all that an M-step needs, where a group takes
    nothing of a row but its latents (plan.even)."""

    def middle(self, structure: Structure, group: Group, env: Mapping) -> Any:
        """Where the latents and sites of a group stand before a row is seen: about it statistics
        are taken."""

    def statistics(self, structure: Structure, group: Group, middle: Any, weight: jax.Array,
                   seen: Seen, moments: Moments) -> Any:
        """What `pooled` needs of rows, at one state: all arguments lead with the rows' axis, which
        is summed over."""

    def pooled(self, structure: Structure, group: Group, middle: Any, env: Mapping,
               statistics: Any) -> jax.Array:
        """Σ over rows of weight × `expected`, from their statistics."""


def places(structure: Structure, names: Sequence[str]) -> dict[str, slice]:
    """Where the cells of each latent are, of several behind one another."""
    ends = list(itertools.accumulate((math.prod(structure.sites[name].cells) for name in names),
                                     initial=0))
    return {name: slice(*pair) for name, pair in zip(names, itertools.pairwise(ends), strict=True)}


def placed(structure: Structure, group: Group, flat: jax.Array) -> dict[str, jax.Array]:
    """The latents' cells behind one another, (p,) → each latent in the layout that programs
    take."""
    return {name: structure.sites[name].place(flat[part])
            for name, part in places(structure, group.names).items()}


def over_grid(function: Callable[..., Any], env: Mapping, values: Mapping[str, jax.Array],
              *along: Any, axis: int = 0) -> Any:
    """function(env with each name at each of its values, *along): one leading axis per name;
    `along` have such axes, from `axis` on."""

    def at(states: tuple[jax.Array, ...], along: tuple) -> Any:
        return function({**env, **dict(zip(values, states, strict=True))}, *along)

    for i in reversed(range(len(values))):
        at = jax.vmap(at, (tuple(0 if j == i else None for j in range(len(values))), axis))
    return at(tuple(values.values()), along)


def over(env: Mapping, function: Callable[[Mapping], Any]) -> Any:
    """function(env), or its mean over the settings of parameters that `env` has."""
    settings = env.get(SETTINGS)
    if not settings:
        return function(env)
    found = jax.vmap(lambda setting: function({**env, **setting}))(settings)
    return jax.tree.map(lambda leaf: leaf.mean(0), found)
