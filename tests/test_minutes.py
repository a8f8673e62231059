"""A minute each of `make fuzz`, `make faults` and `make nightly`, as they are: of fixed seeds, so that
what is found once is found again, and nothing by chance."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SECONDS = 60  # a slower machine does less within them, and at least one thing of each kind
SEED = 350_200_000  # from which on 219 cases held, more than any machine has time for


def made(target, folder, seed):
    """What a target of the Makefile says, run by this Python and on the environment as it is."""
    if shutil.which("make") is None:
        pytest.skip("make is not there")
    # of a `make test` that runs this: its flags and words, and its folder of the last command
    environment = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "MAKELEVEL")}
    command = ["make", "--no-print-directory", "-o", "env", f"BIN={Path(sys.executable).parent}", f"FOUND={folder}",
               target, f"SECONDS={SECONDS}", f"SEED={seed}"]
    run = subprocess.run(command, cwd=ROOT, env=environment, text=True, stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert run.returncode == 0, run.stdout[-6000:]
    return run.stdout


def counted(pattern, out):
    """The number that a pattern finds."""
    assert (found := re.search(pattern, out, re.MULTILINE)), out[-3000:]
    return int(found.group(1))


def test_a_minute_of_fuzz_finds_nothing(tmp_path):
    out = made("fuzz", tmp_path, SEED)
    assert f"seed {SEED}\n" in out and not list(tmp_path.iterdir())
    assert counted(r"^(\d+) cases, \d+ claims true, 0 found", out) > 0


def test_a_minute_of_faults_is_stood(tmp_path):
    out = made("faults", tmp_path, 24)
    assert counted(r"^(\d+) stood: ", out) == len(re.findall(r" stood, \d+ s\n", out)) > 0


def test_a_minute_of_a_night_has_a_share_of_each_part(tmp_path):
    out = made("nightly", tmp_path, 24)
    said = {part.split(" ")[0]: part for part in re.split(r"^## make ", out, flags=re.MULTILINE)[1:]}
    assert all(f"## {name}: " in part and ", status 0\n" in part for name, part in said.items())
    assert counted(r"^(\d+) cases, \d+ claims true, 0 found", said["fuzz"]) > 0
    assert counted(r"^(\d+) stood: ", said["faults"]) > 0
    assert counted(r"^# \w+: .*'(?:read|refused)': (\d+)", said["hostile"]) > 0
    assert counted(r"^# (\d+) tried, 0 faults", said["misuse"]) > 0
    assert counted(r"^# .*?(\d+) (?:passed|refused|near|late)", said["certificates"]) > 0
