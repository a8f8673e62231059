"""Faces of sequences keep the names of columns, and hold new sequences to them."""

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("sklearn")

from probml.models import HiddenMarkov  # noqa: E402
from probml.models.chains.sequence_data import OfSequences  # noqa: E402

TABLE = pd.DataFrame({"heart": np.r_[np.zeros(6), np.ones(6)], "breath": np.arange(12.0) % 5})


class Named(OfSequences):
    """What reads sequences, and nothing more."""

    def __init__(self):
        self.engine = None


def test_names_are_those_of_the_table_also_in_a_list():
    for given in (TABLE, [TABLE[:6], TABLE[6:]]):
        face = Named()
        face._steps(given, None, reset=True)
        assert face.feature_names_in_.tolist() == ["heart", "breath"]
        with pytest.raises(ValueError, match="feature names should match"):
            face._steps(TABLE[["breath", "heart"]], None, reset=False)
    face._steps(TABLE.to_numpy(), None, reset=True)
    assert not hasattr(face, "feature_names_in_")


@pytest.mark.slow
def test_a_hidden_markov_model_refuses_other_columns():
    face = HiddenMarkov(1, n_init=1, max_iter=5).fit(TABLE)
    with pytest.raises(ValueError, match="feature names should match"):
        face.predict(TABLE.rename(columns={"heart": "pulse"}))
