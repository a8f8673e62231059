"""Kalman's filter as an elimination: Gaussian states along time, forwards, backwards and drawn."""
