"""How a posterior is found: one engine per file; `engine.py` says what an engine is."""

from probml.engines.conjugate.empirical_bayes import EmpiricalBayes as EmpiricalBayes
from probml.engines.em import EM as EM
from probml.engines.engine import Engine as Engine
from probml.engines.engine import Outcome as Outcome
from probml.engines.engine import Problem as Problem
from probml.engines.engine import Status as Status
from probml.engines.exact import Exact as Exact
from probml.engines.laplace import Laplace as Laplace
from probml.engines.map import MAP as MAP
from probml.engines.nuts import NUTS as NUTS
from probml.engines.svi import SVI as SVI
from probml.engines.vb import VB as VB
