"""What vLLM's own configuration is read from, by the reader that the hook has. Each order meets a fresh vLLM."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.rigs.hub import LoopbackHub
from tests.rigs.reading import P3, SECTION, Reader, Readers, config_file, hook, read

pytest_plugins = ("tests.rigs.reading_fixtures",)

PARAMS = {"dim": 256, "n_layers": 2, "n_heads": 4, "n_kv_heads": 4, "head_dim": 64, "hidden_dim": 512}
MISTRAL = {
    **PARAMS,
    "vocab_size": 512,
    "norm_eps": 1e-6,
    "max_position_embeddings": 4096,
    "dtype": "bfloat16",
}
ENDS_THE_PROCESS = b"import os\nos._exit(7)\n"


def test_a_snapshot_folder_is_read_through_its_link(
    repos: LoopbackHub, readers: Readers, tmp_path: Path
) -> None:
    """The model is the path, its config a link to a blob: nobody is asked, and the revision is not applied again."""
    folder = tmp_path / "models--example-org--example-model"
    snapshot = folder / "snapshots" / "0123456789abcdef0123456789abcdef01234567"
    snapshot.mkdir(parents=True)
    (folder / "blobs").mkdir()
    (folder / "blobs" / "4b825dc6").write_bytes(config_file())
    (snapshot / "config.json").symlink_to("../../blobs/4b825dc6")
    repos.forget_requests()
    for told in (
        each.ask(read(str(snapshot), revision="v1.2")) for each in (readers.online, readers.offline)
    ):
        assert told["config"] == P3
        assert (told["trouble"], told["get_config"], told["client_calls"]) == (None, [], 0)
    assert repos.requests == []


def test_a_model_from_modelscope_is_left_to_vllm(repos: LoopbackHub, reader: Reader) -> None:
    """vLLM's own reading of the flag decides; where it is on the Hub's client is not called, one line says so."""
    repos.create("modelscope/model", {"config.json": config_file()})
    on, off = ("1", "true", "True", " TRUE "), ("0", "False", "")
    told = reader.together(
        *(read("modelscope/model", environ={"VLLM_USE_MODELSCOPE": flag}) for flag in (*on, *off)),
        hook("modelscope/model", environ={"VLLM_USE_MODELSCOPE": "1"}),
    )
    for one in told[: len(on)]:
        assert (one["config"], one["client_calls"]) == (None, 0)
        assert "ModelScope" in one["trouble"]
    for one in told[len(on) : -1]:
        assert (one.section, one["trouble"]) == (SECTION, None)
    launch = told[-1]
    assert (launch["set"], launch["vllm_goes_on"], launch.warnings) == ({}, True, [])
    assert ["ModelScope" in line for line in launch.lines] == [True]


def test_a_repo_in_mistral_s_format_keeps_its_section(
    repos: LoopbackHub, reader: Reader, tmp_path: Path
) -> None:
    """vLLM 0.32 reads params.json and merges config.json into it; of an older one's answer the section is missing,
    and then the raw config.json stands. A folder with params.json only has no section, and nothing is said."""
    files = {"config.json": config_file(), "params.json": json.dumps(MISTRAL).encode()}
    repos.create("mistral/model", {**files, "consolidated.safetensors": b""})
    (tmp_path / "params.json").write_bytes(files["params.json"])
    merging, launch, losing, folder = reader.together(
        read("mistral/model"),
        hook("mistral/model", environ={"ZENIT_SERVING_PROFILE": "m256k"}),
        {**read("mistral/model"), "get_config_loses_section": True},
        hook(str(tmp_path)),
    )
    for told in (merging, losing):
        assert (told.section, told["trouble"], len(told["get_config"])) == (SECTION, None, 1)
    assert merging["config"]["architectures"] == P3["architectures"]
    assert launch["set"]["max_model_len"] == 262144
    assert losing["config"] == P3
    assert (folder["set"], folder.lines) == ({}, [])


def test_a_gguf_model_is_looked_up_by_its_repo(repos: LoopbackHub, reader: Reader, tmp_path: Path) -> None:
    """``repo:QUANT`` is the repo, ``hf_config_path`` another one; a file's config stands beside it."""
    repos.create("gguf/example-GGUF", {"example-Q4_K_M.gguf": b"GGUF"})
    repos.create("gguf/example-model", {"config.json": config_file()})
    for folder in ("with", "without"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.gguf").write_bytes(b"GGUF")
    (tmp_path / "with" / "config.json").write_bytes(config_file())
    quantized = "gguf/example-GGUF:Q4_K_M"
    repo, other, beside, alone, home = reader.together(
        read(quantized),
        read(quantized, hf_config_path="gguf/example-model"),
        read(str(tmp_path / "with" / "x.gguf")),
        read(str(tmp_path / "without" / "x.gguf")),
        hook("~/models/x.gguf"),
    )
    assert (repo["config"], repo["repo"], repo["trouble"]) == (None, "gguf/example-GGUF", None)
    assert (other.section, other["trouble"]) == (SECTION, None)
    assert beside["config"] == P3
    assert (alone["config"], alone["trouble"]) == (None, None)
    assert (home["raised"], home["vllm_goes_on"], home["set"], home.lines) == (None, True, {}, [])
    assert repos.count(path="*Q4_K_M*") == 0


def test_the_revision_is_the_caller_s(repos: LoopbackHub, reader: Reader) -> None:
    """A branch's own section, also beside ``code_revision``; of a revision that does not exist none, never main's."""
    repos.create("revisions/model", {"config.json": config_file()})
    repos.branch("revisions/model", "q4")
    changed = {**SECTION, "default_profile": "m256k"}
    q4 = repos.commit(
        "revisions/model", {"config.json": config_file(lomonosov_serving_profiles=changed)}, revision="q4"
    )
    main, branch, beside_code, missing, launch = reader.together(
        read("revisions/model"),
        read("revisions/model", revision="q4"),
        read("revisions/model", revision="q4", code_revision="main"),
        read("revisions/model", revision="does-not-exist"),
        hook("revisions/model", revision="does-not-exist"),
    )
    assert (main.section, main["commit"]) == (SECTION, repos.head("revisions/model"))
    for told in (branch, beside_code):
        assert (told.section, told["commit"]) == (changed, q4)
        assert [call["revision"] for call in told["get_config"]] == ["q4"]
    assert (missing["config"], missing["get_config"]) == (None, [])
    assert "no revision does-not-exist" in missing["trouble"]
    assert (launch["set"], launch["vllm_goes_on"], launch.warnings) == ({}, True, [])
    assert ["does-not-exist" in line for line in launch.lines] == [True]


@pytest.mark.parametrize("trusted", [False, True], ids=["not-trusted", "trusted"])
def test_no_code_of_the_repo_runs_for_reading(repos: LoopbackHub, reader: Reader, trusted: bool) -> None:
    """Where ``get_config`` could not answer without it the raw file stands: at once, unasked, without a trace."""
    repo = f"code-{trusted}"
    own_code = {"AutoConfig": "configuration_x.XConfig"}
    kinds = {
        f"{repo}/auto-map": config_file(model_type="lomonosov_x", auto_map=own_code),
        f"{repo}/known-type": config_file(auto_map=own_code),
        f"{repo}/unknown-type": config_file(model_type="lomonosov_x"),
        f"{repo}/no-type": config_file(model_type=None),
        f"{repo}/odd-type": config_file(model_type=["qwen2"]),
    }
    for name, data in kinds.items():
        repos.create(name, {"config.json": data, "configuration_x.py": ENDS_THE_PROCESS})
    orders = [make(name, trust_remote_code=trusted) for name in kinds for make in (read, hook)]
    for order, told in zip(orders, reader.together(*orders), strict=True):
        assert (told["raised"], told["get_config"], told.errors) == (None, [], [])
        assert not [
            name for name in told["modules"] if "configuration_x" in name or "transformers_modules" in name
        ]
        if order["do"] == "read":
            assert (told.section, told["environ"]) == (SECTION, {})
        else:
            assert told["set"]["max_model_len"] in {32768, 262144, 1048576}
            assert told["environ"].keys() == {"ZENIT_EFFECTIVE_MAX_MODEL_LEN", "ZENIT_SERVING_DECISION"}
    assert repos.count(path="*configuration_x*") == 0
    assert reader.ask(read(f"{repo}/auto-map", trust_remote_code=trusted))["read_s"] < 2


def test_what_get_config_leaves_in_the_environment_is_taken_back(repos: LoopbackHub, reader: Reader) -> None:
    """It sets a variable of its own for some quantized models; a look must not."""
    scales = {"quant_method": "fp8", "scale_fmt": "ue8m0"}
    repos.create("quantized/model", {"config.json": config_file(quantization_config=scales)})
    told = reader.ask(read("quantized/model"))
    assert [call["left"] for call in told["get_config"]] == [["VLLM_USE_DEEP_GEMM_E8M0"]]
    assert (told.section, told["environ"]) == (SECTION, {})


def test_architectures_are_those_that_the_engine_fills_in(repos: LoopbackHub, reader: Reader) -> None:
    """A config without any has its model type's, and a section that speaks for them applies."""
    for name, more in (("own", {}), ("named", {"architectures": ["Qwen2Model"]})):
        data = config_file(
            architectures=None, lomonosov_serving_profiles=None, serving_profiles={**SECTION, **more}
        )
        repos.create(f"filled-in/{name}", {"config.json": data})
        seen, launch = reader.together(read(f"filled-in/{name}"), hook(f"filled-in/{name}"))
        assert seen["config"]["architectures"] == ["Qwen2Model"]
        assert launch["set"]["max_model_len"] in {32768, 262144, 1048576}


def test_a_speculator_repo_has_no_section(repos: LoopbackHub, reader: Reader) -> None:
    """Neither its own nor the one that its base's config brought in, although the base repo has one."""
    repos.create("speculators/base", {"config.json": config_file()})
    drafts = {"speculators_config": {"verifier": {"name_or_path": "speculators/base"}}}
    inside = {"speculators_model_type": "eagle3", "transformer_layer_config": {**P3, "model_type": "llama"}}
    repos.create("speculators/plain", {"config.json": json.dumps({**drafts, **inside}).encode()})
    repos.create("speculators/with", {"config.json": config_file(**drafts, **inside)})
    for told in reader.together(hook("speculators/plain"), hook("speculators/with")):
        assert (told["raised"], told["set"], told.lines, told["get_config"]) == (None, {}, [], [])
    assert repos.count(path="*speculators/base*") == 0
