"""What questions, reports and files ask of a fit: its protocol, which `interface.fit.Fit` meets, so
that no room below names the one above."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from probml.dataset.dataset import Data
from probml.device.rows import Known
from probml.engines.engine import Engine, Status
from probml.engines.findings import Finding
from probml.language.language import Bound
from probml.plan.plan import Plan
from probml.posteriors.posterior import Posterior
from probml.posteriors.units import Unit
from probml.structure.structure import Structure


class Fitted(Protocol):
    """A model, a point, and what is believed beyond it; `interface.record.Record` says what each
    attribute is. Underscored members are the library's own, not the user's."""

    model: Bound
    point: Mapping[str, Any]
    shapes: Mapping[str, tuple]
    engine: str
    history: Any
    outcome: Status
    iterations: int
    log_evidence: float | None
    evidence_error: float | None
    findings: tuple[Finding, ...]
    names: Mapping[str, tuple]
    given: Mapping[str, Any]
    pattern: tuple
    belief: Posterior
    learnt: Bound | None
    kept: Any
    data: Data | None
    held_out: Any
    double: bool
    bound: float | None
    by: Engine | None
    columns: Mapping[str, tuple]
    seed: int | None
    units: Mapping[str, Unit]
    errors: Mapping[str, Any]
    again: Any

    @property
    def params(self) -> dict[str, Any]: ...
    @property
    def made_by(self) -> Engine | None: ...
    @property
    def certain(self) -> bool: ...
    @property
    def structure(self) -> Structure: ...
    @property
    def converged(self) -> bool: ...
    @property
    def status(self) -> str: ...
    @property
    def ending(self) -> str: ...
    @property
    def warnings(self) -> tuple[Finding, ...]: ...
    @property
    def _plan(self) -> Plan: ...

    def summary(self, data: Any = None, *, weights: Any = None) -> Any: ...
    def labels(self, site: str) -> tuple: ...
    def posterior(self, site: str) -> Any: ...
    def draws(self, n: int, seed: int = 0) -> dict[str, np.ndarray]: ...
    def predict(self, data: Any, site: str | None = None) -> Any: ...

    def _table(self, widths: Any) -> Any: ...
    def _known(self) -> Known: ...
    def _site(self, name: str, discrete: bool = False) -> Any: ...
    def _inside(self, name: str) -> str: ...
    def _settled(self, held: Data, name: str) -> bool: ...
    def _read(self, data: Any) -> Data: ...
    def _draws(self, n: int, seed: int) -> dict[str, Any]: ...
    def _drawn_rows(self, held: Data, key: Any, seed: int,
                    plug_in: bool) -> dict[str, np.ndarray]: ...
    def _simulated(self, held: Data, key: Any, seed: int,
                   plug_in: bool) -> dict[str, np.ndarray]: ...
    def _computed(self, held: Data, names: list[str], plug_in: bool,
                  given: str = "") -> dict[str, np.ndarray]: ...
