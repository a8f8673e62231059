"""Every estimator and engine, Model and Fit have an example in their docstring, which runs and
prints what it shows."""

import doctest
import inspect

import pytest

import probml
from probml import models
from probml.engines.ladder import KINDS

ESTIMATORS = [found for name in models.__all__
              if inspect.isclass(found := getattr(models, name)) and hasattr(found, "fit")]
CLASSES = [*ESTIMATORS, *KINDS, probml.Model, probml.Fit]


@pytest.mark.filterwarnings("ignore::probml.ConvergenceWarning")  # few draws and steps
@pytest.mark.parametrize("kind", CLASSES, ids=[kind.__name__ for kind in CLASSES])
def test_the_example_of_a_class_prints_what_it_shows(kind):
    text = inspect.cleandoc(kind.__dict__["__doc__"])
    assert "\nExamples:\n" in text, f"{kind.__name__} has no example"
    example = doctest.DocTestParser().get_doctest(text, {}, kind.__name__, None, None)
    said = []
    # equal models share their programs, which a later example may compile again: names stay
    doctest.DocTestRunner(verbose=False).run(example, out=said.append, clear_globs=False)
    assert not said, "".join(said)
    assert any(f"{kind.__name__}(" in each.source or kind in (probml.Model, probml.Fit)
               for each in example.examples)
