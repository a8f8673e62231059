"""One abstract trace of a model: its sites, their plates, parents and programs."""
