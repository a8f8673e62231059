"""Batches of matrices: taken apart in our own programs where jaxlib's threads could block."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from probml.numerics import lapack
from probml.numerics.compiling import jit

few = pytest.mark.skipif(
    jax.default_backend() != "cpu" or (os.cpu_count() or 1) > lapack.CORES,
    reason="more threads than calls that can meet: nothing is taken apart",
)
SIZE = 40
BATCH = 1 + lapack.WORK // SIZE**3


def matrices(batch, size):
    root = np.random.default_rng(0).normal(size=(batch, size, size))
    return jnp.asarray(root @ root.swapaxes(1, 2) + size * np.eye(size))


@few
def test_jax_s_table_of_lowerings_is_where_we_look_for_it():
    """Fails where a new JAX has moved it: then large batches block again, see lapack.py."""
    table, ours = lapack.entries()
    assert len(ours) == 3
    with lapack.guarded():
        assert all(table[primitive] is entry for primitive, entry in ours.items())
    assert not any(table[primitive] is entry for primitive, entry in ours.items())


@few
@pytest.mark.parametrize("batch, loops", [(BATCH, True), (2, False)])
def test_a_large_batch_is_a_loop_in_our_programs_and_in_no_others(batch, loops):
    a = matrices(batch, SIZE)

    def factor(a):
        return jnp.linalg.cholesky(a)

    with lapack.guarded():
        ours = jax.jit(lambda a: factor(a)).lower(a).as_text()
    others = jax.jit(lambda a: factor(a)).lower(a).as_text()
    assert ("stablehlo.while" in ours) == loops and "stablehlo.while" not in others


@few
def test_what_is_taken_apart_is_the_same():
    a = matrices(BATCH, SIZE)
    b = jnp.ones((BATCH, SIZE, 2))
    verbs = {
        "cholesky": lambda a: jnp.linalg.cholesky(a),
        "solve": lambda a: jax.scipy.linalg.solve_triangular(jnp.tril(a), b, lower=True),
        "determinant": lambda a: jnp.linalg.slogdet(a)[1],
    }
    for verb in verbs.values():
        np.testing.assert_allclose(jit(verb)(a), verb(a), rtol=2e-4)


# The ten lines that wait for ever on two cores without lapack.guarded (jaxlib 0.10.2).
MEETING = """
import jax, jax.numpy as jnp, numpy as np
from probml.numerics.compiling import jit
root = np.random.default_rng(0).normal(size=(64, 48, 48))
a = jnp.asarray(root @ root.swapaxes(1, 2) + 48 * np.eye(48))
@jit
def both(a):
    return sum(jnp.linalg.cholesky((i + 1) * a + i).sum() for i in range(8))
for _ in range(30):
    found = both(a)
print(bool(np.isfinite(found)))
"""


def test_two_large_batches_at_once_do_not_wait_for_each_other():
    done = subprocess.run([sys.executable, "-c", MEETING], capture_output=True, text=True,
                          timeout=120)
    assert done.stdout.strip() == "True", done.stderr
