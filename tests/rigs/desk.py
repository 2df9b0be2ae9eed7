"""A desk at which the shell blocks of a page are typed: a model folder, its repo on a loopback hub, a card, commands.

    with Desk("measured") as desk:
        desk.type("zenit-hub publish measurements/*.json --repo org/model --dry-run")

The commands are the product's and the Hub client's own. Three are not what they would be elsewhere:
``zenit-hub measure`` runs the stub engine on the card of the CUDA rig, ``vllm serve`` reads its words as vLLM does and
starts nothing, and ``make`` says what it would run.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from tests.rigs.hub import LoopbackHub, directory_files
from tests.rigs.measuring import Lab, short_folder
from tests.rigs.model_repo import copy_project
from tests.rigs.stub_engine import Stub

ROOT = Path(__file__).resolve().parents[2]
REPO = "org/model"
Kind = Literal["fresh", "bare", "measured"]
PROFILES: Mapping[str, dict[str, Any]] = {
    "long": {
        "max_model_len": 262144,
        "max_num_batched_tokens": 4096,
        "max_num_seqs": 1,
        "enable_prefix_caching": False,
        "kv_cache_memory_bytes": 8589934592,
        "requires_free_bytes": 25769803776,
    },
    "short": {"max_model_len": 32768, "description": "not measured yet"},
}
"""The README's example."""

_COMMANDS = {
    "zenit-hub": """case " $* " in
*" --dry-run "* | *" --help "*) ;;
" measure "*) shift; exec "{python}" -m tests.rigs.measure_child "$@" ;;
esac
exec "{bin}/zenit-hub" "$@"
""",
    "vllm": 'exec "{python}" -m tests.rigs.vllm_words "$@"\n',
    "make": 'exec "{make}" --dry-run -C "{root}" "$@"\n',
    "hf": 'exec "{bin}/hf" "$@"\n',
    "python3": 'exec "{python}" "$@"\n',
    # Never into the environment of the tests.
    "pip": "echo 'pip is typed in a clone' >&2; exit 1\n",
}
_FOREIGN = ("ZENIT_SERVING_", "VLLM_", "CUDA_", "GITHUB_", "HF_")
"""What the shell that runs the tests says about serving is not what a page says."""

_KEPT = "kept-variables"
_WITH_VARIABLES = f"""[ ! -f {_KEPT} ] || . ./{_KEPT}
set -a
{{script}}
export -p | grep -E '^declare -x [a-z]\\w*=' > {_KEPT} || true
"""
"""A variable in small letters is the page's, and lasts from block to block."""


@dataclass(frozen=True)
class Clone:
    """This working tree as a clone, and an environment of its own without vLLM, into which its ``pip`` installs."""

    folder: Path
    environment: Path


def make_clone(folder: Path) -> Clone:
    copy_project(folder / "zenit_hub")
    venv.create(folder / "venv", with_pip=True)
    return Clone(folder / "zenit_hub", folder / "venv")


class Desk:
    """``model/`` is :data:`REPO` on the hub. ``bare``: neither carries a section; ``measured``: there is a result."""

    def __init__(self, kind: Kind = "fresh") -> None:
        self.place = short_folder()
        self.hub = LoopbackHub()
        self._lab = Lab(self.place, PROFILES, Stub())
        self._lay_out(self._lab.model, bare=kind == "bare")
        self._token = self.hub.account("org")
        self.hub.create(REPO, directory_files(self._lab.model))
        self._bin = self.place / "bin"
        self._bin.mkdir()
        for name, script in _COMMANDS.items():
            self._command(name, script)
        if kind == "measured":
            self.type(f"zenit-hub measure {REPO} --profile long --boots 1").check_returncode()

    def __enter__(self) -> Desk:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.hub.close()
        shutil.rmtree(self.place, ignore_errors=True)

    def type(
        self, script: str, *, clone: Clone | None = None, timeout_s: float = 300
    ) -> subprocess.CompletedProcess[str]:
        """``script`` in a shell that stops at the first command that fails; stderr is in stdout, as on a terminal.

        With ``clone`` it is typed there, and ``pip``, ``python3`` and what they installed are those of its environment.
        """
        environment = self._environment()
        if clone is not None:
            environment["PATH"] = f"{clone.environment / 'bin'}{os.pathsep}{environment['PATH']}"
            del environment["PYTHONPATH"]
        return subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", _WITH_VARIABLES.format(script=script)],
            cwd=self.place if clone is None else clone.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    @staticmethod
    def _lay_out(model: Path, *, bare: bool) -> None:
        config = json.loads((model / "config.json").read_text())
        config["max_position_embeddings"] = 262144
        if bare:
            del config["serving_profiles"]
        (model / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        (model / "README.md").write_text("---\nlicense: apache-2.0\n---\n\n# A model\n")

    def _command(self, name: str, script: str) -> None:
        file = self._bin / name
        places = {
            "python": sys.executable,
            "bin": Path(sys.executable).parent,
            "root": ROOT,
            "make": shutil.which("make"),
        }
        file.write_text("#!/bin/sh\n" + re.sub(r"\{(\w+)\}", lambda match: str(places[match[1]]), script))
        file.chmod(0o755)

    def _environment(self) -> dict[str, str]:
        own = {name: value for name, value in self._lab.environment.items() if not name.startswith(_FOREIGN)}
        return {
            **own,
            **self.hub.environment(home=self.place / "home", token=self._token),
            "PATH": f"{self._bin}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.place),
            "NO_COLOR": "1",
            "PYTHONUNBUFFERED": "1",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        }
