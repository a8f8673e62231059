"""Names for values that pass between the rooms and have no class of their own. NumPyro and
jaxtyping call a pytree and a message of a handler so too.
"""

from collections.abc import Mapping
from typing import Any

from jax.typing import ArrayLike as ArrayLike

PyTree = Any  # arrays in nested lists, tuples, dicts and records
Message = Mapping[str, Any]  # what NumPyro's handlers say of one site: its name, fn, value, ...
SiteValues = Mapping[str, ArrayLike]  # site or input → its value
Json = Mapping[str, Any]  # an object of a JSON file: texts, numbers, lists and such objects
DataLike = Any  # site → array; a table of pandas, Polars or Arrow; or a Source of rows
FitOrEstimator = Any  # a Fit, or an estimator after its fit
