"""Analysis and evaluation of traced programs: the only package that reads jaxprs."""
