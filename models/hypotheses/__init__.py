"""Questions with two answers: does this depend on that, do these two groups differ; Bayes factors
beside the tests of the textbooks."""
