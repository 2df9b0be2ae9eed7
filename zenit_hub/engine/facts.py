"""What the installed engine is, read from the live classes (and held against ``compat`` by a test)."""

from __future__ import annotations

import dataclasses
from functools import cache
from types import MappingProxyType
from typing import Any, get_args

from zenit_hub.compat import PROFILE_FIELDS, EngineFacts, engine_facts
from zenit_hub.machine import Platform


def field_defaults() -> dict[str, Any]:
    """``EngineArgs``' fields with their defaults, factories called."""
    from vllm.engine.arg_utils import EngineArgs

    defaults: dict[str, Any] = {}
    for field in dataclasses.fields(EngineArgs):
        if field.default is not dataclasses.MISSING:
            defaults[field.name] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            defaults[field.name] = field.default_factory()
    return defaults


@cache
def installed_engine() -> EngineFacts:
    """The facts of the vLLM in this process. Where it cannot be asked, the table's for its version."""
    import vllm

    known = engine_facts(vllm.__version__)
    defaults = field_defaults()
    return EngineFacts(
        version=vllm.__version__,
        fields_absent=PROFILE_FIELDS - defaults.keys(),
        defaults=MappingProxyType({**known.defaults, **defaults}),
        kv_cache_dtypes=_kv_cache_dtypes() or known.kv_cache_dtypes,
        asserts_batch_holds_page=known.asserts_batch_holds_page,
    )


def _kv_cache_dtypes() -> frozenset[str]:
    """The names of ``CacheDType``, a ``Literal`` in ``vllm.config.cache`` (0.25.1 to 0.33.0)."""
    from vllm.config import cache as cache_config

    return frozenset(
        name for name in get_args(getattr(cache_config, "CacheDType", None)) if isinstance(name, str)
    )


def platform() -> Platform:
    """vLLM's own platform: it decides what is looked at."""
    from vllm.platforms import current_platform

    if current_platform.is_cuda():
        return "cuda"
    if current_platform.is_cpu():
        return "cpu"
    if current_platform.is_rocm():
        return "rocm"
    return "xpu" if current_platform.is_xpu() else "unspecified"


def let_vllm_log(engine_args: Any) -> None:
    """Have vLLM set its logging up now: since 0.31 it does so at the start of ``create_engine_config``,
    and what is said before is lost. Doing it twice with the same settings is nothing to it."""
    from vllm import logger

    configure = getattr(logger, "configure_logging_if_needed", None)
    settings = getattr(engine_args, "create_logging_config", None)
    if configure is not None and settings is not None:
        configure(settings())
