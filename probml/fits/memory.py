"""Whether a fit can fit into memory, before anything is compiled."""

import math
import os

import jax
import jax.numpy as jnp

from probml.errors import DataError
from probml.plan.plan import Plan

try:
    import resource
except ImportError:  # Windows
    LIMITS: tuple[int, ...] = ()
else:
    LIMITS = (resource.RLIMIT_AS, resource.RLIMIT_DATA)

MATRIX_COPIES = 32  # of the matrices of a site that a fit holds at once: some 60 were measured


def usable() -> float:
    """Bytes of the machine's memory, or of the limit that the process has; infinite: unknown."""
    try:
        physical = float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):
        physical = math.inf
    limits = (resource.getrlimit(limit)[0] for limit in LIMITS)
    return min(physical, *(limit for limit in limits if limit != resource.RLIM_INFINITY), math.inf)


def refuse_vast_matrices(plan: Plan) -> None:
    """
    Raises:
        DataError: the matrices of a site, such as covariances, do not fit into memory.
    """
    name, count, columns = plan.matrices
    check_matrix_memory(f"model '{plan.structure.model.name}', site '{name}'", count, columns)


def check_matrix_memory(title: str, count: int, columns: int) -> None:
    """
    Args:
        title: whose matrices they are. count, columns: of the matrices.

    Raises:
        DataError: a fit of so many matrices does not fit into memory.
    """
    size = MATRIX_COPIES * count * columns**2 * jnp.result_type(float).itemsize
    if size > (memory := usable()) and jax.default_backend() == "cpu":
        raise DataError(
            f"{title}: its matrices have {count:,} × {columns:,} × {columns:,} numbers. A fit "
            f"needs about {1e-9 * size:,.1f} GB for them, but can use {1e-9 * memory:,.1f} GB at "
            "most. Use fewer columns, a diagonal covariance, or a few factors, as FactorAnalysis "
            "and ProbabilisticPCA do")
