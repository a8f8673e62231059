"""Every model of the tables in tests/ with its data: name → a case that `fit` takes, and the log
density of the plain function that a long run of NumPyro's NUTS samples.

A name is its table and the function: "stan_guide/change_point". Tables: tests/user_models.py
("users"), the lists of models written elsewhere in tests/interface, tests/engines/hierarchy_models.py
("hierarchies"), and new_models.py, more_models.py and fifth_ to eighth_models.py of this folder
("new", "more", "fifth", "sixth", "seventh", "eighth").
"""

import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
for folder in (HERE, HERE.parent / "engines", HERE.parent / "interface", HERE.parent):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

import eighth_models  # noqa: E402
import fifth_models  # noqa: E402
import hierarchy_models  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import more_models  # noqa: E402
import new_models  # noqa: E402
import numpy as np  # noqa: E402
import seventh_models  # noqa: E402
import sixth_models  # noqa: E402
import written_elsewhere  # noqa: E402
from numpyro import handlers  # noqa: E402

import probml  # noqa: E402
import user_models  # noqa: E402
import user_truth  # noqa: E402

LISTS = ("made_hierarchies", "stan_guide", "pymc_gallery", "pasted_rethinking", "pasted_forum",
         "numpyro_more", "numpyro_examples", "pasted_ecology", "pasted_bugs")


@dataclass(frozen=True, eq=False)
class Case:
    """One model with its data.

    Attributes:
        build: () → the bound model that is fitted.
        read: () → the data of `fit`.
        plain: () → (a NumPyro function with its observations, its arguments by name): what NumPyro
            samples. None: `user` says its density, or the table has truths of its own.
        user: of a case of user_models.py, its own density by brute force.
        hopeless: why there are no posterior means and standard deviations that an honest method could
            report: then nothing is compared, and the fit must warn.
    """

    name: str
    build: Callable[[], Any]
    read: Callable[[], Any]
    plain: Callable[[], tuple[Callable, Mapping[str, Any]]] | None
    user: user_truth.Case | None = None
    hopeless: str = ""

    @property
    def source(self) -> str:
        return self.name.split("/")[0]


def every() -> dict[str, Case]:
    """All cases, by name."""
    out = [_of_a_user(case) for case in user_models.CASES if case.truth != "refused"]
    for source in LISTS:
        table = importlib.import_module(source)
        by_hand, hopeless = getattr(table, "BY_HAND", {}), getattr(table, "HOPELESS", {})
        out += [_from_elsewhere(source, case, by_hand.get(case.name), hopeless.get(case.name, ""))
                for case in table.CASES if not case.refused]
    out += [_of_a_function("hierarchies", name, *pair, hierarchy_models.BY_HAND.get(name))
            for name, pair in hierarchy_models.MODELS.items()]
    for source, own in (("new", new_models.NEW), ("more", more_models.MORE),
                        ("fifth", fifth_models.FIFTH), ("sixth", sixth_models.SIXTH),
                        ("seventh", seventh_models.SEVENTH), ("eighth", eighth_models.EIGHTH)):
        out += [Case(f"{source}/{name}", functools.partial(_bound, pair[0]),
                     functools.partial(dict, pair[1]), None, hopeless=own.hopeless.get(name, ""))
                for name, pair in own.models.items()]
    return {case.name: case for case in out}


def chosen(names: list[str], source: str | None, shard: str | None = None) -> list[Case]:
    """The cases that a command line asks for: some names or parts of names, a table, or the i-th of
    n parts ("0/4")."""
    found = [case for case in every().values()
             if (not names or any(name in (case.name, case.name.split("/")[1]) for name in names))
             and source in (None, case.source)]
    if shard is None:
        return found
    part, parts = map(int, shard.split("/"))
    return found[part::parts]


def _bound(function: Callable) -> Any:
    return probml.model(function)()


def _of_a_user(case: user_truth.Case) -> Case:
    return Case(f"users/{case!r}", lambda: case.model, lambda: case.data, None, case)


def _from_elsewhere(source: str, case: written_elsewhere.Case, summed: Callable | None,
                    hopeless: str) -> Case:
    """A model of a table written elsewhere; `summed` as of `_of_a_function`."""
    names = inspect.signature(written_elsewhere.inner(case.function)).parameters

    def plain():
        sites = {name: value for name, value in case.data.items() if name not in names}
        arrays = {name: jnp.asarray(value) if np.ndim(value) else value
                  for name, value in case.data.items() if name in names}
        function = summed or case.function
        function = handlers.condition(function, sites) if sites else function
        return function, {**case.settings, **arrays, **case.plain}

    return Case(f"{source}/{case.name}", lambda: probml.model(case.function)(**case.settings),
                lambda: case.data, plain, hopeless=hopeless)


def _of_a_function(source: str, name: str, function: Callable, data: Mapping[str, Any],
                   summed: Callable | None) -> Case:
    """A function whose arguments are all data; `summed`: the same with its discrete sites summed out
    by hand, for NumPyro."""
    def plain():
        arrays = {key: jnp.asarray(value) if np.ndim(value) else value
                  for key, value in data.items()}
        return summed or function, arrays

    return Case(f"{source}/{name}", lambda: probml.model(function)(), lambda: data, plain)
