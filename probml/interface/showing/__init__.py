"""Models and fits as text, in notebooks, as summaries and as reports."""
