"""probml: write one generative function, say what you saw; everything you did not say is inferred."""

from probml.calibration import Calibration as Calibration
from probml.calibration import calibration as calibration
from probml.compare import compare as compare
from probml.decisions import decide as decide
from probml.engines import EM as EM
from probml.engines import MAP as MAP
from probml.engines import NUTS as NUTS
from probml.engines import SVI as SVI
from probml.engines import Exact as Exact
from probml.engines import Laplace as Laplace
from probml.fit import Fit as Fit
from probml.language import ModelError as ModelError
from probml.language import Refusal as Refusal
from probml.language import rows as rows
from probml.loading import load as load
from probml.markov_chain import MarkovChain as MarkovChain
from probml.markov_chain import stationary as stationary
from probml.tables import DataError as DataError
from probml.verbs import Model as Model
from probml.verbs import model as model

__version__ = "0.1.0"
