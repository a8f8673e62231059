"""Programs that are kept: on disk for other processes, in this one until memory runs short."""
