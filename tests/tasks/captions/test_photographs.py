"""Image files of every kind to pixels, and what is said of those that are none."""

from __future__ import annotations

import contextlib
import io
import sys
import warnings

import numpy as np
import pytest
import torch

from bayesrnn.errors import ConfigError, CorpusError, MissingExtraError
from bayesrnn.tasks.captions.photographs import image_files, read_photograph

Image = pytest.importorskip("PIL.Image", reason="the extra `captions` brings Pillow")

RED, GREEN, BLUE = (200, 30, 40), (20, 180, 60), (10, 40, 220)


def halves(size=(300, 400), left=RED, right=BLUE):
    """An image of two colours, side by side."""
    image = Image.new("RGB", size, left)
    image.paste(right, (size[0] // 2, 0, *size))
    return image


def saved(image, path, *arguments, **options):
    image.save(path, *arguments, **options)
    return path


def colour(pixels, row, column):
    return tuple(pixels[:, row, column].tolist())


def near(found, wanted, by=3):
    return all(abs(a - b) <= by for a, b in zip(found, wanted, strict=True))


def smooth(size, seed=0):
    """An image without sharp edges, so that rounding shows less than a wrong place would."""
    small = np.random.default_rng(seed).integers(0, 256, (12, 9, 3), dtype=np.uint8)
    return Image.fromarray(small).resize(size, Image.Resampling.BICUBIC)


@pytest.mark.parametrize("size", [(640, 480), (333, 517), (224, 300), (256, 256), (100, 61)])
def test_pixels_are_those_of_the_scaled_and_cropped_image(tmp_path, size):
    image = smooth(size)
    found = read_photograph(saved(image, tmp_path / "a.png")).pixels
    scale = 256 / min(size)
    scaled = image.resize(tuple(round(side * scale) for side in size), Image.Resampling.BICUBIC)
    left, top = ((side - 224) // 2 for side in scaled.size)
    wanted = np.asarray(scaled.crop((left, top, left + 224, top + 224))).astype(int)
    assert found.dtype == torch.uint8
    assert found.shape == (3, 224, 224)
    assert found.is_contiguous()
    apart = np.abs(found.permute(1, 2, 0).numpy().astype(int) - wanted)
    assert apart.max() <= 2, "rounding, once for each direction"
    assert apart.mean() < 0.05, "a shift by one pixel makes it 1 and more"


def test_channels_rows_and_columns(tmp_path):
    found = read_photograph(saved(halves(), tmp_path / "a.png")).pixels
    assert colour(found, 100, 20) == RED
    assert colour(found, 5, 200) == BLUE


@pytest.mark.parametrize(
    ("ending", "options"),
    [
        ("jpg", {"quality": 95}),
        ("png", {}),
        ("webp", {"lossless": True}),
        ("bmp", {}),
        ("tif", {}),
        ("tif", {"compression": "tiff_lzw"}),
        ("ppm", {}),
        ("gif", {}),
        ("jp2", {}),
    ],
)
def test_every_format(tmp_path, ending, options):
    try:
        path = saved(halves(), tmp_path / f"a.{ending}", **options)
    except (KeyError, OSError):
        pytest.skip(f"this Pillow cannot write {ending}")
    found = read_photograph(path).pixels
    assert near(colour(found, 100, 20), RED, by=8)
    assert near(colour(found, 100, 200), BLUE, by=8)


def test_the_name_says_nothing_about_the_format(tmp_path):
    path = tmp_path / "picture"
    path.write_bytes(saved(halves(), tmp_path / "a.png").read_bytes())
    assert colour(read_photograph(path).pixels, 0, 0) == RED


@pytest.mark.parametrize("ending", ["jpg", "png", "tif", "webp"])
def test_the_rotation_that_a_camera_notes_is_honoured_once(tmp_path, ending):
    upright = halves((300, 300), GREEN, BLUE).rotate(-90)  # green above, blue below
    lying = upright.transpose(Image.Transpose.ROTATE_90)
    exif = Image.Exif()
    exif[0x0112] = 6  # to be shown, turn it by 90 degrees clockwise
    options = {"quality": 95} if ending == "jpg" else {"lossless": True} if ending == "webp" else {}
    found = read_photograph(saved(lying, tmp_path / f"a.{ending}", exif=exif, **options))
    assert near(colour(found.pixels, 20, 112), GREEN)
    assert near(colour(found.pixels, 200, 112), BLUE)


def test_the_preview_is_upright_small_and_bare(tmp_path):
    exif = Image.Exif()
    exif[0x0112], exif[0x010F] = 6, "maker of the camera"
    image = halves((1200, 900))
    path = saved(image, tmp_path / "a.jpg", exif=exif, quality=95)
    found = read_photograph(path, with_preview=True).preview
    preview = Image.open(io.BytesIO(found.content))
    assert preview.format == "JPEG"
    assert preview.size == (found.width, found.height) == (300, 400)
    assert near(preview.getpixel((150, 20)), RED, by=6)
    assert near(preview.getpixel((150, 380)), BLUE, by=6)
    assert read_photograph(path).preview is None, "nobody asked for it"


@pytest.mark.parametrize("ending", ["jpg", "png", "tif", "webp"])
def test_nothing_but_pixels_leaves_with_a_preview(tmp_path, ending):
    exif = Image.Exif()
    exif[0x010E] = "SECRET exif"
    hidden = {
        "exif": exif,
        "comment": b"SECRET comment",
        "xmp": b"<x:xmpmeta>SECRET xmp</x:xmpmeta>",
        "icc_profile": b"SECRET profile",
        "dpi": (72, 72),
    }
    path = saved(smooth((300, 200)), tmp_path / f"a.{ending}", **hidden)
    assert b"SECRET" in path.read_bytes(), "some formats do not keep all of it"
    found = read_photograph(path, with_preview=True).preview.content
    assert b"SECRET" not in found
    with Image.open(io.BytesIO(found)) as preview:
        assert set(preview.info) <= {"jfif", "jfif_version", "jfif_unit", "jfif_density"}
    bare = saved(smooth((300, 200)), tmp_path / f"b.{ending}")
    assert found == read_photograph(bare, with_preview=True).preview.content


def test_a_small_image_has_a_preview_of_its_size(tmp_path):
    found = read_photograph(saved(halves((30, 20)), tmp_path / "a.png"), with_preview=True).preview
    assert (found.width, found.height) == (30, 20)


def test_greyscale(tmp_path):
    found = read_photograph(saved(Image.new("L", (50, 50), 77), tmp_path / "a.png")).pixels
    assert (found == 77).all()


def test_black_and_white(tmp_path):
    found = read_photograph(saved(Image.new("1", (50, 50), 1), tmp_path / "a.png")).pixels
    assert (found == 255).all()


def test_cmyk(tmp_path):
    image = Image.new("CMYK", (50, 50), (0, 255, 255, 0))
    found = read_photograph(saved(image, tmp_path / "a.jpg", quality=95)).pixels
    assert near(colour(found, 9, 9), (255, 0, 0), by=4)


@pytest.mark.parametrize(("alpha", "wanted"), [(0, (255, 255, 255)), (255, RED)])
def test_what_is_transparent_is_white(tmp_path, alpha, wanted):
    found = read_photograph(saved(Image.new("RGBA", (50, 50), (*RED, alpha)), tmp_path / "a.png"))
    assert colour(found.pixels, 9, 9) == wanted


def test_what_is_half_transparent_is_half_white(tmp_path):
    image = Image.new("LA", (50, 50), (0, 51))
    found = read_photograph(saved(image, tmp_path / "a.png")).pixels
    assert near(colour(found, 9, 9), (204, 204, 204), by=1)


def test_a_palette(tmp_path):
    image = halves().quantize(4)
    assert image.mode == "P"
    found = read_photograph(saved(image, tmp_path / "a.png")).pixels
    assert near(colour(found, 9, 200), BLUE)


def test_a_palette_with_a_transparent_colour(tmp_path):
    image = halves().quantize(4)
    path = saved(image, tmp_path / "a.png", transparency=image.getpixel((0, 0)))
    found = read_photograph(path).pixels
    assert colour(found, 9, 9) == (255, 255, 255)
    assert near(colour(found, 9, 200), BLUE)


@pytest.mark.parametrize("ending", ["png", "tif"])
def test_sixteen_bits(tmp_path, ending):
    values = np.full((50, 50), 0x8040, dtype=np.uint16)
    path = saved(Image.fromarray(values), tmp_path / f"a.{ending}")
    assert (read_photograph(path).pixels == 0x80).all()


def test_sixteen_bits_as_text_of_numbers(tmp_path):
    path = tmp_path / "a.pgm"
    path.write_bytes(b"P5 2 2 65535\n" + b"\x80\x40" * 4)
    assert (read_photograph(path).pixels == 0x80).all()


def test_the_first_frame_of_a_moving_picture(tmp_path):
    frames = [Image.new("RGB", (40, 40), shade) for shade in (GREEN, RED, BLUE)]
    path = saved(frames[0], tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    assert near(colour(read_photograph(path).pixels, 9, 9), GREEN)


@pytest.mark.parametrize("size", [(1, 1), (1, 5000), (5000, 1), (2, 3)])
def test_strange_sizes(tmp_path, size):
    path = saved(Image.new("RGB", size, GREEN), tmp_path / "a.png")
    found = read_photograph(path, with_preview=True)
    assert (found.pixels.flatten(1) == torch.tensor(GREEN)[:, None]).all()
    assert max(found.preview.width, found.preview.height) <= 400


def refused(path, *words):
    with pytest.raises(CorpusError) as caught:
        read_photograph(path)
    message = str(caught.value)
    assert message.count(str(path)) == 1
    assert "\n" not in message
    for word in words:
        assert word in message


@pytest.mark.parametrize("content", [b"", b"not an image", b"%PDF-1.4", b"<svg/>", bytes(5000)])
def test_a_file_that_is_no_image(tmp_path, content):
    path = tmp_path / "a.jpg"
    path.write_bytes(content)
    refused(path, "is not an image", "JPEG, PNG")


def test_postscript_is_not_run(tmp_path):
    path = tmp_path / "a.jpg"
    path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\n")
    refused(path, "is not an image")


@pytest.mark.parametrize("ending", ["jpg", "png", "bmp", "tif", "gif", "webp"])
@pytest.mark.parametrize("share", [0.95, 0.5])
def test_a_truncated_image(tmp_path, ending, share):
    noise = np.random.default_rng(0).integers(0, 256, (99, 99, 3), dtype=np.uint8)
    path = saved(Image.fromarray(noise), tmp_path / f"a.{ending}")
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    refused(path, "JPEG, PNG")


def test_damaged_bytes_never_end_in_another_error(tmp_path):
    generator = np.random.default_rng(0)
    kinds = {"jpg": {}, "png": {}, "gif": {}, "tif": {"compression": "tiff_lzw"}, "webp": {}}
    for ending, options in kinds.items():
        path = saved(smooth((40, 30)), tmp_path / f"a.{ending}", **options)
        whole = np.frombuffer(path.read_bytes(), np.uint8)
        for _ in range(40):
            damaged = whole.copy()
            damaged[generator.integers(len(whole), size=8)] = generator.integers(256, size=8)
            path.write_bytes(damaged.tobytes())
            with contextlib.suppress(CorpusError):
                assert read_photograph(path).pixels.shape == (3, 224, 224)


def test_an_image_that_is_too_large(tmp_path, monkeypatch):
    path = saved(Image.new("RGB", (1500, 1500)), tmp_path / "a.png")
    monkeypatch.setenv("BAYESRNN_IMAGE_MEGAPIXELS", "2")
    refused(path, "1,500 x 1,500 pixels", "at most 2 million", "BAYESRNN_IMAGE_MEGAPIXELS")
    monkeypatch.setenv("BAYESRNN_IMAGE_MEGAPIXELS", "3")
    assert read_photograph(path).pixels.shape == (3, 224, 224)
    monkeypatch.setenv("BAYESRNN_IMAGE_MEGAPIXELS", "many")
    with pytest.raises(ConfigError, match="whole number above 0"):
        read_photograph(path)


def test_the_limit_of_pillow_is_not_in_the_way_and_stays(tmp_path, monkeypatch):
    path = saved(Image.new("RGB", (300, 300)), tmp_path / "a.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    assert read_photograph(path).pixels.shape == (3, 224, 224)
    assert Image.MAX_IMAGE_PIXELS == 1000


def test_an_image_that_is_too_long(tmp_path):
    # A header is enough: nothing of the pixels may be unpacked.
    path = tmp_path / "a.ppm"
    path.write_bytes(b"P6 1 80000000 255\n")
    refused(path, "1 x 80,000,000 pixels", "65,535 on a side")


def test_floating_point_pixels(tmp_path):
    refused(saved(Image.new("F", (5, 5), 0.5), tmp_path / "a.tif"), "floating-point")


def test_warnings_are_left_as_they_were(tmp_path):
    path = saved(halves(), tmp_path / "a.png")
    before = list(warnings.filters)
    read_photograph(path)
    assert warnings.filters == before


def test_a_file_that_cannot_be_opened(tmp_path):
    refused(tmp_path / "gone.jpg", "No such file")


def test_files_and_folders(tmp_path):
    folder = tmp_path / "folder"
    (folder / "inner.png").mkdir(parents=True)
    for name in ("b.JPG", "a.png", "c.webp", "notes.txt", ".hidden.jpg"):
        (folder / name).touch()
    single = tmp_path / "single"
    single.touch()
    found = image_files([single, folder, single])
    assert found == [single, folder / "a.png", folder / "b.JPG", folder / "c.webp", single]


def test_no_files(tmp_path):
    with pytest.raises(CorpusError, match=r"there is no file .*missing.jpg; check the path"):
        image_files([tmp_path / "missing.jpg"])
    (tmp_path / "notes.txt").touch()
    with pytest.raises(CorpusError, match=r"has no images, which are files that end in \.avif, "):
        image_files([tmp_path])
    with pytest.raises(CorpusError, match="/dev/null is not a file"):
        image_files([type(tmp_path)("/dev/null")])


def test_without_pillow(tmp_path, monkeypatch):
    path = saved(halves(), tmp_path / "a.png")
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'bayesrnn\[captions\]'"):
        read_photograph(path)
