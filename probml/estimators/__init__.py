"""The base classes of estimators: the scikit-learn protocol over fits."""
