"""A model repo in git, and this project as a repo that hooks and actions come from."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.stage import config, needs, unrated
from zenit_hub.maintain.publish.readme import MARK_BEGIN, MARK_END

ROOT = Path(__file__).resolve().parents[2]

GOOD: dict[str, Any] = config(
    {
        "wide": needs(
            20,
            9000,
            kv_cache_memory_bytes=2**30,
            max_num_batched_tokens=4096,
            max_num_seqs=1,
            enable_prefix_caching=False,
        ),
        "small": unrated(4000),
    },
    repo="org/model",
)
"""A config that has nothing to complain of."""


def git(folder: Path, *words: str) -> str:
    """A git command, by somebody who is not configured on this machine."""
    who = ["-c", "user.name=Rig", "-c", "user.email=rig@localhost", "-c", "init.defaultBranch=main"]
    told = subprocess.run(
        ["git", *who, *words], cwd=folder, capture_output=True, text=True, check=True, timeout=60
    )
    return told.stdout


def make_model_repo(folder: Path, content: dict[str, Any] | None = None) -> Path:
    """A checkout with a config and a card that has markers and nothing between them. Nothing is committed."""
    folder.mkdir(parents=True)
    text = json.dumps(GOOD if content is None else content, indent=2)
    (folder / "config.json").write_text(f"{text}\n", encoding="utf-8")
    (folder / "README.md").write_text(f"# Model\n\n{MARK_BEGIN}\n{MARK_END}\n", encoding="utf-8")
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    return folder


def copy_project(folder: Path) -> str:
    """This working tree as a git repo of one commit, whatever of it is committed here. Returns the commit."""
    folder.mkdir(parents=True)
    names = git(ROOT, "ls-files", "--cached", "--others", "--exclude-standard", "-z").split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "A copy")
    return git(folder, "rev-parse", "HEAD").strip()
