"""Files whose parameters have names of before: the same file by the names of now."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from probml.language.renamed import rekeyed

NAMED = ("params", "given", "errors", "drawn/values", "drawn/inside", "drawn/worth")  # /name


def by_new_names(meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray],
                 renamed: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What a file says, and its arrays. `former`, old name → new one, are those that it had: units,
    standard errors and what lies in the order of names are put right by who reads them.

    Args:
        renamed: of the model.
    """
    held = {name.rpartition("/")[2] for name in arrays if name.startswith(("params/", "given/"))}
    former = {old: new for old, new in renamed.items() if old in held}
    if not former:
        return {**meta, "former": {}}, dict(arrays)
    out = {name: rekeyed(meta[name], former) for name in ("shapes", "names", "columns")
           if name in meta}
    out["pattern"] = [(former.get(name, name), word) for name, word in meta["pattern"]]
    if "effects" in meta:
        out["effects"] = [former.get(name, name) for name in meta["effects"]]
    structure = rekeyed(meta.get("structure", {}), former)
    for said in structure.get("sites", {}).values():
        said["parents"] = sorted(former.get(name, name) for name in said["parents"])
    at = {f"{place}/{old}": f"{place}/{new}" for place in NAMED for old, new in former.items()}
    return ({**meta, **out, "structure": structure, "former": former},
            {at.get(name, name): value for name, value in arrays.items()})
