"""What those need who add something of their own: an engine, a family of distributions, a kind of
latent variable, a posterior, a source of rows, a place where rows lie.

Each is one file of yours; docs/how_to/extend.md has the six, with an example of each. Names and
signatures here are held by a test and change with a warning; what else the rooms of the library
have may change at any time.

| to add | derive from | then |
|---|---|---|
| an engine | `Engine` | `model.fit(data, Mine())` |
| a family | `Likelihood`, `Form`, `Prior` | `register_family(Entry(...))` |
| a kind of latent variable | `Quadrature`, or what `Latent` asks for | `register_latent(Mine())` |
| a posterior | what `Posterior` asks for | `@register_posterior`; an engine returns it |
| a source of rows | `Source` | `model.fit(Mine(...))` |
| a place of rows | `Place` | `model.fit(data, where=...)` |
"""

from probml.dataset.source import Part, Source
from probml.device.rows import Known, Rows
from probml.engines.engine import Capabilities, Engine, Outcome, Problem, Status, check_settings
from probml.engines.findings import Code, Finding
from probml.engines.progress import Progress, StepResult, iterate
from probml.engines.start.labelling import check_distinct
from probml.engines.start.start import starts
from probml.errors import DataError, ModelError, Refusal
from probml.evidence.density import from_unbounded, log_posterior, to_unbounded
from probml.evidence.e_step import expect
from probml.factors.naturals import log_prior, naturals
from probml.families import Entry, Form, Likelihood, Prior, domains, log_linear
from probml.families import register as register_family
from probml.families.domains import Domain
from probml.families.form import backward
from probml.families.forms.dirichlet import DIRICHLET
from probml.families.forms.gaussian import GAUSSIAN
from probml.families.forms.inverse_gamma import INVERSE_GAMMA
from probml.fits.places import Place
from probml.latents.grouping import register as register_latent
from probml.latents.latent import Group, Latent, Seen
from probml.latents.quadrature import Nodes, Quadrature, joint_density, where_seen
from probml.numerics.compiling import jit
from probml.plan.blocks import Block, blocks, users
from probml.plan.plan import Plan
from probml.posteriors.closed import Closed
from probml.posteriors.conjugate import Marginals
from probml.posteriors.posterior import Draws, Posterior
from probml.posteriors.posterior import register as register_posterior
from probml.structure.structure import Structure
from probml.updates.updates import Objective, natural_parameters

__all__ = [
    "DIRICHLET", "GAUSSIAN", "INVERSE_GAMMA", "Block", "Capabilities", "Closed", "Code",
    "DataError", "Domain", "Draws", "Engine", "Entry", "Finding", "Form", "Group", "Known",
    "Latent", "Likelihood", "Marginals", "ModelError", "Nodes", "Objective", "Outcome", "Part",
    "Place", "Plan", "Posterior", "Prior", "Problem", "Progress", "Quadrature", "Refusal",
    "Rows", "Seen", "Source", "Status", "StepResult", "Structure", "backward", "blocks",
    "check_distinct", "check_settings", "domains", "expect", "from_unbounded", "iterate",
    "jit", "joint_density", "log_linear", "log_posterior", "log_prior", "natural_parameters",
    "naturals", "register_family", "register_latent", "register_posterior", "starts",
    "to_unbounded", "users", "where_seen",
]
