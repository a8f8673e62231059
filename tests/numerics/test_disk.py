"""Compiled programs on disk: read by another process, never where others may write, never broken."""

import errno
import json
import os
import subprocess
import sys

import pytest

from probml.numerics.kept import disk

PROGRAM = """
import json
import jax, jax.numpy as jnp
made = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, *_, **__: made.append(event) if event.endswith("backend_compile_duration") else None)
from probml.numerics.compiling import jit
x = jnp.arange(8.0)
before = len(made)
found = float(jit(lambda x: jnp.sin(x).sum() + 1.0)(x))
inside = len(made)
jax.jit(lambda x: jnp.cos(x).sum() + 2.0)(x)
print(json.dumps([found, inside - before, len(made) - inside]))
"""


def process(folder, *file, **more):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("JAX_COMPILATION")}
    environment |= {"PROBML_CACHE": str(folder), "JAX_PLATFORMS": "cpu",
                    "JAX_ENABLE_COMPILATION_CACHE": "true", **more}
    done = subprocess.run([sys.executable, *(file or ("-c", PROGRAM))], capture_output=True, text=True,
                          env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def files(folder):
    return [f for f in folder.rglob("*") if f.is_file()]


def test_a_second_process_reads_what_the_first_compiled(tmp_path):
    first = process(tmp_path)
    kept = files(tmp_path)
    assert first[1:] == [1, 1] and len(kept) == 1  # the program that is not ours is not kept
    second = process(tmp_path)  # a function of nobody's name is known by its text
    assert second == [first[0], 0, 1]


@pytest.mark.slow
def test_a_cache_of_the_users_is_respected(tmp_path):
    own = tmp_path / "own"
    process(tmp_path / "ours", JAX_COMPILATION_CACHE_DIR=str(own))
    assert files(tmp_path / "ours") == []


def test_a_folder_that_is_open_to_others_is_not_used(tmp_path):
    path = tmp_path / "open"
    path.mkdir(mode=0o777)
    path.chmod(0o777)
    with pytest.raises(PermissionError, match="accessible to other users"):
        disk.Folder(path)


def test_a_folder_returns_what_was_put_and_nothing_broken(tmp_path):
    folder = disk.Folder(tmp_path / "cache")
    assert folder.get("a") is None
    folder.put("a", b"program")
    assert folder.get("a") == b"program"
    (tmp_path / "cache" / "a").write_bytes(b"x" * 60)
    assert folder.get("a") is None


def test_the_files_used_longest_ago_go_first(tmp_path, monkeypatch):
    monkeypatch.setattr(disk, "MAX_BYTES", 1000)
    folder = disk.Folder(tmp_path / "cache")
    for i, name in enumerate("abcd"):
        folder.put(name, bytes(300))
        os.utime(tmp_path / "cache" / name, (i, i))
    disk.Folder(tmp_path / "cache").put("e", b"e")
    assert sorted(f.name for f in (tmp_path / "cache").iterdir()) == ["c", "d", "e"]


def test_the_environment_names_the_folder(monkeypatch, tmp_path):
    for said in disk.OFF:
        monkeypatch.setenv(disk.SWITCH, said)
        assert disk.cache_folder() is None
    monkeypatch.setenv(disk.SWITCH, str(tmp_path))
    assert disk.cache_folder().parent == tmp_path
    monkeypatch.setenv(disk.SWITCH, "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert disk.cache_folder().name.startswith("programs-")


def test_a_folder_on_a_disk_that_is_only_read_is_read(tmp_path, monkeypatch):
    own = disk.Folder(tmp_path / "own")
    own.put("key", b"value")

    def refused(*args, **more):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "utime", refused)
    monkeypatch.setattr(disk.tempfile, "mkstemp", refused)
    own.put("other", b"more")
    assert own.get("key") == b"value" and own.get("other") is None


def test_a_full_disk_leaves_nothing_half_written(tmp_path, monkeypatch):
    own = disk.Folder(tmp_path / "own")

    def full(*args, **more):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    own.put("key", b"value")
    assert files(tmp_path) == []


def test_a_folder_that_cannot_be_made_is_done_without(tmp_path):
    file = tmp_path / "a file"
    file.write_text("")
    assert process(file)[0] == process(tmp_path / "own")[0]


COIN = """
import json
import numpyro.distributions as dist
from numpyro import sample
import probml

@probml.model
def coin():
    p = sample("p", dist.Beta(2.0, 3.0))
    with probml.rows():
        sample("y", dist.Bernoulli(p))

print(json.dumps(coin().fit({"y": [1, 0, 1, 1]}).posterior("p").mean.tolist()))
"""


@pytest.mark.slow
def test_an_answer_that_is_a_distribution_is_read_alike_whatever_the_order_of_sets(tmp_path):
    (tmp_path / "coin.py").write_text(COIN)
    for seed in ("1", "2"):
        found = process(tmp_path, tmp_path / "coin.py", PYTHONHASHSEED=seed)
        assert found == pytest.approx(5 / 9, rel=1e-6)
