"""What the pages show: sections, manifests, images, log lines and messages, held against what has them."""

from __future__ import annotations

import json
import re

import pytest
import yaml

from tests import pages
from tests.pages import PAGES, ROOT, Block
from tests.rigs.desk import PROFILES
from tests.stage import asked, card, config
from tests.test_docs import by_name, of
from zenit_hub import __all__ as public_names
from zenit_hub import env, say
from zenit_hub.compat import NEWEST_SUPPORTED
from zenit_hub.machine import Machine
from zenit_hub.maintain.measure.reasons import parse_failure
from zenit_hub.maintain.validate import validate
from zenit_hub.nvml_words import in_words
from zenit_hub.serve_options import serve_options


def test_the_readmes_section_is_valid_and_is_the_one_that_is_tried() -> None:
    (block,) = pages.blocks("README.md", "json")
    section = json.loads(block.text)
    config = {"architectures": ["Qwen2ForCausalLM"], "max_position_embeddings": 262144, **section}

    assert validate(json.dumps(config).encode()).findings == ()
    assert section["serving_profiles"]["profiles"] == PROFILES


@pytest.mark.parametrize("block", [*of("json"), *of("yaml")], ids=by_name)
def test_json_and_yaml_are(block: Block) -> None:
    assert isinstance(
        json.loads(block.text) if block.language == "json" else yaml.safe_load(block.text), dict
    )


@pytest.mark.parametrize("block", of("python"), ids=by_name)
def test_python_imports_what_is_public(block: Block) -> None:
    compile(block.text, str(block), "exec")
    imported = re.findall(r"from zenit_hub import (.+)", block.text)

    assert {name.strip() for line in imported for name in line.split(",")} <= set(public_names)


def test_the_dockerfile_has_two_lines_and_nothing_of_the_images_libraries() -> None:
    """``--no-deps``: what it brings is this package alone."""
    (block,) = of("dockerfile")
    base, install = block.text.splitlines()

    assert base == f"FROM vllm/vllm-openai:v{NEWEST_SUPPORTED}"
    assert install.startswith("RUN ")
    assert "--no-deps /src" in install


def test_images_are_of_one_version() -> None:
    """The newest that is supported."""
    tags = {tag for page in PAGES for tag in re.findall(r"vllm/vllm-openai:v([\d.]+\d)", pages.source(page))}

    assert tags == {NEWEST_SUPPORTED}


def test_engine_arguments_of_a_ray_serve_file_are_vllms() -> None:
    (block,) = pages.blocks(".docs/ray.md", "yaml")
    (application,) = yaml.safe_load(block.text)["applications"]
    (config,) = application["args"]["llm_configs"]

    assert set(config["engine_kwargs"]) <= {option.dest for option in serve_options(NEWEST_SUPPORTED)}


def test_a_manifest_fits_together() -> None:
    """What is mounted is there, what is selected is labelled, and both restraints of production are set."""
    deployment, part = (yaml.safe_load(block.text) for block in pages.blocks(".docs/kubernetes.md", "yaml"))
    template = deployment["spec"]["template"]
    assert deployment["spec"]["selector"]["matchLabels"] == template["metadata"]["labels"]
    for pod in (template["spec"], part):
        containers = [*pod.get("initContainers", ()), *pod["containers"]]
        mounted = {mount["name"] for each in containers for mount in each["volumeMounts"]}
        assert mounted == {volume["name"] for volume in pod["volumes"]}
        assert {env.PROFILE, env.STRICT} <= {each["name"] for each in pod["containers"][0]["env"]}


KINDS = {
    "Free memory on device … is less than desired GPU memory utilization": "not_admitted",
    "To serve at least one request with the model's max seq len …": "kv_cache_too_small",
    "No available memory for the cache blocks": "no_kv_cache_memory",
    "max_num_seqs (…) exceeds available Mamba cache blocks (…), requested … sequences, … state blocks available": (
        "too_few_state_blocks"
    ),
    "In Mamba cache align mode, block_size (…) must be <= max_num_batched_tokens (…)": "cannot_start",
    "Error in memory profiling": "disturbed",
    "CUDA out of memory": "out_of_memory",
}


@pytest.mark.parametrize(("heading", "kind"), KINDS.items())
def test_an_engines_message_is_known_to_the_measuring_side(heading: str, kind: str) -> None:
    """The message below a heading is vLLM's: the reader of its logs knows it, and the heading's words are in it."""
    text = pages.source(".docs/troubleshooting.md").partition(f"### {heading}\n")[2]
    message = text.partition("```text\n")[2].partition("\n```")[0]
    first = re.escape(heading.partition(", requested")[0]).replace("…", ".*").rstrip(".*")

    assert re.search(first, message)
    assert parse_failure(f"{message}\n", 1).kind == kind


def test_nvmls_errors_are_named_as_they_are_said() -> None:
    """Each name in brackets in the table, with the beginning of our words for it."""
    rows = re.findall(
        r"([\w .'-]+) \(`(\w+)`\)", pages.source(".docs/troubleshooting.md").partition("## The free")[2]
    )
    named = [(words.strip(" |,"), name) for words, name in rows if name[0].isupper()]

    assert len(named) >= 8
    for words, name in named:
        assert in_words(name).startswith(words), name


def test_the_log_lines_are_those_that_are_said() -> None:
    """A launch on the card that the page describes: each line of the table is one of the launch's."""
    like = config(PROFILES, default_profile="long")
    machine = Machine("machine", (card(31, 31.39),))
    found = [asked(like, machine), asked(like, machine, typed={"max_num_seqs": 8})]
    lines = [line.removeprefix(f"{say.REPAIR_ID} ") for each in found for line in say.lines(each)]
    table = pages.source(".docs/serve.md").partition("| behind that |")[2].partition("\n\n")[0]
    shown = re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)

    assert len(shown) == 6
    for line in shown[:5]:
        pattern = re.escape(line).replace("…", ".*")
        assert any(re.fullmatch(pattern, there) for there in lines), line
    assert shown[5].removeprefix("…: ") in say.broken("x", "y")


def test_refusals_are_quoted_as_they_are_said() -> None:
    """Word for word as the program has them."""
    page = pages.source(".docs/publish.md").partition("## What is refused")[2]
    quoted = [
        phrase.removesuffix(" …")
        for row in re.findall(r"^\| (`.+?) \|", page, re.MULTILINE)
        for phrase in re.findall(r"`([^`]+)`", row)
    ]
    files = (ROOT / "zenit_hub" / "maintain" / "publish").glob("*.py")
    text = "\n".join(file.read_text("utf-8") for file in files)
    joined = re.sub(r"\s+", " ", re.sub(r"[\"']\s*\n\s*f?[\"']", "", text))

    assert len(quoted) >= 9
    assert [phrase for phrase in quoted if phrase not in joined] == []
