"""A function run once with its data: its sites, their observed values, their plates.

The run is abstract (nothing is compiled), but the arguments are the user's own arrays: `len(y)`,
`int(np.max(groups))` and Python's `if` work, and an argument that is observed unchanged is the same
object in the result.
"""

import contextlib
import dis
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
import numpyro.distributions as dist

from probml.errors import DataError, ModelError, name_in_function
from probml.families.domains import of_values
from probml.interface.functions.discrete_scans import sites_inside
from probml.interface.functions.given.params import ParamSpec
from probml.interface.functions.messages import Fill, Record, is_fixed
from probml.interface.functions.scan_starts import ScanCall
from probml.interface.functions.states import states_of, zeros_of
from probml.jaxpr.gathers.reader import Beyond, beyond
from probml.jaxpr.program import equations, jaxpr_of
from probml.jaxpr.repeats.rolled import recursive
from probml.jaxpr.repeats.stored import by_elements
from probml.language.chain import Chain, outside_rows
from probml.language.language import Bound, codes_of, in_tables
from probml.language.named_rows import OBSERVED
from probml.numerics.compiling import jit
from probml.numerics.process.making import unchecked
from probml.structure.recorder import line_of, listless, peel, shorten_error
from probml.typing import ArrayLike, Message, SiteValues

# marks of messages
SUBSAMPLE_SIZE, GIVEN_TWICE, INITIAL_VALUE = "probml.partial", "probml.twice", "probml.begin"
FIXED = "probml.fixed"


class SurveyedSite(NamedTuple):
    """One sample statement of the run.

    Attributes:
        plates: name → (axis, counted from the right of the batch axes; size), innermost first.
        batch: the batch shape of the distribution, broadcast with what is observed.
        shape: of the distribution, events included.
        value: what is observed; a tracer where the function computes it by jax.numpy.
        states: how many values a discrete one has that is unseen; None: no finite list.
        masked: some of its elements count for nothing.
        kind: the class of the distribution, axes of plates and events peeled off.
        event: the event shape of the distribution.
        fixed: its value is given by handlers.condition and not made of arguments.
        unrepeated: its distribution is that of one step of a scan, its value that of all.
    """

    name: str
    observed: bool
    factor: bool
    discrete: bool
    plates: dict[str, tuple[int, int]]
    batch: tuple[int, ...]
    shape: tuple[int, ...]
    value: Any
    support: dist.constraints.Constraint
    states: int | None = None
    masked: bool = False
    kind: str = ""
    event: tuple[int, ...] = ()
    fixed: bool = False
    unrepeated: bool = False

    @property
    def bits(self) -> float:
        """Binary digits of the joint values of all cells."""
        return math.prod(self.shape) * math.log2(self.states or 1)

    @property
    def outside(self) -> np.ndarray:
        """The indices of observed values outside the support, as far as it is known; the ends of a
        range belong to it, and every angle is valid."""
        support = self.support
        edges: list[Any] = [getattr(support, edge, np.nan)
                            for edge in ("lower_bound", "upper_bound")]
        if (getattr(support, "event_dim", 1) != 0 or support is dist.constraints.circular
                or any(isinstance(edge, jax.core.Tracer) for edge in (*edges, self.value))):
            return np.empty((0, 0))  # edges that are parameters
        value = np.asarray(self.value, float)
        is_finite = np.isfinite(value)
        in_support = np.asarray(support(np.where(is_finite, value, 0.0)))
        for edge in edges:
            in_support = in_support | (value == np.asarray(edge))
        return np.argwhere(is_finite & ~np.broadcast_to(in_support, value.shape))


class Survey(NamedTuple):
    """The sites of a run of the function, and what else it contains.

    Attributes:
        loops: numpyro's scan or cond was met; scan_sites: site of these → whether it is in a scan.
        computed: the names of the deterministics.
        given_twice: sites whose values are given and observed inside the function.
        subsample_sizes: plate → its subsample_size, where it has one.
        params: what numpyro.param holds, and `initial_values` with what values it begins.
        recursive: it puts together what a Python loop has computed step by step.
        size: equations of its program.
        out_of_bounds: what numbers that it holds index out of bounds.
    """

    sites: dict[str, SurveyedSite]
    loops: bool
    scan_sites: Mapping[str, bool]
    computed: tuple[str, ...]
    given_twice: tuple[str, ...]
    subsample_sizes: Mapping[str, int]
    params: Mapping[str, ParamSpec]
    initial_values: SiteValues
    recursive: bool = False
    size: int = 0
    out_of_bounds: tuple[Beyond, ...] = ()

    def as_written(self, site: SurveyedSite) -> SurveyedSite:
        """A site with the name that the function gives it."""
        return site._replace(name=name_in_function(site.name, self.sites))

    @property
    def observed_sites(self) -> tuple[SurveyedSite, ...]:
        """The sites that are observed, factors left out."""
        return tuple(site for site in self.sites.values() if site.observed and not site.factor)

    @property
    def columns(self) -> tuple[SurveyedSite, ...]:
        """The sites that may be data of rows: of those observed, those not fixed, if any; where
        nothing is observed, the factors."""
        return tuple(site for site in self.observed_sites if not site.fixed) or tuple(
            site for site in self.observed_sites if site.batch) or self.observed_sites or tuple(
            site for site in self.sites.values() if site.factor and site.plates)

    @property
    def discrete_latents(self) -> tuple[SurveyedSite, ...]:
        """The discrete sites that are unseen, those of loops left out."""
        return tuple(site for site in self.sites.values() if site.discrete and not site.observed
                     and site.name not in self.scan_sites)


def observed_batch(fn: dist.Distribution, value: ArrayLike) -> tuple[int, ...]:
    """The batch shape over which NumPyro's log_prob of a value broadcasts."""
    shape = np.shape(value)
    return np.broadcast_shapes(fn.batch_shape, shape[: len(shape) - fn.event_dim])


class _FillAndMark(Fill):
    """Gives latent sites zeros, marks sites that are given twice, and fills missing codes, which
    are summed out later, since the function may use them as an index."""

    inside = False

    def process_message(self, msg: dict) -> None:
        if msg["type"] == "plate" and msg["args"][1] not in (None, msg["args"][0]):
            msg[SUBSAMPLE_SIZE] = int(msg["args"][1])
        msg[GIVEN_TWICE] = msg.get("name") in self.given and msg["type"] == "sample" and bool(
            msg["is_observed"])
        msg[FIXED] = msg["type"] == "sample" and msg["is_observed"] and is_fixed(msg, self)
        super().process_message(msg)
        value = msg["value"]
        if msg["type"] == "sample" and msg["is_observed"] and has_missing_cells(value) and (
            msg["fn"].support.is_discrete
        ):
            msg |= {OBSERVED: value, "value": np.nan_to_num(value).astype(int)}

    def postprocess_message(self, msg: dict) -> None:
        if msg["type"] == "param":  # which the function may change
            msg[INITIAL_VALUE] = jax.tree.map(lambda leaf: leaf, msg["value"])


def _survey_site(msg: Message) -> SurveyedSite:
    """What is known of a sample statement that was met.

    Raises:
        ModelError: it is a chain, and the function has no rows().
    """
    name, fn, value = msg["name"], msg["fn"], msg.get(OBSERVED, msg["value"])
    if isinstance(fn, Chain) and not in_tables():
        raise outside_rows(f"site '{name}'", type(fn).__name__)
    factor, support = isinstance(fn, dist.Unit), of_values(fn)
    observed = bool(msg["is_observed"])
    discrete = not factor and support is not None and bool(support.is_discrete)
    value = None if factor or not observed else value
    batch = fn.batch_shape if value is None else observed_batch(fn, value)
    states = None
    if discrete and not observed:
        with contextlib.suppress(ModelError):
            states = states_of(name, fn).count
    frames = {frame.name: (frame.dim, frame.size) for frame in msg["cond_indep_stack"]}
    return SurveyedSite(name, observed, factor, discrete, frames, tuple(batch),
                        () if factor else tuple(fn.shape()), value, support, states,
                        isinstance(fn, dist.MaskedDistribution), type(peel(fn)[0]).__name__,
                        tuple(fn.event_shape), msg[FIXED],
                        not (observed or factor) and np.ndim(msg["value"]) > len(fn.shape()))


def survey_run(model: Bound, arguments: SiteValues, given: SiteValues) -> Survey:
    """Run a model's function with these arguments beside its settings.

    Args:
        given: site → the value that is seen of it.

    Raises: what the function raises; RowsUnknown where it calls rows().
    """
    sites, specs, inside = dict[str, SurveyedSite](), dict[str, ParamSpec](), dict[str, bool]()
    record = Record()

    def run(fill: jax.Array = 0) -> dict:
        nonlocal record
        record = Record()
        blank = functools.partial(zeros_of, fill=fill)
        with unchecked(), _FillAndMark(given, sums=False, blank=blank), record:
            model.generative.run({**model.bound, **arguments}, {})
            inside.update((name, ScanCall.of(msg) is not None) for msg in record.loops
                          for name in sites_inside(msg))
        sites.update({msg["name"]: _survey_site(msg) for msg in record.of("sample")})
        initial_values = {msg["name"]: msg[INITIAL_VALUE] for msg in record.of("param")}
        specs.update({msg["name"]: ParamSpec.of(
            msg[INITIAL_VALUE], msg["kwargs"].get("constraint", dist.constraints.real),
            msg["value"]) for msg in record.of("param")})
        return {name: specs[name].flat(value) for name, value in initial_values.items()
                if not all(specs[name].replaced)}

    try:
        program = jaxpr_of(run)(0)  # what is computed of whole numbers is no constant
    except (ModelError, DataError):
        raise
    except Exception as error:
        shapes = ", ".join(f"'{name}' {np.shape(value)}" for name, value in
                           {**arguments, **given}.items())
        plates = ", ".join(f"'{msg['name']}' {msg['args'][0]}" for msg in record.of("plate")
                           ) or "none yet"
        gaps = [f"'{name}' is missing in {describe_first(np.isnan(value))}"
                for name, value in arguments.items() if has_missing_cells(value)]
        # an index of codes some of which are NaN, say
        hint = (f"{', '.join(gaps)}, which is a possible cause: missing values are inferred only "
                f"for sites, not for arguments that the function computes with. Drop the rows or "
                f"fill in the values, or make the argument a site. " if gaps else "")
        hint += "".join(_hint_at_text(model.name, name, value) for name, value in arguments.items())
        message = f"{type(error).__name__}: {shorten_error(error)}{listless(error)}"
        raise DataError(
            f"model '{model.name}' failed{line_of(model, error)}\n{message}\n{hint}The shapes of "
            f"the arguments: {shapes}; the sizes of the plates so far: {plates}. Give arguments "
            f"that are not data when you build the model, such as {model.name}(n=8)"
        ) from error
    initial_values = jax.device_get(jit(run)()) if specs else {}
    return Survey(sites, bool(record.loops), inside,
                  tuple(msg["name"] for msg in record.of("deterministic")),
                  tuple(msg["name"] for msg in record.of("sample") if msg[GIVEN_TWICE]),
                  {msg["name"]: msg[SUBSAMPLE_SIZE] for msg in record.of("plate")
                   if SUBSAMPLE_SIZE in msg},
                  specs, initial_values,
                  recursive(by_elements(program, idle=True)), sum(1 for _ in equations(program)),
                  beyond(program))


def has_missing_cells(value: object) -> bool:
    """Whether an array has unseen cells."""
    return (isinstance(value, np.ndarray) and value.dtype.kind == "f"
            and bool(np.isnan(value).any()))


def _hint_at_text(model: str, name: str, value: object) -> str:
    """What may be wrong with an argument that is a mapping."""
    text = [key for key, column in value.items() if np.asarray(column).dtype.kind in "OUST"
            ] if isinstance(value, Mapping) else []
    return (f"the argument '{name}' contains the text column '{text[0]}'. Make the column a "
            f"separate argument, def {model}({text[0]}, ...); its labels become integer "
            "codes. " if text else "")


def describe_first(mask: np.ndarray) -> str:
    """The first cell in which something holds, in words."""
    cell = tuple(map(int, np.argwhere(mask)[0]))
    return f"row {cell[0]}" if len(cell) == 1 else f"cell {cell}"


def has_python_loop(function: Callable) -> bool:
    """Whether the code of a function, or of one inside it, has a Python loop."""
    return any(step.opname in ("FOR_ITER", "JUMP_BACKWARD", "POP_JUMP_BACKWARD_IF_TRUE")
               for code in codes_of(function) for step in dis.get_instructions(code))
