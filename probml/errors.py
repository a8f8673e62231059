"""What users are told: an ill-formed model, a refusal, data that do not fit."""



class ModelError(ValueError):
    """A model, or a setting of it, that cannot be used: what, where, expected, got, and what to
    do."""


class Refusal(ModelError):
    """An engine cannot treat a model with these data: the site, the reason, and what to type
    instead."""


class DataError(ValueError):
    """Data that the model cannot take: what and where, expected and got, what to do."""
