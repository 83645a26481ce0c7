"""The user's image files: their pixels, as an image network expects them."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import torch
from torch import Tensor

from bayesrnn.errors import ConfigError, CorpusError, MissingExtraError
from bayesrnn.untrusted import limit_from, read_regular

if TYPE_CHECKING:
    from PIL import Image

_SHORTER_SIDE = 256
_CROP = 224

#: What is read, and the names that a folder is searched for. Formats that Pillow hands on to other
#: programs (PostScript) are left out: an image must not be able to run anything.
_FORMATS: Final = {
    "AVIF": (".avif",),
    "BMP": (".bmp",),
    "GIF": (".gif",),
    "JPEG": (".jpg", ".jpeg"),
    "JPEG2000": (".jp2",),
    "PNG": (".png",),
    "PPM": (".pgm", ".ppm"),
    "TIFF": (".tif", ".tiff"),
    "WEBP": (".webp",),
}
_ENDINGS: Final = tuple(ending for endings in _FORMATS.values() for ending in endings)

#: Modes of one 16-bit number a pixel.
_SIXTEEN_BITS: Final = ("I", "I;16", "I;16B", "I;16L", "I;16N")

_PREVIEW_SIDE = 400
_PREVIEW_QUALITY = 80

#: Environment variable for the most million pixels of an image; and the longest side, which is
#: that of a JPEG file.
_MOST_PIXELS, _USUAL_MEGAPIXELS = "BAYESRNN_IMAGE_MEGAPIXELS", 90
_LONGEST_SIDE = 65_535

_ADVICE = "give a JPEG, PNG, WebP, GIF, TIFF or BMP file"


@dataclass(frozen=True)
class Preview:
    """A small JPEG file of a whole image, to be shown, and its size."""

    content: bytes
    width: int
    height: int


@dataclass(frozen=True)
class Photograph:
    """An image from a file.

    pixels: uint8 `[3, 224, 224]`, red, green and blue of the middle, where the shorter side of the
        whole is 256 long.
    preview: None where it was not asked for.
    """

    pixels: Tensor
    preview: Preview | None


def image_files(given: Sequence[Path]) -> list[Path]:
    """The files of `given`, where a folder stands for the images in it, sorted by name."""
    found: list[Path] = []
    for path in given:
        if path.is_dir():
            found += _images_in(path)
        elif path.is_file():
            found.append(path)
        elif path.exists():
            raise CorpusError(f"{path} is not a file; {_ADVICE}")
        else:
            raise CorpusError(f"there is no file {path}; check the path")
    return found


def read_photograph(path: Path, with_preview: bool = False) -> Photograph:
    """Decode an image file, the right way up.

    What is transparent becomes white, other kinds of colour become red, green and blue, and of
    several frames the first is taken.
    """
    return _photograph(_decoded(_content(path), str(path)), with_preview)


def photograph_of(content: bytes, name: str, most_pixels: int) -> Photograph:
    """The same of the bytes of a file that messages call `name`; larger ones are not decoded."""
    return _photograph(_decoded(content, name, most_pixels), with_preview=False)


def _photograph(whole: Image.Image, with_preview: bool) -> Photograph:
    pixels = torch.from_numpy(np.array(_middle(whole))).permute(2, 0, 1).contiguous()
    return Photograph(pixels, _preview(whole) if with_preview else None)


def _images_in(folder: Path) -> list[Path]:
    try:
        inside = sorted(path for path in folder.iterdir() if path.is_file())
    except OSError as error:
        raise CorpusError(f"the folder {folder} cannot be read: {error.strerror}") from None
    # Files that begin with a dot are what other programs left there (macOS: ._name.jpg).
    images = [
        path for path in inside if path.suffix.lower() in _ENDINGS and not path.name.startswith(".")
    ]
    if not images:
        raise CorpusError(
            f"the folder {folder} has no images, which are files that end in "
            f"{', '.join(_ENDINGS)}; give another folder, or files"
        )
    return images


def _middle(whole: Image.Image) -> Image.Image:
    """The crop of the scaled image, without making the rest of it: that can be very long."""
    from PIL import Image

    scale = _SHORTER_SIDE / min(whole.size)
    box: list[float] = []
    for side in whole.size:
        scaled = max(_SHORTER_SIDE, round(side * scale))
        before = (scaled - _CROP) // 2
        box += [before * side / scaled, (before + _CROP) * side / scaled]
    left, right, top, bottom = box
    return whole.resize((_CROP, _CROP), Image.Resampling.BICUBIC, (left, top, right, bottom))


def _preview(whole: Image.Image) -> Preview:
    """Pixels alone: what the file says beside them (place, comment, names) must not leave with it.

    Pillow would write some of it again, a comment among others.
    """
    whole.thumbnail((_PREVIEW_SIDE, _PREVIEW_SIDE))
    whole.info.clear()
    content = io.BytesIO()
    whole.save(content, "JPEG", quality=_PREVIEW_QUALITY)
    return Preview(content.getvalue(), *whole.size)


def _content(path: Path) -> bytes:
    try:
        return read_regular(path)
    except OSError as error:
        raise CorpusError(f"{path} cannot be read: {error.strerror}") from None


def _decoded(content: bytes, name: str, most_pixels: int | None = None) -> Image.Image:
    """A decoded image, of at most as many pixels as given, or as the environment allows."""
    try:
        from PIL import UnidentifiedImageError
    except ImportError:
        raise MissingExtraError(
            "reading image files needs an extra: pip install 'bayesrnn[captions]'"
        ) from None
    try:
        with warnings.catch_warnings(), _without_limit():
            warnings.simplefilter("ignore")  # of oddities that do not keep it from being shown
            with _opened(content) as image:
                _require_size(image, name, most_pixels)
                return _upright(image, name)
    except (CorpusError, ConfigError):
        raise
    except UnidentifiedImageError:
        raise CorpusError(f"{name} is not an image that can be read; {_ADVICE}") from None
    except Exception as error:  # decoders meet damaged files with errors of all kinds
        reason = " ".join(str(error).split()) or type(error).__name__
        raise CorpusError(
            f"{name} is damaged or was cut short ({reason}); get it again, or {_ADVICE}"
        ) from error


@contextmanager
def _without_limit() -> Iterator[None]:
    """Without the limit of Pillow, in whose place ours stands; opening unpacks nothing."""
    from PIL import Image

    usual, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
    try:
        yield
    finally:
        Image.MAX_IMAGE_PIXELS = usual


def _require_size(image: Image.Image, name: str, most: int | None) -> None:
    """Refuse what takes too much memory, before it is unpacked."""
    advice = "make it smaller"
    if most is None:
        most = limit_from(_MOST_PIXELS, _USUAL_MEGAPIXELS) * 1_000_000
        advice += f", or set {_MOST_PIXELS} to more million pixels"
    width, height = image.size
    if width * height > most or max(width, height) > _LONGEST_SIDE:
        raise CorpusError(
            f"{name} has {width:,} x {height:,} pixels, and at most {most / 1e6:g} million "
            f"are read, {_LONGEST_SIDE:,} on a side; {advice}"
        )


def _opened(content: bytes) -> Image.Image:
    """An image whose size is known, and whose pixels are not decoded yet."""
    from PIL import Image

    Image.init()
    formats = [name for name in _FORMATS if name in Image.OPEN]  # not every Pillow has them all
    return Image.open(io.BytesIO(content), formats=formats)


def _upright(image: Image.Image, name: str) -> Image.Image:
    from PIL import ImageOps

    ImageOps.exif_transpose(image, in_place=True)
    return _red_green_blue(image, name)


def _red_green_blue(image: Image.Image, name: str) -> Image.Image:
    from PIL import Image

    if image.mode == "F":
        raise CorpusError(f"{name} has floating-point numbers for pixels; {_ADVICE}")
    if image.mode in _SIXTEEN_BITS:
        high = np.asarray(image).astype(np.int64).clip(0, 0xFFFF) >> 8
        image = Image.fromarray(high.astype(np.uint8))
    if image.has_transparency_data:
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image.convert("RGBA"))
    return image.convert("RGB")
