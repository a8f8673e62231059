"""The engines: the order in which they are tried by a fit without a named engine, and those that
run on request."""

import ast
import itertools
from collections.abc import Iterable
from dataclasses import replace

from probml.dataset.dataset import Data
from probml.engines.conjugate.empirical_bayes import EmpiricalBayes
from probml.engines.em import EM
from probml.engines.engine import Engine, problem_of, refusal
from probml.engines.exact import Exact
from probml.engines.laplace import Laplace
from probml.engines.map import MAP
from probml.engines.nuts import NUTS
from probml.engines.svi import SVI
from probml.engines.vb import VB
from probml.errors import ModelError, Refusal

KINDS: tuple[type[Engine], ...] = (Exact, EM, Laplace, NUTS, MAP, SVI, VB, EmpiricalBayes)
# with smaller steps than the default where the user did not ask for it
NUTS_BY_DEFAULT = NUTS(target_accept=0.9)
# of a fit without a named engine: those that neither refuse nor skip the problem are tried in this
# order, one that defers after the next
SELECTION_ORDER: tuple[Engine, ...] = (Exact(), EM(), Laplace(), MAP(), NUTS_BY_DEFAULT)
ON_REQUEST: tuple[Engine, ...] = (SVI(), VB())  # EmpiricalBayes needs names of settings


def choose(data: Data, seconds: float | None = None) -> tuple[tuple[Engine, ...],
                                                              dict[Engine, Refusal | str]]:
    """The engines that a fit without a named engine tries, in order, and the reasons against the
    others: a refusal, or words.

    Args:
        seconds: the time limit of NUTS; None: no limit.

    Raises:
        Refusal: all of them refuse. ModelError: `seconds` is no positive number.
    """
    ranks: dict[Engine, float] = {}
    reasons: dict[Engine, Refusal | str] = {}
    order = (*SELECTION_ORDER[:-1], replace(NUTS_BY_DEFAULT, seconds=seconds))
    for position, engine in enumerate(order):
        why: Refusal | str | None = refusal(engine, data, asked=False)
        if why is None:
            problem = problem_of(engine, data, False)
            why = engine.reason_to_skip(problem)
        if why:
            reasons[engine] = why
        else:
            ranks[engine] = position + 1.5 * engine.defers(problem)
    if not ranks:
        messages = [str(advised(why, data)) for why in reasons.values() if isinstance(why, Refusal)]
        raise Refusal(f"no engine can fit model '{data.model.name}'. Change the model, or add "
                      "the values of a latent site to the data. The reasons:\n- "
                      + "\n- ".join(dict.fromkeys(messages)))
    return tuple(sorted(ranks, key=ranks.__getitem__)), reasons


def advised(why: Refusal, data: Data, tried: str = "") -> Refusal:
    """A refusal that offers those of the engines it names that can fit these data; if none can, the
    first engine that can.

    Args:
        tried: the name of the engine that refused while it ran.
    """
    if not why.instead:
        return why
    capable = able(why.instead, data, tried)
    others = [kind.__name__ for kind in KINDS if kind.__name__ not in why.instead]
    return why.offering(capable or able(others, data, tried, 1))


def able(names: Iterable[str], data: Data, tried: str = "", limit: int | None = None) -> list[str]:
    """Those of the named engines that can fit the data, in order.

    Args:
        tried: the name of one that is left out. limit: the number of engines, at most.
    """
    engines = {type(engine).__name__: engine for engine in (*SELECTION_ORDER, *ON_REQUEST)}
    able_names = (name for name in names if name != tried and name in engines
                  and refusal(engines[name], data, asked=False) is None)
    return list(itertools.islice(able_names, limit))


def parse_engine(text: str) -> Engine:
    """The engine with this repr, as in a file or `fit.engine`; nothing is executed.

    Raises:
        ModelError: it is none of this library, or has settings that are no plain values.
    """
    try:
        call = ast.parse(text, mode="eval").body
        kind = {kind.__name__: kind for kind in KINDS}[call.func.id]  # type: ignore[attr-defined]
        return kind(**{word.arg: ast.literal_eval(word.value)
                       for word in call.keywords})  # type: ignore[attr-defined]
    except (AttributeError, KeyError, SyntaxError, TypeError, ValueError):
        raise ModelError(f"compare: a model was fitted with {text}, which is not an engine of "
                         f"probml, so compare cannot fit it again. Give an engine for this model, "
                         f"compare(..., engines={{name: ...}})") from None
