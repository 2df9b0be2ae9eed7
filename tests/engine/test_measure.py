"""measure → publish → serve on the real engine: what a figure is worth, and what the people who serve get of it.

One model, two windows: the wide one pins a much larger KV cache. The tests stand on the same three runs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.rigs.ballast import Ballast
from tests.rigs.checkpoints import CheckpointSpec, build_checkpoint
from tests.rigs.engine import ServedModel
from tests.rigs.hub import LoopbackHub, directory_files
from zenit_hub.device import look_at_host
from zenit_hub.maintain.measure.bench import bench_for
from zenit_hub.maintain.measure.boot import Task, run_boot
from zenit_hub.maintain.measure.cgroup import CgroupConfiner
from zenit_hub.maintain.measure.launch import Order, find_command
from zenit_hub.maintain.measure.samplers import FOREIGN_LIMIT_BYTES
from zenit_hub.maintain.measure.watch import Nobody
from zenit_hub.maintain.measure.workload import Shape
from zenit_hub.maintain.measurement import Measurement, read_measurement
from zenit_hub.maintain.validate import validate
from zenit_hub.say import REPAIR_ID

MIB = 2**20
GIB = 2**30
REPO = "zenit/tiny"
WINDOWS = {"narrow": 2048, "wide": 8192}
PINS = {"narrow": None, "wide": 2 * GIB}
WEIGHTS_MIB = 256
BATCH_TOKENS = 128
"""Few, so that what a batch takes for a moment is little (2048 tokens took 526 MiB beside weights of 512 MiB)."""

BALLAST_BYTES = 2 * GIB
MOST_BALLASTS = 64


def section() -> dict[str, object]:
    """The narrow window leaves its KV cache to measuring."""
    profiles = {}
    for name, window in WINDOWS.items():
        values = {
            "max_model_len": window,
            "max_num_batched_tokens": BATCH_TOKENS,
            "max_num_seqs": 4,
            "enable_prefix_caching": False,
            "enforce_eager": True,
            "kv_cache_memory_bytes": PINS[name],
        }
        profiles[name] = {key: value for key, value in values.items() if value is not None}
    return {"schema_version": 1, "repo": REPO, "default_profile": "narrow", "profiles": profiles}


@dataclass
class Stage:
    """The hub with the model, and what the runs left in ``results``."""

    hub: LoopbackHub
    folder: Path
    environment: dict[str, str]
    results: Path

    def zenit_hub(self, *words: str, timeout_s: float = 600) -> subprocess.CompletedProcess[str]:
        command = [str(Path(sys.executable).with_name("zenit-hub")), *words]
        return subprocess.run(
            command,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            cwd=self.folder,
        )

    def measurement(self, profile: str) -> Measurement:
        return read_measurement((self.results / f"{profile}.json").read_bytes(), profile)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Both windows measured by the repo's Hub id: the narrow one by a single boot, the wide one verified."""
    folder = tmp_path_factory.mktemp("measured")
    spec = CheckpointSpec(
        max_position_embeddings=8192,
        section=section(),
        section_key="serving_profiles",
        weights_mib=WEIGHTS_MIB,
    )
    files = directory_files(build_checkpoint(folder / "model", spec))
    with LoopbackHub() as hub:
        token = hub.account("zenit")
        hub.create(REPO, {**files, "README.md": b"---\nlicense: apache-2.0\n---\n\n# Tiny\n"})
        environment = {**os.environ, **hub.environment(home=folder / "home", token=token)}
        made = Stage(hub, folder, environment, folder / "results")
        quick = made.zenit_hub(
            *("measure", REPO, "--profile", "narrow", "--boots", "1", "--no-verify"),
            *("--output", str(made.results)),
        )
        assert quick.returncode == 0, quick.stderr
        whole = made.zenit_hub(
            "measure", REPO, "--profile", "wide", "--boots", "1", "--output", str(made.results)
        )
        assert whole.returncode == 0, whole.stderr
        yield made


def test_the_parts_add_up_and_nothing_else_took_part(stage: Stage) -> None:
    """A measurement per profile, with the commit, the engine's own account and a quiet machine."""
    for name in WINDOWS:
        found = stage.measurement(name)
        parts = found.breakdown
        assert parts is not None
        named = (parts.weights_bytes, parts.kv_cache_bytes, parts.cuda_graphs_bytes, parts.contexts_bytes)
        explained_bytes = sum(part or 0 for part in named) + (parts.activation_peak_bytes or 0)
        assert explained_bytes + parts.unaccounted_bytes == parts.total_bytes
        assert abs(parts.unaccounted_bytes) < parts.total_bytes // 4
        assert found.model.commit == stage.hub.head(REPO)
        assert found.versions.vllm.startswith("0.")
        assert (found.boots[-1].foreign_bytes or 0) <= FOREIGN_LIMIT_BYTES
        # A hundred where a core is to spare (`test_measure_samplers.py`); here the engine takes both.
        assert (found.boots[0].sampled_hz or 0) >= 90
        assert validate((stage.results / f"{name}.json").read_bytes()).valid


def test_a_profile_without_a_pin_is_published_with_what_its_window_needs(stage: Stage) -> None:
    """Otherwise the engine takes all that it may, and the figure would be the machine's size."""
    found = stage.measurement("narrow")

    assert found.kv_cache_memory_bytes is not None
    assert 0 < found.kv_cache_memory_bytes < 64 * MIB
    assert found.breakdown is not None
    assert found.breakdown.kv_cache_bytes is not None
    assert abs(found.breakdown.kv_cache_bytes - found.kv_cache_memory_bytes) <= MIB
    assert (found.requires_free_bytes or 0) < 4 * GIB


def test_what_is_known_to_be_there_is_seen_from_outside(stage: Stage) -> None:
    """The two figures differ by the two pools, within 2 %; the engine's account has the weights' own size."""
    narrow, wide = stage.measurement("narrow"), stage.measurement("wide")
    figure_bytes = wide.requires_free_bytes or 0
    pools_bytes = (wide.kv_cache_memory_bytes or 0) - (narrow.kv_cache_memory_bytes or 0)
    parts = wide.breakdown
    assert parts is not None

    assert abs(figure_bytes - (narrow.requires_free_bytes or 0) - pools_bytes) <= figure_bytes * 2 // 100
    assert abs((parts.weights_bytes or 0) - WEIGHTS_MIB * MIB) <= WEIGHTS_MIB * MIB * 3 // 100
    assert abs(parts.unaccounted_bytes) <= figure_bytes * 5 // 100


def test_the_figure_boots_and_answers_and_a_tenth_less_does_not(stage: Stage, tmp_path: Path) -> None:
    """The host's memory controller holds the launch to it; then to 90 %, where the kernel ends it."""
    found = stage.measurement("wide")
    assert found.requires_free_bytes is not None
    assert found.verification is not None
    assert found.verification.method == "cgroup", found.verification.reason
    assert found.verification.outcome == "answered"

    bench = bench_for("cpu", ())
    assert isinstance(bench.confiner, CgroupConfiner)
    with bench.confiner.hold(found.requires_free_bytes * 9 // 10) as cgroup:
        order = Order(
            find_command(), str(stage.folder / "model"), "wide", _folder(tmp_path / "tenth"), cgroup=cgroup
        )
        seen = run_boot("below", 1, Task(order, Shape(8192, BATCH_TOKENS, 4), 240), bench, Nobody())

    assert seen.boot.outcome in ("failed", "contaminated")
    assert seen.boot.failure is not None
    assert seen.boot.failure.kind in ("out_of_memory", "died", "hang")


def test_what_was_published_decides_the_window(stage: Stage) -> None:
    """measure → publish → serve: with room for both the wide window, with a full host the one that still fits."""
    files = [str(stage.results / f"{name}.json") for name in WINDOWS]
    published = stage.zenit_hub(
        *("publish", *files, "--repo", REPO, "--init-card", "--allow-unverified", "--yes")
    )
    assert published.returncode == 0, published.stderr
    planned = json.loads(stage.zenit_hub("plan", REPO, "--json").stdout)
    assert (planned["profile"], planned["reason"]) == ("wide", "widest_fitting")

    wide_bytes = stage.measurement("wide").requires_free_bytes or 0
    narrow_bytes = stage.measurement("narrow").requires_free_bytes or 0
    with _host_with_less_than((wide_bytes + narrow_bytes) // 2):
        log = stage.folder / "engine.log"
        with ServedModel([REPO], stage.environment, log) as served:
            assert served.window == WINDOWS["narrow"]
            assert served.complete("Once upon a time")
        said = next(line for line in log.read_text().splitlines() if f"{REPAIR_ID} profile " in line)
        assert "narrow" in said


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


@contextmanager
def _host_with_less_than(size_bytes: int) -> Iterator[None]:
    """Fills the host until less than that is available. Its memory may grow with what is asked of it."""
    with ExitStack() as held:
        for _ in range(MOST_BALLASTS):
            over_bytes = _available_bytes() - size_bytes
            if over_bytes <= 0:
                break
            held.enter_context(Ballast(min(BALLAST_BYTES, over_bytes + 16 * MIB)))
            time.sleep(0.1)
        yield


def _available_bytes() -> int:
    host = look_at_host().host
    assert host is not None
    return host.available_bytes
