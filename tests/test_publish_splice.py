"""Values inside a JSON text changed, every other byte as it was."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zenit_hub.errors import PublicationError
from zenit_hub.limits import MAX_CONFIG_BYTES
from zenit_hub.maintain.finding import Place
from zenit_hub.maintain.publish.splice import refusal, splice

FIGURE = 25769803776
PROFILES = ("serving_profiles", "profiles")
M256K = (*PROFILES, "m256k")
ENTRY = {"device": "NVIDIA A", "requires_free_bytes": FIGURE, "vllm": "0.33.0"}

CONFIG = {
    "model_type": "tiny",
    "architectures": ["TinyForCausalLM"],
    "rms_norm_eps": 1e-06,
    "rope_theta": 1.0,
    "pad_token_id": None,
    "author": "Ломоносов",
    "text_config": {"hidden_size": 64, "layer_types": ["full", "linear"], "empty": {}},
    "serving_profiles": {
        "profiles": {
            "s32k": {"max_model_len": 32768},
            "m256k": {
                "max_model_len": 262144,
                "requires_free_bytes": 1,
                "measurements": [{"device": "NVIDIA B", "requires_free_bytes": 1}],
                "max_num_seqs": 4,
            },
        }
    },
}
"""The keys are not sorted, and no value is spelled as another writer of JSON would need to keep it."""


def two(value: object = CONFIG) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


STYLES = {
    "2 spaces": two(),
    "4 spaces": json.dumps(CONFIG, indent=4, ensure_ascii=False),
    "tab": json.dumps(CONFIG, indent="\t", ensure_ascii=False),
    "CRLF": two().replace("\n", "\r\n"),
    "CRLF with final": two().replace("\n", "\r\n") + "\r\n",
    "minified": json.dumps(CONFIG, separators=(",", ":"), ensure_ascii=False),
    "one line": json.dumps(CONFIG),
    "final newline": two() + "\n",
    "blank lines at the end": two() + "\n\n\n",
    "escaped": json.dumps(CONFIG, indent=2),
    "spaces before colons": json.dumps(CONFIG, indent=2, separators=(",", " : ")),
}
by_style = pytest.mark.parametrize("text", STYLES.values(), ids=STYLES.keys())


def changed(text: str, changes: Mapping[Place, Any]) -> str:
    return splice(text.encode(), changes).decode()


def around(before: str, after: str) -> tuple[str, str]:
    """The middles of two texts between what they share at both ends."""
    head = _shared(before, after)
    tail = min(_shared(before[::-1], after[::-1]), len(before) - head, len(after) - head)
    return before[head : len(before) - tail], after[head : len(after) - tail]


def _shared(one: str, other: str) -> int:
    """With how many letters both begin."""
    differ = (at for at, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1])
    return next(differ, min(len(one), len(other)))


# --- C5-06


def test_one_line_of_a_config_changes_and_every_other_byte_stays() -> None:
    """Two spaces, unsorted keys, 1e-06, 1.0, null, non-ASCII, text_config, no newline at the end."""
    before = two()

    after = changed(before, {(*M256K, "requires_free_bytes"): FIGURE})

    pairs = list(zip(before.split("\n"), after.split("\n"), strict=True))
    assert [pair for pair in pairs if pair[0] != pair[1]] == [
        ('        "requires_free_bytes": 1,', '        "requires_free_bytes": 25769803776,')
    ]
    assert not after.endswith("\n")
    assert '"rms_norm_eps": 1e-06,' in after
    assert '"author": "Ломоносов",' in after


def test_a_profile_that_is_not_there_is_not_added() -> None:
    with pytest.raises(LookupError, match="/serving_profiles/profiles/l1m is not there"):
        changed(two(), {(*PROFILES, "l1m", "requires_free_bytes"): FIGURE})


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b'{"a": 1, "b": {"c": 1,\n "c": 2}}', "/b/c: the key stands more than once"),
        (b'{"a": NaN}', "/a: NaN is not JSON"),
        (b'{"a": [1, -Infinity]}', "/a/1: -Infinity is not JSON"),
        (b'{"a": 1e999}', "/a: 1e999 is not JSON"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "git lfs pull"),
        (b'{"a": "\xff"}', "is not UTF-8 (line 1)"),
        (b"[]", "holds a list"),
        (b"3", "holds a single value"),
        (b"", "the file is empty"),
        (b'{"a": 1,}', "a comma stands after the last entry (line 1)"),
        (b'{"a": ' * 65 + b"0" + b"}" * 65, "nested deeper than 64"),
        (b'{"a": "' + b" " * MAX_CONFIG_BYTES + b'"}', "larger than 16777216 bytes"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_no_sound_config_is_refused_with_the_reason(data: bytes, words: str) -> None:
    assert words in str(refusal(data))
    with pytest.raises(PublicationError, match="the config cannot be changed: ") as caught:
        splice(data, {("a",): 1})
    assert words in str(caught.value)


def test_a_sound_config_is_not_refused() -> None:
    assert [refusal(text.encode()) for text in STYLES.values()] == [None] * len(STYLES)


def test_a_change_that_makes_the_config_too_large_is_refused() -> None:
    full = b'{"a": "' + b" " * (MAX_CONFIG_BYTES - 20) + b'"}'

    with pytest.raises(PublicationError, match="larger than"):
        splice(full, {("b",): "x" * 40})


# --- in any style


@by_style
def test_a_number_is_replaced_where_it_stands(text: str) -> None:
    after = changed(text, {(*M256K, "requires_free_bytes"): FIGURE})

    assert len(after) == len(text) + len(str(FIGURE)) - 1
    assert around(text, after) == ("1", str(FIGURE))
    assert json.loads(after)["serving_profiles"]["profiles"]["m256k"]["requires_free_bytes"] == FIGURE


@by_style
def test_only_the_added_text_is_new(text: str) -> None:
    """Nothing of the file goes; what comes is written as its neighbours are."""
    after = changed(text, {(*PROFILES, "s32k", "requires_free_bytes"): FIGURE})

    removed, added = around(text, after)
    assert removed == ""
    assert str(FIGURE) in added
    assert ("\r\n" in added) == ("\r\n" in text)
    assert "\n" not in added.replace("\r\n", "") or "\r\n" not in text
    assert added.strip(",").split('"')[0].strip() == ""


@by_style
def test_what_is_added_is_what_the_same_writer_would_have_written(text: str) -> None:
    """Every style that Python can write: the result is the changed value, written whole."""
    value = json.loads(json.dumps(CONFIG))
    profiles = value["serving_profiles"]["profiles"]
    profiles["s32k"] |= {"kv_cache_memory_bytes": 7, "requires_free_bytes": FIGURE, "measurements": [ENTRY]}
    profiles["m256k"]["measurements"] = [ENTRY, ENTRY]
    writer = {
        "4 spaces": {"indent": 4, "ensure_ascii": False},
        "tab": {"indent": "\t", "ensure_ascii": False},
        "minified": {"separators": (",", ":"), "ensure_ascii": False},
        "one line": {},
        "escaped": {"indent": 2},
        "spaces before colons": {"indent": 2, "separators": (",", " : ")},
    }
    name = next(name for name, style in STYLES.items() if style == text)
    expected = json.dumps(value, **writer.get(name, {"indent": 2, "ensure_ascii": False}))
    if "CRLF" in name:
        expected = expected.replace("\n", "\r\n")
    end = text[len(text.rstrip("\r\n")) :]

    after = changed(
        text,
        {
            (*PROFILES, "s32k", "kv_cache_memory_bytes"): 7,
            (*PROFILES, "s32k", "requires_free_bytes"): FIGURE,
            (*PROFILES, "s32k", "measurements"): [ENTRY],
            (*M256K, "measurements", 0): ENTRY,
            (*M256K, "measurements", 1): ENTRY,
        },
    )

    assert after == expected + end


@pytest.mark.parametrize(
    ("before", "changes", "after"),
    [
        ("{}", {("a",): 1}, '{"a": 1}'),
        ('{"a":{}}', {("a", "b"): [1, 2]}, '{"a":{"b":[1,2]}}'),
        ('{\n  "a": {}\n}', {("a", "b"): 1, ("a", "c"): 2}, '{\n  "a": {\n    "b": 1,\n    "c": 2\n  }\n}'),
        ('{\n  "a": [\n  ]\n}', {("a", 0): {"b": 1}}, '{\n  "a": [\n    {\n      "b": 1\n    }\n  ]\n}'),
        ('{\n  "a": {"b": {}}\n}', {("a", "b", "c"): 1}, '{\n  "a": {"b": {"c": 1}}\n}'),
        ('{"a": {"b": 1}}', {("a", "c"): 2}, '{"a": {"b": 1, "c": 2}}'),
        ('{"a":{"b":1}}', {("a", "c"): 2}, '{"a":{"b":1,"c":2}}'),
        ('{ "a": 1 }', {("b",): 2}, '{ "a": 1, "b": 2 }'),
        ('{\n  "a": [{"b": 1}]\n}', {("a", 1): {"c": 2}}, '{\n  "a": [{"b": 1}, {"c": 2}]\n}'),
        (
            '{\n  "a": [\n    {"b":1},\n    {"b":2}\n  ]\n}',
            {("a", 0): {"c": 2, "d": 3}, ("a", 2): {"e": [4]}},
            '{\n  "a": [\n    {"c":2,"d":3},\n    {"b":2},\n    {"e":[4]}\n  ]\n}',
        ),
        (
            '{\n  "a": [{\n    "b": 1\n  }]\n}',
            {("a", 1): {"c": 2}},
            '{\n  "a": [{\n    "b": 1\n  }, {\n    "c": 2\n  }]\n}',
        ),
        (
            '{\n  "a": 1\n\n\n, "b": 2\n}',
            {("c",): 3},
            '{\n  "a": 1\n\n\n, "b": 2\n, "c": 3\n}',
        ),
        ('{\n  "a": 1,\n\n\n  "b": 2\n}', {("c",): 3}, '{\n  "a": 1,\n\n\n  "b": 2,\n  "c": 3\n}'),
        ('{\n"a": 1\n}', {("b",): {"c": 1}}, '{\n"a": 1,\n"b": {\n  "c": 1\n}\n}'),
        ('{\r\t"a": 1\r}', {("b",): [2]}, '{\r\t"a": 1,\r\t"b": [\r\t\t2\r\t]\r}'),
        ('{"a": "\\u00fc"}', {("a",): "é", ("ö",): 1}, '{"a": "\\u00e9", "\\u00f6": 1}'),
        ('{"a": "ü"}', {("a",): "é", ("ö",): 1}, '{"a": "é", "ö": 1}'),
        (
            '{"a\\"b": {"0": [5]}}',
            {('a"b', "0", 0): True, ('a"b', "1"): None},
            '{"a\\"b": {"0": [true], "1": null}}',
        ),
        ('{"a": [1, [2]], "b": "]}"}', {("a", 1): [], ("b",): {}}, '{"a": [1, []], "b": {}}'),
    ],
)
def test_a_hand_made_style_is_kept(before: str, changes: Mapping[Place, Any], after: str) -> None:
    assert changed(before, changes) == after


@by_style
def test_nothing_to_change_is_the_same_bytes(text: str) -> None:
    assert changed(text, {}) == text
    assert changed(text, {(*M256K, "max_num_seqs"): 4}) == text


@pytest.mark.parametrize(
    ("place", "error"),
    [
        ((), ValueError),
        (("model_type", "x"), LookupError),
        (("architectures", 2), LookupError),
        (("architectures", "0"), LookupError),
        (("text_config", 0), LookupError),
        (("nowhere", "x"), LookupError),
        (("architectures", 0, 0), LookupError),
        (("serving_profiles",), ValueError),
    ],
)
def test_a_place_that_cannot_be_is_an_error(place: Place, error: type[Exception]) -> None:
    with pytest.raises(error):
        changed(two(), {place: 1, (*M256K, "max_num_seqs"): 2})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {"a": [float("-inf")]}])
def test_a_value_that_json_does_not_know_is_not_written(value: object) -> None:
    with pytest.raises(ValueError, match="JSON"):
        changed(two(), {("new",): value})


def test_half_a_surrogate_pair_is_written_as_an_escape() -> None:
    assert changed('{"a": "ü"}', {("b",): "\ud800"}) == '{"a": "ü", "b": "\\ud800"}'


# --- properties

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6)
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(max_size=4), JSON, max_size=4)
FOUND = "found without reading"
SPACE = st.text(alphabet=" \t\r\n", max_size=4)
WRITERS = st.sampled_from(
    [
        {"indent": 2},
        {"indent": 4, "ensure_ascii": False},
        {"indent": "\t"},
        {"indent": 0},
        {"separators": (",", ":")},
        {"separators": (" , ", " : ")},
        {},
    ]
)


@st.composite
def texts(draw: st.DrawFn, value: object) -> str:
    """``value`` in any style: a writer's own, CRLF, or white space strewn between any two tokens."""
    text = json.dumps(value, **draw(WRITERS))
    if not _encodable(text):
        text = json.dumps(value)
    kind = draw(st.sampled_from(["as it is", "CRLF", "strewn"]))
    if kind == "CRLF":
        return text.replace("\n", "\r\n")
    if kind == "strewn":
        tokens = json.dumps(value, indent=0, separators=("\n,", "\n:\n")).split("\n")
        return "".join(draw(SPACE) + token for token in tokens) + draw(SPACE)
    return text + draw(st.sampled_from(["", "\n"]))


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def places(value: object, where: Place = ()) -> list[Place]:
    """Every place in a document but the top, and in each object and list the one where it grows."""
    if isinstance(value, dict):
        inner = [
            each for key, child in value.items() for each in [(*where, key), *places(child, (*where, key))]
        ]
        return [*inner, (*where, "added")]
    if isinstance(value, list):
        inner = [
            each for at, child in enumerate(value) for each in [(*where, at), *places(child, (*where, at))]
        ]
        return [*inner, (*where, len(value))]
    return []


def put(value: Any, place: Place, new: object) -> None:
    for step in place[:-1]:
        value = value[step]
    if isinstance(value, list) and place[-1] == len(value):
        value.append(new)
    else:
        value[place[-1]] = new


def apart(chosen: list[Place]) -> list[Place]:
    """Those of them that do not lie within another one."""
    return [place for place in chosen if not any(place[: len(other)] == other != place for other in chosen)]


@settings(max_examples=80, deadline=None)
@given(drawn=OBJECTS, data=st.data(), new=st.lists(JSON, min_size=1, max_size=3))
def test_any_changes_of_any_text_say_what_the_same_changes_of_its_values_say(
    drawn: dict[str, Any], data: st.DataObject, new: list[object]
) -> None:
    value = json.loads(json.dumps(drawn))
    text = data.draw(texts(value))
    chosen = data.draw(st.lists(st.sampled_from(places(value)), max_size=len(new), unique=True))
    changes = dict(zip(apart(chosen), new, strict=False))

    after = changed(text, changes)

    for place, each in changes.items():
        put(value, place, json.loads(json.dumps(each)))
    assert json.dumps(json.loads(after)) == json.dumps(value)


@settings(max_examples=80, deadline=None)
@given(drawn=OBJECTS, data=st.data(), new=JSON)
def test_around_a_replaced_value_every_byte_stays(
    drawn: dict[str, Any], data: st.DataObject, new: object
) -> None:
    """The old value is one that is found in the text without reading JSON."""
    value = json.loads(json.dumps(drawn))
    place = data.draw(st.sampled_from(places(value)))
    put(value, place, FOUND)
    text = data.draw(texts(value))
    before, _, behind = text.partition(f'"{FOUND}"')

    after = changed(text, {place: new})

    assert after.startswith(before)
    assert after.endswith(behind)
    middle = after[len(before) : len(after) - len(behind)]
    assert middle == middle.strip()
    assert json.dumps(json.loads(middle)) == json.dumps(json.loads(json.dumps(new)))


@settings(max_examples=80, deadline=None)
@given(drawn=OBJECTS, data=st.data(), new=JSON)
def test_what_is_added_comes_right_after_the_last_value_and_nothing_goes(
    drawn: dict[str, Any], data: st.DataObject, new: object
) -> None:
    value = json.loads(json.dumps(drawn))
    last = data.draw(st.sampled_from([place for place in places(value) if _grows(value, place)]))
    put(value, last, FOUND)
    text = data.draw(texts(value))
    added = (*last[:-1], last[-1] + 1 if isinstance(last[-1], int) else "more")
    before, _, behind = text.partition(f'"{FOUND}"')

    after = changed(text, {added: new})

    assert after.startswith(f'{before}"{FOUND}"')
    assert after.endswith(behind)
    middle = after[len(before) + len(FOUND) + 2 : len(after) - len(behind)].strip()
    assert middle.startswith(",")
    ending = middle[1:].strip().removeprefix('"more"').strip().removeprefix(":")
    assert json.dumps(json.loads(ending)) == json.dumps(json.loads(json.dumps(new)))


def _grows(value: Any, place: Place) -> bool:
    for step in place[:-1]:
        value = value[step]
    return place[-1] == (len(value) if isinstance(value, list) else "added")
