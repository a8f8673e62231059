"""What users are told: an ill-formed model, a refusal, data that do not fit."""



class ModelError(ValueError):
    """A model, or a setting of it, that cannot be used: what, where, expected, got, and what to
    do."""


class Refusal(ModelError):
    """An engine cannot treat a model with these data: the site, the reason, and what to type
    instead."""


class DataError(ValueError):
    """Data that the model cannot take: what and where, expected and got, what to do."""


class RowError(DataError):
    """What is wrong with one row, whose number among more rows may be another.

    Args:
        before, row, after: the message is before + "row " + the number + after.
    """

    def __init__(self, before: str, row: int, after: str):
        super().__init__(before, row, after)

    def __str__(self) -> str:
        before, row, after = self.args
        return f"{before}row {row}{after}"

    def behind(self, first: int) -> "RowError":
        """The same of rows that stand behind so many others."""
        before, row, after = self.args
        return RowError(before, row + first, after)
