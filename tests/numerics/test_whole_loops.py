"""Loops of small programs are one piece of machine code, and answer as they did."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from probml.numerics import compiling
from probml.numerics.process import making

WHOLE = {**compiling.FULL, making.WHOLE_LOOPS: compiling.PIECE}


def _walk(matrix, start):
    """A loop with a branch, a product, a loop of unknown length and a sum within."""

    def step(i, carry):
        x, count = carry
        x = jnp.tanh(matrix @ x) + 0.1 * i
        x = jax.lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x).at[i % 40].set(0.5)
        return x, count + jax.lax.while_loop(lambda n: n < x.max(), lambda n: n + 0.25, 0.0)

    return jax.lax.fori_loop(0, 300, step, (start, 0.0))


GIVEN = (np.linspace(-1, 1, 1600).reshape(40, 40), np.arange(40.0))


def test_a_loop_is_one_piece_where_it_is_asked_for_and_the_same_to_the_last_bit():
    assert making.whole_loops_known(), "the insides of JAX have moved: see the head of making.py"
    lowered = jax.jit(_walk).lower(*GIVEN)
    with making.whole_loops():
        whole, plain = (lowered.compile(compiler_options=o) for o in (WHOLE, compiling.FULL))
    alone, within = (p.as_text().partition("ENTRY")[2] for p in (whole, plain))
    assert 'xla_cpu_small_call="true"' in alone and " while(" not in alone
    assert 'xla_cpu_small_call="true"' not in within and " while(" in within
    for a, b in zip(whole(*GIVEN), plain(*GIVEN), strict=True):
        np.testing.assert_array_equal(a, b)


def test_options_are_written_as_protocol_buffers_are():
    entry = making._entered(b"before", 300)
    assert entry.startswith(b"before\x1a") and entry.endswith(b"\x12\x03300")
    assert making._varint(300) == b"\xac\x02" and making._varint(7) == b"\x07"


@pytest.mark.parametrize("count, whole", [(4, True), (compiling.MAX_WHOLE_LOOP_ENTRIES + 1, False)])
def test_steps_over_little_are_asked_to_be_whole(monkeypatch, count, whole):
    asked = []
    own = jax.jit

    def noted(function, **keywords):
        asked.append(keywords.get("compiler_options"))
        return own(function, **keywords)

    monkeypatch.setattr(compiling.jax, "jit", noted)
    for keywords in ({"steps": True}, {}):
        np.testing.assert_array_equal(compiling.jit(_doubled, **keywords)(np.ones(count)), 2.0)
    assert [making.WHOLE_LOOPS in options for options in asked if options] == [whole, False]
    assert {options[compiling.LEVEL] for options in asked if options} == {0}


def test_what_is_called_often_is_compiled_at_the_full_level(monkeypatch):
    asked = []
    own = jax.jit
    monkeypatch.setattr(compiling.jax, "jit", lambda f, **k: asked.append(k) or own(f, **k))
    compiling.jit(_doubled, often=True)(np.ones(3))
    assert [k["compiler_options"][compiling.LEVEL] for k in asked if k.get("compiler_options")] == [3]


def _doubled(x):
    return x + x
