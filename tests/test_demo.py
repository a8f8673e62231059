"""`probml demo`, README's first command, says what it promises and leaves a picture."""

import re

import pytest
from click.testing import CliRunner

from probml.models.commandline.main import main


def test_the_demo_compares_shows_and_draws(tmp_path):
    picture = tmp_path / "new folder" / "fit.png"
    done = CliRunner().invoke(main, ["demo", "--out", str(picture), "--most", "3"],
                              catch_exceptions=False)
    assert done.exit_code == 0
    for part in ("272 eruptions", "Mixing proportions", "Comparison of numbers", str(picture)):
        assert part in done.output
    said = re.search(r"parameters: (\d+)   log-likelihood: (\S+)", done.output)
    # mclust 6 on the same data, model VVV: ln L = -1130.264 (the weak prior costs 0.01)
    assert said[1] == "11" and float(said[2]) == pytest.approx(-1130.264, abs=0.1)
    header = picture.read_bytes()[:24]
    # wide enough to be read
    assert header.startswith(b"\x89PNG") and int.from_bytes(header[16:20]) > 600
