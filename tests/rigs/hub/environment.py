"""The variables that make a child process take a loopback hub for the real one."""

from __future__ import annotations

from pathlib import Path


def client_environment(url: str, home: Path | str | None, token: str) -> dict[str, str]:
    """HF_ENDPOINT and what keeps the client to it. ``home`` becomes a Hugging Face home of its own; an
    empty ``token`` means none, whatever the parent process has."""
    settings = {
        "HF_ENDPOINT": url,
        "HF_TOKEN": token,
        "HF_HUB_OFFLINE": "0",
        "TRANSFORMERS_OFFLINE": "0",
        # Xet would upload to and download from a store of its own, which the loopback hub is not.
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
    }
    if home is None:
        return settings
    directory = Path(home)
    return settings | {
        "HF_HOME": str(directory),
        "HF_HUB_CACHE": str(directory / "hub"),
        "HF_TOKEN_PATH": str(directory / "token"),
    }
