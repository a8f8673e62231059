"""Names that parameters of the functions had before version 0.2 → their names now. The old ones
work with a DeprecationWarning (language/renamed.py) until the next minor version."""

from collections.abc import Mapping
from typing import Any

INTERCEPT = {"bias": "intercept"}
SIGMA = {"noise": "sigma"}
REGRESSION = INTERCEPT | SIGMA


def of_mixed(settings: Mapping[str, Any]) -> dict[str, str]:
    """Those of mixed_model, whose parameters bear the names of its groupings."""
    groupings = settings["effects"]
    renamed = {f"{name}_spread": f"sd_{name}" for name in groupings} | {
        f"{name}_turn": f"corr_cholesky_{name}" for name in groupings}
    return {old: new for old, new in (REGRESSION | renamed).items() if old not in groupings}
