"""Images of every mode come out as Pillow would show them, and what cannot be read says why."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from headway.data.images import Images, mean_and_std, read_image
from headway.data.media_sources import MediaError, MediaProbe, probe
from headway.data.text_lines import Flaw, MediaLocation
from headway.errors import UserError
from tests.data.files import coded, jpg, picture, png

GREY = np.asarray(picture(channels=1))
RGB = np.asarray(picture())


def at(tmp_path: Path, data: bytes, name: str = "a.png") -> MediaLocation:
    (tmp_path / name).write_bytes(data)
    return MediaLocation(tmp_path / name)


def transparent() -> Image.Image:
    image = picture().convert("RGBA")
    image.putalpha(Image.fromarray(np.where(np.arange(16) < 8, 0, 255).astype(np.uint8)[None].repeat(12, 0)))
    return image


HALF_WHITE = np.where(np.arange(16)[None, :, None] < 8, 255, RGB)
MODES: dict[str, tuple[bytes, np.ndarray, int]] = {
    "rgb": (png(), RGB, 0),
    "grey": (coded(picture(channels=1)), GREY, 0),
    "black and white": (coded(picture().convert("1")), np.asarray(picture().convert("1").convert("L")), 0),
    "palette": (coded(picture().quantize(200)), np.asarray(picture().quantize(200).convert("RGB")), 0),
    "transparent": (coded(transparent()), HALF_WHITE, 0),
    "transparent grey": (
        coded(transparent().convert("LA")),
        np.where(np.arange(16)[None, :] < 8, 255, np.asarray(picture().convert("L"))),
        1,
    ),
    "a transparent colour of a palette": (coded(transparent().quantize(256)), HALF_WHITE, 90),
    "16 bits": (coded(Image.fromarray(GREY.astype(np.uint16) * 257)), GREY, 0),
    "a .pgm of 16 bits": (b"P5 16 12 65535\n" + (GREY.astype(int) * 257).astype(">u2").tobytes(), GREY, 0),
    "a .pgm of 12 bits": (b"P5 16 12 4095\n" + (GREY.astype(int) * 16).astype(">u2").tobytes(), GREY, 1),
    "cmyk": (coded(picture().convert("CMYK"), "JPEG", quality=100), RGB, 16),
    "lossy": (jpg(), RGB, 40),
    "webp": (coded(picture(), "WEBP", lossless=True), RGB, 0),
    "tiff": (coded(picture(), "TIFF"), RGB, 0),
    "bmp": (coded(picture(), "BMP"), RGB, 0),
    "gif": (coded(picture(channels=1), "GIF"), GREY, 0),
}


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_is_decoded(tmp_path: Path, mode: str) -> None:
    data, expected, tolerance = MODES[mode]
    place = at(tmp_path, data)
    expected = expected if expected.ndim == 3 else expected[..., None].repeat(3, -1)
    found = read_image(place)
    assert found.dtype == np.uint8
    assert found.shape == expected.shape
    assert np.abs(found.astype(int) - expected).max() <= tolerance
    assert isinstance(probe(Images(), place), MediaProbe)
    one = read_image(place, channels=1)
    assert one.shape == (12, 16, 1)
    if np.ptp(expected, -1).max() == 0:
        assert np.array_equal(one, found[..., :1])


@pytest.mark.parametrize("turn", range(1, 9))
def test_images_stand_upright(tmp_path: Path, turn: int) -> None:
    """What a camera held in any way saved is the scene that it saw."""
    how = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,  # what undoes a turn to the right
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }
    exif = Image.Exif()
    exif[0x0112] = turn
    saved = picture().transpose(how[turn]) if turn in how else picture()
    for format in ("PNG", "TIFF"):  # Pillow turns the one by itself
        place = at(tmp_path, coded(saved, format, exif=exif), f"a.{format}")
        assert np.array_equal(read_image(place), RGB)
        seen = probe(Images(), place)
        assert isinstance(seen, MediaProbe)
        assert seen.extent == (12, 16)


def bomb(width: int, height: int) -> bytes:
    """A small PNG that says that it is enormous."""
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
    )


def film(format: str) -> bytes:
    frames = [picture(seed) for seed in range(3)]
    return coded(frames[0], format, save_all=True, append_images=frames[1:])


BAD = {
    "an empty file": (b"", Flaw.IMAGE, "is no image of a known format"),
    "a text": (b"not an image at all", Flaw.IMAGE, "is no image of a known format"),
    "postscript": (
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
        Flaw.IMAGE,
        "is no image of a known format",
    ),
    "half a JPEG": (jpg()[:-200], Flaw.IMAGE, "is truncated"),
    "half a PNG": (png()[: len(png()) // 2], Flaw.IMAGE, "is truncated"),
    "a wrong byte in a PNG": (png()[:60] + b"\xff\xff\xff\xff" + png()[64:], Flaw.IMAGE, "cannot be decoded"),
    "a header only": (png()[:33], Flaw.IMAGE, "is no image of a known format"),
    "a JPEG without its last rows": (
        coded(picture(height=200, width=200), "JPEG")[:-400],
        Flaw.IMAGE,
        "is truncated (image file is truncated",
    ),
    "a bomb": (bomb(50_000, 50_000), Flaw.LARGE, "has more pixels than the 100,000,000 that are allowed"),
    "a strip": (
        coded(Image.new("L", (100_000, 1))),
        Flaw.LARGE,
        "has 100,000 × 1 pixels where one side may be 100 times as long as the other",
    ),
    "a strip that stands": (
        coded(Image.new("L", (2, 201))),
        Flaw.LARGE,
        "has 2 × 201 pixels where one side may be",
    ),
    "a PNG without its end": (png()[:-12], Flaw.IMAGE, "is truncated (the end of the PNG is missing)"),
    "a smaller bomb": (
        bomb(12_000, 12_000),
        Flaw.LARGE,
        "has 12,000 × 12,000 pixels where 100,000,000 are allowed",
    ),
    "an animated gif": (film("GIF"), Flaw.ANIMATED, "is animated: 3 frames where one is expected"),
    "an animated webp": (film("WEBP"), Flaw.ANIMATED, "is animated: 3 frames where one is expected"),
    "pages": (film("TIFF"), Flaw.ANIMATED, "is animated: 3 frames where one is expected"),
    "32 bits": (coded(picture(channels=1).convert("F"), "TIFF"), Flaw.IMAGE, "has pixels of 32 bits"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_read_says_why(tmp_path: Path, case: str) -> None:
    data, what, said = BAD[case]
    place = at(tmp_path, data)
    flaw = probe(Images(), place)
    assert isinstance(flaw, MediaError)
    assert flaw.what is what
    assert flaw.said.startswith(said)
    if what is not Flaw.ANIMATED:
        with pytest.raises(UserError, match=r"a\.png (is|has|cannot)"):
            read_image(place)


def test_no_cut_of_a_file_goes_unnoticed(tmp_path: Path) -> None:
    for data in (jpg(), png()):
        for end in range(0, len(data) - 20, max(1, len(data) // 12)):
            assert isinstance(Images().probe(at(tmp_path, data[:end])), MediaError), end
    for end in range(len(png()) - 20, len(png())):
        assert isinstance(Images().probe(at(tmp_path, png()[:end])), MediaError), end


def test_what_stands_behind_the_end_of_a_png_does_no_harm(tmp_path: Path) -> None:
    place = at(tmp_path, png() + b"left by another program")
    assert isinstance(Images().probe(place), MediaProbe)
    assert np.array_equal(read_image(place), RGB)


def test_a_long_image_is_no_strip(tmp_path: Path) -> None:
    """A line of writing is long, and is read."""
    place = at(tmp_path, coded(picture(height=3, width=300)))
    assert isinstance(Images().probe(place), MediaProbe)
    assert read_image(place).shape == (3, 300, 3)


def test_a_line_break_in_a_name_does_not_break_the_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        read_image(at(tmp_path, b"", "new\nline.png"))
    assert str(caught.value).startswith(rf"{tmp_path}/new\nline.png is no image of a known format; allowed: ")


def test_the_first_frame_of_a_film_where_that_is_asked_for(tmp_path: Path) -> None:
    place = at(tmp_path, film("WEBP"))
    assert isinstance(probe(Images(frames=3), place), MediaProbe)
    assert np.abs(read_image(place).astype(int) - RGB).max() < 60


def test_a_file_that_changed_is_looked_at_again(tmp_path: Path) -> None:
    place = at(tmp_path, png())
    assert isinstance(probe(Images(), place), MediaProbe)
    assert isinstance(probe(Images(), at(tmp_path, png()[:-30])), MediaError)


def test_the_hash_is_of_the_contents(tmp_path: Path) -> None:
    one, same, other = (
        probe(Images(), at(tmp_path, png(seed), f"{seed}{name}")) for seed, name in ((0, "a"), (0, "b"), (1, "c"))
    )
    assert isinstance(one, MediaProbe)
    assert isinstance(other, MediaProbe)
    assert one == same
    assert one.content != other.content


def test_a_place_can_be_spelled(tmp_path: Path) -> None:
    for place in (
        MediaLocation(tmp_path / "é x.png"),
        MediaLocation(tmp_path / "a.tar", "b/c.png", 512, 99),
        MediaLocation(tmp_path, "", 16, 4, (2, 2)),
    ):
        assert MediaLocation.parsed(place.spelled()) == place


def test_bytes_of_a_part_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "all").write_bytes(b"before" + png() + b"after")
    assert np.array_equal(read_image(MediaLocation(tmp_path / "all", "x.png", 6, len(png()))), RGB)
    with pytest.raises(UserError, match="gone does not exist"):
        MediaLocation(tmp_path / "gone").read()
    with pytest.raises(UserError, match="has 10 bytes where 4 are allowed"):
        at(tmp_path, b"0123456789").read(4)


def test_a_large_jpeg_is_looked_at_faster_than_it_is_decoded(tmp_path: Path) -> None:
    """An eighth is decoded, and every cut is still found."""
    data = coded(picture(height=600, width=800), "JPEG")
    seen = Images().probe(at(tmp_path, data))
    assert isinstance(seen, MediaProbe)
    assert seen.extent == (600, 800)
    assert isinstance(Images().probe(at(tmp_path, data[: int(len(data) * 0.9)])), MediaError)
    assert io.BytesIO(data).read(2) == b"\xff\xd8"


def test_mean_and_deviation(tmp_path: Path) -> None:
    places = [at(tmp_path, png(seed), f"{seed}.png") for seed in range(3)]
    values = np.stack([read_image(place) for place in places]) / 255
    mean, std = mean_and_std(places)
    assert np.allclose(mean, values.mean((0, 1, 2)), atol=1e-5)
    assert np.allclose(std, values.std((0, 1, 2)), atol=1e-5)
    black = at(tmp_path, coded(Image.new("L", (9, 9))), "black.png")
    assert mean_and_std([black], 1) == ((0.0,), (0.003922,))


def test_files_that_cannot_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = at(tmp_path, png())
    monkeypatch.setattr("headway.data.media_sources.MAX_FILE_BYTES", 100)
    assert Images().probe(place) == MediaError(Flaw.LARGE, f"has {len(png())} bytes where 100 are allowed")
    assert probe(Images(), MediaLocation(tmp_path / "gone.png")) == MediaError(Flaw.MISSING, "is gone")
    (tmp_path / "folder.png").mkdir()
    assert Images().probe(MediaLocation(tmp_path / "folder.png", size=9)) == MediaError(
        Flaw.IMAGE, "cannot be read: Is a directory"
    )
