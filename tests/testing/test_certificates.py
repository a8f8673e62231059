"""A slice of tests/testing/certificates.py: what every function of the zoo is certified by."""

import certificates
import pytest
import single


def test_every_function_of_the_zoo_is_certified():
    assert set(certificates.functions()) == set(single.functions())


def test_what_fits_say_of_themselves_is_counted():
    share, first = certificates.doubted([
        ("Best of 2. [restarts]", "Too short. [guide-not-converged]"), ("Best. [restarts]",), ()])
    assert share == 1 / 3 and first.startswith("Too short")
    assert certificates.doubted([]) == (0.0, "")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "engine", "end"), [
    ("ridge", "Exact", certificates.PASSED), ("ridge", "Laplace", certificates.PASSED),
    ("gaussian_mixture", "Exact", certificates.REFUSED)])
def test_a_function_is_certified_or_refused_in_words(name, engine, end):
    model, given = certificates.functions()[name]
    found, said = certificates.certified(model, given, engine, 60, 300)
    assert found == end and bool(said) is (end == certificates.REFUSED)


@pytest.mark.slow
def test_what_takes_too_long_is_told(monkeypatch):
    model, given = certificates.functions()["ridge"]
    found, said = certificates.certified(model, given, "NUTS", 2000, 1)
    assert found == certificates.LATE and "1 s of processor" in said
