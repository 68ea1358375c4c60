"""One input as any model reads it: maps in its coordinates, what came out, and what edits make of that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.testing import assert_close

from headway import UserError, record
from headway.data.sounds import read_sound
from headway.data.text_lines import MediaLocation
from headway.look.head_edits import HeadEdit
from headway.nn.trace import Off, Only, Uniform
from headway.nn.trunk import Trunk
from headway.ops.attention_map import Readable
from headway.tasks.ctc_speech import SymbolLabels
from headway.tasks.generation import GenerationOptions
from headway.tasks.tracing import FrameAxis, GridAxis, ItemAxis, TokenAxis
from tests.look.readers import READERS, SIGHT, SQUARE, TEXT, built, image, loaded, read, rnn

# ---- texts


def test_a_causal_model_says_what_follows_each_token() -> None:
    recording, model = read("llama"), loaded("llama")
    assert model.tokenizer is not None
    ids = model.tokenizer.encode(TEXT)
    axis = recording.sites["1.attn"].rows
    assert isinstance(axis, TokenAxis)
    assert "".join(axis.labels[: len(ids)]) == TEXT
    assert len(axis) == len(ids) + 15  # of 16 new tokens the last is never read
    said = [step.said for step in recording.outcome.steps]
    assert said[:-1] == list(axis.labels[1:])
    assert [step.at for step in recording.outcome.steps] == list(range(len(axis)))
    assert recording.outcome.text == model.run(TEXT, GenerationOptions(max_new_tokens=16))["text"]


def test_a_model_may_be_asked_for_the_next_token_alone() -> None:
    recording = loaded("llama").attend(TEXT, most=0)
    assert "".join(recording.sites["0.attn"].rows.labels) == TEXT
    assert recording.outcome.steps[-1].said == recording.outcome.steps[-1].top[0][0]


def test_the_total_is_the_logprob_of_the_text() -> None:
    recording, model = read("gpt2"), loaded("gpt2")
    trunk = model.model
    assert isinstance(trunk, Trunk)
    assert model.tokenizer is not None
    prompt = model.tokenizer.encode("the cat")
    room = model.config.context + 1 - len(prompt)  # of a recording, which is read at once
    answer = model.run("the cat", GenerationOptions(max_new_tokens=room))
    ids = torch.tensor([*prompt, *answer["tokens"]])
    with torch.no_grad():
        logprobs = trunk(ids[None, :-1])[0].log_softmax(-1)
    assert recording.outcome.total == pytest.approx(float(logprobs.gather(1, ids[1:, None]).sum()), abs=1e-4)


def test_masks_are_filled_and_texts_without_masks_are_scored() -> None:
    masked, whole = read("bert"), read("bert, no mask")
    labels = masked.sites["0.attn"].rows.labels
    assert [labels[step.at or 0] for step in masked.outcome.steps] == ["[MASK]", "[MASK]"]
    assert masked.outcome.text == loaded("bert").run("the cat [MASK] on the [MASK]")["output"]
    assert all(step.said == step.top[0][0] for step in masked.outcome.steps)
    axis = whole.sites["0.attn"].rows
    assert [step.said for step in whole.outcome.steps] == [axis.labels[step.at or 0] for step in whole.outcome.steps]
    assert len(whole.outcome.steps) == len(axis) - len(axis.special)
    for one in (masked.sites["0.attn"].rows, axis):  # framed, as in training
        assert (one.labels[0], one.labels[-1], one.special) == ("[CLS]", "[SEP]", (0, len(one) - 1))


def test_special_tokens_are_marked() -> None:
    axis = read("text classes").sites["0.attn"].rows
    assert [axis.labels[at] for at in axis.special] == ["[CLS]", "[SEP]"]
    assert axis.special == (0, len(axis) - 1)


def test_what_is_written_stands_at_the_rows_and_what_was_read_at_the_columns() -> None:
    recording, model = read("transformer"), loaded("transformer")
    answer = model.run(TEXT)
    assert model.tokenizer is not None
    cross, inner = recording.sites["decoder.0.cross"], recording.sites["decoder.0.attn"]
    assert recording.outcome.text == answer["output"]
    assert cross.columns == recording.sites["encoder.0.attn"].rows
    assert [step.said for step in recording.outcome.steps] == list(cross.rows.labels)
    assert len(cross.rows) == len(answer["tokens"])
    assert inner.rows.labels[1:] == cross.rows.labels[:-1]
    assert [s.logprob for s in recording.outcome.steps] == pytest.approx(answer["logprobs"], abs=1e-4)


def test_a_recurrent_decoder_shows_one_map_for_all_steps() -> None:
    site = read("rnn").sites["decoder.attention"]
    assert (site.rows.name, site.columns.name) == ("target", "source")
    detail = read("rnn").detail("decoder.attention")
    assert detail.score == "additive"
    assert detail.additive is not None


def test_layers_that_share_their_parameters_are_sites_of_their_own() -> None:
    recording = read("albert")
    sites = [name for name in recording.sites if name.startswith("0.")]
    assert sites == ["0.block.0.attn@0", "0.block.0.attn@1"]
    one, other = (recording.edited(HeadEdit(site, 0, Off())) for site in sites)
    assert one != other
    both = recording.edited(*(HeadEdit(site, 0, Off()) for site in sites))
    with torch.no_grad(), record(recording.run.model, edit={"0.block.0.attn.weights": Off()(0)}):
        assert recording.run.reader.outcome(recording.run.call()) == both


# ---- edits, rollout, names


def test_an_edit_is_the_same_edit_by_hand() -> None:
    recording, model = read("transformer"), loaded("transformer")

    def by_hand(weights: Tensor) -> Tensor:
        return weights * torch.tensor([1.0, 0.0])[:, None, None]

    with record(model.model, edit={"decoder.0.cross.weights": by_hand}), torch.no_grad():
        found = recording.run.reader.outcome(recording.run.call())
        answer = model.run(TEXT)
    edited = recording.edited(HeadEdit("decoder.0.cross", 1, Off()))
    assert edited == found
    assert edited.text == answer["output"] != recording.outcome.text
    assert edited.total < recording.outcome.total


@pytest.mark.slow
def test_edits_of_one_site_follow_each_other() -> None:
    recording = read("transformer")
    both = recording.edited(HeadEdit("decoder.0.cross", 0, Off()), HeadEdit("decoder.0.cross", 1, Off()))
    with record(recording.run.model, edit={"decoder.0.cross.weights": torch.zeros_like}), torch.no_grad():
        assert recording.run.reader.outcome(recording.run.call()) == both
    last = recording.edited(HeadEdit("decoder.0.cross", 0, Uniform()), HeadEdit("decoder.0.cross", 1, Only()))
    assert last == recording.edited(HeadEdit("decoder.0.cross", 0, Off()))


@pytest.mark.parametrize("site", ["encoder.0.attn", "decoder.0.attn"])
def test_what_is_written_anew_has_felt_the_edit_everywhere(site: str) -> None:
    recording, model = read("transformer"), loaded("transformer")
    with record(model.model, edit={f"{site}.weights": Uniform()(0)}):
        answer = model.run(TEXT)
    assert recording.edited(HeadEdit(site, 0, Uniform())).text == answer["output"]


def test_rollout_follows_layers_that_share_an_axis() -> None:
    recording = read("whisper")
    rolled = recording.rollout()
    assert set(rolled) == {f"rollout.{name}" for name in recording.sites if name.endswith(".attn")}
    first = recording["encoder.0.attn"].full()[0].mean(0)
    assert_close(rolled["rollout.encoder.0.attn"].map.full()[0, 0], 0.5 * first + 0.5 * torch.eye(len(first)))
    second = 0.5 * recording["decoder.1.attn"].full()[0].mean(0)
    second = second + 0.5 * torch.eye(len(second))
    below = rolled["rollout.decoder.0.attn"].map.full()[0, 0]
    assert_close(rolled["rollout.decoder.1.attn"].map.full()[0, 0], second @ below)
    for site in rolled.values():
        assert site.map.shape == (1, 1, len(site.rows), len(site.columns))
        assert_close(site.map.full().sum(-1), torch.ones(site.map.shape[:3]))


def test_a_site_is_found_by_its_name_with_and_without_its_last_word() -> None:
    recording = read("transformer")
    assert recording["decoder.0.cross"] is recording["decoder.0.cross.weights"]
    assert isinstance(recording["decoder.0.cross"], Readable)


def test_it_tells_what_it_is() -> None:
    sites = "encoder.0.attn, decoder.0.attn, decoder.0.cross"
    told = f"<transformer: '{TEXT}' → {read('transformer').outcome.text[:60]!r}, 6 heads at 3 sites: {sites}>"
    assert repr(read("transformer")) == told


@pytest.mark.slow
def test_it_shows_itself_as_a_page(tmp_path: Path) -> None:
    recording = loaded("sets").attend("0 1; 2 3")
    recording.save(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert page == recording.page()
    assert 'sandbox="allow-scripts"' in recording._repr_html_()


# ---- images, sounds, numbers


def test_patches_stand_behind_the_class_token() -> None:
    recording = read("vit")
    axis = recording.sites["0.attn"].rows
    assert isinstance(axis, GridAxis)
    assert (axis.grid, axis.first, axis.special, axis.labels[:2]) == ((5, 7), 1, (0,), ("[CLS]", "0,0"))
    assert axis.labels[-1] == "4,6"
    plain = read("vit, mean").sites["1.attn"].rows
    assert isinstance(plain, GridAxis)
    assert (plain.grid, plain.first, len(plain)) == ((5, 7), 0, 35)


def test_a_captioner_looks_at_the_cells_without_the_class_token() -> None:
    recording = read("captioner, class token")
    memory, own = recording.sites["decoder.1.cross"].columns, recording.sites["encoder.3.attn"].rows
    assert isinstance(memory, GridAxis)
    assert isinstance(own, GridAxis)
    assert (memory.grid, memory.first, own.grid, own.first) == ((5, 7), 0, (5, 7), 1)
    assert memory.name != own.name


def test_pooled_grids_are_both_there() -> None:
    site = read("mvit").sites["0.0.attn"]
    assert isinstance(site.rows, GridAxis)
    assert isinstance(site.columns, GridAxis)
    assert (site.rows.grid, site.columns.grid) == ((10, 14), (5, 7))
    halved = read("mvit").sites["1.0.attn"]
    assert isinstance(halved.rows, GridAxis)
    assert halved.rows.grid == (5, 7)
    assert read("mvit").detail("1.0.attn").x is None  # its queries are pooled


def test_the_picture_is_what_the_model_read() -> None:
    picture = read("swin").picture
    assert picture is not None
    assert (picture.width, picture.height) == (28, 20)
    seen = Image.open(BytesIO(picture.png))
    assert seen.size == (28, 20)
    resized = Image.open(image()).resize((28, 20), Image.Resampling.BICUBIC)
    apart = [abs(a - b) for a, b in zip(seen.tobytes(), resized.tobytes(), strict=True)]
    assert sum(apart) / len(apart) < 3


def test_a_sound_is_cut_into_stretches_of_time() -> None:
    recording = read("conformer, ctc")
    axis, sound = recording.sites["1.attn"].rows, recording.sound
    assert isinstance(axis, FrameAxis)
    assert axis.seconds == pytest.approx(2 * 40 / 4000)
    assert sound is not None
    assert sound.seconds == pytest.approx(1200 / 4000)
    assert len(axis) == 16  # 31 frames, two to a stretch
    assert sound.wav[:4] == b"RIFF"
    assert Image.open(BytesIO(sound.spectrogram)).size == (31, 8)
    waves = read("wav2vec2, ctc").sites["1.attn"].rows
    assert isinstance(waves, FrameAxis)
    assert waves.seconds == pytest.approx(10 / 16_000)
    assert len(waves) == 479  # of 4800 samples: ten at every fifth make 959, three at every second of these 479
    assert waves.labels[-1] == "0.2988 s"


def test_a_model_of_samples_hears_samples() -> None:
    model, recording = loaded("wav2vec2, classes"), read("wav2vec2, classes")
    wave = torch.from_numpy(read_sound(MediaLocation(Path(recording.input)), 16_000))
    with torch.no_grad():
        chances = model.model(((wave - wave.mean()) / wave.std(unbiased=False))[None, :, None])[0].softmax(-1)
    assert chances.tolist() == pytest.approx(
        [dict(recording.outcome.steps[0].top)[one] for one in ("cat", "dog", "bird")]
    )
    assert model.run(recording.input)["output"] == recording.outcome.text


def test_a_path_of_symbols_is_heard() -> None:
    outcome = read("conformer, ctc").outcome
    assert outcome.text == loaded("conformer, ctc").run(READERS["conformer, ctc"].given())["output"]
    assert outcome.total == pytest.approx(loaded("conformer, ctc").run(READERS["conformer, ctc"].given())["score"])
    assert [step.at for step in outcome.steps] == list(range(16))


def test_symbols_are_words_behind_a_blank_or_with_it_among_them() -> None:
    known = loaded("conformer, ctc").tokenizer
    assert known is not None
    a, b = known.plain("ab")
    behind, among = (SymbolLabels(known, nn.Linear(2, known.vocab + more)) for more in (1, 0))
    assert [behind.label(symbol) for symbol in (0, a + 1)] == ["∅", "a"]
    assert [among.label(symbol) for symbol in (0, a)] == ["∅", "a"]
    assert behind.text([0, a + 1, a + 1, 0, a + 1, b + 1]) == among.text([a, a, 0, a, b, b]) == "aab"
    assert SymbolLabels(None, nn.Linear(2, 9)).text([0, 3, 3, 0, 4]) == "#3 #4"


def test_a_whisper_hears_its_first_window() -> None:
    recording = read("whisper")
    cross = recording.sites["decoder.1.cross"]
    assert isinstance(cross.columns, FrameAxis)
    assert (len(cross.columns), cross.columns.seconds) == (10, pytest.approx(0.02))
    assert recording.outcome.steps[0].at == 2  # behind begin, language and task; there is more, so it tells the time
    assert cross.rows.labels[1] == "<|transcribe|>"
    assert recording.sites["decoder.0.attn"].rows.labels[0] == "<|startoftranscript|>"
    assert recording.sound is not None
    assert recording.sound.seconds == pytest.approx(0.2)


def test_vectors_are_called_by_their_numbers() -> None:
    axis = read("series").sites["1.attn"].rows
    assert isinstance(axis, ItemAxis)
    assert axis.labels == ("0 1", "2 3", "-1 0.5", "1e-3 4")


# ---- what cannot be


PLAIN = {"image": 20, "stem": "small", "dim": 8, "layers": (1,), "widths": (8,), "block": "basic", "classes": 3}
ODD = replace(SIGHT, resize=(20, 26))

MISTAKES: dict[str, tuple[Callable[[], object], str]] = {
    "convolutions": (
        lambda: built("resnet", SIGHT, **PLAIN).attend(image()),
        "resnet has no attention to look at; take",
    ),
    "one context": (lambda: rnn("fixed").attend(TEXT), "rnn has no attention to look at; take"),
    "no preprocess": (lambda: built("vit", classes=3, **SQUARE).attend(image()), "add preprocessor_config.json"),
    "too long": (lambda: loaded("gpt2").attend(TEXT), "the text has 22 tokens and the model a context of 16; shorten"),
    "too long, rotary": (lambda: loaded("llama").attend(TEXT * 9), "198 tokens and the model a context of 64; shorten"),
    "too long, masked": (
        lambda: loaded("bert").attend("cat " * 99),
        "101 tokens and the model a context of 16; shorten",
    ),
    "too long, source": (
        lambda: loaded("bart").attend("cat " * 99),
        "100 tokens and the model a context of 16; shorten",
    ),
    "no file": (lambda: loaded("vit").attend("nothing.png"), "nothing.png does not exist"),
    "odd size": (
        lambda: built("vit", ODD, classes=3, **SQUARE).attend(image()),
        "an image of 20×26 does not divide into patches of 4",
    ),
    "no site": (lambda: read("transformer")["decoder.0.corss"], "did you mean 'decoder.0.cross'?"),
    "no head": (lambda: read("gpt2").edited(HeadEdit("0.attn", 2, Off())), "0.attn has no head 2; allowed: 0 to 1"),
    "no numbers": (lambda: loaded("sets").attend("0 1; two 3"), "'two' is not a number; allowed: numbers"),
    "no width": (lambda: loaded("sets").attend("0 1 2"), "'0 1 2' has 3 numbers where 2 belong"),
    "no words": (lambda: replace(loaded("gpt2"), tokenizer=None).attend(TEXT), "holds no tokenizer"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_what_cannot_be_is_told_in_one_sentence(name: str) -> None:
    given, told = MISTAKES[name]
    with pytest.raises(UserError) as error:
        given()
    assert told in str(error.value)
    assert "\n" not in str(error.value)


def test_the_name_of_the_version_before_is_an_alias() -> None:
    import headway

    assert headway.Attended is headway.Recording
    assert isinstance(read("gpt2"), headway.Recording)
