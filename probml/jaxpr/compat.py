"""The private parts of JAX that probml uses, and their substitutes if a version lacks them: no
other file imports from `jax._src`. Also switches for the mechanisms that shorten the time to a
first answer.

The first three are required. The others are looked up at their first use, and are None (or False)
where JAX has changed: programs are then the same, but slower to start.
"""

import functools
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import numpy as np
from jax._src import config, core, source_info_util
from jax.extend.core import Primitive

# what shortens the time to a first answer, and a switch for each, for tests and
# benchmarks/ablation.py: PROBML_OFF names those that a process does without, between commas
SWITCH = "PROBML_OFF"
NAMES = frozenset({"blas", "collector", "effort", "emitters", "hoisting", "holding", "inline",
                   "lapack", "programs", "shortened", "tapes", "validation", "whole_loops"})
OFF = set(os.environ.get(SWITCH, "").split(",")) - {""}
if not OFF <= NAMES:
    raise ValueError(f"the environment variable {SWITCH}: expected names among "
                     f"{', '.join(sorted(NAMES))}, separated by commas, got "
                     f"{', '.join(sorted(OFF - NAMES))}")

is_outside_of_traces: Callable[[], bool] = core.trace_state_clean
trace_settings: Callable[[], tuple] = config.trace_context
as_written_at: Callable[[object], AbstractContextManager] = source_info_util.user_context
"""A context in which equations are said to come from such a traceback."""

# the settings that equations are made under; some JAX makes a new object each time it is asked
equation_settings: Callable[[], object] = getattr(core, "current_jaxpr_eqn_context", lambda: None)


def start_lapack() -> None:
    """Load the addresses of LAPACK's functions, as lowering does."""
    from jax._src.lib import lapack

    lapack.prepare_lapack_call("potrf_ffi", np.dtype(np.float64))


def has_started() -> bool:
    """Whether JAX has started its threads."""
    try:
        from jax._src.xla_bridge import backends_are_initialized
    except ImportError:
        return False
    return bool(backends_are_initialized())


def cpu_lowerings() -> tuple[dict[Primitive, Any], Callable[..., Callable], tuple[Primitive, ...]]:
    """JAX's lowering rules for the CPU: primitive → its rule, and the function that makes a rule of
    a traceable function; the primitives of Cholesky, triangular and LU factorisations.

    Raises:
        ImportError, AttributeError, KeyError: this JAX has them elsewhere.
    """
    from jax._src.interpreters import mlir
    from jax._src.lax import linalg

    return (mlir._platform_specific_lowerings["cpu"], mlir.lower_fun,
            (linalg.cholesky_p, linalg.triangular_solve_p, linalg.lu_p))


def compile_options() -> tuple[Any, Any]:
    """JAX's module with `get_compile_options`, which makes XLA's options, and their class.

    Raises:
        ImportError, AttributeError: this JAX has them elsewhere.
    """
    from jax._src import compiler
    from jax._src.lib import xla_client

    return compiler, xla_client.CompileOptions


class CallSwitch(NamedTuple):
    """The switches by which the dispatcher of compiled functions decides whether to inline a call:
    `ours`, one of ours; `jax_own`, that of jax.disable_jit; `activate`, which sets the one in use;
    `folding`, whether values are being computed eagerly."""

    ours: Any
    jax_own: Any
    activate: Callable[[object], None]
    folding: Any


@functools.cache
def call_switch() -> CallSwitch | None:
    """None: calls within a trace stay calls."""
    try:
        from jax._src.lib import jax_jit

        switch = config.config_ext.Config("probml_plain", False, include_in_jit_key=False,
                                          include_in_trace_context=False)
        switch.set_local(switch.swap_local(True))  # as it will be used
        return CallSwitch(switch, config.disable_jit, jax_jit.set_disable_jit_state,
                          config.eager_constant_folding)
    except (ImportError, AttributeError, TypeError):
        return None
