"""The main job, for real and on this machine: a tiny model is published to a loopback hub, measured, its
figure published, and then served by nothing but its Hub id.

    checkpoint → hub → `zenit-hub measure` → `zenit-hub publish` → `vllm serve <hub id>` → a completion → why

Before the figure is there the repo's default window is all that can be chosen; with it, the free memory decides.
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
from zenit_hub.maintain.measurement import read_measurement
from zenit_hub.say import REPAIR_ID
from zenit_hub.text import gib

REPO = "zenit/tiny"
ARCHITECTURE = "LomonosovZenitAltayForConditionalGeneration"
WINDOWS = {"narrow": 2048, "wide": 8192}
MEASURED = "wide"
KV_CACHE_BYTES = 256 * 2**20


def section() -> dict[str, Any]:
    """Two windows without a figure. The default is the narrow one."""
    profiles = {
        name: {
            "max_model_len": window,
            "max_num_batched_tokens": 2048,
            "max_num_seqs": 4,
            "enable_prefix_caching": False,
            "kv_cache_memory_bytes": KV_CACHE_BYTES,
            "enforce_eager": True,
            "description": "a demonstration",
        }
        for name, window in WINDOWS.items()
    }
    return {"schema_version": 1, "repo": REPO, "default_profile": "narrow", "profiles": profiles}


def main() -> int:
    machine = look_at_host()
    if machine.host is None:
        say(f"The host's memory cannot be read: {machine.host_error}")
        return 1
    host = machine.host
    say(f"1. This host has {gib(host.available_bytes)} of {gib(host.total_bytes)} available.")
    with tempfile.TemporaryDirectory(prefix="zenit-hub-demo-") as name, LoopbackHub() as hub:
        folder = Path(name)
        token = hub.account("zenit")
        environment = {**os.environ, **hub.environment(home=folder / "home", token=token)}
        say("2. A tiny checkpoint with two windows goes to a loopback hub, through the real client.")
        upload(folder / "checkpoint", hub.url, token)
        say(f"3. zenit-hub plan {REPO}: nothing is measured yet")
        zenit_hub(environment, "plan", REPO)
        say(f"4. zenit-hub measure {REPO} --profile {MEASURED}   (three starts of the engine, two minutes)")
        results = folder / "measurements"
        words = ("--profile", MEASURED, "--boots", "1", "--output", str(results))
        quiet = zenit_hub(environment, "measure", REPO, *words)
        if quiet:
            say(f"5. zenit-hub publish: figure, receipt and the model card's table, as one commit to {REPO}")
            publish(environment, results / f"{MEASURED}.json")
        else:
            say("5. There is no figure to publish: the model is served without one, by its default window.")
        say(f"6. vllm serve {REPO}   (half a minute)")
        serve(environment, folder / "engine.log")
    if not quiet:
        say("Not all of it could be shown: measuring wants a host on which no other process moves memory.")
        say("Close what else runs (a browser, a build) and type `make demo` again.")
        return 1
    say("Done; nothing is left behind but the environment. Now yours: .venv/bin/zenit-hub plan ./model")
    return 0


def upload(folder: Path, url: str, token: str) -> None:
    spec = CheckpointSpec(
        max_position_embeddings=max(WINDOWS.values()),
        section=section(),
        architectures_before=(ARCHITECTURE,),
    )
    build_checkpoint(folder, spec)
    (folder / "README.md").write_text("---\nlicense: apache-2.0\n---\n\n# A tiny model\n")
    api = HfApi(endpoint=url, token=token)
    api.create_repo(REPO)
    commit = api.upload_folder(repo_id=REPO, folder_path=folder, commit_message="A tiny model")
    say(f"   commit {commit.oid[:12]}")


def publish(environment: Mapping[str, str], measurement: Path) -> None:
    """Where this machine has no cgroup to verify in, that is said and allowed: it is a demonstration."""
    found = read_measurement(measurement.read_bytes(), measurement.name)
    leave = [] if found.verified else ["--allow-unverified"]
    if not zenit_hub(
        environment, "publish", str(measurement), "--repo", REPO, "--init-card", "--yes", *leave
    ):
        raise SystemExit(1)


def zenit_hub(environment: Mapping[str, str], *words: str) -> bool:
    """Whether it went well; what did not it has said itself."""
    command = Path(sys.executable).with_name("zenit-hub")
    return subprocess.run([str(command), *words], env=dict(environment), check=False).returncode == 0


def serve(environment: Mapping[str, str], log: Path) -> None:
    with ServedModel([REPO], environment, log) as served:
        say(f"   ready after {served.started_after_s:.0f} s; what the plug-in wrote into vLLM's log:")
        for line in served.log_text().splitlines():
            if REPAIR_ID in line:
                say("   " + line[line.index(REPAIR_ID) :])
        say(f"7. GET /v1/models → max_model_len {served.window}")
        say(f"8. POST /v1/completions → {served.complete('Once upon a time', max_tokens=12)!r}")
        say("   (the weights are random)")


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
