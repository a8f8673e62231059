"""Predictions over HTTP: a fit behind FastAPI, a row a request.

    pip install 'probml[serve]'
    uvicorn examples.service:app --factory
    curl localhost:8000/predict --json '{"smoke": "yes", "dysp": "yes"}'

Without settings it serves the network of asia (Lauritzen & Spiegelhalter 1988). Your own fit, of a
model of the zoo: FIT=flowers.probml SITE=Species EXAMPLE='{"size": 1.0}', where EXAMPLE is a row as
they will come; what it shows may be unseen later.
"""

import json
import os
from importlib.resources import files
from typing import Any

from fastapi import FastAPI, HTTPException

import probml
from probml.models import read_bif

Row = dict[str, float | str | None]


def service(fit: probml.Fit, site: str, example: Row) -> FastAPI:
    """What a service answers: GET / tells what it is, POST /predict the probabilities of the labels
    of `site` given a row.

    Args:
        example: a row; the question is compiled for what it shows, when the service starts.
    """
    ask = fit.compiled("predict_proba", {name: [value] for name, value in example.items()}, site)
    labels = [str(label) for label in fit.labels(site)]
    app = FastAPI(title=f"{site} by {fit.model.name}", version=probml.__version__)

    @app.get("/")
    def what() -> dict[str, Any]:
        return {"model": fit.model.name, "engine": fit.engine, "status": fit.status,
                "predicts": site, "labels": labels, "a row may show": list(ask.names)}

    @app.post("/predict")
    def predict(row: Row) -> dict[str, float]:
        try:
            chances = ask(row)  # from any thread, a tenth of a millisecond or two
        except ValueError as error:  # what, where, expected, got
            raise HTTPException(422, str(error)) from None
        return dict(zip(labels, map(float, chances), strict=True))

    return app


def app() -> FastAPI:
    """The service that the environment asks for."""
    if "FIT" not in os.environ:
        return service(read_bif(files("probml.data") / "asia.bif"), "lung", {"smoke": "yes"})
    found = probml.load(os.environ["FIT"])
    return service(found, os.environ["SITE"], json.loads(os.environ["EXAMPLE"]))
