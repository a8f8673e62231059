"""probml: write one generative function, say what you saw; everything you did not say is
inferred."""

from probml.assessment.decisions import decide as decide
from probml.assessment.reliability import Calibration as Calibration
from probml.assessment.reliability import calibration as calibration
from probml.engines import EM as EM
from probml.engines import MAP as MAP
from probml.engines import NUTS as NUTS
from probml.engines import SVI as SVI
from probml.engines import VB as VB
from probml.engines import EmpiricalBayes as EmpiricalBayes
from probml.engines import Exact as Exact
from probml.engines import Laplace as Laplace
from probml.errors import DataError as DataError
from probml.errors import ModelError as ModelError
from probml.errors import Refusal as Refusal
from probml.interface.fit import Fit as Fit
from probml.interface.loading import load as load
from probml.interface.model import Model as Model
from probml.interface.model import model as model
from probml.language.gaussian_chain import GaussianChain as GaussianChain
from probml.language.language import rows as rows
from probml.language.markov_chain import MarkovChain as MarkovChain
from probml.language.markov_chain import stationary as stationary
from probml.language.stick_breaking import StickBreaking as StickBreaking
from probml.language.stick_breaking import dirichlet_process as dirichlet_process
from probml.numerics.outside.checkpoint import Checkpoint as Checkpoint

__version__ = "0.1.0"


def __getattr__(name: str):
    if name == "compare":  # a lazy door: comparing is rare, and `import probml` is everybody's
        from probml.comparison.compare import compare

        globals()["compare"] = compare
        return compare
    raise AttributeError(f"module 'probml' has no attribute '{name}'")


def __dir__():
    return sorted({*globals(), "compare"})
