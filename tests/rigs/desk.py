"""A desk at which the shell blocks of a page are typed: a model folder, its repo on a loopback hub, a card, commands.

    with Desk(tmp_path) as desk:
        desk.type("zenit-hub plan org/model -q")

The commands are the product's and the Hub client's own. Two are not what they would be elsewhere: ``zenit-hub measure``
runs the stub engine on the card of the CUDA rig, and ``vllm serve`` reads its words as vLLM does and starts nothing. ``make``
says what it would run.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.rigs.hub import LoopbackHub, directory_files
from tests.rigs.measuring import MIB, Lab, short_folder
from tests.rigs.stub_engine import Stub

ROOT = Path(__file__).resolve().parents[2]
REPO = "org/model"
PROFILES: Mapping[str, dict[str, Any]] = {
    "long": {
        "max_model_len": 16384,
        "max_num_batched_tokens": 2048,
        "max_num_seqs": 1,
        "enable_prefix_caching": False,
        "kv_cache_memory_bytes": 512 * MIB,
        "requires_free_bytes": 1200 * MIB,
    },
    "short": {"max_model_len": 4096, "description": "not measured yet"},
}
"""Of the model that carries a section."""

_COMMANDS = {
    "zenit-hub": """case " $* " in
*" --dry-run "* | *" --dry-run" | *" --help "*) ;;
" measure "*) shift; exec "{python}" -m tests.rigs.measure_child "$@" ;;
esac
exec "{bin}/zenit-hub" "$@"
""",
    "vllm": 'exec "{python}" -m tests.rigs.vllm_words "$@"\n',
    "make": 'exec {make} --dry-run -C "{root}" "$@"\n',
    "hf": 'exec "{bin}/hf" "$@"\n',
    "check-jsonschema": 'exec "{bin}/check-jsonschema" "$@"\n',
    "python3": 'exec "{python}" "$@"\n',
}


class Desk:
    """``model/`` in the folder is :data:`REPO` on the hub; with ``bare`` neither carries a section."""

    def __init__(self, *, bare: bool = False) -> None:
        self.place = short_folder()
        self._lab = Lab(self.place, {} if bare else PROFILES, Stub())
        self.model = self._lab.model
        if bare:
            config = json.loads((self.model / "config.json").read_text())
            del config["serving_profiles"]
            (self.model / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        (self.model / "README.md").write_text("---\nlicense: apache-2.0\n---\n\n# A model\n")
        self.hub = LoopbackHub()
        self.token = self.hub.account("org")
        self.hub.create(REPO, directory_files(self.model))
        self._bin = self.place / "bin"
        self._bin.mkdir()
        for name, script in _COMMANDS.items():
            self._command(name, script)

    def __enter__(self) -> Desk:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.hub.close()
        shutil.rmtree(self.place, ignore_errors=True)

    def type(self, script: str, timeout_s: float = 120, **variables: str) -> subprocess.CompletedProcess[str]:
        """``script`` in a shell that stops at the first command that fails; stderr goes where stdout goes."""
        return subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", script],
            cwd=self.place,
            env={**self._environment(), **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def _command(self, name: str, script: str) -> None:
        places = {
            "python": sys.executable,
            "bin": Path(sys.executable).parent,
            "root": ROOT,
            "make": shutil.which("make") or "make",
        }
        file = self._bin / name
        file.write_text("#!/bin/sh\n" + script.format(**places))
        file.chmod(0o755)

    def _environment(self) -> dict[str, str]:
        known = {name: value for name, value in self._lab.environment.items() if not name.startswith(_FOREIGN)}
        return {
            **known,
            **self.hub.environment(home=self.place / "home", token=self.token),
            "PATH": f"{self._bin}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.place),
            "NO_COLOR": "1",
        }


_FOREIGN = ("ZENIT_SERVING_", "VLLM_", "CUDA_", "GITHUB_")
"""What the shell that runs the tests says about serving is not what a page says."""
