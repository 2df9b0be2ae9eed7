"""Which cards a launch sees, and whose memory decides."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.stage import GIB, card, cards, host
from zenit_hub.machine import Device, Host, Machine, Slice
from zenit_hub.visible import Card, Ranks, Sight, Unresolved, ranks, see_cards, see_host

FOUR = cards(10, 20, 30, 40, total_gib=80)
MIG_A = Slice("MIG-aaaa0000-1", 20 * GIB, 18 * GIB, "Card A MIG 2g.20gb")
MIG_B = Slice("MIG-aabb0000-2", 10 * GIB, 9 * GIB)
CUT = Machine("machine", (card(70, 80, index=0, slices=(MIG_A, MIG_B)), card(60, 80, index=1)))


def see(
    machine: Machine,
    visible: str | None = None,
    device_ids: list[int | str] | None = None,
    order: str | None = None,
) -> Sight:
    environment = {"CUDA_VISIBLE_DEVICES": visible, "CUDA_DEVICE_ORDER": order}
    return see_cards(machine, {k: v for k, v in environment.items() if v is not None}, device_ids)


def indices(sight: Sight) -> list[int | str | None]:
    """The visible cards' indices; of an unresolved entry its text."""
    return [c.entry if isinstance(c, Unresolved) else c.index for c in sight.cards]


def first(sight: Sight) -> Card:
    (found,) = sight.cards[:1]
    assert isinstance(found, Card)
    return found


# --- CUDA_VISIBLE_DEVICES


@pytest.mark.parametrize(
    ("setting", "seen"),
    [
        (None, [0, 1, 2, 3]),
        ("", []),
        (" ", []),
        ("2", [2]),
        ("3,0", [3, 0]),
        (" 1 , 2 ", [1, 2]),
        ("0,1,", [0, 1]),
        (",0", []),
        ("0,,1", [0]),
        ("-1", []),
        ("1,-1,0", [1]),
        ("0,4,1", [0]),
        ("0,NoDevFiles", [0]),
        ("none", []),
        ("all", []),
        ("void", []),
        ("1x,2", [1, 2]),
        ("1.9", [1]),
        ("+1", [1]),
        ("01", [1]),
        ("0x1", [0]),
        ("1,1", []),
        ("0,1,0", []),
        ("0,0x3", []),
        ("99999999999999999999", []),
        ("9" * 5000, []),
        ("\u0661", []),
        ("1;2", [1]),
        ("0\t,1", [0, 1]),
        ("gpu-00000000", []),
    ],
)
def test_the_variable_is_read_as_cuda_reads_it(setting: str | None, seen: list[int]) -> None:
    """Digits with a tail are their digits, a word or −1 ends the list, a repetition empties it."""
    assert indices(see(FOUR, setting)) == seen


def test_a_uuid_names_its_card_wherever_it_stands_in_the_list() -> None:
    """Whole, abbreviated and in any case of letters."""
    whole = FOUR.devices[2].uuid

    assert indices(see(FOUR, f"{whole},0")) == [2, 0]
    assert indices(see(FOUR, "GPU-3")) == [3]
    assert indices(see(Machine("machine", (card(1, uuid="GPU-ABcd"),)), "GPU-abC")) == [0]


@pytest.mark.parametrize("entry", ["GPU-", "GPU-f", "MIG-a", "MIG-GPU-0/1/0"])
def test_a_uuid_of_several_cards_or_of_none_is_unresolved_and_ends_the_list(entry: str) -> None:
    """Never the first card instead."""
    sight = see(FOUR, f"1,{entry},2")

    assert indices(sight) == [1, entry]
    assert sight.count == 1
    assert ranks(sight, 2).unresolved


def test_a_card_named_by_index_and_by_uuid_is_named_twice() -> None:
    """A repetition empties the list, in whatever way it is written."""
    assert indices(see(FOUR, f"1,{FOUR.devices[1].uuid}")) == []


def test_an_unresolved_name_is_escaped_where_it_is_said() -> None:
    """The variable may come from anywhere."""
    found = see(FOUR, "GPU-\x1b[31m").cards[0]

    assert isinstance(found, Unresolved)
    assert "\x1b" not in found.why
    assert "names no visible device" in found.why


# --- --device-ids


@pytest.mark.parametrize(
    ("visible", "ids", "seen"),
    [
        (None, [3], [3]),
        ("2,3", [1], [3]),
        ("2,3", [1, 0], [3, 2]),
        ("2,3", ["GPU-1"], [1]),
        (None, ["2"], [2]),
        (None, [], [0, 1, 2, 3]),
        ("2,3", [2], ["2"]),
        (None, [-1], ["-1"]),
        (None, [""], [""]),
        (None, ["G"], ["G"]),
        (None, ["\u0661"], ["\u0661"]),
        (None, ["9" * 5000], ["9" * 5000]),
        ("", [0], ["0"]),
    ],
)
def test_device_ids_count_within_the_visible_cards(
    visible: str | None, ids: list[int | str], seen: list[int | str]
) -> None:
    """Integers are places in the list, UUIDs are themselves, anything else is unresolved."""
    assert indices(see(FOUR, visible, ids)) == seen


def test_an_id_that_is_no_uuid_is_unresolved_also_where_one_card_is_there() -> None:
    """An empty word abbreviates every UUID; it names nothing."""
    sight = see(cards(10), None, [""])

    assert ranks(sight, 1).unresolved
    assert "neither an index nor a UUID" in str(ranks(sight, 1).unknown)


# --- whose memory


@pytest.mark.parametrize(
    ("setting", "free_gib", "slice_uuid"),
    [
        (None, 9, MIG_B.uuid),
        ("0", 9, MIG_B.uuid),
        ("MIG-aaaa0000-1", 18, MIG_A.uuid),
        ("MIG-aaa", 18, MIG_A.uuid),
        ("mig-aaaa", None, None),
        ("1", 60, CUT.devices[1].uuid),
    ],
)
def test_a_cut_card_is_its_slice_and_of_several_the_fullest(
    setting: str | None, free_gib: int | None, slice_uuid: str | None
) -> None:
    """By UUID, by abbreviation, by the parent's index or unset: never the parent's memory."""
    sight = see(CUT, setting)
    if free_gib is None:
        assert indices(sight) == []
        return
    assert first(sight).free_bytes == free_gib * GIB
    assert first(sight).uuid == slice_uuid


def test_an_ambiguous_slice_is_unresolved() -> None:
    """Two slices begin with ``MIG-aa``."""
    assert ranks(see(CUT, "MIG-aa"), 1).unresolved


def test_a_slice_is_named_by_its_own_name_and_by_its_parents_where_it_has_none() -> None:
    """A measurement of a slice stands under the slice's own name."""
    assert first(see(CUT, MIG_A.uuid)).name == "Card A MIG 2g.20gb"
    assert first(see(CUT, MIG_B.uuid)).name == "Card A"


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (Slice("MIG-1", None, None, None, "no permission"), "Card A: no permission"),
        (Slice("MIG-1", 20 * GIB, 10 * GIB, "Slice", "no permission"), "Slice: no permission"),
        (Slice("MIG-1", 20 * GIB, None), "no memory figures are given for this slice"),
        (Slice("MIG-1", 0, 0), "no memory figures are given for this slice"),
        (Slice("MIG-1", None, 5), "no memory figures are given for this slice"),
    ],
)
def test_a_slice_without_figures_is_unknown_and_not_its_parent(part: Slice, words: str) -> None:
    """The parent's 70 GiB are not the slice's; the reason is the slice's own."""
    found = ranks(see(Machine("machine", (card(70, 80, slices=(part,)),))), 1)

    assert words in str(found.unknown)
    assert found.cards[0].free_bytes is None


def test_of_several_slices_one_without_figures_is_passed_over() -> None:
    """The least free of those that are known."""
    silent = Slice("MIG-0", None, None, None, "no permission")

    assert first(see(Machine("machine", (card(70, 80, slices=(silent, MIG_A)),)))).free_bytes == 18 * GIB


@pytest.mark.parametrize(
    "device",
    [
        card(None, 32),
        card(10, 0),
        Device(0, name="Card A", free_bytes=1),
        card(10, 32, error="NVML does not support the question on this card (NotSupported)"),
    ],
)
def test_a_card_without_figures_is_unknown_with_its_reason(device: Device) -> None:
    """Nothing is guessed, and half a figure is none; zero free is a figure."""
    found = ranks(see(Machine("machine", (device,))), 1)

    assert found.unknown is not None
    assert (found.cards[0].total_bytes, found.cards[0].free_bytes) == (None, None)


def test_a_full_card_is_known() -> None:
    """Nothing free is not unknown."""
    assert ranks(see(cards(0)), 1).unknown is None


@pytest.mark.parametrize("device", [card(None, 0, integrated=True), card(8, 8, integrated=True)])
def test_an_integrated_gpu_has_the_hosts_memory(device: Device) -> None:
    """Whatever NVML says of it: ``MemAvailable`` of ``MemTotal``."""
    machine = Machine("machine", (device,), host=Host(128 * GIB, 100 * GIB))

    assert (first(see(machine)).free_bytes, first(see(machine)).total_bytes) == (100 * GIB, 128 * GIB)


def test_an_integrated_gpu_on_a_host_without_figures_is_unknown() -> None:
    """Never NVML's carve-out instead."""
    found = ranks(see(Machine("machine", (card(8, 8, integrated=True),))), 1)

    assert "integrated" in str(found.unknown)


# --- several ranks


@pytest.mark.parametrize(
    ("machine", "count", "words"),
    [
        (Machine("machine"), 1, "no device is visible"),
        (cards(10), 2, "needs 2 devices and 1 are visible"),
        (cards(10), 2**4000, "a whole number of 4001 bits devices"),
        (cards(10, None), 2, "Card A: no memory figures are given"),
        (Machine("machine", driver_error="no permission"), 1, "no permission"),
    ],
)
def test_ranks_that_cannot_be_placed_are_unknown(machine: Machine, count: int, words: str) -> None:
    """Too few devices, one without figures, no driver: each with its words."""
    assert words in str(ranks(see(machine), count).unknown)


def test_a_card_behind_the_ranks_does_not_matter() -> None:
    """One rank is on the first visible card."""
    assert ranks(see(cards(10, None)), 1) == Ranks(
        cards=(first(see(cards(10, None))),), capabilities=((9, 0),)
    )


def test_the_number_of_devices_is_unknown_without_a_driver_and_none_where_none_is_visible() -> None:
    """Nobody knows is not zero."""
    assert see(Machine("machine", driver_error="no permission")).count is None
    assert see(FOUR, "").count == 0


# --- the order of unlike cards

UNLIKE = Machine(
    "machine",
    (
        card(20, 24, index=0, name="Card B", compute_capability=(8, 6)),
        card(70, 80, index=1),
        card(5, 80, index=2),
    ),
)


@pytest.mark.parametrize(
    ("visible", "count", "free_gib", "ambiguous"),
    [
        (None, 1, [5], True),
        ("0", 1, [5], True),
        ("1,2", 1, [5], True),
        ("0,1", 2, [5, 20], True),
        ("0,1,2", 3, [20, 70, 5], False),
        ("GPU-1", 1, [70], False),
        ("GPU-1,GPU-0", 2, [70, 20], False),
        ("GPU-2,0", 2, [5, 20], True),
        ("GPU-2,GPU-1,0", 3, [5, 70, 20], False),
    ],
)
def test_with_unlike_cards_and_no_order_an_index_could_be_any(
    visible: str | None, count: int, free_gib: list[int], ambiguous: bool
) -> None:
    """The fullest that it could be; UUIDs, and all cards at once, leave no doubt."""
    found = ranks(see(UNLIKE, visible), count)

    assert found.ambiguous is ambiguous
    assert [c.free_bytes for c in found.cards] == [free * GIB for free in free_gib]


def test_the_bus_order_leaves_no_doubt() -> None:
    """With ``CUDA_DEVICE_ORDER=PCI_BUS_ID`` an index is NVML's."""
    found = ranks(see(UNLIKE, "1", order="PCI_BUS_ID"), 1)

    assert not found.ambiguous
    assert found.cards[0].free_bytes == 70 * GIB
    assert ranks(see(UNLIKE, "1", order="FASTEST_FIRST"), 1).ambiguous


def test_the_device_ids_are_in_doubt_as_the_indices_are() -> None:
    """An index into a list of indices is one; a UUID is not."""
    assert ranks(see(UNLIKE, None, [1]), 1).ambiguous
    assert not ranks(see(UNLIKE, "GPU-1,GPU-0", [1]), 1).ambiguous


def test_a_slice_named_by_its_uuid_leaves_no_doubt_and_by_its_parents_index_it_does() -> None:
    """A UUID is itself, also on a machine with unlike cards."""
    machine = Machine("machine", (card(70, 80, slices=(MIG_A,)), card(5, 24, index=1, name="Card B")))

    assert not ranks(see(machine, MIG_A.uuid), 1).ambiguous
    assert ranks(see(machine, "0"), 1).ambiguous


def test_two_unlike_cards_that_are_both_taken_leave_no_doubt() -> None:
    """-tp 2 on two cards takes both, in whatever order."""
    both = Machine("machine", UNLIKE.devices[:2])

    assert not ranks(see(both), 2).ambiguous


def test_where_one_of_the_cards_it_could_be_is_unknown_all_is_unknown() -> None:
    """A card without figures could be the one."""
    unknown = replace(UNLIKE.devices[1], free_bytes=None)

    found = ranks(see(Machine("machine", (UNLIKE.devices[0], unknown))), 1)

    assert found.ambiguous
    assert found.unknown is not None


def test_in_doubt_the_capability_is_the_smallest_of_those_that_it_could_be() -> None:
    """A profile must run on whichever card it is."""
    assert set(ranks(see(UNLIKE, "0"), 1).capabilities) == {(8, 6), (9, 0)}


# --- the host


def test_the_host_stands_for_any_number_of_ranks() -> None:
    """On the CPU platform the ranks share one memory."""
    found = ranks(see_host(host(10, 20)), 4)

    assert (found.cards[0].name, found.cards[0].free_bytes) == ("cpu", 10 * GIB)
    assert found.unknown is None


def test_a_host_without_figures_is_unknown() -> None:
    """With the reason of the look."""
    assert ranks(see_host(Machine("host", host_error="the files cannot be read")), 1).unknown == (
        "the files cannot be read"
    )
