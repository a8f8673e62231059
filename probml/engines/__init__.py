"""How a posterior is found: one engine per file; `engine.py` says what an engine is."""

from probml.engines.conjugate.empirical_bayes import EmpiricalBayes
from probml.engines.em import EM
from probml.engines.engine import Engine, Outcome, Problem, Status
from probml.engines.exact import Exact
from probml.engines.laplace import Laplace
from probml.engines.map import MAP
from probml.engines.nuts import NUTS
from probml.engines.svi import SVI
from probml.engines.vb import VB

__all__ = ["EM", "MAP", "NUTS", "SVI", "VB", "EmpiricalBayes", "Engine", "Exact", "Laplace",
           "Outcome", "Problem", "Status"]
