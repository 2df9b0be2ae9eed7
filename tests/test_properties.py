"""What holds for any section, any machine and any caller (issue 2, acceptance 8)."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn, get_args

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import worlds
from tests.stage import GIB, card
from zenit_hub import env
from zenit_hub.answer import Answer, answer
from zenit_hub.caller import Caller, kept_values
from zenit_hub.candidate import Verdict
from zenit_hub.cli.main import main
from zenit_hub.compat import engine_facts
from zenit_hub.decision import Reason
from zenit_hub.errors import ProfileNotDeclared
from zenit_hub.machine import Device, Machine, Platform, Surroundings
from zenit_hub.plan import contract
from zenit_hub.section import ENGINE_FIELDS, LAYOUT_FIELDS, UTILIZATION

ROOT = Path(__file__).parent.parent
CONTRACT = Path(__file__).parent.parent / "zenit_hub"
MAY_BE_SET = {*ENGINE_FIELDS, *LAYOUT_FIELDS}
MAY_BE_PUBLISHED = {*env.PUBLISHED, env.RAY_COPIES}
CODES = {
    "nothing_fits", "requested_beyond_widest", "auto_length", "memory_unknown", "device_unresolved",
    "cuda_order_ambiguous", "batch_below_page", "utilization_lowered", "utilization_not_admitted",
    "measurement_void", "engine_lacks_field", "alloc_conf_conflict", "chosen_does_not_fit",
    "forced_too_narrow", "yaml_false", "default_does_not_fit", "unrated_fallback", "unknown_key",
    "multi_node_uncoordinated", "profile_invalid", "section_invalid", "config_unreadable",
    "other_vllm_version", "unknown_device_count",
}  # fmt: skip
PUBLISHED_EARLIER = {env.EFFECTIVE_WINDOW, env.NOOSPHERE_MODE}

quickly = settings(deadline=None, max_examples=250, suppress_health_check=[HealthCheck.too_slow])
fewer = settings(quickly, max_examples=60)


def strict_json(text: str) -> Any:
    """JSON as others read it: no ``NaN``, no ``Infinity``."""

    def refuse(word: str) -> NoReturn:
        raise AssertionError(f"{word} is not JSON")

    return json.loads(text, parse_constant=refuse)


def of_launch(
    config: Any, machine: Machine, caller: Caller, around: Surroundings, ids: list[int | str] | None
) -> Answer | None:
    """The answer; ``None``: a name that is not declared was forced, the one exception that there is."""
    try:
        return answer(config, caller, around, lambda: machine, ids)
    except ProfileNotDeclared as error:
        assert env.PROFILE in around.environment
        assert str(error).isprintable()
        return None


def check(found: Answer, caller: Caller, around: Surroundings) -> None:
    """Nothing outside the list, nothing of the caller's, never more of the card than the profile allows."""
    filling = found.filling
    assert set(filling.set) <= MAY_BE_SET - around.engine.fields_absent
    assert set(filling.env) <= MAY_BE_PUBLISHED
    assert all(isinstance(value, str) for value in filling.env.values())
    assert not set(filling.env) & set(around.environment) - {env.RAY_COPIES}
    assert not [name for name in filling.set if caller.has(name)]
    assert all(value is caller.value(name) for name, value in filling.kept.items())
    assert found.reason in get_args(Reason)
    assert {caution.code for caution in found.cautions} <= CODES
    assert all(caution.message.isprintable() for caution in found.cautions)
    if found.chosen is None:
        assert not filling.set and not filling.env and not filling.kept
        return
    own = found.chosen.profile.arguments
    bound = own.get(UTILIZATION, around.engine.defaults[UTILIZATION])
    assert 0 < filling.set.get(UTILIZATION, bound) <= bound
    layout = {
        "tensor_parallel_size": found.chosen.layout.tensor,
        "pipeline_parallel_size": found.chosen.layout.pipeline,
    }
    for name, value in filling.set.items():
        assert name == UTILIZATION or value == {**own, **layout}[name]


def check_contract(found: Answer) -> None:
    """What ``plan --json`` prints is JSON for every reader, with the contract's words."""
    text = json.dumps(contract(found, "MODEL", ["--seed", "1"], None), allow_nan=False)
    said = strict_json(text)
    assert {seen["verdict"] for seen in said["considered"].values()} <= {*get_args(Verdict), None}
    assert (said["profile"] is None) is (found.chosen is None)
    if said["fits"] is not None:
        assert said["memory"]["free_bytes"] is not None


@given(
    config=worlds.or_anything(worlds.configs),
    machine=worlds.machines,
    typed=worlds.callers,
    yaml_false=worlds.yaml_falses,
    environment=worlds.environments,
    platform=worlds.platforms,
    version=st.sampled_from(worlds.VERSIONS),
    ids=worlds.device_ids,
    repo=st.sampled_from([None, "org/model", "other/finetune", "\x1b"]),
)
@quickly
def test_any_launch_has_an_answer_and_keeps_to_the_list(
    config: Any,
    machine: Machine,
    typed: dict[str, Any],
    yaml_false: frozenset[str],
    environment: dict[str, str],
    platform: Platform,
    version: str,
    ids: list[int | str] | None,
    repo: str | None,
) -> None:
    """No exception but a forced name that is not declared; nothing set, published or changed that must not be."""
    engine = engine_facts(version)
    around = Surroundings(platform, engine, environment)
    caller = Caller(typed, kept_values(environment, engine.defaults), yaml_false - typed.keys(), repo)

    found = of_launch(config if isinstance(config, Mapping) else None, machine, caller, around, ids)

    if found is not None:
        check(found, caller, around)
        check_contract(found)


# --- more free memory

ONE_DEVICE = {k: v for k, v in worlds.PROFILE_VALUES.items() if k not in LAYOUT_FIELDS}
one_device_profiles = st.fixed_dictionaries({"max_model_len": worlds.windows}, optional=ONE_DEVICE)
NO_LENGTH = {
    key: usual
    for key, usual in worlds.TYPED.items()
    if key in ("gpu_memory_utilization", "kv_cache_memory_bytes", "max_num_seqs")
} | {"max_model_len": st.just(-1)}


@given(
    profiles=st.dictionaries(st.sampled_from(worlds.NAMES), one_device_profiles, min_size=1),
    default=st.none() | st.sampled_from(worlds.NAMES),
    typed=st.fixed_dictionaries({}, optional=NO_LENGTH),
    keep=st.sampled_from(["", "kv_cache_memory_bytes", "gpu_memory_utilization"]),
    of=st.builds(
        lambda total, name: card(1, name=name, total_bytes=total), worlds.byte_sizes, st.just("Card A")
    ),
    free=st.lists(st.integers(0, 48 * GIB), min_size=2, max_size=2).map(sorted),
)
@quickly
def test_more_free_memory_never_gives_a_narrower_window(
    profiles: dict[str, Any],
    default: str | None,
    typed: dict[str, Any],
    keep: str,
    of: Device,
    free: list[int],
) -> None:
    """Among one-device profiles, where something measured fits and no length was typed."""
    section = {"profiles": profiles} | ({} if default is None else {"default_profile": default})
    engine = engine_facts("0.33.0")
    around = Surroundings("cuda", engine, {env.KEEP: keep})
    caller = Caller(typed, kept_values(around.environment, engine.defaults))
    windows = []
    for free_bytes in free:
        with_free = Device(0, of.uuid, of.name, of.compute_capability, of.total_bytes, free_bytes)
        found = of_launch(
            {"serving_profiles": section}, Machine("machine", (with_free,)), caller, around, None
        )
        assert found is not None
        windows.append(
            found.chosen.profile.max_model_len if found.reason == "widest_fitting" and found.chosen else 0
        )

    assert windows == sorted(windows)


# --- the whole command

lines = st.lists(
    st.sampled_from(
        [
            "--max-model-len", "256k", "auto", "-1", "--max-model-len=3000", "-tp", "2", "--tensor_parallel_size=4",
            "-dp", "--nnodes", "--headless", "--gpu-memory-utilization", "0.9", "nan", "1e999", "--kv-cache-memory-bytes",
            "5G", "--no-enable-prefix-caching", "--kv-cache-dtype", "fp8", "--hf-overrides", '{"a": NaN}', "{", "--config",
            "{dir}/c.yaml", "--api-key", "--", "-", "", "--seed", "9" * 400, "\x1b", "--max-num-seqs", "--device-ids", "0,x",
        ]
    ),
    max_size=5,
)  # fmt: skip
raw_configs = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([60, 70, 100_000]).map(lambda levels: b"[" * levels + b"]" * levels),
    worlds.configs.map(lambda config: json.dumps(config).encode()),
    worlds.configs.map(lambda config: json.dumps({**config, "deep": worlds.deep(65)}).encode()),
    worlds.anything.map(lambda value: json.dumps(value).encode()),
)
odd_machines = st.one_of(
    worlds.anything.map(json.dumps),
    st.fixed_dictionaries(
        {},
        optional={
            "platform": worlds.or_anything(worlds.platforms),
            "vllm_version": worlds.or_anything(st.sampled_from(worlds.VERSIONS)),
            "env": worlds.or_anything(worlds.environments),
            "device_ids": worlds.or_anything(worlds.device_ids),
            "engine_defaults": worlds.or_anything(st.just({"gpu_memory_utilization": 0.5})),
            "engine_fields_absent": worlds.or_anything(st.just(["kv_cache_memory_bytes"])),
            "host": worlds.or_anything(st.just({"mem_total_bytes": 9, "mem_available_bytes": 5})),
            "devices": worlds.or_anything(
                st.lists(
                    st.fixed_dictionaries(
                        {},
                        optional={
                            "total_bytes": worlds.or_anything(worlds.memory),
                            "free_bytes": worlds.or_anything(worlds.memory),
                            "uuid": worlds.text,
                            "name": worlds.text,
                            "compute_capability": worlds.or_anything(st.just("9.0")),
                            "mig": worlds.anything,
                        },
                    ),
                    max_size=3,
                )
            ),
        },
    ).map(json.dumps),
)


@given(config=raw_configs, machine=odd_machines, words=lines, yaml=st.text(max_size=30), strict=st.booleans())
@fewer
def test_any_plan_ends_with_a_status_of_the_contract(
    config: bytes, machine: str, words: list[str], yaml: str, strict: bool
) -> None:
    """0 and 3 with JSON on stdout, 1 and 2 with one line on stderr; no traceback."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "config.json").write_bytes(config)
        (folder / "machine.json").write_text(machine)
        (folder / "c.yaml").write_text(yaml, encoding="utf-8", errors="surrogatepass")
        typed = [word.replace("{dir}", name) for word in words]
        out, err = io.StringIO(), io.StringIO()
        call = ["plan", name, "--machine", str(folder / "machine.json"), "--json", *["--strict"] * strict]
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = main([*call, "--", *typed])

    assert status in (0, 1, 2, 3)
    if status in (0, 3):
        assert strict_json(out.getvalue())["model"] == name
    else:
        assert out.getvalue() == ""
        assert err.getvalue().count("\n") == 1
        assert err.getvalue().rstrip("\n").isprintable()


# --- the hook


def test_no_exception_leaves_the_hook_and_it_keeps_to_the_list(tmp_path: Path) -> None:
    """In a process with the real engine's classes: what ``prepare`` does to any arguments and environment."""
    child = subprocess.run(
        [sys.executable, "-m", "tests.prepare_child", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert child.returncode == 0, child.stdout[-4000:] + child.stderr[-4000:]
    assert child.stdout.splitlines()[-1] == "held"
