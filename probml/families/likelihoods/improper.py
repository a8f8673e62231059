"""ImproperUniform: a flat prior, whose density is 1 wherever its support is."""

import numpyro.distributions as dist

from probml.families.entry import Entry

ENTRIES = (Entry((dist.ImproperUniform,), improper=True),)
