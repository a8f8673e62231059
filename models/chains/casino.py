"""The occasionally dishonest casino: a fair die, exchanged now and then for one that shows a six
every other time.

    initial 1/2, 1/2;  fair → loaded 0.05, loaded → fair 0.10;  fair 1/6 each;
    loaded 1/10 for 1 … 5, 1/2 for 6

`casino.csv` of probml.data has 300 rolls of it with the die of each.

Source: Durbin, Eddy, Krogh & Mitchison (1998), "Biological Sequence Analysis", section 3.2, page 57
    for the rolls.
"""

import numpy as np

from probml.models.chains.hidden_markov import hidden_markov

CASINO = {
    "initial": np.array([0.5, 0.5]),
    "transition": np.array([[0.95, 0.05], [0.10, 0.90]]),
    "probs": np.array([[1 / 6] * 6, [0.1] * 5 + [0.5]]),
}


def dishonest_casino():
    """The casino with its parameters known: a Fit of hidden_markov, whose states `z` are "fair" and
    "loaded".

    `y` are the rolls less 1, so that they are 0 … 5: an array (n, rolls).
    """
    model = hidden_markov(k=2, emission="categorical", symbols=6)
    return model.at(CASINO, labels={"z": ("fair", "loaded")})
