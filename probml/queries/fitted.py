"""The protocol of a fit as queries, reports and files use it. `interface.fit.Fit` implements it;
lower packages import this module instead of the interface."""

from dataclasses import dataclass, field
from typing import Any, Protocol

import jax
import numpy as np
import numpyro.distributions as dist
from jax.typing import ArrayLike

from probml.dataset.dataset import Data
from probml.device.rows import Known
from probml.engines.engine import Engine, Status
from probml.engines.findings import Finding
from probml.language.language import Bound
from probml.plan.plan import Plan
from probml.posteriors.posterior import Point, Posterior
from probml.posteriors.units import Unit
from probml.structure.structure import Structure
from probml.typing import DataLike


@dataclass(frozen=True, eq=False)
class Fitted(Protocol):
    """A model, a point estimate and the posterior about it; see Fit for the attributes. Members
    with a leading underscore are internal."""

    model: Bound
    point: dict[str, ArrayLike]
    shapes: dict[str, tuple] = field(repr=False)
    engine: str = "known"
    history: np.ndarray | None = None
    outcome: Status = Status.KNOWN
    iterations: int = 0
    log_evidence: float | None = None
    findings: tuple[Finding, ...] = ()
    names: dict[str, tuple] = field(default_factory=dict, repr=False)
    given: dict[str, ArrayLike] = field(default_factory=dict, repr=False)
    pattern: tuple = field(default=(), repr=False)
    # posterior of the sites outside rows
    belief: Posterior = field(default=Point(), repr=False)
    # the model that was fitted, if do() has replaced it since
    learnt: Bound | None = field(default=None, repr=False)
    # sufficient statistics of complete data, which merge() adds
    kept: Any = field(default=None, repr=False)
    # the fitted data, where posterior draws need them
    data: Data | None = field(default=None, repr=False)
    held_out: Any = field(default=None, repr=False)
    # fitted and queried in float64, since the precision of float32 does not suffice
    double: bool = field(default=False, repr=False)
    # lower bound of log p(data) (ELBO), of engines that maximise one
    bound: float | None = field(default=None, repr=False)
    # the engine itself; None for a Fit from a file, which has only its name
    by: Engine | None = field(default=None, repr=False, compare=False)
    # input or site → the names of its columns, where it was given as a table
    columns: dict[str, tuple] = field(default_factory=dict, repr=False)
    seed: int | None = field(default=None, repr=False)
    # parameter → conversion to the user's units, where columns were rescaled for the fit
    units: dict[str, Unit] = field(default_factory=dict, repr=False)
    # parameter → standard errors in the units of summaries, where already computed
    errors: dict[str, ArrayLike] = field(default_factory=dict, repr=False)
    # the rows of a point estimate, for the Hessian in its summary; not saved or pickled
    fitted_rows: Any = field(default=None, repr=False, compare=False)
    evidence_error: float | None = None  # standard error of log_evidence; None if that is exact
    weighted: bool = field(default=False, repr=False)  # whether its rows had weights other than 1

    @property
    def params(self) -> dict[str, ArrayLike]:
        """See Fit.params."""

    @property
    def made_by(self) -> Engine | None:
        """The engine; None: a file does not say how to make it."""

    @property
    def certain(self) -> bool:
        """Whether it has no posterior, only a point."""

    @property
    def structure(self) -> Structure:
        """The structure of the model, for these inputs."""

    @property
    def converged(self) -> bool:
        """See Fit.converged."""

    @property
    def status(self) -> str:
        """See Fit.status."""

    @property
    def ending(self) -> str:
        """How the engine ended, in a sentence."""

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """See Fit.warnings."""

    @property
    def _plan(self) -> Plan:
        """The plan of the fit."""

    def summary(self, data: DataLike = None, *, weights: ArrayLike | None = None) -> Any:
        """See Fit.summary."""

    def labels(self, site: str) -> tuple:
        """See Fit.labels."""

    def posterior(self, site: str) -> dist.Distribution:
        """See Fit.posterior."""

    def draws(self, n: int, seed: int = 0) -> dict[str, np.ndarray]:
        """See Fit.draws."""

    def predict(self, data: DataLike, site: str | None = None) -> ArrayLike:
        """See Fit.predict."""

    def _table(self, errors: Any) -> Any:
        """The summary with these standard errors."""

    def _known(self) -> Known:
        """The values that all rows share."""

    def _site(self, name: str, discrete: bool = False) -> Any:
        """The site of this name, checked."""

    def _checked_row_site(self, name: str) -> str:
        """The name of a discrete site inside rows, checked."""

    def _is_observed_or_summed(self, data: Data, name: str) -> bool:
        """Whether no value of a site has to be integrated out."""

    def _read(self, data: DataLike) -> Data:
        """The rows, read and checked."""

    def _draws(self, n: int, seed: int) -> dict[str, ArrayLike]:
        """Draws of the sites outside rows, discrete ones as codes."""

    def _drawn_rows(self, data: Data, key: jax.Array, seed: int,
                    plug_in: bool) -> dict[str, np.ndarray]:
        """Drawn values of the sites of rows, discrete ones as codes."""

    def _simulated(self, data: Data, key: jax.Array, seed: int,
                   plug_in: bool) -> dict[str, np.ndarray]:
        """Rows drawn given their observed cells, with labels."""

    def _deterministic_means(self, data: Data, names: list[str], plug_in: bool,
                             given: str = "") -> dict[str, np.ndarray]:
        """The means of deterministics inside rows."""
