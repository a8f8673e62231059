"""Exponential families, one a file: density kernels, forms of the M-step's objective, conjugate
priors, and the domains of values.

- a **likelihood** (`likelihood.Likelihood`, one a file in `likelihoods/`) turns a site's arguments
  into natural parameters and evaluates rows by matrix products;
- a **form** (`form.Form`, one a file in `forms/`) is the shape of an objective in one quantity,
  such as a location, a variance or a probability table; it is read off from derivatives and gives
  the mode;
- a **prior** (`form.Prior`) names the form under which it is conjugate and turns what was read off
  into a NumPyro distribution;
- a **domain** (`domains.Domain`) is the set in which a value lies;
- an **entry** (`entry.Entry`) says which of these a NumPyro class has; `registry` finds it.

`register(Entry(types=(...), likelihood=..., prior=...))` adds one from outside, from one file.
"""

from probml.families.form import Form as Form
from probml.families.form import Prior as Prior
from probml.families.likelihood import Entry as Entry
from probml.families.likelihood import Likelihood as Likelihood
from probml.families.registry import register as register
