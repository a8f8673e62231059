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
# ruff: noqa: F401 — names are here to be imported

from probml.dataset.source import Part as Part
from probml.dataset.source import Source as Source
from probml.device.rows import Known as Known
from probml.device.rows import Rows as Rows
from probml.engines.engine import Capabilities as Capabilities
from probml.engines.engine import Engine as Engine
from probml.engines.engine import Outcome as Outcome
from probml.engines.engine import Problem as Problem
from probml.engines.engine import Status as Status
from probml.engines.engine import check_settings as check_settings
from probml.engines.findings import Code as Code
from probml.engines.findings import Finding as Finding
from probml.engines.progress import Progress as Progress
from probml.engines.progress import StepResult as StepResult
from probml.engines.progress import iterate as iterate
from probml.engines.start.start import check_distinct as check_distinct
from probml.engines.start.start import starts as starts
from probml.errors import DataError as DataError
from probml.errors import ModelError as ModelError
from probml.errors import Refusal as Refusal
from probml.evidence.density import flat as to_unbounded
from probml.evidence.density import posterior as log_posterior
from probml.evidence.density import unflat as from_unbounded
from probml.evidence.e_step import expect as expect
from probml.factors.naturals import log_prior as log_prior
from probml.factors.naturals import naturals as naturals
from probml.families import Entry as Entry
from probml.families import Form as Form
from probml.families import Likelihood as Likelihood
from probml.families import Prior as Prior
from probml.families import domains as domains
from probml.families import log_linear as log_linear
from probml.families import register as register_family
from probml.families.domains import Domain as Domain
from probml.families.form import backward as backward
from probml.families.forms.dirichlet import DIRICHLET as DIRICHLET
from probml.families.forms.gaussian import GAUSSIAN as GAUSSIAN
from probml.families.forms.inverse_gamma import INVERSE_GAMMA as INVERSE_GAMMA
from probml.fits.places import Place as Place
from probml.language.former_members import warn as _warn
from probml.latents.grouping import register as register_latent
from probml.latents.latent import Group as Group
from probml.latents.latent import Latent as Latent
from probml.latents.latent import Seen as Seen
from probml.latents.quadrature import Nodes as Nodes
from probml.latents.quadrature import Quadrature as Quadrature
from probml.latents.quadrature import joint_density as joint_density
from probml.latents.quadrature import where_seen as where_seen
from probml.numerics.compiling import jit as jit
from probml.plan.blocks import Block as Block
from probml.plan.blocks import blocks as blocks
from probml.plan.blocks import users as users
from probml.plan.plan import Plan as Plan
from probml.posteriors.closed import Closed as Closed
from probml.posteriors.conjugate import Marginals as Marginals
from probml.posteriors.posterior import Draws as Draws
from probml.posteriors.posterior import Posterior as Posterior
from probml.posteriors.posterior import register as register_posterior
from probml.structure.structure import Structure as Structure
from probml.updates.objective import Objective as Objective
from probml.updates.updates import natural_parameters as natural_parameters

_FORMER = {"Turn": "StepResult", "read": "natural_parameters"}


def __getattr__(name: str) -> object:
    """What had another name before."""
    if name not in _FORMER:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    _warn(__name__, name, _FORMER[name])
    return globals()[_FORMER[name]]
