"""Exponential families, one per file: density kernels, the form of the M-step objective, and
conjugate priors.

Three small roles, found by the type of a NumPyro distribution:

- a **likelihood** turns a site's arguments into natural parameters and evaluates rows by matrix
  products; the gradient of the evidence with respect to the natural parameters is the pooled
  expected sufficient statistics. What else it knows of itself is optional: `predictive`, its
  density with a parameter integrated out; `mean_of`, the arguments in which its mean is linear;
  `scatter`, those that scale it; `limit` and `inside`, for checking data; `rowwise`, that no
  statistics pool; `ancillary`, what it leaves out; `held`, natural parameters that are only numbers
  its base needs; `fill`, its unseen coordinates given the seen ones; `recentre`, its statistics of
  shifted values; `minorant`, which has the form that its density has not, lies below it and touches
  it at given arguments, so that an M-step may maximise it instead;
- a **form** is the shape that the objective has as a function of one quantity (a location, a
  variance, a probability table): it is read off from derivatives at a point, whatever likelihoods
  and priors were added up in it, and gives the mode. So a parameter used twice, tied, or under a
  flat prior needs no rule of its own;
- a **prior** names the form under which it is conjugate and turns what was read off into a NumPyro
  distribution.
"""
