"""A card, a model folder with profiles, and ``zenit-hub measure`` run on them in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.rigs.cuda import cuda_environment
from tests.rigs.nvml import NvmlRig
from tests.rigs.stub_engine import Stub
from zenit_hub.maintain.measurement import Measurement, read_measurement

GIB = 2**30
MIB = 2**20
ROOT = Path(__file__).parents[2]
CARD = "NVIDIA GeForce RTX 5090"
ARCHITECTURE = "Qwen2ForCausalLM"


def a_profile(window: int = 4096, **values: Any) -> dict[str, Any]:
    """One that can be measured: all that the figure depends on is pinned."""
    pinned = {
        "max_model_len": window,
        "max_num_batched_tokens": 2048,
        "max_num_seqs": 4,
        "enable_prefix_caching": False,
        "kv_cache_memory_bytes": 256 * MIB,
    }
    return {key: value for key, value in {**pinned, **values}.items() if value is not None}


@dataclass
class Lab:
    """``folder`` takes the card's state, the model, the results and the processes' temporary files."""

    folder: Path
    profiles: Mapping[str, dict[str, Any]]
    stub: Stub = field(default_factory=Stub)
    cards: int = 1

    def __post_init__(self) -> None:
        self.model, self.output, self.temporary = (self.folder / name for name in ("model", "results", "tmp"))
        # Short: the engine's sockets lie in it, and the path of a socket has at most 107 bytes.
        for folder in (self.model, self.temporary):
            folder.mkdir(parents=True, exist_ok=True)
        (self.model / "model.safetensors").write_bytes(b"weights")
        self.write_config(self.profiles)
        self.rig = NvmlRig(self.folder / "card")
        self.rig.put({"devices": [self.card(index) for index in range(self.cards)]})

    @staticmethod
    def card(index: int, free_bytes: int = 15 * GIB) -> dict[str, Any]:
        return {
            "name": CARD,
            "uuid": f"GPU-{index:08d}-0000-0000-0000-000000000000",
            "compute_capability": "12.0",
            "total_bytes": 16 * GIB,
            "free_bytes": free_bytes,
            "context_bytes": 300 * MIB,
        }

    def write_config(self, profiles: Mapping[str, dict[str, Any]]) -> None:
        section = {"schema_version": 1, "repo": "org/model", "profiles": dict(profiles)}
        config = {
            "architectures": [ARCHITECTURE],
            "max_position_embeddings": 131072,
            "serving_profiles": section,
        }
        (self.model / "config.json").write_text(json.dumps(config, indent=2))

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            **cuda_environment(self.rig),
            **self.stub.environment(),
            "TMPDIR": str(self.temporary),
            "PYTHONPATH": str(ROOT),
        }

    def command(self, *words: str) -> list[str]:
        output = () if "--output" in words else ("--output", str(self.output))
        return [sys.executable, "-m", "tests.rigs.measure_child", str(self.model), *output, *words]

    def run(self, *words: str, timeout_s: float = 60, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*words),
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            cwd=self.folder,
        )

    def start(self, *words: str, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(*words),
            env={**self.environment, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            cwd=self.folder,
        )

    def measurement(self, profile: str) -> Measurement:
        return read_measurement((self.output / f"{profile}.json").read_bytes(), profile)

    def files(self) -> list[str]:
        return sorted(path.name for path in self.output.glob("*.json"))

    def leftovers(self, deadline_s: float = 30) -> list[str]:
        """Processes that mention this lab's folder, and temporary files; waits for those that are on their way out."""
        until_s = time.monotonic() + deadline_s
        while left := [*self._processes(), *sorted(str(path) for path in self.temporary.iterdir())]:
            if time.monotonic() > until_s:
                return left
            time.sleep(0.1)
        return []

    def _processes(self) -> Sequence[str]:
        found = []
        for status in Path("/proc").glob("[0-9]*/environ"):
            try:
                if f"TMPDIR={self.temporary}".encode() in status.read_bytes():
                    found.append(f"process {status.parent.name}: {_command(status.parent)}")
            except OSError:
                continue
        return found


def _command(process: Path) -> str:
    try:
        return (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return "?"


def short_folder() -> Path:
    """A folder with a short path, for a lab whose test's own is long."""
    return Path(tempfile.mkdtemp(prefix="zl"))
