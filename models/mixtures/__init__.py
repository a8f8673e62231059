"""Mixtures: of normals, of columns of several kinds, of mixtures."""
