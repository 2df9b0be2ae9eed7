"""Run by test_compat.py in a process of its own: EngineArgs' defaults and the KV cache dtypes, as JSON."""

from __future__ import annotations

import dataclasses
import json
import os
import typing


def main() -> None:
    os.environ.update(
        VLLM_PLUGINS="", VLLM_LOGGING_LEVEL="ERROR", VLLM_TARGET_DEVICE="cpu", VLLM_NO_USAGE_STATS="1"
    )
    from vllm.config.cache import CacheDType
    from vllm.engine.arg_utils import EngineArgs

    print(
        json.dumps(
            {"defaults": defaults(EngineArgs), "kv_cache_dtypes": typing.get_args(CacheDType)}, default=repr
        )
    )


def defaults(arguments: type) -> dict[str, object]:
    """Field → default; ``{}`` for a config class that is made without arguments."""
    return {
        field.name: plain(field.default_factory() if callable(field.default_factory) else field.default)
        for field in dataclasses.fields(arguments)
    }


def plain(value: object) -> object:
    return {} if dataclasses.is_dataclass(value) else value


if __name__ == "__main__":
    main()
