"""The example service answers a real client as the fit does, many at a time, and tells what is wrong
with a row."""

import json
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
import pytest

pytest.importorskip("fastapi")
uvicorn = pytest.importorskip("uvicorn")

from probml.models import read_bif  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))
import service  # noqa: E402


@pytest.fixture(scope="module")
def address():
    """A server on a free port, while the tests last."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(service.app(), port=port, log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started and thread.is_alive():
        thread.join(0.05)
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join()


def asked(address, row):
    request = Request(f"{address}/predict", json.dumps(row).encode(),
                      {"Content-Type": "application/json"})
    with urlopen(request, timeout=20) as answer:
        return json.load(answer)


def test_it_says_what_it_serves(address):
    with urlopen(address, timeout=20) as answer:
        said = json.load(answer)
    assert said["predicts"] == "lung" and said["labels"] == ["yes", "no"]
    assert "smoke" in said["a row may show"]


def test_many_clients_get_the_answers_of_the_fit(address):
    fit = read_bif(files("probml.data") / "asia.bif")
    rows = [{"smoke": smoke, "dysp": dysp} for smoke in ("yes", "no", None)
            for dysp in ("yes", "no")] * 4
    table = {name: [row[name] for row in rows] for name in ("smoke", "dysp")}
    with ThreadPoolExecutor(8) as clients:
        found = list(clients.map(lambda row: list(asked(address, row).values()), rows))
    np.testing.assert_allclose(found, fit.predict_proba(table, "lung"), atol=1e-6)


@pytest.mark.parametrize("row,said", [({"smoke": "maybe"}, "not one of the fitted categories"),
                                      ({"fever": 1.0}, "the row contains 'fever'")])
def test_a_row_that_cannot_be_is_told_why(address, row, said):
    with pytest.raises(HTTPError) as error:
        asked(address, row)
    assert error.value.code == 422 and said in json.load(error.value)["detail"]
