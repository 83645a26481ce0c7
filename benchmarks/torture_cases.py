"""What `torture.py` does to runs, files and inputs: made-up damage, the same for each number."""

from __future__ import annotations

import gzip
import io
import os
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np

Damage = Callable[[random.Random, bytes], bytes]

DEEP = b"[" * 100_000
LONG = b"9" * 10_000


def flipped(dice: random.Random, data: bytes) -> bytes:
    """One bit is another."""
    made, place = bytearray(data or b"\0"), dice.randrange(max(len(data), 1))
    made[place] ^= 1 << dice.randrange(8)
    return bytes(made)


def replaced(dice: random.Random, data: bytes) -> bytes:
    """A few bytes are others."""
    made = bytearray(data or b"\0")
    for _ in range(dice.randrange(1, 9)):
        made[dice.randrange(len(made))] = dice.randrange(256)
    return bytes(made)


def cut(dice: random.Random, data: bytes) -> bytes:
    """The end is missing."""
    return data[: dice.randrange(len(data) + 1)]


def without_part(dice: random.Random, data: bytes) -> bytes:
    """A part in the middle is missing."""
    start = dice.randrange(len(data) + 1)
    return data[:start] + data[start + dice.randrange(1, 200) :]


def with_more(dice: random.Random, data: bytes) -> bytes:
    """Something is in it that was not."""
    place = dice.randrange(len(data) + 1)
    return data[:place] + dice.randbytes(dice.randrange(1, 200)) + data[place:]


def zeroed(dice: random.Random, data: bytes) -> bytes:
    """A block is zeros, as after a power cut."""
    start = dice.randrange(len(data) + 1) & ~511
    return data[:start] + bytes(min(512, len(data) - start)) + data[start + 512 :]


def swapped_lines(dice: random.Random, data: bytes) -> bytes:
    """Two lines have changed places."""
    lines = data.split(b"\n")
    one, other = dice.randrange(len(lines)), dice.randrange(len(lines))
    lines[one], lines[other] = lines[other], lines[one]
    return b"\n".join(lines)


def other_number(dice: random.Random, data: bytes) -> bytes:
    """A number is another one: wrong, huge, or none at all."""
    found = list(re.finditer(rb"-?\d+(\.\d+)?(e-?\d+)?", data))
    if not found:
        return replaced(dice, data)
    chosen = dice.choice(found)
    other = dice.choice(
        [b"0", b"-1", b"200000", b"20000", b"1e308", b"NaN", b"null", b'"x"', b"[]", b"true", LONG]
    )
    return data[: chosen.start()] + other + data[chosen.end() :]


def other_line(dice: random.Random, data: bytes) -> bytes:
    """A line is missing, there twice, or nonsense."""
    lines = data.split(b"\n")
    place = dice.randrange(len(lines))
    lines[place : place + 1] = dice.choice(
        [[], [lines[place]] * 2, [b"\xff\x00\x1b[2J"], [b"a = " + DEEP], [b'"\\u202e": ' + LONG]]
    )
    return b"\n".join(lines)


def something_else(dice: random.Random, data: bytes) -> bytes:
    """The file is another one altogether."""
    hostile = b"cos\nsystem\n(S'touch executed'\ntR."  # a pickle that would run a command
    other = [b"", b"\n", b"{}", b"[]", b"null", b"5", b"PK\x03\x04", b"\x1f\x8b"]
    del data
    return dice.choice([*other, DEEP, LONG, hostile, dice.randbytes(300)])


DAMAGES: tuple[Damage, ...] = (
    *(flipped, flipped, replaced, cut, without_part, with_more, zeroed),
    *(swapped_lines, other_number, other_number, other_line, something_else),
)


#: What a run can do without: who removes it, means to.
OPTIONAL = ("calibration.json", "metrics.jsonl", "results", "verdict.json")


def damage_file(dice: random.Random, path: Path, elsewhere: Path, optional: bool) -> str:
    """Damage a file in some way, or put something else in its place; says how."""
    if dice.random() < 0.06:
        kind = dice.choice(["pipe", "device", "link", "folder", "gone"])
        kind = "pipe" if optional and kind == "gone" else kind
        path.unlink()
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "folder":
            path.mkdir()
        elif kind != "gone":
            path.symlink_to("/dev/zero" if kind == "device" else elsewhere)
        return kind
    damage = dice.choice(DAMAGES)
    path.write_bytes(damage(dice, path.read_bytes()))
    return damage.__name__


# Inputs

WORDS = ("the", "dog", "sees", "a", "house", "Mr.", "1,000", "don't", "...", "<unk>", "<eos>", "é")
STRANGE = (
    "\x1b[31m",
    "\u202e",
    "\u200b",
    "\x00",
    "=1+1",
    "@x",
    '"',
    "'",
    "\r",
    "\ud7ff",
    "😀",
    ",",
)


def text_input(dice: random.Random, base: bytes) -> bytes:
    """A text: plain, strange, of other encodings, packed, or damaged."""
    kind = dice.randrange(7)
    words = " ".join(dice.choice(WORDS + STRANGE * (kind > 2)) for _ in range(dice.randrange(400)))
    if kind == 0:
        return base[: dice.randrange(len(base))]
    if kind == 1:
        return words.encode(dice.choice(["utf-8", "utf-16", "utf-8-sig", "utf-32"]))
    if kind == 2:
        packed = gzip.compress(words.encode())
        return dice.choice([packed, cut(dice, packed), packed + packed, replaced(dice, packed)])
    if kind == 3:
        return dice.randbytes(dice.randrange(500))
    if kind == 4:
        return (dice.choice(WORDS) * 5000 + "\n" + words).encode()
    return dice.choice(DAMAGES)(dice, (words + "\n" + base[:500].decode()).encode())


def table_input(dice: random.Random, base: bytes) -> bytes:
    """A table: with strange cells and habits, or damaged."""
    if dice.random() < 0.4:
        return dice.choice(DAMAGES)(dice, base[: dice.randrange(200, 4000)])
    if dice.random() < 0.2:
        return text_input(dice, base)
    mark, columns = dice.choice(",;\t|"), dice.randrange(1, 5)
    cells = ("1", "-2.5", "1e400", "nan", "", "1,5", "2026-01-01", "01.02.2026", "x", *STRANGE)
    rows = [["text", "date", "value", "id"][:columns]]
    for day in range(dice.randrange(60)):
        row = [dice.choice(cells) for _ in range(columns)]
        if columns > 1 and dice.random() < 0.9:
            row[1] = f"2026-{1 + day // 28:02}-{1 + day % 28:02}"
        rows.append(row if dice.random() < 0.95 else row * 2)
    return "\n".join(mark.join(row) for row in rows).encode("utf-8", "surrogatepass")


def image_input(dice: random.Random, base: bytes) -> bytes:
    """An image: of many sizes and kinds, with impossible headers, or damaged."""
    kind = dice.randrange(4)
    if kind == 0:
        width, height = (dice.choice([0, 1, 7, 300, 65_536, 80_000_000, 10**12]) for _ in "12")
        return f"P6 {width} {height} 255\n".encode() + dice.randbytes(100)
    if kind == 1:
        return dice.choice(DAMAGES)(dice, base)
    from PIL import Image

    mode = dice.choice(["1", "L", "P", "RGB", "RGBA", "CMYK", "I;16", "LA", "F"])
    size = (dice.randrange(1, 60), dice.randrange(1, 60))
    wanted = {"CMYK": "JPEG", "F": "TIFF", "I;16": "TIFF"}.get(mode, dice.choice(["PNG", "TIFF"]))
    file = io.BytesIO()
    Image.new(mode, size).save(file, wanted)
    data = file.getvalue()
    return data if kind == 2 else dice.choice(DAMAGES)(dice, data)


def features_input(dice: random.Random, base: bytes) -> bytes:
    """An .npz file: of other arrays, with a pickle, a bomb, or damaged."""
    if dice.random() < 0.6:
        return dice.choice(DAMAGES)(dice, base)
    file = io.BytesIO()
    shape = dice.choice([(0,), (3,), (2, 1280), (3, 1280), (1, 2, 3), ()])
    kind = dice.choice([np.float16, np.float64, np.int8, object, "U5", np.complex64])
    numbers = np.zeros(shape, kind) if dice.random() < 0.8 else np.full(shape, np.nan)
    names = np.array(dice.choice([["a", "b", "c"], ["a", "a", "b"], [1, 2, 3], []]))
    np.savez_compressed(file, names=names, features=numbers)
    return file.getvalue()


def idx_input(dice: random.Random, base: bytes) -> bytes:
    """A file of MNIST's format: with lengths that lie, or damaged."""
    lengths = b"".join(dice.choice([0, 1, 28, 2**31]).to_bytes(4, "big") for _ in range(3))
    made = bytes([0, 0, 8, dice.choice([1, 3, 255])]) + lengths + dice.randbytes(28 * 28)
    made = gzip.compress(made) if dice.random() < 0.3 else made
    del base
    return made if dice.random() < 0.5 else dice.choice(DAMAGES)(dice, made)


INPUTS = {
    "text": text_input,
    "table": table_input,
    "series": table_input,
    "image": image_input,
    "features": features_input,
    "digits": idx_input,
}


def fresh_copy(source: Path, target: Path) -> Path:
    """A copy of a run or a file in place of what is left of an earlier one."""
    if target.is_dir() and not target.is_symlink():
        shutil.rmtree(target)
    elif target.exists() or target.is_symlink():
        target.unlink()
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copyfile(source, target)
    return target


def files_of(run: Path) -> list[str]:
    """The files of a run that can be damaged, by their path in it."""
    paths = (path for path in run.rglob("*") if path.is_file() and path.name != ".lock")
    return sorted(str(path.relative_to(run)) for path in paths)
