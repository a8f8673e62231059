"""What tests ask of the findings of a fit: their codes, and which parameter each is about."""

from typing import Any


def codes(fit: Any) -> set[str]:
    """The codes of all findings of a fit, warnings or for information."""
    return {finding.code.value for finding in fit.findings}


def about(fit: Any, code: str) -> list[str]:
    """The parameters and entries that findings of one code are about: ["w[1]"]."""
    return [finding.at.strip("'") for finding in fit.findings if finding.code.value == code]
