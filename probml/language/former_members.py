"""Names that members of the classes of `probml.extend` had before: they go on working for one minor
version, with a DeprecationWarning that names the new one.

A class says them once, `@former_members(manner="describe_method")`. Its instances have the old
names too, a class derived from it that still defines an old one gets the new one, and the
constructor of a dataclass takes the old keyword.
"""

import functools
import warnings
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from typing import Any, TypeVar

Class = TypeVar("Class", bound=type)


def warn(where: str, old: str, new: str, stacklevel: int = 3) -> None:
    """Warn that a name is old, at the caller of the caller.

    Args:
        where: what comes before the old name, such as "Model:" or "the parameter".
        new: the name now; "": there is none.
    """
    said = f"is now named '{new}'. Use '{new}'" if new else "has no effect any more. Omit it"
    warnings.warn(f"{where} '{old}' {said}: the old name works only until the next minor version",
                  DeprecationWarning, stacklevel=stacklevel)


class _Former:
    """A member by its old name."""

    def __init__(self, owner: type, old: str, new: str):
        self.owner, self.old, self.new = owner, old, new

    def __get__(self, instance: Any, kind: type) -> Any:
        if instance is None:  # as when all members are listed
            return getattr(kind, self.new)
        warn(f"{kind.__name__}:", self.old, self.new)
        below = kind.__mro__[: kind.__mro__.index(self.owner)]
        if any(self.old in vars(each) for each in below):  # by super() of a class that defines it
            return getattr(self.owner, self.new).__get__(instance, kind)
        return getattr(instance, self.new)


def rename_members(kind: type, former: Mapping[str, str]) -> None:
    """Gives a class that defines members by old names these members by the new ones."""
    for old, new in former.items():
        own = vars(kind)
        if new and old in own and new not in own and not isinstance(own[old], _Former):
            warn(f"{kind.__name__}:", old, new, 4)
            setattr(kind, new, own[old])


def former_members(**former: str) -> Callable[[Class], Class]:
    """A decorator of a class: old name → the name now; "": a keyword that has no effect any
    more."""

    def decorate(cls: Class) -> Class:
        owner: Any = cls
        for old, new in former.items():
            if new:
                setattr(owner, old, _Former(owner, old, new))

        def init_subclass(kind: type, **keywords: Any) -> None:
            super(owner, kind).__init_subclass__(**keywords)
            rename_members(kind, former)

        owner.__init_subclass__ = classmethod(init_subclass)
        if is_dataclass(cls):
            make = owner.__init__

            @functools.wraps(make)
            def init(self: Any, *args: Any, **settings: Any) -> None:
                for old in former.keys() & settings.keys():
                    warn(f"{cls.__name__}:", old, former[old])
                    value = settings.pop(old)
                    settings |= {former[old]: value} if former[old] else {}
                make(self, *args, **settings)

            owner.__init__ = init
        return cls

    return decorate
