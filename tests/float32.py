"""`JAX_ENABLE_X64=0 pytest tests/ROOM`: the tests in JAX's default precision. The project promises that float32
agrees with float64 to a thousandth, so no comparison asks for more there. What needs double all the same, a test
or all of a file, stands in NEEDS_DOUBLE, by reason, and is skipped.
"""

import functools

import numpy as np
import pytest

RELATIVE = 1e-3  # what is promised of float32
BESIDE = 1e-4  # of the largest number of an array: what its small ones may be off by

NEEDS_DOUBLE = {
    "asks JAX for arrays of float64 by name": {
        "elimination/test_chains.py::test_blocks_have_the_paths_and_the_evidence_of_a_plain_scan",
        "factors/test_quadrature_nodes.py::test_quantiles_are_those_of_the_density",
        "families/test_domains.py::test_coordinates_of_a_domain_lead_there_and_back",
        "families/test_look_up.py::"
        "test_a_row_with_its_own_table_has_the_log_probability_and_slope_of_rows_that_share_one",
        "families/test_predictive_sums.py", "jaxpr/test_shortened.py::test_signed_zeros_and_types_are_told_apart",
        "numerics/test_programs.py::test_other_constants_shapes_types_and_settings_are_other_programs"},
    "compares bit by bit with what NumPy computes in float64": {
        "numerics/test_kept_programs.py::"
        "test_programs_of_one_text_that_leave_arguments_of_other_shapes_unused_are_several"},
    "takes a difference quotient over 2e-5 or 2e-4": {
        "factors/test_factor_sites.py::test_em_climbs_where_a_factor_weighs_hidden_states",
        "models/test_scale_mixture.py::test_a_student_prior_has_no_form_and_exact_refuses_both"},
    "reads digits of a matrix whose condition is beyond those of float32": {
        "families/test_forms.py::"
        "test_what_is_read_of_a_precision_matrix_loses_no_more_digits_than_its_inverse_has"},
    "asks for nine digits, or for the iterations of float64": {
        "engines/test_vb.py::test_a_mean_and_a_precision_that_are_independent_reach_the_fixed_point_by_hand",
        "engines/test_rest.py::test_no_iterations_beyond_those_allowed_are_made_on_a_ridge"},
    "expects that the precision is shown as float64": {"interface/test_report.py::test_versions_are_told"},
}


def reason_to_need_double(nodeid: str) -> str | None:
    """Why a test is not run in float32."""
    name = nodeid.removeprefix("tests/").partition("[")[0]
    return next((why for why, names in NEEDS_DOUBLE.items()
                 if names & {name, name.partition("::")[0]}), None)


def accept_its_digits() -> None:
    """From here on comparisons accept what float32 may be off by."""
    close, approx = np.testing.assert_allclose, pytest.approx

    @functools.wraps(close)
    def assert_allclose(actual, desired, rtol=1e-7, atol=0, *args, **keywords):
        atol = np.maximum(atol, BESIDE * _largest(desired))
        return close(actual, desired, max(rtol, RELATIVE), atol, *args, **keywords)

    @functools.wraps(approx)
    def approximately(expected, rel=None, abs=None, nan_ok=False):
        absolute = max(abs or 0.0, BESIDE * _largest(expected)) or None
        return approx(expected, max(rel or 0.0, RELATIVE), absolute, nan_ok)

    np.testing.assert_allclose, pytest.approx = assert_allclose, approximately


def _largest(numbers: object) -> float:
    """The largest finite size among them, and no less than that of rounding about 1."""
    values = list(numbers.values()) if isinstance(numbers, dict) else numbers
    try:
        sizes = np.abs(np.asarray(values, float))
    except (TypeError, ValueError):  # nested or not numbers
        return 0.0
    return float(np.max(sizes, initial=0.1, where=np.isfinite(sizes)))
