"""The manners of scikit-learn over fit and predict; no maths."""
