"""The demo says what it promises and leaves a picture."""

import numpy as np
import pytest

from probml import demo


def test_demo_fits_compares_explains_and_draws(tmp_path, capsys):
    picture = tmp_path / "new folder" / "fit.png"
    demo.main(["--out", str(picture), "--most", "2", "--restarts", "2"])
    out, err = capsys.readouterr()
    for part in ("s after the process started", "k = 2: Converged", "latent, summed out",
                 "Wishart–MultivariateNormal", "Mixing proportions", str(picture)):
        assert part in out
    assert "EM:" in err  # the progress bar
    best = next(line.split() for line in out.splitlines() if "← best" in line)
    # mclust 6 on the same data, model VVV: two components beat one, ln L = -1130.264 (the weak
    # prior costs 0.01)
    assert best[:2] == ["2", "11"] and float(best[2]) == pytest.approx(-1130.264, abs=0.1)
    header = picture.read_bytes()[:24]
    # wide enough to be read
    assert header.startswith(b"\x89PNG") and int.from_bytes(header[16:20]) > 600


def test_free_parameters_are_those_of_mclust():
    assert [demo.free_parameters(k, 2) for k in (1, 2, 3)] == [5, 11, 17]


def test_components_come_heaviest_first():
    class Fit:
        params = {"weights": np.array([0.2, 0.8]), "mean": np.array([[1.0], [2.0]]),
                  "precision": np.array([[[4.0]], [[0.5]]])}

    weights, means, covariances, order = demo.components(Fit)
    assert order.tolist() == [1, 0] and weights[0] == 0.8 and means[0, 0] == 2.0
    np.testing.assert_allclose(covariances[:, 0, 0], [2.0, 0.25])
