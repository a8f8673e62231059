"""Random models, random data, the right answers by brute force, and what must hold of every answer.

For tests of probml and of what is built on it (a family, an engine, a kind of latent):

    from hypothesis import given
    from probml import testing

    @given(testing.cases())
    def test_every_answer_is_right(case):
        testing.check(case)

`cases()` draws a `Case`: a recipe of a model (a DAG of discrete and continuous sites of all
families, chains, plates, latents, inputs, effects of groups, priors) and data for it with holes. It
prints as JSON and is made again of it. `check` holds it to all CLAIMS; `truth` is the oracle, which
knows nothing of probml's engines: it runs the model under NumPyro's handlers at every joint state.
`cases` needs hypothesis (probml[test]).
"""

from probml.assessment.enumeration.brute_force import Truth as Truth
from probml.assessment.enumeration.brute_force import truth as truth
from probml.assessment.enumeration.separable_integral import Unknown as Unknown
from probml.testing.case import Case as Case
from probml.testing.claims import CLAIMS as CLAIMS
from probml.testing.claims import check as check
from probml.testing.recipe import build as build
from probml.testing.recipe import generated as generated
from probml.testing.strategies import cases as cases
from probml.testing.strategies import recipes as recipes
