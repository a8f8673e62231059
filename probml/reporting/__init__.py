"""What is told of a fit to others: a page, the versions it stands on, the works it owes to."""
