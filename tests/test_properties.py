"""What holds for any section, any machine and any caller (issue 2, acceptance 8)."""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, get_args

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import worlds
from tests.stage import GIB
from zenit_hub import env
from zenit_hub.answer import Answer, answer
from zenit_hub.caller import Caller, kept_values
from zenit_hub.candidate import Verdict
from zenit_hub.cli.main import main
from zenit_hub.compat import engine_facts
from zenit_hub.decision import Reason
from zenit_hub.errors import ProfileNotDeclared
from zenit_hub.machine import Machine, Surroundings
from zenit_hub.plan import contract
from zenit_hub.section import ENGINE_FIELDS, LAYOUT_FIELDS, UTILIZATION
from zenit_hub.text import printable

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

quickly = settings(
    deadline=None, derandomize=True, max_examples=200, suppress_health_check=[HealthCheck.too_slow]
)
fewer = settings(quickly, max_examples=60)


def strict_json(text: str) -> Any:
    """JSON as others read it: no ``NaN``, no ``Infinity``."""

    def refuse(word: str) -> NoReturn:
        raise AssertionError(f"{word} is not JSON")

    return json.loads(text, parse_constant=refuse)


def is_tame(line: str) -> bool:
    """One line without characters that move a cursor or hide."""
    return printable(line, limit=len(line)) == line


@dataclass(frozen=True)
class Launch:
    """Everything that a decision is made of."""

    config: Any
    machine: Machine
    caller: Caller
    around: Surroundings
    device_ids: list[int | str] | None = None

    def found(self) -> Answer | None:
        """The answer; ``None``: a name that is not declared was forced, the one exception that there is."""
        try:
            return answer(self.config, self.caller, self.around, lambda: self.machine, self.device_ids)
        except ProfileNotDeclared as error:
            refusal = str(error)
        assert self.around.environment[env.PROFILE]
        assert is_tame(refusal)
        return None


@st.composite
def launches(draw: st.DrawFn) -> Launch:
    """Any launch."""
    environment, typed = draw(worlds.environments), draw(worlds.callers)
    engine = engine_facts(draw(st.sampled_from(worlds.VERSIONS)))
    yaml_false = draw(worlds.yaml_falses) - typed.keys()
    repo = draw(st.sampled_from([None, "org/model", "other/finetune", "\x1b"]))
    config = draw(worlds.mostly(worlds.configs, st.none() | worlds.configs))
    return Launch(
        config,
        draw(worlds.machines),
        Caller(typed, kept_values(environment, engine.defaults), yaml_false, repo),
        Surroundings(draw(worlds.platforms), engine, environment),
        draw(worlds.device_ids),
    )


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
    assert all(is_tame(caution.message) for caution in found.cautions)
    if found.chosen is None:
        assert not [*filling.set, *filling.env, *filling.kept]
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


@given(launch=launches())
@quickly
def test_any_launch_has_an_answer_and_keeps_to_the_list(launch: Launch) -> None:
    """No exception but a forced name that is not declared; nothing set, published or changed that must not be."""
    found = launch.found()

    if found is not None:
        check(found, launch.caller, launch.around)
        check_contract(found)


# --- more free memory

NO_LENGTH = {
    key: worlds.TYPED[key] for key in ("gpu_memory_utilization", "kv_cache_memory_bytes", "max_num_seqs")
} | {"max_model_len": st.just(-1)}


@dataclass(frozen=True)
class Rise:
    """A card of which ever more is free."""

    name: str
    total_bytes: int
    shares: list[float]

    @property
    def machines(self) -> list[Machine]:
        cards = [
            worlds.usual_card(0, self.name, self.total_bytes, share, None) for share in sorted(self.shares)
        ]
        return [Machine("machine", (of,)) for of in cards]


rises = st.builds(Rise, st.just("Card A"), worlds.totals, st.lists(st.floats(0, 1), min_size=4, max_size=4))


@given(
    profiles=st.dictionaries(st.sampled_from(worlds.NAMES), worlds.one_device_profiles, min_size=1),
    typed=worlds.some_of(NO_LENGTH, 2),
    keep=st.sampled_from(["", "", "kv_cache_memory_bytes", "gpu_memory_utilization"]),
    rise=rises,
)
@quickly
def test_more_free_memory_never_gives_a_narrower_window(
    profiles: dict[str, Any], typed: dict[str, Any], keep: str, rise: Rise
) -> None:
    """Among one-device profiles, where something measured fits and no length was typed."""
    engine = engine_facts("0.33.0")
    around = Surroundings("cuda", engine, {env.KEEP: keep})
    caller = Caller(typed, kept_values(around.environment, engine.defaults))
    windows = []
    for machine in rise.machines:
        found = Launch({"serving_profiles": {"profiles": profiles}}, machine, caller, around).found()
        assert found is not None
        fits = found.reason == "widest_fitting" and found.chosen is not None
        windows.append(found.chosen.profile.max_model_len if fits and found.chosen else 0)

    assert windows == sorted(windows)


# --- the whole command

WORDS = [
    "--max-model-len",
    "256k",
    "auto",
    "-1",
    "--max-model-len=3000",
    "-tp",
    "2",
    "--tensor_parallel_size=4",
    "-dp",
    "--nnodes\n--headless",
    "--gpu-memory-utilization",
    "0.9",
    "nan",
    "1e999",
    "--kv-cache-memory-bytes",
    "5G",
    "--no-enable-prefix-caching\n--kv-cache-dtype",
    "fp8",
    "--hf-overrides",
    '{"a":NaN}',
    "{",
    "--config",
    "{dir}/c.yaml",
    "--api-key",
    "--",
    "-",
    "--seed",
    "\x1b",
    "--max-num-seqs\n--device-ids",
    "0,x",
]
TYPED = [
    "",
    "--max-model-len 3000",
    "--max-model-len auto",
    "-tp 2",
    "--gpu-memory-utilization 0.9",
    "--headless",
]
usual_lines = st.lists(st.sampled_from(TYPED), max_size=3, unique=True).map(
    lambda typed: " ".join(typed).split()
)
lines = worlds.mostly(usual_lines, st.lists(st.sampled_from([*WORDS, "", "9" * 400]), max_size=5))
config_texts = worlds.configs.map(lambda config: json.dumps(config).encode())
odd_texts = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([60, 70, 100_000]).map(lambda levels: b"[" * levels + b"]" * levels),
    worlds.anything.map(lambda value: json.dumps(value).encode()),
    config_texts.map(lambda text: text[:-1] + b', "deep": ' + b"[" * 65 + b"]" * 65 + b"}"),
)
GIBS = st.sampled_from([8, 16, 24, 32]).map(lambda gib: gib * GIB)
device_objects = st.fixed_dictionaries({"total_bytes": st.just(32 * GIB), "free_bytes": GIBS})
odd_objects = worlds.some_of(
    {
        "total_bytes": worlds.memory,
        "free_bytes": worlds.memory,
        "uuid": worlds.text,
        "name": worlds.text,
        "compute_capability": worlds.text | st.just("9.0"),
        "memory_error": worlds.text,
        "mig": st.lists(
            st.fixed_dictionaries({}, optional={"uuid": worlds.text, "free_bytes": worlds.memory})
        ),
    },
    4,
)
MACHINE: dict[str, worlds.Values] = {
    "platform": worlds.platforms,
    "vllm_version": st.sampled_from(worlds.VERSIONS),
    "env": worlds.environments,
    "device_ids": worlds.device_ids,
    "engine_defaults": st.just({"gpu_memory_utilization": 0.5}),
    "engine_fields_absent": st.just(["kv_cache_memory_bytes"]),
    "host": st.just({"mem_total_bytes": 9, "mem_available_bytes": 5}),
}
machine_objects = st.builds(
    lambda devices, rest: {"devices": devices, **rest},
    st.lists(worlds.mostly(device_objects, odd_objects), max_size=3),
    worlds.some_of(MACHINE, 3),
)
machine_texts = worlds.mostly(
    machine_objects, worlds.anything | worlds.some_of(dict.fromkeys(MACHINE, worlds.anything), 2)
).map(json.dumps)


@given(
    config=worlds.mostly(config_texts, odd_texts),
    machine=machine_texts,
    words=lines,
    yaml=st.text(max_size=30),
    strict=st.booleans(),
)
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
        assert is_tame(err.getvalue().rstrip("\n"))
