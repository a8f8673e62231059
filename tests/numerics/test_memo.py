"""What functions have found is let go of, and what is asked for again and again stays."""

import gc
import re
import weakref
from pathlib import Path

import jax
import numpy as np

import cases
import probml
from probml.jaxpr import memo
from probml.numerics.kept import programs

PACKAGE = Path(probml.__file__).parent
BY_NUMBERS = {  # few entries: of arrays that small numbers say, of settings, of names and sizes, of what others sent
    "elimination/host.py", "engines/svi.py", "families/forms/sticks.py", "fits/cluster.py", "jaxpr/memo.py", "latents/quadrature.py",
    "numerics/outside/sent.py", "plan/groupings.py"}


class Found:
    pass


def test_what_is_not_asked_for_again_goes_and_the_rest_stays_as_it_is():
    asked = []

    @memo.memo(8)
    def found(name, beside=0):
        asked.append(name)
        return Found()

    kept, left = found("kept"), weakref.ref(found("left"))
    assert found("kept") is kept and asked == ["kept", "left"]
    memo.release_half()
    assert found("kept") is kept and left() is not None
    memo.release_half()
    gc.collect()
    assert found("kept") is kept and left() is None
    memo.release_half(), memo.release_half()
    assert found("kept") is not kept and asked == ["kept", "left", "kept"]
    assert found("left", beside=1) is not found("left", beside=2)
    again = found("kept")
    found.cache_clear()
    assert found("kept") is not again


def test_a_memo_has_no_more_entries_than_it_may():
    asked = []
    found = memo.memo(2)(lambda name: asked.append(name) or name)
    for name in (1, 2, 3, 1, 3, 3):
        assert found(name) == name
    assert asked == [1, 2, 3, 1]


def test_no_shape_that_was_met_once_stays_for_ever():
    """Neither its structure nor its plan, after programs were let go of some times."""
    met = []
    for a in (2.0, 2.5, 3.0):
        fit = cases.coin(a=a, b=1.5).fit({"toss": [1, 0, 1, 0, 0]})
        np.testing.assert_allclose(fit.params["heads"], (a + 2) / (a + 6.5), rtol=1e-6)
        met += [weakref.ref(fit.structure)]
    del fit
    for _ in range(12):
        for shelf in list(programs._CACHES):
            shelf.release_half()
        memo.release_half()
    jax.clear_caches()
    gc.collect()
    assert [structure() is None for structure in met[:2]] == [True, True]


def test_every_cache_of_plans_lets_go():
    """A functools.lru_cache forgets nothing until it is full."""
    with_own = {str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py")
                if re.search(r"functools\.lru_cache", path.read_text())}
    assert {name for name in with_own if not name.startswith(("models/", "data/"))} == BY_NUMBERS
