"""Climbing the log posterior: Newton, L-BFGS, optax; off saddles, and from where nothing rises; and
what is said of an end.

The way of a climb, as MAP.run goes it:

| what | file |
|---|---|
| coordinates without bounds; Newton's steps, or L-BFGS | `coordinates`, `climbs` |
| a softmax's numbers, in units of their own; very many rows | `preconditioned`, `framed` |
| by an optax optimiser | `training` |
| the end as its judges see it: the point, its slope, its curvature, each taken once | `top` |
| on, where Newton's step still promises something, whatever the units | `refinement` |
| from other starts, where there is no way up, or a saddle | `ways_up` |
| off spreads of 0, correlations of ±1, gaps of 0, other ends | `edges`, `gaps`, `ends` |
| said: no maximum; one of many as high; steps | `runaway`, `vanishing`, `identifiability` |
| said: another maximum on the other side of the start | `mirrored` |
"""
