"""The main job, for real and on this machine: a tiny model with profiles of its own is published to a
loopback hub and served by nothing but its Hub id.

    checkpoint → hub → `zenit-hub plan` → `vllm serve <hub id>` → a completion → what was applied and why

The figures of the demo's section are made up from this host's memory, so that one window is too wide for
it and two are not; real ones come from measuring.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi

from tests.rigs.checkpoints import CheckpointSpec, build_checkpoint
from tests.rigs.engine import ServedModel
from tests.rigs.hub import LoopbackHub
from zenit_hub.device import look_at_host
from zenit_hub.say import REPAIR_ID
from zenit_hub.text import gib

REPO = "zenit/tiny"
ARCHITECTURE = "LomonosovZenitAltayForConditionalGeneration"
GIB = 2**30
WINDOWS = {"narrow": 2048, "middle": 4096, "wide": 8192}
KV_CACHE_BYTES = 256 * 2**20


def section(free_bytes: int, total_bytes: int) -> dict[str, Any]:
    """Three windows: the widest needs more than the host has, the others a quarter and a half of what is free."""
    needs = {"narrow": free_bytes // 4, "middle": free_bytes // 2, "wide": total_bytes + GIB}
    profiles = {
        name: {
            "max_model_len": window,
            "max_num_batched_tokens": 2048,
            "max_num_seqs": 4,
            "enable_prefix_caching": False,
            "kv_cache_memory_bytes": KV_CACHE_BYTES,
            "enforce_eager": True,
            "requires_free_bytes": needs[name],
            "description": "a demonstration, not measured",
        }
        for name, window in WINDOWS.items()
    }
    return {"schema_version": 1, "repo": REPO, "default_profile": "wide", "profiles": profiles}


def main() -> int:
    machine = look_at_host()
    if machine.host is None:
        say(f"The host's memory cannot be read: {machine.host_error}")
        return 1
    host = machine.host
    say(f"1. This host has {gib(host.available_bytes)} of {gib(host.total_bytes)} available.")
    with tempfile.TemporaryDirectory(prefix="zenit-hub-demo-") as name, LoopbackHub() as hub:
        folder = Path(name)
        say("2. A tiny checkpoint with three windows goes to a loopback hub, through the real client.")
        publish(folder / "checkpoint", hub, section(host.available_bytes, host.total_bytes))
        environment = hub.environment(home=folder / "home")
        say(f"3. zenit-hub plan {REPO}")
        run_plan({**os.environ, **environment})
        say(f"4. vllm serve {REPO}   (half a minute)")
        serve(environment, folder / "engine.log")
    say("Done; nothing is left behind but the environment. Now yours: .venv/bin/zenit-hub plan ./model")
    return 0


def publish(folder: Path, hub: LoopbackHub, profiles: dict[str, Any]) -> None:
    spec = CheckpointSpec(
        max_position_embeddings=max(WINDOWS.values()),
        section=profiles,
        architectures_before=(ARCHITECTURE,),
    )
    build_checkpoint(folder, spec)
    api = HfApi(endpoint=hub.url, token=hub.account("zenit"))
    api.create_repo(REPO)
    commit = api.upload_folder(
        repo_id=REPO, folder_path=folder, commit_message="A tiny model with its profiles"
    )
    say(f"   commit {commit.oid[:12]}")


def run_plan(environment: Mapping[str, str]) -> None:
    command = Path(sys.executable).with_name("zenit-hub")
    subprocess.run([str(command), "plan", REPO], env=dict(environment), check=True)


def serve(environment: Mapping[str, str], log: Path) -> None:
    with ServedModel([REPO], environment, log) as served:
        say(f"   ready after {served.started_after_s:.0f} s; what the plug-in wrote into vLLM's log:")
        for line in served.log_text().splitlines():
            if REPAIR_ID in line:
                say("   " + line[line.index(REPAIR_ID) :])
        say(f"5. GET /v1/models → max_model_len {served.window}")
        say(f"6. POST /v1/completions → {served.complete('Once upon a time', max_tokens=12)!r}")
        say("   (the weights are random)")


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
