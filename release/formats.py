"""Reads Windows' and macOS's libraries and programs: their exports and dependencies."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import List, Optional, Set

from common import fail


@dataclass
class Binary:
    """The headers of a library or program."""

    machine: str
    exports: Set[str] = field(default_factory=set)
    needed: List[str] = field(default_factory=list)
    name: Optional[str] = None
    """The install name of a Mach-O library."""
    oldest: Optional[str] = None
    """The oldest macOS on which it runs."""
    is_signed: bool = False
    """True for a Mach-O file with an ad-hoc signature whose hashes match its pages."""


def read_pe(path: Path) -> Binary:
    """Reads a library or program for Windows (PE32+)."""
    data = path.read_bytes()
    if data[:2] != b"MZ":
        fail(f"{path.name} is not a Windows library or program")
    (start,) = struct.unpack_from("<I", data, 0x3C)
    if data[start : start + 4] != b"PE\0\0":
        fail(f"{path.name} has no PE header")
    machine, count = struct.unpack_from("<HH", data, start + 4)
    (optional_size,) = struct.unpack_from("<H", data, start + 20)
    optional = start + 24
    if struct.unpack_from("<H", data, optional) != (0x20B,):
        fail(f"{path.name} is not 64-bit")
    sections = []
    for i in range(count):
        at = optional + optional_size + 40 * i
        size, address, raw_size, raw = struct.unpack_from("<IIII", data, at + 8)
        sections.append((address, max(size, raw_size), raw))

    def place(address: int) -> int:
        for first, size, raw in sections:
            if first <= address < first + size:
                return int(address - first + raw)
        return fail(f"{path.name}: {address:#x} is in no section")

    def text(address: int) -> str:
        at = place(address)
        return data[at : data.index(b"\0", at)].decode()

    found = Binary({0x8664: "x86_64", 0xAA64: "aarch64"}.get(machine, hex(machine)))
    exports, _, imports, _ = struct.unpack_from("<IIII", data, optional + 112)
    if exports:
        at = place(exports)
        (n_names,) = struct.unpack_from("<I", data, at + 24)
        (names,) = struct.unpack_from("<I", data, at + 32)
        for (name,) in struct.iter_unpack("<I", data[place(names) :][: 4 * n_names]):
            found.exports.add(text(name))
    if imports:
        at = place(imports)
        while (name := struct.unpack_from("<I", data, at + 12)[0]) != 0:
            found.needed.append(text(name).lower())
            at += 20
    return found


def read_mach_o(path: Path) -> Binary:
    """Reads a 64-bit library or program for macOS, for one processor."""
    data = path.read_bytes()
    magic, processor, _, _, count, _, _, _ = struct.unpack_from("<IIIIIIII", data, 0)
    if magic != 0xFEEDFACF:
        fail(f"{path.name} is not a 64-bit macOS library or program for one processor")
    machines = {0x01000007: "x86_64", 0x0100000C: "aarch64"}
    found = Binary(machines.get(processor, hex(processor)))

    def text(at: int) -> str:
        return data[at : data.index(b"\0", at)].decode()

    at = 32
    for _ in range(count):
        command, size = struct.unpack_from("<II", data, at)
        if command in (0xC, 0xD):
            name = text(at + struct.unpack_from("<I", data, at + 8)[0])
            if command == 0xD:
                found.name = name
            else:
                found.needed.append(name)
        elif command == 0x32:
            (version,) = struct.unpack_from("<I", data, at + 12)
            found.oldest = f"{version >> 16}.{version >> 8 & 255}"
        elif command == 0x1D:
            found.is_signed = _is_signed(data, *struct.unpack_from("<I", data, at + 8))
        elif command == 0x2:
            symbols, n_symbols, strings, _ = struct.unpack_from("<IIII", data, at + 8)
            for i in range(n_symbols):
                name_at, kind, _, _, _ = struct.unpack_from("<IBBHQ", data, symbols + 16 * i)
                # Defined, global, and neither private nor a debugging entry.
                if kind & 0xE0 == 0 and kind & 0x0E == 0x0E and kind & 0x11 == 0x01:
                    found.exports.add(text(strings + name_at).removeprefix("_"))
        at += size
    return found


def _is_signed(data: bytes, at: int) -> bool:
    """Returns whether the code directory of the signature has the right SHA-256 of every page."""
    _, _, count = struct.unpack_from(">III", data, at)
    for kind, offset in struct.iter_unpack(">II", data[at + 12 :][: 8 * count]):
        if kind == 0:
            directory = at + offset
            first, _, _, n_pages, end = struct.unpack_from(">IIIII", data, directory + 16)
            size, _, _, bits = struct.unpack_from("BBBB", data, directory + 36)
            pages = [data[i << bits : min(i + 1 << bits, end)] for i in range(n_pages)]
            hashes = data[directory + first :]
            return pages != [] and all(
                hashlib.sha256(page).digest() == hashes[i * size :][:size]
                for i, page in enumerate(pages)
            )
    return False
