"""Layout of deterministics: numpyro.deterministic, and sites that a reparametrisation has replaced.

A deterministic is a function of sites. It has no density and no data, and no engine needs it. The
structure contains the program of its value; its plate, row and event axes are found here. Its
values are computed in computed.py.
"""


from probml.errors import ModelError
from probml.families import domains, likelihood
from probml.structure.site import Site
from probml.typing import Message

KIND = "deterministic"
TRACED_ROWS = 2  # rows of the second trace; the axis of this size is the row axis


def placed(where: str, msg: Message, one: tuple[int, ...], many: tuple[int, ...]) -> Site:
    """Returns a deterministic as a `Site` with its plate, row and event axes.

    Args:
        where: prefix of error messages. msg: the message of NumPyro's trace.
        one, many: shape of the value for one row and for TRACED_ROWS rows.

    Raises:
        ModelError: several axes depend on the number of rows.
    """
    grown = [axis for axis, (a, b) in enumerate(zip(one, many, strict=False)) if a != b]
    if len(one) != len(many) or len(grown) > 1 or any((one[axis], many[axis]) != (1, TRACED_ROWS)
                                                      for axis in grown):
        raise ModelError(
            f"{where} ({KIND}): its shape must not depend on the number of rows, or have one axis "
            f"whose length is the number of rows. For 1 row it is {one}, for {TRACED_ROWS} rows "
            f"{many}. Remove this numpyro.deterministic, and compute the value from the results of "
            f"the fit (fit.draws, fit.predict)"
        )
    stack = msg.get("cond_indep_stack") or ()
    frames = [frame for frame in reversed(stack) if frame.name != "rows"]
    dims = {frame.name: frame.dim for frame in stack}
    if not grown:
        rank = max((-frame.dim for frame in frames), default=0)
        if rank > len(one) or any(one[rank + frame.dim] != frame.size for frame in frames):
            rank, frames = len(one), []
        return _site(msg["name"], False, one[:rank], one[rank:], (), None,
                     tuple((frame.name, frame.size) for frame in frames))
    row_axis = grown[0]
    # axes of plates; the others belong to the value
    rank = min(row_axis - dims.get("rows", -1), len(one))
    named = {rank + frame.dim: frame for frame in frames if 0 <= rank + frame.dim
             and one[rank + frame.dim] == frame.size}
    named.pop(row_axis, None)
    loose = [axis for axis in range(rank) if axis != row_axis and axis not in named
             and one[axis] != 1]
    axes = (*sorted(named, key=lambda axis: frames.index(named[axis])), *loose)
    plates = tuple((frame.name, frame.size) for frame in frames if frame in named.values())
    return _site(msg["name"], True, one[:rank], one[rank:], axes, row_axis, (*plates, ("rows", 1)))


def _site(name: str, rows: bool, batch: tuple, event: tuple, axes: tuple, row_axis: int | None,
          plates: tuple) -> Site:
    return Site(name, rows, False, likelihood.NOTHING, KIND, ("value",), None, batch, (), event,
                axes, row_axis, plates, None, domains.NOTHING)
