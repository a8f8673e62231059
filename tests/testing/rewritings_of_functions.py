"""Transformations of a program that write its function in another way (rewritten_models.py)."""

import re

import rewritten_models as written_again
from rewritings import (
    columns,
    exchangeable,
    function_of,
    indices,
    kind,
    model_of,
    rows_of,
    source,
    twin,
)
from rewritten_models import Unwritten

from probml.interface.functions.replay import lacks_rows


@kind("standard normals")
def standard_normals(subject):
    computed: dict[str, float] = {}
    function = written_again.rebound(function_of(subject), written_again.as_standard(
        set(columns(subject)), computed))
    return twin(subject, model_of(subject, function))


@kind("logarithms")
def logarithms(subject):
    function = written_again.rebound(function_of(subject), written_again.as_logarithms(
        set(columns(subject)), {}))
    return twin(subject, model_of(subject, function))


@kind("synonyms")
def synonyms(subject):
    function = written_again.rebound(function_of(subject), written_again.as_synonyms({}))
    return twin(subject, model_of(subject, function))


@kind("other algebra")
def other_algebra(subject):
    return twin(subject, model_of(subject, written_again.written(
        function_of(subject), written_again.OtherAlgebra(indices(subject)))))


@kind("plates as expand")
def plates_as_expand(subject):
    return twin(subject, model_of(subject, written_again.written(
        function_of(subject), written_again.ExpandedPlates(), written_again.expanding())))


@kind("rows pasted as a plate", True)
@kind("rows pasted without a plate", False)
def pasted(plated, subject):
    if lacks_rows(subject.model):
        raise Unwritten("no rows()")
    seen, names, _ = rows_of(subject)
    if not seen:
        raise Unwritten("nothing observed")
    if not plated and any(name not in columns(subject) for name in re.findall(
            r"sample\(\s*\"(\w+)\"", source(subject).split("rows()")[-1])):
        raise Unwritten("latent in rows")
    first = next((name for name in subject.model.inputs if name in names), seen[0])
    function = written_again.written(function_of(subject), written_again.Pasted(
        seen, f"{first}.shape[0]", plated))
    return twin(subject, model_of(subject, function))


@kind("plate of observations as rows()")
def by_rows(subject):
    if not lacks_rows(subject.model):
        raise Unwritten("rows() already")
    seen, names, n = exchangeable(subject)
    if len(names) != len(columns(subject)):
        raise Unwritten("arrays of other lengths")
    function = written_again.written(function_of(subject), written_again.ByRows(seen))
    return twin(subject, model_of(subject, function, seen))
