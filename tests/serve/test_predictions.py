"""Every task by `/api/predict`: texts, and images, sounds and tables that are uploaded."""

from __future__ import annotations

import io
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import numpy as np
import openai
import pytest
import soundfile

from headway.loading import load
from headway.serve.server_state import RequestLimits
from tests.serve.media import png, save_media
from tests.serve.server import RunningServer, serving
from tests.tasks.test_predict_media import whisper_folder

pytestmark = pytest.mark.slow
TEXTS = ["the cat sat", "a dog", "on and on ran the dog", ""]


@pytest.fixture(scope="module")
def media(tmp_path_factory: pytest.TempPathFactory) -> Generator[RunningServer]:
    place = tmp_path_factory.mktemp("media")
    folders = {**save_media(place), "ear": place / "ear"}
    whisper_folder(folders["ear"])
    with serving(folders, limits=RequestLimits(image_pixels=10_000, audio_seconds=20)) as running:
        yield running


def wav(seconds: float, rate: int = 16_000) -> bytes:
    out = io.BytesIO()
    soundfile.write(out, np.random.default_rng(0).normal(0, 0.1, int(seconds * rate)), rate, format="WAV")
    return out.getvalue()


def upload(
    server: RunningServer, model: str, *files: tuple[str, bytes], path: str = "/api/predict", **data: Any
) -> Any:
    return server.post(path, data={"model": model, **data}, files=[("file", file) for file in files])


@pytest.mark.parametrize("name", ["labels", "pairs", "masked", "tags", "vectors", "causal"])
def test_predictions_are_those_of_the_library(server: RunningServer, folders: dict[str, Path], name: str) -> None:
    texts = [f"{text} [MASK]" for text in TEXTS] if name == "masked" else TEXTS
    found = server.post("/api/predict", {"model": name, "input": texts}).json()
    model = load(folders[name])
    assert found["task"] == model.task.name
    for one, text in zip(found["predictions"], texts, strict=True):
        expected = model.predict(text).to_dict()
        assert one["input"] == text
        assert_near(one["output"], expected["output"])
    if name == "causal":
        assert "max_new_tokens" in found["predictions"][0]["stopped_at"]


def assert_near(one: Any, other: Any) -> None:
    if isinstance(other, list) and other and isinstance(other[0], float):
        assert one == pytest.approx(other, abs=5e-6)
    else:
        assert one == other


def test_options_change_the_answer(server: RunningServer, folders: dict[str, Path]) -> None:
    how = {"max_new_tokens": 3, "temperature": 0.7, "seed": 3}
    found = server.post("/api/predict", {"model": "causal", "input": "the cat", "options": how}).json()
    assert found["predictions"][0]["output"] == load(folders["causal"]).predict("the cat", **how).output
    refused = server.post("/api/predict", {"model": "labels", "input": "the cat", "options": how})
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "options"


def test_images(media: RunningServer) -> None:
    files = [("a cat.png", png(20, 30)), ("../../b.png", png(8, 8)), ("c", png(9, 5))]
    found = upload(media, "seer", *files).json()
    assert [one["input"] for one in found["predictions"]] == [name for name, _ in files]
    alone = [upload(media, "seer", file).json()["predictions"][0] for file in files]
    for one, other in zip(found["predictions"], alone, strict=True):
        assert one["probabilities"] == pytest.approx(other["probabilities"], abs=5e-6)
    assert list(media.folder.iterdir()) == []


def test_an_image_is_matched_with_texts(media: RunningServer) -> None:
    found = upload(media, "clip", ("x.png", png(20, 30)), input=["a cat", "the dog"]).json()["predictions"]
    assert len(found) == 1
    assert set(found[0]["probabilities"]) == {"a cat", "the dog"}
    assert found[0]["input"] == "x.png"
    assert upload(media, "clip", ("x.png", png(9, 9)), ("y.png", png(9, 9)), input="a").status_code == 400


def test_what_is_not_uploaded_is_not_read(media: RunningServer, tmp_path: Path) -> None:
    file = tmp_path / "x.png"
    file.write_bytes(png(8, 8))
    table = tmp_path / "x.csv"
    table.write_text("1,2\n3,4\n")
    for model in ("seer", "clip", "ear"):
        assert media.post("/api/predict", {"model": model, "input": str(file)}).status_code == 400
        assert media.post("/v1/embeddings", {"model": model, "input": str(file)}).status_code == 400
        assert media.post("/api/attention", {"model": model, "input": str(file)}).status_code == 400
    for path in ("/api/predict", "/api/attention", "/v1/embeddings"):
        refused = media.post(path, {"model": "forecaster", "input": str(table)})
        assert refused.status_code == 400
        assert "uploaded" in refused.json()["error"]["message"]


def test_bad_files_are_told_without_our_paths(media: RunningServer) -> None:
    given = {"big.png": png(200, 100), "no.png": b"no image", "empty.png": b"", "cut.png": png(20, 30)[:200]}
    for name, data in given.items():
        refused = upload(media, "seer", (name, data))
        assert refused.status_code == 400
        assert refused.json()["error"]["message"].startswith(f"{name} ")
        assert str(media.folder) not in refused.text
    assert upload(media, "ear", ("long.wav", wav(21))).status_code == 400
    assert upload(media, "forecaster", ("x.csv", b"a,b\nno,numbers\n")).status_code == 400
    assert list(media.folder.iterdir()) == []


def test_a_table_is_continued(media: RunningServer) -> None:
    slot = media.pool.slots["forecaster"]
    names = load(slot.folder).task.column_names  # type: ignore[attr-defined]
    rows = [",".join(map(str, names)), *(",".join([str(at)] * len(names)) for at in range(12))]
    found = upload(media, "forecaster", ("rows.csv", "\n".join(rows).encode()), options='{"max_new_tokens": 2}')
    assert found.status_code == 200, found.text
    assert len(found.json()["predictions"][0]["output"]) == 2
    typed = "; ".join(" ".join([str(at)] * len(names)) for at in range(12))
    again = media.post("/api/predict", {"model": "forecaster", "input": typed, "options": {"max_new_tokens": 2}}).json()
    assert again["predictions"][0]["output"] == found.json()["predictions"][0]["output"]


def test_transcriptions(media: RunningServer) -> None:
    client = media.client()
    found = client.audio.transcriptions.create(model="ear", file=("speech.wav", wav(0.3)))
    assert isinstance(found.text, str)
    whole: Any = client.audio.transcriptions.create(
        model="ear", file=("speech.wav", wav(0.3)), response_format="verbose_json"
    )
    assert whole.text == found.text
    assert float(whole.duration) == pytest.approx(0.3)
    assert all(segment.start <= segment.end for segment in whole.segments)
    plain: Any = client.audio.transcriptions.create(model="ear", file=("a.wav", wav(0.3)), response_format="text")
    assert plain.strip() == found.text.strip()
    for model, more in (("seer", {}), ("ear", {"response_format": "srt"}), ("ear", {"language": "de"})):
        with pytest.raises(openai.BadRequestError):
            client.audio.transcriptions.create(model=model, file=("a.wav", wav(0.3)), **more)


def test_attention(server: RunningServer, media: RunningServer) -> None:
    found = server.post("/api/attention", {"model": "pairs", "input": "the cat sat"}).json()
    [run] = found["data"]["runs"]
    assert run["sites"]
    assert run["input"] == "the cat sat"
    assert found["blobs"]
    seen = upload(media, "seer", ("a.png", png(8, 8)), path="/api/attention").json()
    assert seen["data"]["runs"][0]["input"] == "a.png"
    for wrong in ({"input": "a", "site": "nowhere"}, {"input": ["a", "b"]}, {"input": "a " * 11_000}, {}):
        assert server.post("/api/attention", {"model": "pairs", **wrong}).status_code == 400


def test_what_is_described_is_there(server: RunningServer) -> None:
    api = server.get("/openapi.json").json()
    page = server.get("/docs").text
    for path in ("/v1/completions", "/v1/chat/completions", "/v1/embeddings", "/api/predict", "/api/attention"):
        assert "requestBody" in api["paths"][path]["post"]
        assert path in page
    assert "multipart/form-data" in api["paths"]["/v1/audio/transcriptions"]["post"]["requestBody"]["content"]
    assert all(name in server.get("/").text for name in server.pool.slots)


def test_metrics_count_what_was_answered(folders: dict[str, Path]) -> None:
    with serving({"causal": folders["causal"], "labels": folders["labels"]}) as server:
        for _ in range(3):
            server.post("/v1/completions", {"model": "causal", "prompt": "the", "max_tokens": 2})
        server.post("/v1/completions", {"model": "none", "prompt": "the"})
        lines = server.get("/metrics").text.splitlines()
    assert 'headway_requests_total{path="/v1/completions",status="200"} 3' in lines
    assert 'headway_requests_total{path="/v1/completions",status="404"} 1' in lines
    assert 'headway_tokens_total{model="causal",kind="prompt"} 9' in lines
    assert 'headway_tokens_total{model="causal",kind="generated"} 6' in lines
    assert 'headway_requests_running{model="causal"} 0' in lines
    assert not any('model="labels"' in line for line in lines)  # nobody asked for it, so it is not loaded


def test_ready_and_health(server: RunningServer) -> None:
    assert server.get("/ready").json()["status"] == "ready"
    assert httpx.head(f"{server.url}/health").status_code in (200, 405)
