"""The names of covariance matrices of components: here, in discriminant analysis, in
scikit-learn."""

_WORDS = {"own": "full", "shared": "tied", "diag": "diagonal"}
COVARIANCES = ("full", "diagonal", "spherical", "tied", "tied diagonal", "tied spherical")


def canonical(covariance: str) -> str:
    """The name here of a covariance that may be named in others' words: "own" is "full", "shared
    diag" is "tied diagonal"."""
    return " ".join(_WORDS.get(word, word) for word in covariance.split())
