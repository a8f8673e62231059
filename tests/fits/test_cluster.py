"""Rows that lie with the workers of a Dask cluster: found is what one process finds, also where a worker dies."""

import os
import pickle
import signal
import threading
import time
from unittest.mock import Mock

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample

import probml
from probml.errors import DataError, ModelError
from probml.fits import cluster
from probml.fits.cluster import Cluster


@probml.model
def mixture(k: int):
    weights = sample("weights", dist.Dirichlet(jnp.ones(k)))
    with plate("component", k):
        mean = sample("mean", dist.Normal(0.0, 10.0))
        scale = sample("scale", dist.LogNormal(0.0, 1.0))
        table = sample("table", dist.Dirichlet(jnp.ones(3)))
    with probml.rows():
        z = sample("z", dist.Categorical(weights))
        sample("x", dist.Normal(mean[z], scale[z]))
        sample("colour", dist.Categorical(table[z]))


ENGINE = probml.EM(max_iterations=12, tolerance=0.0, restarts=2, accelerate=False)


def frame_of(n: int = 400):
    import pandas as pd

    random = np.random.default_rng(0)
    z = random.integers(2, size=n)
    x = random.normal(size=n) + 3.0 * z
    x[random.random(n) < 0.1] = np.nan
    return pd.DataFrame({"x": x, "colour": np.array(["blue", "green", "red"])[(z + random.integers(2, size=n)) % 3]})


def test_what_workers_do_adds_up_to_what_one_process_does():
    """Without a cluster: each of its tasks by hand."""
    frame = frame_of()
    model = mixture(k=2)
    content = cluster.portable(model)
    assert cluster.model_of(content) == model
    parts = [frame[:150], frame[150:]]
    looks = [pickle.loads(pickle.dumps(cluster.profile_partition(content, True, part, f"partition {i}", first)))
             for i, (part, first) in enumerate(zip(parts, (0, 150), strict=True))]
    profile = cluster.merge(content, True, *looks).with_model(model)
    whole = cluster.profile_partition(content, True, frame, "all", 0).with_model(model)
    assert profile.rows == 400 and profile.labels == whole.labels and profile.pattern == whole.pattern
    np.testing.assert_array_equal(profile.sample.table.columns["colour"].values, whole.sample.table.columns["colour"].values)
    np.testing.assert_array_equal(profile.ranks, whole.ranks)
    recipe = cluster.Recipe(content, True, cluster.without_model(profile.sample.taken(np.arange(1))), profile.sample.shapes,
                         profile, (), 1)
    chunks = [chunk for i, part in enumerate(parts)
              for chunk in cluster.chunks(recipe, part, f"partition {i}", len(part))]
    assert sum(chunk.weights.sum() for chunk in chunks) == 400
    heavy = frame.assign(w=np.arange(400.0))
    look = cluster.profile_partition(content, True, heavy, "all", 0, "w")
    chunks = cluster.chunks(recipe._replace(weights="w", profile=look.with_model(model)), heavy, "all", 400)
    assert sum(chunk.weights.sum() for chunk in chunks) == look.profile.weight == heavy["w"].sum()
    with pytest.raises(DataError, match="batch 'partition 3': 'x' must be finite, got inf in row 2"):
        cluster.profile_partition(content, True, frame[:5].assign(x=[0, 1, np.inf, 2, 3]), "partition 3", 0)


def test_places_of_frames_are_named(monkeypatch):
    dd = pytest.importorskip("dask.dataframe")
    with pytest.raises(DataError, match="the data are a Dask DataFrame, so fit needs the client of its cluster"):
        mixture(k=2).fit(dd.from_pandas(frame_of(8), npartitions=2), ENGINE)
    with pytest.raises(ModelError, match="where='here': expected a list of devices"):
        mixture(k=2).fit(frame_of(8), ENGINE, where="here")


def test_what_is_slow_to_come_is_waited_for_and_a_tasks_own_time_out_is_told(monkeypatch):
    """On a busy machine a task may be done, and what it found take longer than a look at the workers."""
    client = Mock()
    client.scheduler_info.return_value = {"workers": {"one": {}}}
    slow = Mock(status="finished")
    slow.result.side_effect = [TimeoutError, TimeoutError, 3]
    assert Cluster(client).result(slow) == 3
    failed = Mock(status="error")
    failed.result.side_effect = TimeoutError("its own")
    with pytest.raises(TimeoutError, match="its own"):
        Cluster(client).result(failed)
    client.scheduler_info.return_value = {"workers": {}}
    monkeypatch.setattr(cluster, "MAX_SECONDS_WITHOUT_WORKERS", 10.0)
    slow.result.side_effect = TimeoutError
    with pytest.raises(DataError, match="had no workers for 10 seconds"):
        Cluster(client).result(slow)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_cluster_finds_what_one_process_finds_also_when_a_worker_dies():
    dd = pytest.importorskip("dask.dataframe")
    from dask.distributed import Client, LocalCluster

    frame = frame_of()
    plain = mixture(k=2).fit(frame, ENGINE)
    bad = frame.copy()
    bad.loc[333, "x"] = np.inf
    with (LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
          Client(cluster) as client):

        def same(fit):
            assert fit.labels("colour") == plain.labels("colour")
            np.testing.assert_allclose(fit.history, plain.history, rtol=1e-10)
            for name, value in plain.params.items():
                np.testing.assert_allclose(fit.params[name], value, rtol=1e-7)

        held = dd.from_pandas(frame, npartitions=5)
        same(mixture(k=2).fit(held, ENGINE, where=client))
        by_map = mixture(k=2).fit(held, probml.MAP(), start=plain.params, where=client)
        assert by_map.history[-1] >= plain.history[-1] - 1e-6
        with pytest.raises(DataError, match=r"batch 'partition 4': 'x' must be finite, got inf in row 13"):
            mixture(k=2).fit(dd.from_pandas(bad, npartitions=5), ENGINE, where=client)

        def kill():
            time.sleep(0.5)
            os.kill(next(iter(cluster.workers.values())).pid, signal.SIGKILL)

        thread = threading.Thread(target=kill)
        thread.start()
        same(mixture(k=2).fit(held, ENGINE, where=client))
        thread.join()
