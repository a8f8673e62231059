"""probml: write one generative function, say what was observed; the rest is inferred.

    @probml.model
    def coin(a: float, b: float):
        bias = numpyro.sample("bias", dist.Beta(a, b))
        with probml.rows():
            numpyro.sample("toss", dist.Bernoulli(bias))

    fit = coin(a=1.0, b=1.0).fit({"toss": [1, 0, 1, 1]})
    fit.summary(), fit.posterior("bias"), fit.simulate(3)

| | |
|---|---|
| write | `model` (bound: a `Model`), `rows`, `MarkovChain`, `GaussianChain`, `stationary` |
| | `StickBreaking`, `dirichlet_process` |
| infer | `model.fit(data, engine)`: `Exact`, `EM`, `MAP`, `NUTS`, `Laplace`, `SVI`, `VB` |
| | or `EmpiricalBayes`, which chooses settings; `Checkpoint` to go on after a stop |
| | `watch(callback)`: the progress of long work for a logger |
| ask | a `Fit`: predict, predict_proba, decode, impute, log_prob, simulate, summary, report |
| evaluate | `compare`, `calibration` (a `Calibration`), `decide`, `model.check` |
| save | `fit.save(path)`, `load(path)` |
| cite | `show_versions()`, `cite(model, engine)`; the command line `probml --help` |
| errors | `DataError`, `ModelError`, `Refusal`; warnings: `ConvergenceWarning`, |
| | `ReliabilityWarning` |

`probml.models` has ready-made models: functions, and scikit-learn estimators.
"""

from typing import TYPE_CHECKING

from probml.errors import meant as _meant
from probml.numerics.process.libraries import lazy as _late

if TYPE_CHECKING:  # for editors
    from probml.assessment.decisions import decide as decide
    from probml.assessment.pages.citations import cite as cite
    from probml.assessment.pages.versions import show_versions as show_versions
    from probml.assessment.reliability import Calibration as Calibration
    from probml.assessment.reliability import calibration as calibration
    from probml.comparison.compare import compare as compare
    from probml.engines import EM as EM
    from probml.engines import MAP as MAP
    from probml.engines import NUTS as NUTS
    from probml.engines import SVI as SVI
    from probml.engines import VB as VB
    from probml.engines import EmpiricalBayes as EmpiricalBayes
    from probml.engines import Exact as Exact
    from probml.engines import Laplace as Laplace
    from probml.errors import ConvergenceWarning as ConvergenceWarning
    from probml.errors import DataError as DataError
    from probml.errors import ModelError as ModelError
    from probml.errors import Refusal as Refusal
    from probml.errors import ReliabilityWarning as ReliabilityWarning
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
    from probml.numerics.outside.watching import watch as watch

__version__ = "0.1.0"
_LATE = {  # name → its module
    "Calibration": "assessment.reliability",
    "Checkpoint": "numerics.outside.checkpoint",
    "ConvergenceWarning": "errors",
    "DataError": "errors",
    "EM": "engines",
    "EmpiricalBayes": "engines",
    "Exact": "engines",
    "Fit": "interface.fit",
    "GaussianChain": "language.gaussian_chain",
    "Laplace": "engines",
    "MAP": "engines",
    "MarkovChain": "language.markov_chain",
    "Model": "interface.model",
    "ModelError": "errors",
    "NUTS": "engines",
    "Refusal": "errors",
    "ReliabilityWarning": "errors",
    "SVI": "engines",
    "StickBreaking": "language.stick_breaking",
    "VB": "engines",
    "calibration": "assessment.reliability",
    "cite": "assessment.pages.citations",
    "compare": "comparison.compare",
    "decide": "assessment.decisions",
    "dirichlet_process": "language.stick_breaking",
    "load": "interface.loading",
    "model": "interface.model",
    "rows": "language.language",
    "show_versions": "assessment.pages.versions",
    "stationary": "language.markov_chain",
    "watch": "numerics.outside.watching",
}
__all__ = [*_LATE]


def _hint(name: str) -> str:
    found = _meant(name, __all__, {"data": "the folder probml/data: importlib.resources.files"
                                           "('probml.data')"})
    return found or "; models and classes are in probml.models" * (not name.startswith("_"))


__getattr__, __dir__ = _late("probml", _LATE, ("__version__",), _hint)
