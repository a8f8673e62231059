"""Random models, random data, the right answers by brute force, and what must hold of every answer.

For tests:

    from hypothesis import given
    import random_models as testing

    @given(testing.cases())
    def test_every_answer_is_right(case):
        testing.check(case)

`cases()` draws a `Case`: a recipe of a model (a DAG of discrete and continuous sites of all
families, chains, plates, latents, inputs, effects of groups, priors) and data for it with holes. It
prints as JSON and is made again of it. `check` holds it to all CLAIMS; `truth` is the oracle, which
knows nothing of probml's engines: it runs the model under NumPyro's handlers at every joint state.
`cases` needs hypothesis.
"""

from enumeration.separable_integral import Unknown as Unknown

from random_models.brute_force import Truth as Truth
from random_models.brute_force import truth as truth
from random_models.case import Case as Case
from random_models.claims import CLAIMS as CLAIMS
from random_models.claims import check as check
from random_models.recipe import build as build
from random_models.recipe import generated as generated
from random_models.strategies import cases as cases
from random_models.strategies import recipes as recipes
