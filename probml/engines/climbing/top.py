"""The end of a climb as its judges see it (refinement.py, identifiability.py): a
point, and what is asked of it, each taken once, when it is first asked."""

import functools
from collections.abc import Callable

import jax
import numpy as np

from probml.device.rows import Known, Rows, Summary
from probml.evidence import density
from probml.numerics.compiling import jit
from probml.numerics.curvature import TOLD, Evaluate, differences, glanced, whitened
from probml.numerics.tiers import ASKED, ONCE
from probml.plan.plan import Plan

# curvature, every coordinate in units of its own width, of a direction that may be level
NULL = {np.dtype(np.float64): 1e-5, np.dtype(np.float32): 3e-3}

# (d,) and how many steps → where a climb from there ends, its height, the gradient of its negative
Climb = Callable[[np.ndarray, int], tuple[np.ndarray, float, np.ndarray]]


class Top:
    """Where a climb ended.

    Attributes:
        u: (d,) unbounded coordinates.
        looked: its second derivatives (d, d) by a first look, or as the climb had them; None where
            these are not to be believed.
        sampled: heights are those of a sample of the rows, which has its maximum elsewhere.
    """

    def __init__(self, climb: Climb, u: np.ndarray, hessian: np.ndarray | None = None,
                 sampled: bool = False):
        """Args: hessian: second derivatives of what is minimised, where the climb took them."""
        self._climb, self.u, self._hessian, self.sampled = climb, u, hessian, sampled

    @classmethod
    def of(cls, evaluate: Evaluate, u: np.ndarray, hessian: np.ndarray | None = None) -> "Top":
        """A point of a function that nothing climbs."""
        return cls(lambda u, steps: (u, *evaluate(u)), u, hessian)

    def evaluate(self, u: np.ndarray) -> tuple[float, np.ndarray]:
        """The height somewhere, and the gradient of its negative, by the program of the climb."""
        return self._climb(u, 0)[1:]

    def height_at(self, u: np.ndarray) -> float:
        return self._climb(u, 0)[1]

    def again(self, u: np.ndarray, steps: int) -> tuple[np.ndarray, float]:
        """Where a climb from elsewhere ends, and how high."""
        return self._climb(u, steps)[:2]

    @functools.cached_property
    def here(self) -> tuple[float, np.ndarray]:
        """The height, and the gradient of its negative."""
        return self.evaluate(self.u)

    @property
    def height(self) -> float:
        return self.here[0]

    @property
    def slope(self) -> np.ndarray:
        return self.here[1]

    @functools.cached_property
    def looked(self) -> np.ndarray | None:
        return glanced(self.evaluate, self.u, self.slope) if self._hessian is None else (
            self._hessian)

    @functools.cached_property
    def hessian(self) -> np.ndarray:
        """Second derivatives of what is minimised, (d, d): those of the climb, those of a first
        look that was taken and leaves no direction that may be level, or central differences."""
        if self._hessian is not None:
            return self._hessian
        first = self.__dict__.get("looked")
        if first is not None and whitened(first, NULL[np.dtype(self.u.dtype)]) is not None:
            return first
        return differences(lambda u: self.evaluate(u)[1], self.u)

    @functools.cached_property
    def whiten(self) -> np.ndarray | None:
        """W (d, d), of which WᵀW is the inverse of the curvature as it was looked at."""
        return None if self.looked is None else whitened(self.looked,
                                                         TOLD[np.dtype(self.u.dtype)])

    @property
    def promise(self) -> float:
        """What Newton's step would gain, as far as a first look tells; else inf."""
        return np.inf if self.whiten is None else 0.5 * float(
            np.sum((self.whiten @ self.slope) ** 2))

    def moved(self, u: np.ndarray) -> "Top":
        """The end elsewhere, of which a look is taken anew."""
        return Top(self._climb, u, sampled=self.sampled)

    def nearby(self, u: np.ndarray) -> "Top":
        """The end a step away that is as good as none: the look at it stays."""
        out = Top(self._climb, u, self._hessian, self.sampled)
        if "looked" in self.__dict__:
            out.looked = self.looked
        return out


def standing(plan: Plan, prior: bool, u: np.ndarray, known: Known, rows: Rows | Summary,
             hessian: np.ndarray | None = None, seldom: float = ONCE) -> Top:
    """A point that no climb of the density found, as EM's, or that of a fit of yesterday.

    Args:
        u: (d,) unbounded coordinates. prior: what was maximised has it. seldom: see tiers.py.
    """
    def climb(u: np.ndarray, steps: int) -> tuple[np.ndarray, float, np.ndarray]:
        value, slope = _FIRST[seldom](plan, prior, u, known, rows)
        return u, float(value), -np.asarray(slope)

    return Top(climb, u, hessian)


def _first(plan: Plan, prior: bool, u: jax.Array, known: Known, rows: Rows | Summary):
    return density.value_and_gradient(plan, density.without_volume(plan, known), u, known, rows,
                                      prior, mode=True)


_FIRST = {seldom: jit(_first, static_argnums=(0, 1), seldom=seldom) for seldom in (ONCE, ASKED)}
