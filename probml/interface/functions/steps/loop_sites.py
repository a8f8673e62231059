"""Which sites of a function are the steps of a loop, or stand in numpyro's scan, and their values
by the names of single steps or of all."""

import itertools
import re
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from probml.errors import ModelError, counted
from probml.families import domains
from probml.interface.functions.survey import Survey
from probml.typing import ArrayLike, SiteValues

SHORTEST_LOOP = 8  # steps from which a loop is worked on as one


def find_loop_sites(survey: Survey) -> dict[str, tuple[str, ...]] | None:
    """The unseen continuous sites of loops, name of all steps → its sites in order; None where
    nothing, observed sites and recursions included, comes in steps, or something is summed out."""
    if survey.loops or survey.params or survey.discrete_latents:
        return None
    kinds: dict[tuple, list[str]] = {}
    for site in survey.sites.values():
        stem = remove_numbers(site.name)
        if stem == site.name or site.masked and not site.observed:
            continue
        domain = None if site.observed else domains.of(site.support)
        if domain is None or domain.fixed:
            kind = (stem, site.observed, site.kind, site.batch, site.shape, domain)
            kinds.setdefault(kind, []).append(site.name)
    long_groups = {kind: names for kind, names in kinds.items() if len(names) >= SHORTEST_LOOP}
    loops: dict[str, tuple[str, ...]] = {}
    for (stem, observed, *_), names in long_groups.items():
        if not observed:
            loops[_title(stem, {*survey.sites, *survey.computed, *loops})] = tuple(names)
    return loops if long_groups or survey.recursive else None


def find_scan_sites(survey: Survey) -> dict[str, tuple[str, ...]] | None:
    """The unseen sites of scans, each the name of all its steps; None where there are none, or one
    is discrete.

    Raises:
        ModelError: NumPyro does not know the distribution of all steps of one from that of each.
    """
    if survey.params:
        return None
    scan_sites = [site for name, site in survey.sites.items()
                  if survey.scan_sites.get(name) and not (site.observed or site.factor)]
    bad = next((site for site in scan_sites if site.unrepeated), None)
    if bad is not None:
        raise ModelError(
            f"site '{bad.name}' is latent, is in a scan and has a distribution, {bad.kind}, "
            f"that NumPyro does not repeat for all steps. Use a family of its own, such as "
            f"LogNormal or InverseGamma. Or sample what the value is made of, and compute it, such "
            f"as loc + scale * sample('{bad.name}', dist.Normal(0, 1))")
    scans: dict[str, tuple[str, ...]] = {site.name: () for site in scan_sites}
    return scans if scans and not any(site.discrete for site in scan_sites) else None


def remove_numbers(name: str) -> str:
    """What the names of alike steps share: all but numbers."""
    return re.sub(r"\d+", "", name)


def _title(stem: str, taken: set[str]) -> str:
    """x_0, x_1, … are x; where that is a name already, x steps."""
    name = stem.strip("_-. ") or stem
    names = itertools.chain((name, f"{name} steps"),
                            (f"{name} steps {i}" for i in itertools.count(2)))
    return next(candidate for candidate in names if candidate and candidate not in taken)


class LoopSites(NamedTuple):
    """Loops whose steps are one site.

    Attributes:
        groups: name of all steps → the sites of the single ones; of a scan there are none.
    """

    groups: Mapping[str, tuple[str, ...]]

    @property
    def scans(self) -> tuple[str, ...]:
        """The sites of scans."""
        return tuple(title for title, names in self.groups.items() if not names)

    @property
    def places(self) -> dict[str, tuple[str, int]]:
        """Site of a single step → the name of all, and which it is."""
        return {name: (title, i) for title, names in self.groups.items()
                for i, name in enumerate(names)}

    def together(self, values: SiteValues) -> dict[str, np.ndarray]:
        """Values by the names of single steps → by those of all, as far as all are there."""
        joined = {title: values[title] if title in values else
                  np.stack([np.asarray(values[name]) for name in names])
                  for title, names in self.groups.items()
                  if title in values or names and all(name in values for name in names)}
        step_names = {name for title in joined for name in self.groups[title]}
        return {name: value for name, value in values.items() if name not in step_names} | joined

    def split_steps(self, values: SiteValues) -> dict[str, ArrayLike]:
        """Values by the names of the sites → by the names of their single steps."""
        split = {name: value for name, value in values.items() if name not in self.groups}
        for title, names in self.groups.items():
            if title in values and not names:
                split[title] = values[title]
            elif title in values:
                split |= {name: values[title][i] for i, name in enumerate(names)}
        return split

    def describe(self, integrated: bool) -> str:
        """One sentence for each site that was made of steps."""
        how = (", integrated out exactly (Kalman filter)" if integrated else "")
        return "".join(
            f". The {counted(len(names), 'site')} '{names[0]}' … '{names[-1]}' are read as the "
            f"steps of one site, '{title}'{how}" if names else f". '{title}' is in a scan{how}"
            for title, names in self.groups.items())
