"""Reads the headers of a Linux library or program, without running it.

Only these parts are read: the machine, the dynamic linker, the library's own name, the required
libraries and their symbol versions, the exported and imported names, and the build id.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Set, Tuple

_SHT_STRTAB_LINKED = {"dynamic": 6, "note": 7, "dynsym": 11, "verneed": 0x6FFFFFFE}
_PT_INTERP = 3
_DT_NEEDED = 1
_DT_SONAME = 14
_NT_GNU_BUILD_ID = 3
_MACHINES = {3: "i686", 21: "ppc64le", 40: "armv7l", 62: "x86_64", 183: "aarch64", 243: "riscv64"}


_SECTION_SIZE = 64
_SEGMENT_SIZE = 56
_MOST_WORK = 1 << 26
"""The most bytes of tables and names that are read from one file, whatever sizes it declares."""


class NotElf(ValueError):
    """Raised for a file that is damaged, or not a 64-bit little-endian ELF library or program."""


@dataclass
class Elf:
    """The headers of a library or program."""

    path: Path
    machine: str
    interpreter: Optional[str] = None
    """The dynamic linker; None for most libraries, and for a program that is linked statically."""
    soname: Optional[str] = None
    needed: List[str] = field(default_factory=list)
    """Names of the libraries that it needs."""
    exports: Set[str] = field(default_factory=set)
    imports: Set[str] = field(default_factory=set)
    versions: Dict[str, Set[str]] = field(default_factory=dict)
    """Symbol versions that it needs, by library: {"libc.so.6": {"GLIBC_2.34", ...}}."""
    build_id: Optional[str] = None


@dataclass
class _Section:
    kind: int
    offset: int
    size: int
    link: int


def read(path: Path) -> Elf:
    """Reads a library or program. Raises NotElf for other files, OSError for an unreadable one."""
    return _Reader(Path(path)).read()


class _Reader:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._data = path.read_bytes()
        self._left = _MOST_WORK
        if self._data[:6] != b"\x7fELF\x02\x01" or len(self._data) < 64:
            raise NotElf(f"{path} is no 64-bit library or program of Linux")

    def read(self) -> Elf:
        try:
            return self._read()
        except (struct.error, IndexError, ValueError, OverflowError) as error:
            raise NotElf(f"{self._path} is damaged: {error}") from error

    def _read(self) -> Elf:
        (machine,) = struct.unpack_from("<H", self._data, 18)
        elf = Elf(self._path, _MACHINES.get(machine, f"machine {machine}"))
        elf.interpreter = self._interpreter()
        sections = self._sections()
        for section in sections:
            if section.kind == _SHT_STRTAB_LINKED["dynamic"]:
                self._dynamic(section, sections[section.link], elf)
            elif section.kind == _SHT_STRTAB_LINKED["dynsym"]:
                self._symbols(section, sections[section.link], elf)
            elif section.kind == _SHT_STRTAB_LINKED["verneed"]:
                self._versions(section, sections[section.link], elf)
            elif section.kind == _SHT_STRTAB_LINKED["note"]:
                elf.build_id = elf.build_id or self._build_id(section)
        return elf

    def _spend(self, size: int) -> None:
        """Counts bytes read. ValueError beyond the limit, since tables may overlap or form
        cycles."""
        self._left -= size
        if self._left < 0:
            raise ValueError("its tables are too large, or refer to each other in a circle")

    def _text(self, offset: int) -> str:
        text = self._data[offset : self._data.index(b"\0", offset, offset + self._left + 1)]
        self._spend(len(text))
        return text.decode("utf-8", "replace")

    def _interpreter(self) -> Optional[str]:
        (start,) = struct.unpack_from("<Q", self._data, 32)
        size, count = struct.unpack_from("<HH", self._data, 54)
        if count and size != _SEGMENT_SIZE:
            raise ValueError(f"its segments have {size} bytes each")
        for i in range(count):
            self._spend(size)
            kind, _, offset = struct.unpack_from("<IIQ", self._data, start + i * size)
            if kind == _PT_INTERP:
                return self._text(offset)
        return None

    def _sections(self) -> List[_Section]:
        (start,) = struct.unpack_from("<Q", self._data, 40)
        size, count = struct.unpack_from("<HH", self._data, 58)
        if count and size != _SECTION_SIZE:
            raise ValueError(f"its sections have {size} bytes each")
        sections = []
        for i in range(count):
            self._spend(size)
            at = start + i * size
            (kind,) = struct.unpack_from("<I", self._data, at + 4)
            offset, length, link = struct.unpack_from("<QQI", self._data, at + 24)
            sections.append(_Section(kind, offset, length, link))
        return sections

    def _dynamic(self, section: _Section, strings: _Section, elf: Elf) -> None:
        for at in range(section.offset, section.offset + section.size, 16):
            self._spend(16)
            tag, value = struct.unpack_from("<qQ", self._data, at)
            if tag == _DT_NEEDED:
                elf.needed.append(self._text(strings.offset + value))
            elif tag == _DT_SONAME:
                elf.soname = self._text(strings.offset + value)

    def _symbols(self, section: _Section, strings: _Section, elf: Elf) -> None:
        for at in range(section.offset + 24, section.offset + section.size, 24):
            self._spend(24)
            name, _, _, index = struct.unpack_from("<IBBH", self._data, at)
            names = elf.exports if index != 0 else elf.imports
            names.add(self._text(strings.offset + name))

    def _versions(self, section: _Section, strings: _Section, elf: Elf) -> None:
        at = section.offset
        while True:
            self._spend(16)
            _, count, file, first, following = struct.unpack_from("<HHIII", self._data, at)
            names = elf.versions.setdefault(self._text(strings.offset + file), set())
            entry = at + first
            for _ in range(count):
                self._spend(16)
                _, _, _, name, next_entry = struct.unpack_from("<IHHII", self._data, entry)
                names.add(self._text(strings.offset + name))
                entry += next_entry
            if following == 0:
                return
            at += following

    def _build_id(self, section: _Section) -> Optional[str]:
        for kind, name, content in self._notes(section):
            if kind == _NT_GNU_BUILD_ID and name == b"GNU\0":
                return content.hex()
        return None

    def _notes(self, section: _Section) -> Iterator[Tuple[int, bytes, bytes]]:
        at, end = section.offset, section.offset + section.size
        while at + 12 <= end:
            self._spend(12)
            name_size, size, kind = struct.unpack_from("<III", self._data, at)
            name_at = at + 12
            content_at = name_at + (name_size + 3) // 4 * 4
            yield (
                kind,
                self._data[name_at : name_at + name_size],
                self._data[content_at : content_at + size],
            )
            at = content_at + (size + 3) // 4 * 4
