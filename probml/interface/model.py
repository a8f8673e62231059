"""`@model` turns a generative function into bound, hashable Models, whose methods fit, simulate,
check, explain and draw.

This file is not at the top of the package: `probml.model` is the decorator, and a module of that
name would shadow it.
"""

import functools
import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

import jax
import numpy as np
from numpyro.primitives import Messenger

from probml.dataset.frames import columns_of
from probml.dataset.sources.parts import weighed
from probml.engines.engine import Engine
from probml.errors import ModelError
from probml.fits import fitting
from probml.interface.argument_checks import checked_verbs
from probml.interface.fit import Fit
from probml.interface.functions.read_function import read_function
from probml.interface.functions.readings import site_values
from probml.interface.functions.replay import lacks_rows, run_forward, run_tables_forward
from probml.interface.given_parameters import fit_at
from probml.interface.other_libraries import OF_MODELS, missing_attribute
from probml.language.given import as_mapping
from probml.language.language import Bound, check_seed, unwrapped
from probml.language.renamed import by_new_names, by_old_names
from probml.language.settings import freeze
from probml.numerics.outside.checkpoint import Checkpoint
from probml.numerics.process.libraries import LateModule, networkx
from probml.queries.simulation import simulate_prior
from probml.structure.trace import intervened, trace
from probml.typing import ArrayLike, DataLike, SiteValues

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from probml.assessment import certificate
    from probml.assessment.pages import scene
    from probml.interface import explain
    from probml.interface.showing import page
else:
    certificate, scene, explain, page = map(LateModule, (
        "probml.assessment.certificate", "probml.assessment.pages.scene",
        "probml.interface.explain", "probml.interface.showing.page"))


@overload
def model(function: Callable, *, rows: str | None = None) -> "Generative": ...
@overload
def model(function: None = None, *, rows: str | None = None) -> Callable[..., "Generative"]: ...
def model(function: Callable | None = None, *, rows: str | None = None) -> "Generative | Callable":
    """Decorate a generative NumPyro function that contains no data.

    Arguments with a default, and those given when the result is called, are settings; the arguments
    left unbound are inputs (covariates), taken from the data by name.

    Args:
        function: samples every site with `numpyro.sample`, the exchangeable ones inside `with
            probml.rows()`.
        rows: of a function without rows(), the name of its plate that becomes the rows, or of a
            site whose last axis does; None: found automatically, and where there is none the model
            is one joint density.

    Returns:
        Generative: call it with settings to get a Model.

    Raises:
        ModelError: the function has *args, whose names are unknown, or an argument without default
            that is named rows. At `fit`: the plate that `rows` names cannot be the rows, and why.
    """
    if rows is not None and not isinstance(rows, str):
        raise ModelError(f"model(rows={rows!r}): expected the name of a plate in the model "
                         "function, such as rows='observations'")
    return functools.partial(model, rows=rows) if function is None else Generative(function, rows)


class Generative:
    """A decorated generative function, waiting for its settings."""

    is_joint = found = False
    batch: int | None = None
    key = ()  # of a function read in another way than it is written: which
    summary_tables: Callable | None = None  # see summarized
    former: Callable | None = None  # see renames
    identified_by: Callable | None = None  # see identifies

    def __init__(self, function: Callable, chosen: str | None = None):
        self.chosen = chosen  # a plate of its own that is to be the rows
        inner = unwrapped(function)
        if isinstance(function, type) or not hasattr(inner, "__code__"):
            raise ModelError(f"probml.model({function!r:.60}): expected a model function, such as "
                             'def model(): numpyro.sample("mean", dist.Normal(0, 1))')
        instance = getattr(inner, "__self__", None)  # the object of a method
        source = type(instance) if instance is not None and inner.__name__ == "__call__" else inner
        self.__name__, self.__qualname__ = source.__name__, source.__qualname__
        self.__module__, self.__doc__ = source.__module__, source.__doc__
        if isinstance(function, Messenger):  # its arguments are those of what it decorates
            function.__wrapped__ = inner
        elif instance is function:
            function = inner
        parameters = inspect.signature(function).parameters
        for parameter in parameters.values():
            if parameter.kind == parameter.VAR_POSITIONAL:
                raise ModelError(
                    f"model '{self.__name__}' has the argument *{parameter.name}, but every "
                    f"argument needs a name. Write them all, def {self.__name__}(k, d, x): ..."
                )
            if parameter.name == "rows" and parameter.default is parameter.empty:
                raise ModelError(
                    f"model '{self.__name__}' has an argument 'rows', but this name is "
                    f"reserved for the number of rows, model(rows=n, ...). Give the argument "
                    f"another name"
                )
        self.function = function
        self.signature = inspect.signature(function)
        self.arguments = tuple(n for n, p in parameters.items() if p.kind != p.VAR_KEYWORD)
        self.defaults = {name: freeze(parameters[name].default, name) for name in self.arguments
                         if parameters[name].default is not inspect.Parameter.empty}

    def summarized(self, tables: Callable) -> Callable:
        """Let summaries of its fits have these tables, a function of Estimates
        (interface/showing/summaries.py)."""
        self.summary_tables = tables
        return tables

    def renames(self, names: Mapping[str, str] | Callable) -> None:
        """Let deprecated names of its parameters work, see language/renamed.py.

        Args:
            names: old name → new name; or a function of the settings that returns this mapping.
        """
        self.former = names if callable(names) else lambda settings: names

    def identifies(self, quantities: Callable) -> Callable:
        """Declare the quantities that the data identify where a symmetry of the model leaves its
        parameters undetermined: a function of parameters by name that returns arrays by name, such
        as differences between the coefficients of classes. Where an optimum is one of many, all
        equally high, and these quantities are the same at all of them, a fit does not warn."""
        self.identified_by = quantities
        return quantities

    def run(self, settings: Mapping[str, object], inputs: SiteValues,
            rows: int | None = None) -> object:
        return self.function(**{**settings, **inputs})

    def __call__(self, *args: object, **settings: object) -> "Model":
        try:
            bound = self.signature.bind_partial(*args, **settings)
        except TypeError as error:
            raise ModelError(
                f"model '{self.__name__}': {error}. Call it with its arguments: "
                f"{self.__name__}{self.signature}"
            ) from None
        bound.apply_defaults()
        # what **settings collects are settings like the others
        given = {name: bound.arguments[name] for name in self.arguments
                 if name in bound.arguments} | bound.kwargs
        return Model(self, tuple((name, freeze(value, name)) for name, value in given.items()))

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and hasattr(Model, name):
            raise AttributeError(
                f"model '{self.__name__}' must be called with its settings before '{name}' can be "
                f"used: {self.__name__}(...).{name}. Its arguments are {self.signature}. Leave out "
                f"those that are in the data"
            )
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __reduce__(self):
        target: Any = sys.modules.get(self.__module__)
        for part in self.__qualname__.split("."):
            target = getattr(target, part, None)
        return self.__qualname__ if target is self else (Generative, (self.function, self.chosen))

    def __repr__(self):
        return f"<probml.model {self.__name__}{self.signature}>"


@checked_verbs
class Model(Bound):
    """A generative function with its settings bound: immutable, hashable, picklable, callable in
    NumPyro's handlers.

    Two models are equal when what their functions do and their settings are equal, so that building
    a model twice, or running its cell again, re-traces and re-compiles nothing.

    Examples:
        >>> import numpyro.distributions as dist
        >>> from numpyro import sample
        >>> import probml
        >>> @probml.model
        ... def weights():
        ...     mean = sample("mean", dist.Normal(0.0, 10.0))
        ...     with probml.rows():
        ...         sample("x", dist.Normal(mean, 1.0))
        >>> model = weights()                              # a function with its settings: a Model
        >>> fit = model.fit({"x": [1.0, 2.0, 3.0]})
        >>> round(float(fit.params["mean"]), 2)
        1.99
        >>> model.simulate(3, seed=0)["x"].shape
        (3,)
    """

    def __getattr__(self, name: str) -> Any:
        raise missing_attribute(self, name, OF_MODELS)

    def fit(self, data: DataLike, engine: Engine | None = None, *, weights: ArrayLike | None = None,
            seed: object = 0, start: SiteValues | None = None,
            checkpoint: "Checkpoint | str | os.PathLike | None" = None, where: object = None,
            seconds: float | None = None):
        """Infer the parameters and latent variables from `data`.

        Args:
            data: mapping name -> array (rows first), DataFrame or pyarrow Table; NaN, None, NA and
                absent sites are missing; columns that the model does not name are ignored where the
                table has all those that it needs. Rows larger than memory come from a source, see
                dataset/source.py: an object with `parts()`, or a function that returns an iterator
                of tables; each pass reads them again. An input that the function uses as an index,
                as in `alpha[group]`, may hold labels; its codes are checked against the axis.
            engine: Exact(), EM(), MAP(), NUTS(), Laplace(), SVI(), ...; None tries Exact, EM,
                Laplace, MAP (only where a point is wanted: more than 512 parameters, rows read in
                batches, numpyro.param, flat priors alone) and NUTS in this order, and
                takes the first that does not refuse and whose answer passes its test (Pareto k-hat
                of importance weights); `Fit.status` says which, and the result of the test.
            weights: one non-negative weight a row, shape (n,), or the name of their column in the
                data, by which a source has them; weight 2 equals the row twice.
            seed: seeds every random choice: a whole number, a JAX key, or a NumPy generator.
            start: starting values of some parameters, on their own scale, such as another fit's
                `params`; deterministics (numpyro.deterministic) are ignored.
            checkpoint: a file, or Checkpoint(file, seconds): the state of the fit is written there
                every 30 seconds, and at Ctrl-C and SIGTERM. The same call resumes from it, with the
                same result; of a finished fit it returns at once. EM, VB, MAP, SVI and NUTS save
                their iterations.
            where: several devices, a list such as jax.devices() or a jax.sharding.Mesh: rows are
                distributed over them, parameters replicated. Of several processes
                (jax.distributed.initialize) each passes its own rows, and all get the same Fit.
            seconds: where no engine is named and NUTS is needed: the time limit of the sampler,
                after which it returns the draws so far; `Fit.status` says so. None: no limit.

        Returns:
            Fit.

        Raises:
            DataError: bad data, named by site, row and value, before any compile.
            Refusal: the engine cannot treat this model with these data.
            ModelError, DataError: the checkpoint is that of another model, engine, or other data.
        """
        self.check_context()
        if checkpoint is not None and not isinstance(checkpoint, Checkpoint):
            checkpoint = Checkpoint(checkpoint)
        data, weights = weighed(data, weights)
        columns = columns_of(data)
        bound, data, _, initial = read_function(self, data)
        seed = check_seed(seed, "fit")
        start = as_mapping(start, "fit(start)", "another fit's params")
        start = by_new_names(start, self.renamed) if self.renamed else start
        start = {**initial, **(site_values(bound.generative, start) if bound.is_joint else start)}
        found = fitting.infer(bound, data, engine, weights, seed, start, checkpoint, where, seconds)
        return Fit.of(bound, found, {**columns, **(found.columns or {})}, seed)

    def read(self, data: object) -> Bound:
        """The model as it is fitted to these data: of a function without rows(), with the rows that
        were found in it, or as one joint density. `probml.load` needs it for such a function.

        Raises:
            DataError, ModelError: data that the function cannot take.
        """
        return read_function(self, data).model

    def at(self, params: SiteValues, labels: Mapping[str, tuple] | None = None):
        """A Fit at known parameter values; nothing is fitted.

        Args:
            params: every parameter on which rows depend, name -> value on its own scale;
                hyperparameters are needed by log_joint only; deterministics
                (numpyro.deterministic) may be among them and are recomputed.
            labels: site -> labels of its states, in code order; or input that is an index -> labels
                of its entries.

        Returns:
            Fit, whose status is "known"; it answers at this point.

        Raises:
            ModelError: a parameter that is missing, unknown, of another shape or outside its
                support, by name.
        """
        self.check_context()
        params = as_mapping(params, "at(params)", "{'mean': 0.0}")
        return fit_at(self, by_new_names(params, self.renamed),
                      as_mapping(labels, "at(labels)", "{'z': ('no', 'yes')}"))

    def simulate(self, rows: int | Mapping[str, int] | None = None, steps: int | None = None,
                 seed: object = 0, parameters: bool = False,
                 **inputs: object) -> dict[str, np.ndarray]:
        """Draw parameters from the prior, then rows: name -> array (rows, ...) of every site inside
        rows(), and of what is computed there; of a function without rows() all that it samples. Of
        several tables `rows` has the number of rows of each, and the inputs are their columns, an
        index as codes.

        Args:
            rows: how many; by default as many as the inputs have.
            steps: the length of chains.
            seed: a whole number, a JAX key, or a NumPy generator, which gives its next one.
            parameters: answer with the parameters that were drawn as well.
            **inputs: what the function takes from data, by name, rows first.

        Raises:
            ModelError: an input that is missing or unknown, no number of rows. Refusal: an improper
                prior, a factor in it, a loss in rows: none can be drawn from.

        Cost: one program.
        """
        self.check_context()
        seed = check_seed(seed, "simulate")
        if isinstance(rows, Mapping):
            return run_tables_forward(self, rows, inputs, seed)
        if lacks_rows(self):
            return run_forward(self, {}, inputs, seed)
        return by_old_names(simulate_prior(self, rows, steps, seed, inputs, parameters),
                            self.renamed)

    def do(self, values: SiteValues) -> "Model":
        """The model after an intervention (Pearl 2009): the named sites have these values in every
        row and no parents.

        Args:
            values: site inside rows() → its value in a row, as an array of its shape; states as
                codes 0, 1, … (`Fit.do`: as labels).

        Raises:
            ModelError: a site is unknown or lies outside rows(), a value has another shape or lies
                outside the site's support.
        """
        self.check_context()
        values = as_mapping(values, "do(values)", "{'smoke': 1}")
        if lacks_rows(self):
            name = next(iter(values), "smoke")
            raise ModelError(f"do({{'{name}': ...}}): do() of a model needs rows(), which model "
                             f"'{self.name}' does not have. Use do() of a Fit, "
                             f"fit(data).do({{'{name}': ...}}), or at(params).do({{'{name}': "
                             "...})")
        return self._acted(values)

    def _acted(self, values: SiteValues, specs: Mapping[str, tuple] | None = None):
        """As do; `specs`: shapes and dtypes of the inputs, where they are known."""
        return Model(self.generative, self.settings, intervened(self, values, specs))

    def log_density(self, data: object, params: SiteValues,
                    labels: Mapping[str, tuple] | None = None):
        """log p(data, params) = log p(params) + Σ log p(row | params), the latent discrete sites
        summed out: one number. Arguments and errors as of `at` and Fit.log_joint."""
        return self.at(params, labels).log_joint(data)

    def check(
        self,
        data: object = None,
        engine: object = None,
        simulations: int = 200,
        seed: int = 0,
        *,
        rows: int | None = None,
        steps: int | None = None,
        simulator: "Model | None" = None,
        progress: bool = False,
    ):
        """Simulation-based calibration: parameters are drawn from the prior, rows from the model,
        and the engine must recover the parameters; as a Certificate.

        Over simulations, the rank of each true value among draws of its posterior is uniform if
        model, data pattern and engine are right (Talts et al. 2018), which a chi-square test
        checks. Ranked are all elements of the parameters (of exchangeable states functions that do
        not depend on their order) and the log likelihood (Modrák et al. 2023). Everything is
        computed in double precision.

        Args:
            data: rows, of which the inputs and the pattern of the observed cells are used, and the
                values to compare the prior with; or the inputs alone, or a number of rows: then all
                sites are observed except discrete sites on which others in rows depend.
            engine: Exact() if it does not refuse, else NUTS(); NUTS runs one chain of at most 300 +
                300 iterations a simulation.
            simulations: at least 20.
            rows, steps: of the simulated data, where `data` do not give them.
            simulator: another Model that draws parameters and rows, to study this one under
                misspecification.
            progress: show a progress bar.

        Returns:
            Certificate: `passed`, `table`, `levels`, `prior_predictive`; printed it names every
                quantity.

        Raises:
            Refusal: an improper prior, a site that cannot be drawn from, an engine that finds a
                point or cannot treat the model.
            ModelError: settings out of range; a simulator with other sites.

        Cost: `simulations` fits; Exact's are one program.
        """
        self.check_context()
        with jax.enable_x64(True):
            bound, data, *_ = read_function(self, data)
            return certificate.check(bound, data, engine, simulations, check_seed(seed, "check"),
                                     rows=rows, steps=steps, simulator=simulator, progress=progress)

    def explain(self, data: object = None, engines: Sequence[Engine] = ()):
        """How each site is treated with these data: roles, elimination order and cost, the update
        of each parameter, the engines that can fit it and why others cannot. Nothing is fitted.

        Args:
            data: as of `fit`; without them nothing is observed.
            engines: further engines to report on, such as your own.

        Returns:
            Explanation: text when printed, tables in a notebook; `sites`, `engines`, `updates`.

        Raises:
            DataError, ModelError: data that the model cannot take.
        """
        self.check_context()
        return explain.explain(self, data, engines)

    def draw(self, data: object = None, ax: "Axes | None" = None) -> "Axes":
        """The graph of the model with matplotlib: its sites in their plates, parents above
        children, each with its role.

        Args:
            data: whose observed and missing cells are shown; by default no site is observed.
            ax: axes to draw on; by default those of a new figure.

        Returns:
            The axes. Needs probml[plot]; no Graphviz.

        Raises:
            ModelError, DataError: a function that has no graph without data; data that it cannot
                take.
        """
        self.check_context()
        return scene.drawn(page.graph_scene(self, data), ax)

    def _repr_html_(self) -> str:
        return page.model_html(self)

    @property
    def structure(self) -> "networkx.DiGraph":
        """All sites, parameters included, as a networkx DAG (attributes: rows, family, shape,
        plates)."""
        return trace(self).graph()

    @property
    def graph(self) -> "networkx.DiGraph":
        """The sites inside rows() as a networkx DAG."""
        dag = self.structure
        return dag.subgraph([name for name, data in dag.nodes(data=True)
                             if data["rows"]]).copy()
