"""Runs the generative function once and records NumPyro's messages. Only this file reads them."""

import contextlib
import traceback
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.typing import ArrayLike
from numpyro.primitives import Messenger

from probml.errors import ModelError, listed, shortly
from probml.families import domains, registry
from probml.families.densities.censored import accurate
from probml.language.language import Bound, chain_length_scope
from probml.language.measured import as_sites
from probml.language.named_rows import ROWS
from probml.language.settings import thaw
from probml.numerics.process.inline_calls import evaluated
from probml.numerics.process.making import unchecked

DETERMINISTIC = "deterministic"  # NumPyro's type of their messages
UNCOUNTED = "uncounted"  # in `infer`: the total of a new row is not known


def peel(fn: dist.Distribution) -> tuple[dist.Distribution, int]:
    """Returns the base distribution below Independent and Expanded wrappers, in the family that it
    equals, and the number of event axes that are batch axes of it."""
    independent, fn = 0, registry.plain(fn)
    while isinstance(fn, dist.Independent | dist.ExpandedDistribution):
        if isinstance(fn, dist.Independent):
            independent += fn.reinterpreted_batch_ndims
        fn = registry.plain(fn.base_dist)
    return fn, independent


def log_weight_of(fn: dist.Distribution | None) -> dist.Unit | None:
    """Returns the log weight of a numpyro.factor, with one value for each member of its plates and
    0 where it is masked; None if fn is a distribution."""
    if isinstance(fn, dist.Unit):
        return fn
    if not isinstance(fn, dist.MaskedDistribution | dist.ExpandedDistribution):
        return None
    base = log_weight_of(fn.base_dist)
    if base is None:
        return None
    mask = fn._mask if isinstance(fn, dist.MaskedDistribution) else True
    return dist.Unit(jnp.broadcast_to(jnp.where(mask, base.log_factor, 0.0), fn.batch_shape))


def rows_frame(msg: dict, frames: Sequence) -> int | None:
    """Returns the position of rows() among a site's plates; None if it is outside rows."""
    return next((i for i, frame in enumerate(frames) if frame.name == "rows"
                 or frame.dim == msg.get(ROWS)), None)


class _Recorder(Messenger):
    """Substitutes the value of every site and records the messages.

    Args:
        values: site → value or code; zeros for other sites.
        index: numbers of the rows.
        lows: site → smallest value, added to its codes (finite.py).
    """

    def __init__(
        self, model: Bound, values: Mapping[str, jax.Array], index: jax.Array | None = None,
        lows: Mapping[str, int] | None = None
    ):
        super().__init__()
        self.model, self.values, self.index, self.lows, self.messages, self.computed = (
            model, values, index, lows or {}, {}, {}
        )

    def process_message(self, msg: dict) -> None:
        name, where = msg.get("name", ""), f"model '{self.model.name}', site '{msg.get('name')}'"
        if msg["type"] == "plate":
            self._set_row_numbers(msg, where)
        if msg["type"] == "param":
            raise ModelError(f"{where}: numpyro.param is not supported, because it has no prior. "
                             f'Write a prior, such as sample("{name}", dist.Normal(0, 10))')
        if msg["type"] == "control_flow":
            self._substitute_in_steps(msg, where)
        if msg["type"] == "prng_key":
            raise ModelError(
                f"model '{self.model.name}': numpyro.prng_key() draws random numbers that are not "
                f"sites of the model, so they cannot be inferred. Write a site, "
                f"sample(\"name\", ...), or pass fixed numbers as an input"
            )
        computed = msg["type"] == DETERMINISTIC and name not in dict(self.model.interventions)
        if computed or msg["type"] == "sample":
            self._check_name(name, where, computed, bool(msg.get("is_observed")))
            (self._record_computed if computed else self._record_sample)(msg, name, where)

    def _set_row_numbers(self, msg: dict, where: str) -> None:
        """Set the indices of the plate of rows, under any name that a scope gives it."""
        if msg["args"][1] not in (None, msg["args"][0]):
            raise ModelError(
                f"{where}: a plate with subsample_size is not supported in a model with rows(). "
                f"Omit subsample_size, and fit with an engine that has batch_rows=, such as "
                f"probml.EM(batch_rows=1000)"
            )
        if self.index is not None and msg["args"][0] == len(self.index):
            msg["value"] = self.index

    def _substitute_in_steps(self, msg: dict, where: str) -> None:
        """Substitute the values of sites inside a scan; sites without a value are sampled."""
        if not self.model.is_joint:
            raise ModelError(f"model '{self.model.name}': {SCAN}")
        values = self.values
        msg["kwargs"]["substitute_stack"].append(
            ("substitute", lambda s: None if s["is_observed"] else values.get(s["name"]))
        )
        if msg["kwargs"]["rng_key"] is None:
            msg["kwargs"]["rng_key"] = jax.random.key(0)

    def _check_name(self, name: str, where: str, computed: bool, observed: bool) -> None:
        if not isinstance(name, str):
            raise ModelError(f"model '{self.model.name}': the name of a site is {name!r}, expected "
                             f'text, such as sample("mean", ...)')
        if name in self.messages or name in self.computed:
            raise ModelError(f"{where}: two sites have the name '{name}'. Give each a different "
                             f"name")
        if name in self.model.inputs:
            raise ModelError(f"{where}: an input has the same name, '{name}'. " + (
                f"Remove obs={name} and the argument '{name}': fit(data) observes the sites that "
                "have the names of columns" if observed else "Rename one of the two"))
        if computed and {f"{name}_observed", f"{name}_unobserved"} <= set(self.messages):
            if self.model.is_joint:
                # without the mask it is a proper draw also where nothing depends on it
                hidden = self.messages[f"{name}_unobserved"]
                hidden["fn"] = hidden["fn"].base_dist
                return
            raise ModelError(
                f"{where}: obs_mask= is not supported. Omit obs_mask=, and pass the values as data "
                f"with NaN where they are missing, fit({{\"{name}\": jnp.where(mask, values, "
                f"jnp.nan)}})"
            )

    def _record_computed(self, msg: dict, name: str, where: str) -> None:
        if not isinstance(msg["value"], jax.Array | np.ndarray | np.generic | int | float):
            got = type(msg["value"]).__name__
            raise ModelError(f"{where} ({DETERMINISTIC}): expected one array, got {got}; "
                             f"give each array a separate name")
        self.computed[name] = msg

    def _record_sample(self, msg: dict, name: str, where: str) -> None:
        if msg.get("scale") is not None:
            raise ModelError(f"{where}: handlers.scale is not supported inside a model. Pass "
                             f"weights of rows to fit(..., weights=...) instead")
        if msg["kwargs"].get("sample_shape"):
            raise ModelError(
                f"{where}: sample_shape= is not supported. Call .expand on the distribution, such "
                f"as dist.Normal(0, 1).expand([{listed(msg['kwargs']['sample_shape'])}]), or a "
                "plate"
            )
        msg["fn"] = log_weight_of(msg["fn"]) or msg["fn"]
        value = None if isinstance(msg["fn"], dist.Unit) or not msg["is_observed"] else msg["value"]
        if value is not None:
            in_rows = rows_frame(msg, msg["cond_indep_stack"]) is not None
            if in_rows or isinstance(value, jax.core.Tracer):
                raise ModelError(
                    f"{where}: obs= is given inside the function, but the data of a model with "
                    f"rows() are given to fit. Omit obs=, and call fit({{\"{name}\": values}})"
                )
            # a parameter with a known value is a factor of those on which its prior depends
            with evaluated():  # an array of JAX's, which the function may index by what is traced
                msg["value"] = value = jnp.asarray(value)
            msg["fn"] = dist.Unit(domains.log_prob_of_codes(msg["fn"], value))
        fn = msg["fn"]
        _check_distribution(fn, name, where)
        dtype = int if domains.of(domains.of_values(fn)).discrete else float
        shape = fn.batch_shape + (() if isinstance(fn, dist.Unit) else fn.event_shape)
        if value is None:
            msg["value"] = self.values[name] if name in self.values else jnp.zeros(
                shape, jnp.result_type(dtype)
            )
        if name in self.lows:
            msg["value"] = msg["value"] + self.lows[name]
        self.messages[name] = msg


def _check_distribution(fn: dist.Distribution, name: str, where: str) -> None:
    """Check that a distribution has a density and numeric parameters.

    Raises:
        ModelError: it is a Delta, or a parameter is a list, text or None.
    """
    if isinstance(peel(fn)[0], dist.Delta):
        raise ModelError(
            f"{where} (Delta): a value that is computed from others is not a random variable. "
            f"Write numpyro.deterministic(\"{name}\", value)"
        )
    if (invalid := _find_invalid_parameter(peel(fn)[0])) is not None:
        kind, parameter, value = invalid
        hint = ARRAY_HINT * isinstance(value, list | tuple)
        raise ModelError(f"{where} ({kind}): {parameter} is {shortly(value)}, expected a number or "
                         f"an array, as in NumPyro{hint}")


ARRAY_HINT = ": write jnp.array([...])"


def _find_invalid_parameter(fn: dist.Distribution) -> tuple[str, str, ArrayLike] | None:
    """Returns the first parameter of a distribution, or of one that it contains, that is neither a
    number nor an array: (distribution, parameter, value); None if all are valid. NumPyro fails at
    such parameters only later, when it samples or computes a density."""
    attributes = vars(fn)
    for name in fn.arg_constraints:
        if name in attributes and (attributes[name] is None
                                   or isinstance(attributes[name], list | tuple | str)):
            return type(fn).__name__, name, attributes[name]
    inner = (value for value in attributes.values() if isinstance(value, dist.Distribution))
    return next((invalid for component in inner
                 if (invalid := _find_invalid_parameter(component)) is not None), None)


def listless(error: Exception) -> str:
    """Returns the remedy for a JAX error about a list; "" for other errors."""
    is_list = isinstance(error, TypeError) and ("'list'" in str(error) or "'tuple'" in str(error))
    return f" JAX and NumPyro take arrays, not lists{ARRAY_HINT}." * is_list


SCAN = ("NumPyro's scan and cond are not supported inside a model with rows(). Use "
        "probml.MarkovChain for a hidden Markov model, or probml.GaussianChain for a linear "
        "state-space model. For parameters along time write dist.GaussianRandomWalk, or a Python "
        "loop with a name for each step, such as sample(f\"level_{t}\", ...)")


SEVERAL = (
    "The function works for one row but not for {rows} rows, a number that probml chose to try it. "
    "rows() is the last batch axis. So an input with one value per row has shape (rows,). There "
    "are two common causes. (1) A vector in each row needs an axis of its own after the rows, loc "
    "= mu + x[:, None], and .to_event(1). (2) .expand([...]) inside rows() fixes the number of "
    "rows. Omit it, since rows() repeats the distribution for each row."
)


NO_VALUES = ("The function is first run with placeholders, which have no values, for sites and "
             "inputs (JAX calls this tracing). But ")
NO_INDEX = NO_VALUES + (
    "range(), a size in a shape and the index of a list need values. For a size, make the number "
    "an argument of the function with a default (a setting). For an index, use an array instead of "
    "the list, jnp.asarray(values)[i]"
)
# JAX error about a traced value, or words of it → what to write instead
TRACED: dict[type[Exception] | str, str] = {
    jax.errors.TracerBoolConversionError:
        f"{NO_VALUES}Python's if, while, and, or, not and assert need values. Use "
        "jnp.where(condition, a, b) instead of `a if condition else b`, & and | instead of `and` "
        "and `or`",
    jax.errors.TracerArrayConversionError:
        f"{NO_VALUES}NumPy, SciPy, float() and .item() need values. Use jnp.exp(x) instead of "
        "np.exp(x) and math.exp(x), jnp.asarray(table)[z] instead of table[z], jax.scipy instead "
        "of scipy",
    "control flow primitive under a `plate`": SCAN,
    "does not support the context manager protocol":
        "After `with` comes a call, with parentheses: `with probml.rows():`, or `with "
        "numpyro.plate(\"name\", size):`",
    "and 'NoneType'":
        "A value is None here. An argument whose default is None is a setting of the model. If it "
        "is a column of the data, write the argument without a default",
    "Invalid type for 'fn'": "The name of the site comes first, then a "
        "distribution with its arguments: sample(\"b\", dist.Normal(0, 1))",
    jax.errors.TracerIntegerConversionError: NO_INDEX, "converted to a scalar index": NO_INDEX,
    jax.errors.ConcretizationTypeError:
        f"{NO_VALUES}float(), int() and shapes need values. Use jnp.exp(x) instead of math.exp(x), "
        "jnp.where instead of `if`, and make sizes arguments with a default (settings)",
}  # fmt: skip


MOST_ERROR_CHARACTERS = 600  # characters of somebody else's error that are shown


def shorten_error(error: Exception) -> str:
    """The text of an error, cut where it prints pages of numbers."""
    text = str(error)
    return text if len(text) < MOST_ERROR_CHARACTERS else f"{text[:MOST_ERROR_CHARACTERS]} …"


def line_of(model: Bound, error: Exception) -> str:
    """Returns the line of the user's function at which an error was raised, as text."""
    frames = [f for f in traceback.extract_tb(error.__traceback__)
              if f.name == model.generative.__name__]
    return f" at line {frames[-1].lineno}: {frames[-1].line}" if frames else ""


def failed(model: Bound, inputs: Mapping, error: Exception, advice: str = "") -> ModelError:
    """Returns the error to raise when the user's function fails under the trace, with the line and
    the inputs.

    Args:
        advice: further text; {rows} in it becomes the number of rows of the trace.
    """
    where = line_of(model, error)
    text = ", ".join(f"'{name}': {spec.dtype} ({', '.join(map(str, ('rows', *spec.shape[1:])))})"
                     for name, spec in inputs.items())
    remedy = f" Check the shapes and dtypes of the inputs {text}." if text else ""
    arrays = {name: value for name, value in arrays_of(model).items()
              if name not in dict(model.context)}
    if remedy == "" and arrays:
        remedy = f" {as_input(model, next(iter(arrays)))}."
    remedy = listless(error) + remedy
    rows = next((spec.shape[0] for spec in inputs.values()), "several")
    explanation = next((words for kind, words in TRACED.items() if (
        kind in str(error) if isinstance(kind, str) else isinstance(error, kind))), None)
    if explanation is not None:  # JAX's message is about tracers, which users do not know
        return ModelError(f"model '{model.name}' failed{where}\n{explanation}")
    return ModelError(f"model '{model.name}' failed{where}\n{type(error).__name__}: "
                      f"{shorten_error(error)}\n{advice.format(rows=rows)}{remedy}")


def run_of(
    model: Bound, inputs: Mapping[str, jax.Array], values: Mapping[str, jax.Array], index=None,
    rows: int = 1, steps: int = 1, lows=None
) -> tuple[dict[str, dict], dict[str, dict]]:
    """Runs a model; returns the messages of its sites and of its deterministics, by name.

    Args:
        values: site → value; zeros for other sites. lows: as in `_Recorder`.
    """
    recorder = _Recorder(model, values, index, lows)
    # NumPyro's validation runs eagerly: dozens of small compilations
    with (accurate(), unchecked(), recorder, chain_length_scope(steps, True),
          as_sites()):
        model(rows=rows, **inputs)
    return recorder.messages, recorder.computed


def arrays_of(model: Bound) -> dict[str, np.ndarray]:
    """Returns the numeric arrays among a model's settings and the variables that its function
    closes over, by name."""
    values = {name: thaw(value) for name, value in (*model.context, *model.settings)}
    lists = {name: value for name, value in values.items()
             if isinstance(value, list | tuple | np.ndarray | jax.Array)}
    arrays = {}
    for name, value in lists.items():
        with contextlib.suppress(ValueError):  # ragged
            arrays[name] = np.asarray(value)
    return {name: value for name, value in arrays.items() if value.ndim
            and value.dtype.kind in "biuf"}


def as_input(model: Bound, name: str) -> str:
    """Returns the remedy for an array with one entry per row that is not an input."""
    kind = "setting" if name in dict(model.settings) else "value from around the function"
    return (
        f"The {kind} '{name}' has the shape {arrays_of(model)[name].shape}. If it has one entry "
        f"per row, make it an input, an argument without a default, def {model.name}({name}): …. "
        f"Do not set it when the model is built. Give it with the data, fit({{'{name}': {name}, "
        "…})"
    )
