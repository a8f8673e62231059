"""A function without rows run forward: what it samples is drawn, parameters at their values."""

import contextlib
from collections.abc import Callable, Collection, Hashable, Mapping
from types import MappingProxyType

import jax
import numpy as np
from numpyro import handlers
from numpyro.primitives import Messenger

from probml.dataset.coding import indices as codes
from probml.errors import ModelError, listed
from probml.families import registry
from probml.interface.functions.find_rows import AsRows
from probml.interface.functions.given.params import ParamsAsSites, ParamSpec
from probml.interface.functions.given.values import as_given
from probml.interface.functions.messages import is_argument
from probml.interface.functions.readings import Reading
from probml.interface.functions.scan_starts import ScanCall
from probml.interface.functions.survey import survey_run
from probml.jaxpr.memo import memo
from probml.language.language import Bound, RowsUnknown, mentions_rows, row_scope
from probml.language.named_rows import Tables
from probml.language.settings import freeze, thaw
from probml.numerics.compiling import ASKED, jit
from probml.numerics.process.making import unchecked
from probml.numerics.process.threads import single_thread
from probml.queries import step_posteriors
from probml.queries.fitted import Fitted
from probml.typing import ArrayLike, SiteValues

MAX_KNOWN_RUNS = 256  # of which it is known whether they have loops
LOOPS = ("scan", "while", "cond")


def lacks_rows(model: Bound) -> bool:
    """Whether a function that meets no data yet will be read by these."""
    if isinstance(model.generative, Reading) or mentions_rows(model.generative.function):
        return False
    try:
        survey_run(model, {}, {})
    except Exception as error:  # or it needs its data: whether it names rows is seen then
        return not isinstance(error, RowsUnknown)
    return True


class _Sharp(Messenger):
    """Draws every site as `registry.sharp` does: the data of a fit are floats, also trials of a
    binomial, of which NumPyro cannot draw. What a scan observes is drawn at its step, so that later
    steps follow from it."""

    def process_message(self, msg: dict) -> None:
        if (scan := ScanCall.of(msg)) is not None:
            def drawn_body(carry: object, x: object) -> object:
                with _Sharp(), AsRows():
                    return scan.body(carry, x)

            msg["args"] = scan._replace(body=drawn_body)
            msg["kwargs"]["substitute_stack"] = [
                (kind, {name: value for name, value in values.items() if not is_argument(value)}
                 if kind == "condition" and isinstance(values, Mapping) else values)
                for kind, values in msg["kwargs"]["substitute_stack"]]
        if msg["type"] == "sample" and msg["value"] is None:
            msg["fn"] = registry.sharp(msg["fn"])


class _Run:
    """A run of a function as a value, equal to another of the same function and arguments."""

    def __init__(self, run: Callable, key: Hashable):
        self.run, self.key = run, key

    def __eq__(self, other: object):
        return isinstance(other, _Run) and self.key == other.key

    def __hash__(self):
        return hash(self.key)


@memo(MAX_KNOWN_RUNS)
def _sites_of_loop(run: _Run, values: tuple) -> tuple[str, ...]:
    """The sites of a run that has a loop of JAX's, which compiles whenever it is called without
    jax.jit, in their order; () where it has none, or needs numbers.

    Args:
        values: (name, shape, type) of the values of sites.
    """
    shapes = {name: jax.ShapeDtypeStruct(shape, kind) for name, shape, kind in values}
    names: list[str] = []

    def named(key: jax.Array, values: SiteValues) -> dict:
        drawn = run.run(key, values)
        names.extend(drawn)
        return drawn

    try:
        closed = jax.make_jaxpr(named)(jax.random.PRNGKey(0), shapes)
    except Exception:  # whatever a user's function raises
        return ()
    return tuple(names) if any(str(eqn.primitive) in LOOPS for eqn in closed.eqns) else ()


def _drawn(run: Callable, parts: tuple, key: jax.Array, values: SiteValues) -> SiteValues:
    """The values of a run: one with a loop is a program that is kept, another is run operation by
    operation.

    Args:
        parts: what makes two runs equal.
    """
    try:
        known = _Run(run, freeze(parts))
    except ModelError:  # an argument that cannot be compared
        return run(key, values)
    kinds = tuple((name, value.shape, value.dtype) for name, value in sorted(values.items()))
    names = _sites_of_loop(known, kinds)
    drawn = _compiled(known, key, values) if names else run(key, values)
    return {name: drawn[name] for name in names or drawn}


@jit(static_argnums=0, seldom=ASKED)
def _compiled(run: _Run, key: jax.Array, values: SiteValues):
    return run.run(key, values)


@single_thread()
def run_forward(model: Bound, values: SiteValues, arguments: SiteValues,
                seed: int, params: Mapping[str, ParamSpec] = MappingProxyType({}),
                plates: Collection[str] = ()) -> dict[str, np.ndarray]:
    """One run of a function: every site that is not among `values`, and what is computed.

    Args:
        values: site → its value.
        arguments: those of the function that no setting binds, and others to be changed.
        plates: plates; with them only what stands in one of these is kept.

    Raises:
        ModelError: an argument is missing or unknown; the function fails, as where these arguments
            ask for parameters of other shapes.
    """
    known_names = model.generative.arguments
    settings = model.bound
    missing = [name for name in known_names if name not in settings and name not in arguments]
    unknown = [name for name in arguments if name not in known_names]
    if missing or unknown:
        what = f"{'needs the' if missing else 'has no'} argument '{(missing or unknown)[0]}'"
        raise ModelError(f"simulate: model '{model.name}' {what}. Use the arguments of its "
                         f"function, {listed(known_names)}")
    fixed = {name: jax.numpy.asarray(value) for name, value in values.items()}
    call_args = {name: as_given(value) for name, value in {**settings, **arguments}.items()}
    key = jax.random.PRNGKey(seed)

    def run(key: jax.Array, fixed: SiteValues) -> dict:
        with (unchecked(), handlers.block(), handlers.trace() as trace,
              _Sharp(), handlers.seed(rng_seed=key), handlers.substitute(data=fixed), AsRows(),
              ParamsAsSites(params)):
            model.generative.run(call_args, {})
        return {name: site["value"] for name, site in trace.items()
                if site["type"] in ("sample", "deterministic") and name not in fixed
                and type(site.get("fn")).__name__ != "Unit"
                and (not plates or any(frame.name in plates for frame in site["cond_indep_stack"]))}

    try:
        drawn = (run(key, fixed) if plates  # whose tables have sizes that are no arguments
                 else _drawn(run, (model, call_args, dict(params)), key, fixed))
        return {name: np.asarray(value) for name, value in drawn.items()}
    except ModelError:
        raise
    except Exception as error:
        given, fitted = ({name: np.shape(value) for name, value in values.items()}
                         for values in (arguments, fixed))
        raise ModelError(
            f"simulate: the function of model '{model.name}' fails with arguments of the shapes "
            f"{given} and fitted parameters of the shapes {fitted}: {type(error).__name__}: "
            f"{error}. Pass arguments whose shapes fit the model"
        ) from error


def run_tables_forward(model: Bound, sizes: Mapping[str, int], arguments: SiteValues,
                       seed: int) -> dict[str, np.ndarray]:
    """One run of a function of several tables, so many rows of each: every site in their rows."""
    with row_scope(Tables(sizes)):
        return run_forward(model, {}, arguments, seed, plates=tuple(sizes))


def _encode_labels(fit: Fitted, name: str, value: object) -> ArrayLike:
    """New values of an input, its labels as the codes that the fit has for them.

    Raises:
        ModelError: a label that the fit does not know.
    """
    labels = fit.names.get(name)
    if labels is None or name not in fit.structure.indexed:
        return value
    code = {label: codes.axis(fit.structure, name)[0] + i for i, label in enumerate(labels)}
    array = np.asarray(value, object)
    unknown = next((label for label in array.ravel() if label not in code), None)
    if unknown is not None:
        raise ModelError(f"simulate: '{name}' has the label {unknown!r}, which is not one of its "
                         f"labels. Use one of {listed(labels)}")
    return np.array([code[label] for label in array.ravel()], int).reshape(array.shape)


def simulate_joint(fit: Fitted, arguments: SiteValues, seed: int,
                   plug_in: bool) -> dict[str, np.ndarray]:
    """What a function observes, once more, from what was fitted: at one draw of the parameters, at
    the point where there is none or `plug_in`; and at a draw of steps that are integrated out, or
    their means.

    Args:
        arguments: new values; of those that are left out the ones that were fitted, or defaults.
    """
    reading = fit.model.generative
    values = dict(fit.point)
    if not plug_in and not fit.certain:
        values = {name: value[0] for name, value in fit.draws(1, seed).items()
                  if name in fit.structure.sites}
    values = (reading.steps.split_steps(values)
              | step_posteriors.steps_at(fit, values, seed, plug_in))
    fitted_args = {} if fit.data is None else {
        own: fit.data.inputs_of_one_row[name] for name, own in reading.arg_names.items()}
    defaults = {name: thaw(value) for name, value in reading.generative.defaults.items()}
    new_args = {own: _encode_labels(fit, name, arguments[own]) for name,
                own in reading.arg_names.items()
                if own in arguments}
    own = {**defaults, **fitted_args, **fit.model.bound, **arguments, **new_args}
    origin = type(fit.model)(reading.generative, ())
    absent = {name: None for name, default in defaults.items()
              if default is None and name not in arguments}
    try:
        return run_forward(origin, values, own, seed, reading.params)
    except ModelError:  # as what was observed is longer or shorter than the new arguments
        if arguments and absent:
            with contextlib.suppress(ModelError):
                return run_forward(origin, values, own | absent, seed, reading.params)
        raise
