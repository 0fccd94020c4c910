"""Copies a DLL that MinGW linked, and marks its imports in the copy as Microsoft's linker does:

mark_imports.py sealed FROM TO            makes the imports read-only
mark_imports.py delayed FROM TO ADDRESS   sets the table of imports resolved at the first call
"""

import struct
import sys

WRITABLE = 0x80000000
DELAYED_IMPORTS = 13

mark, source, target, *address = sys.argv[1:]
with open(source, "rb") as file:
    data = bytearray(file.read())


def number(kind, at):
    return struct.unpack_from(kind, data, at)[0]


headers = number("<I", 0x3C)
optional = headers + 24
if mark == "sealed":
    first = optional + number("<H", headers + 20)
    sections = range(first, first + 40 * number("<H", headers + 6), 40)
    imports = [at for at in sections if data[at : at + 8].rstrip(b"\0") == b".idata"]
    if len(imports) != 1:
        sys.exit(f"{source} has {len(imports)} sections .idata")
    flags = imports[0] + 36
    struct.pack_into("<I", data, flags, number("<I", flags) & ~WRITABLE)
else:
    # One descriptor of 32 bytes.
    table = int(address[0], 16) - number("<Q", optional + 24)
    struct.pack_into("<II", data, optional + 112 + 8 * DELAYED_IMPORTS, table, 32)
with open(target, "wb") as file:
    file.write(data)
