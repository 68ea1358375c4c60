"""Clouds of the explorer: samples by their layers' means, and features by what they are active for."""

from __future__ import annotations

from pathlib import Path
from shutil import copy

import pytest
import torch
from torch.testing import assert_close

from headway.errors import UserError
from headway.inspect.activations import Samples, by_token, layer_means, one_site
from headway.inspect.point_clouds import clouds_of, feature_cloud, sample_cloud
from headway.inspect.sparse_autoencoder import SAEConfig, SparseAutoencoder, Top
from headway.look.principal_plane import principal_plane
from headway.nn.trace import record
from tests.look.readers import READERS, loaded, read

LINES = ["the cat sat", "on the mat", "the cat", "the mat sat on the cat"]


def test_samples_with_classes(tmp_path: Path) -> None:
    file = tmp_path / "labelled.tsv"
    rows = [(line, "long" if len(line) > 12 else "short") for line in LINES * 2]
    file.write_text("".join(f"{text}\t{label}\n" for text, label in rows), encoding="utf-8")
    cloud = sample_cloud(loaded("bert"), file)
    assert sorted(zip(cloud.labels, cloud.classes, strict=True)) == sorted(rows)
    assert cloud.title == "8 samples of labelled.tsv"


def test_samples_of_lines_are_at_the_means_of_their_tokens(tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("\n".join(LINES), encoding="utf-8")
    model = loaded("bert")
    cloud = sample_cloud(model, file)
    assert (cloud.labels, cloud.classes) == (tuple(LINES), ())
    means = layer_means(model, Samples(tuple(LINES), None, file))
    assert list(cloud.layers) == list(means)
    for name, x in means.items():
        assert_close(cloud.layers[name].points, principal_plane(x).points)


def test_names_of_files_tell_no_folders(tmp_path: Path) -> None:
    for kind in ("cat", "dog"):
        folder = tmp_path / "secret" / kind
        folder.mkdir(parents=True)
        for at in range(2):
            copy(READERS["vit"].given(), folder / f"{at}.png")
    cloud = sample_cloud(loaded("vit"), tmp_path / "secret")
    assert set(cloud.classes) == {"cat", "dog"}
    assert not any("secret" in label or label.startswith("/") for label in cloud.labels)


def dictionary(site: str, dim: int) -> SparseAutoencoder:
    return SparseAutoencoder(SAEConfig(dim, 24, Top(3), site), torch.Generator().manual_seed(4)).eval()


def test_features_are_active_for_the_tokens_that_activate_them() -> None:
    recording = read("gpt2")
    model = recording.run.model
    site = one_site(model, "*0.out")
    with record(model, site) as trace:
        recording.run.call()
    [x] = trace.all(site)
    assert isinstance(x, torch.Tensor)
    sae = dictionary(site, x.shape[-1])
    cloud = feature_cloud(recording, sae, "features")
    codes = sae.codes(by_token(site, x).flatten(0, -2))
    for token, active in zip(codes, cloud.active, strict=True):
        assert dict(active) == {at: pytest.approx(float(token[at])) for at in token.nonzero().flatten().tolist()}
    labels = recording.sites[next(iter(recording.sites))].rows.labels
    best = int(codes[:, cloud.active[0][0][0]].argmax())
    assert labels[best].strip() in cloud.labels[cloud.active[0][0][0]]
    assert_close(cloud.layers[site].points, principal_plane(sae.atoms).points)


def test_a_dictionary_of_another_model_is_refused(tmp_path: Path) -> None:
    recording = read("gpt2")
    sae = dictionary(one_site(recording.run.model, "*0.out"), 7)
    sae.save(tmp_path / "features")
    source = clouds_of(loaded("gpt2"), None, tmp_path / "features")
    with pytest.raises(UserError, match="of width 7"):
        source(recording)
