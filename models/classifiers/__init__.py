"""Classifiers: naive Bayes, discriminants, linear machines, the perceptron."""
