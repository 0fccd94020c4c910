"""Tests `run`, `doctor` and the wheel in separate processes."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import missing

import llama_sieve
from llama_sieve import _elf, _library, doctor, launch
from llama_sieve.__main__ import main

HERE = Path(llama_sieve.__file__).parent


@pytest.fixture
def preload():
    if not _library.PRELOAD.is_file():
        missing("the preload library is not beside the package: the wheel is not installed")


def command(*arguments, given=None, **environment):
    return subprocess.run(
        [sys.executable, "-m", "llama_sieve", *arguments],
        input=given,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


def test_a_program_runs_with_the_preload_library(preload):
    ran = command("run", "--", "cat", "/proc/self/maps", "/dev/null")
    assert ran.returncode == 0 and str(_library.PRELOAD) in ran.stdout
    ran = command("run", "sh", "-c", "exit 7")
    assert ran.returncode == 7


ATTACHED = """
import llama_sieve, sys
try:
    llama_sieve.attach()
except llama_sieve.NoHostError as error:
    assert "load it first" in str(error), error
assert llama_sieve.detach() == 0
import llama_cpp
n = llama_sieve.attach()
assert n > 0 and llama_sieve.attach() == 0
with open("/proc/self/maps") as maps:
    assert sys.argv[1] in maps.read()
b = llama_cpp.llama_cpp
chain = b.llama_sampler_chain_init(b.llama_sampler_chain_default_params())
b.llama_sampler_chain_add(chain, b.llama_sampler_init_top_k(40))
b.llama_sampler_free(chain)
gone = llama_sieve.detach()
assert 0 < gone <= n and llama_sieve.detach() == 0
assert llama_sieve.attach() == gone
print("attached")
"""


def test_the_process_is_attached_to_and_detached(preload, llama_cpp):
    ran = subprocess.run(
        [sys.executable, "-c", ATTACHED, str(_library.PRELOAD)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0 and ran.stdout == "attached\n", ran.stderr


def test_a_library_that_only_serves_python_is_silent(preload):
    """The package loads the preload library. In a process that only imports the package, it must
    not replace any function of llama.cpp, and must print nothing."""
    program = "import llama_sieve, ctypes; llama_sieve.version(); print(ctypes.CDLL(None).{})"
    for name in ("llama_sampler_init_top_k", "llama_sieve_version"):
        for start in ([], [sys.executable, "-m", "llama_sieve", "run", "--"]):
            ran = subprocess.run(
                [*start, sys.executable, "-c", program.format(name)],
                env={**os.environ, "LLAMA_SIEVE_VERBOSE": "1"},
                capture_output=True,
                text=True,
            )
            is_found = bool(start) and name.startswith("llama_sampler")
            assert (ran.returncode == 0) == is_found, ran.stderr
            assert ("undefined symbol" in ran.stderr) != is_found, ran.stderr
            assert ("preload library" in ran.stderr) == bool(start), ran.stderr


def test_the_doctor_tells_a_package_from_a_preloaded_library(preload):
    program = (
        "import llama_sieve, sys; llama_sieve.version(); print('ready', flush=True); "
        "sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout.readline() == b"ready\n"
    report, _ = reported(process.pid)
    process.communicate()
    assert "but not by its LD_PRELOAD" in report["remarks"][0]


TWO = """
import ctypes, shutil, sys
import llama_sieve, llama_cpp
other = sys.argv[1]
b = llama_cpp.llama_cpp
shutil.copy(b._lib._name, other)
ctypes.CDLL(other)
llama_sieve.bind_host(other)
# As a program's call does, by the linker.
make = ctypes.CDLL(None).llama_sampler_init_top_k
make.restype = ctypes.c_void_p
assert make(40)
"""


def test_a_host_that_python_has_named_stays_so(preload, llama_cpp, tmp_path):
    """Python uses the preloaded library: samplers of another llama.cpp stay its own, and the
    binding that Python has made stays."""
    arguments = ["run", "--verbose", "--", sys.executable, "-c", TWO, str(tmp_path / "other.so")]
    ran = command(*arguments)
    assert ran.returncode == 0, ran.stderr
    expected = "top-k(k=40): llama.cpp's own: llama_sieve_bind_host has named another llama.cpp"
    assert expected in ran.stderr


def test_the_environment_keeps_what_was_there(preload):
    after = launch.environment({"PYTHONPATH": "x", "HOME": "h"})
    assert after["PYTHONPATH"].endswith(os.pathsep + "x") and after["HOME"] == "h"
    assert launch.environment({})["PYTHONPATH"].endswith("_site")
    ran = command("run", "--", "env", LD_PRELOAD=str(_library.library._name))
    assert f"\nLD_PRELOAD={_library.PRELOAD}:{_library.library._name}\n" in ran.stdout


def test_the_program_is_the_wheels_own(preload):
    assert f"; library {llama_sieve.version()} (" in command("--version").stdout
    ran = command("schema", "--compact", "-", given='{"type": "boolean"}')
    assert ran.returncode == 0 and "true" in ran.stdout, ran.stderr
    text = command("--help").stdout
    for name in ("run", "doctor", "certify", "schema", "trace"):
        assert f"\n  {name} " in text
    # The messages and exit codes of a command are the program's, also for its options.
    alone = subprocess.run([launch.PROGRAM, "run", "--no"], capture_output=True, text=True)
    ran = command("run", "--no")
    assert (ran.returncode, ran.stderr) == (alone.returncode, alone.stderr) and ran.stderr


def test_a_package_without_the_program_says_so(monkeypatch, capfd, tmp_path):
    monkeypatch.setattr(launch, "PROGRAM", tmp_path / "none")
    for arguments, code in ((["run", "x"], 125), (["schema", "-"], 2), (["--help"], 2)):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == code
        assert "none cannot be run: No such file" in capfd.readouterr().err


PROGRAM = """
import sys, sitecustomize
sys.path_importer_cache.clear()
import llama_cpp
b = llama_cpp.llama_cpp
b.llama_sampler_free(b.llama_sampler_init_top_k(40))
print("before" in vars(sitecustomize), "llama_sieve" in sys.modules)
"""


def test_llama_cpp_python_is_patched_in_a_program_that_does_not_know(preload, llama_cpp, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("before = True\n")
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    arguments = ("run", "--verbose", "--", sys.executable, "-c", PROGRAM)
    ran = command(*arguments, PYTHONPATH=path)
    assert ran.returncode == 0, ran.stderr
    assert "llama-sieve: patch: top-k: ours" in ran.stderr
    assert ran.stdout.split() == ["True", "True"]


# Things that a program may do before it imports llama_cpp.
BEFORE = {
    "it looks whether it is there": """
import importlib.util
for _ in range(3):
    assert importlib.util.find_spec("llama_cpp").origin.endswith("__init__.py")
""",
    "its first import fails": """
import os, shutil, sys
broken = os.environ["BROKEN"]
sys.path.insert(0, broken)
try:
    import llama_cpp
except ImportError as error:
    assert "not yet" in str(error), error
else:
    raise SystemExit("it did not fail")
sys.path.remove(broken)
""",
    "it imports it twice": """
import sys
import llama_cpp
for name in [name for name in sys.modules if name.split(".")[0] == "llama_cpp"]:
    del sys.modules[name]
""",
    "it executes it by hand": """
import importlib.util, sys
spec = importlib.util.find_spec("llama_cpp")
module = sys.modules["llama_cpp"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
assert type(module.__loader__).__name__ == type(module.__spec__.loader).__name__
assert type(module.__loader__).__name__ == "SourceFileLoader"
""",
    "it imports it anew": """
import importlib
import llama_cpp
importlib.reload(llama_cpp)
""",
}


@pytest.mark.parametrize("before", BEFORE)
def test_llama_cpp_python_is_patched_whatever_came_before(preload, llama_cpp, tmp_path, before):
    broken = tmp_path / "llama_cpp"
    broken.mkdir()
    (broken / "__init__.py").write_text("raise ImportError('not yet')\n")
    program = (
        BEFORE[before]
        + """
import llama_cpp
b = llama_cpp.llama_cpp
b.llama_sampler_free(b.llama_sampler_init_top_k(40))
print(type(llama_cpp.llama_sampler_init_top_k).__module__)
"""
    )
    arguments = ("run", "--verbose", "--", sys.executable, "-c", program)
    ran = command(*arguments, BROKEN=str(tmp_path))
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr.count("llama-sieve: patch: top-k: ours") == 1, ran.stderr
    assert "not patched" not in ran.stderr
    assert ran.stdout == "llama_sieve.patching\n"


@pytest.mark.parametrize(
    "content, says",
    [
        ("import no_such_module_at_all\n", "no_such_module_at_all"),
        ("raise ImportError('mine')\n", "mine"),
        ("raise ValueError('mine')\n", "mine"),
    ],
)
def test_what_goes_wrong_in_the_programs_own_sitecustomize_is_told(
    preload, llama_cpp, tmp_path, content, says
):
    """The error is reported as without this package, and llama-cpp-python is patched
    nevertheless."""
    (tmp_path / "sitecustomize.py").write_text(content)
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    program = "import sys; print('sitecustomize' in sys.modules, 'llama_cpp' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": path}
    alone = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment
    )
    assert says in alone.stderr
    ran = command("run", "--", sys.executable, "-c", program, PYTHONPATH=path)
    # Printed by the launcher, which is also a Python program, and by the program.
    assert (ran.stdout, ran.stderr) == (alone.stdout, 2 * alone.stderr)
    loads = "import llama_cpp; print(type(llama_cpp.llama_sampler_init_top_k).__module__)"
    ran = command("run", "--", sys.executable, "-c", loads, PYTHONPATH=path)
    assert ran.stdout == "llama_sieve.patching\n", ran.stderr


def test_a_program_without_llama_cpp_python_is_left_alone(preload):
    program = "import sys; print('llama_sieve' in sys.modules, 'sitecustomize' in sys.modules)"
    ran = command("run", "--", sys.executable, "-S", "-c", program)
    assert ran.returncode == 0 and ran.stdout.startswith("False")


@pytest.mark.parametrize("arguments", [("run", "--", "\x1b[2Jno\nne"), ("doctor", "\x1b[2J\x9bno")])
def test_what_is_no_printable_character_is_escaped(preload, arguments):
    ran = command(*arguments)
    assert "\x1b" not in ran.stderr and "\x9b" not in ran.stderr and "\\u{1b}[2J" in ran.stderr


@pytest.mark.parametrize(
    "arguments, status, says",
    [
        (("run",), 2, "which program"),
        (("run", "--", "no-such-program-at-all"), 127, "no such program"),
        (("doctor", "no-such-thing-at-all"), 2, "no process, library or program"),
        (("doctor", str(HERE / "__init__.py")), 2, "no 64-bit library or program"),
        (("wrong",), 2, "there is no command"),
        ((), 2, "which command?"),
        (("doctor", "--wrong"), 2, "--wrong"),
        (("trace",), 2, "FILE"),
    ],
)
def test_wrong_arguments_are_answered(preload, arguments, status, says):
    ran = command(*arguments)
    assert ran.returncode == status and says in ran.stderr and "Traceback" not in ran.stderr


def reported(*arguments):
    ran = command("doctor", "--json", *map(str, arguments))
    assert ran.returncode in (0, 1), ran.stderr
    return json.loads(ran.stdout), ran.returncode


def test_the_doctor_knows_this_pythons_llama_cpp(preload, llama_cpp):
    report, code = reported()
    (found,) = report["hosts"]
    assert found["path"] == str(Path(llama_cpp.llama_cpp._lib._name).resolve())
    assert found["kinds"]["top-k"] == "" and code == 0
    # In the format of the program, which does not know what patch() does.
    assert set(found["kinds"]) == set(llama_sieve.KINDS) and found["since"] >= 10_394
    ran = command("doctor")
    assert ran.returncode == 0 and "\n  ours: greedy, dist" in ran.stdout, ran.stderr
    assert "what llama_sieve.patch() would do" in ran.stdout
    text = json.dumps({**report, "hosts": [{**found, "kinds": {"dry": "it \x1b differs"}}]})
    ran = command(".report", given=text)
    assert ran.returncode == 1 and "its own: dry: it \\u{1b} differs" in ran.stdout


def test_the_doctor_leaves_this_python_as_it_is(preload, llama_cpp):
    found = doctor.report()["hosts"]
    assert found[0]["kinds"]["dist"] == ""
    assert not any(
        isinstance(value, llama_sieve.patching._Constructor)
        for value in vars(llama_cpp.llama_cpp).values()
    )


def test_the_doctor_without_a_llama_cpp_says_so(preload, tmp_path):
    (tmp_path / "llama_cpp.py").write_text("raise ImportError('broken \x1b')")
    ran = command("doctor", PYTHONPATH=os.pathsep.join([str(tmp_path), str(HERE.parent)]))
    assert ran.returncode == 1 and "cannot be imported: broken \\u{1b}" in ran.stdout
    program = "import sys; sys.modules['llama_cpp'] = None; from llama_sieve import doctor; "
    told = [sys.executable, "-c", program + "sys.exit(doctor.tell(False))"]
    ran = subprocess.run(told, capture_output=True, text=True)
    assert ran.returncode == 1 and "llama-cpp-python is not installed here" in ran.stdout


def test_the_doctor_tries_a_library(preload, llama_cpp):
    report, code = reported(llama_cpp.llama_cpp._lib._name)
    (found,) = report["hosts"]
    assert code == 0 and found["kinds"]["dist"] == "" and found["since"] >= 10_394
    # The program has the kinds of this package, and grammars.
    assert set(found["kinds"]) == {*llama_sieve.KINDS, "grammar"}
    ran = command("doctor", llama_cpp.llama_cpp._lib._name, LLAMA_SIEVE_HOST="4000")
    assert "its own: dry:" in ran.stdout and "b4000" in ran.stdout
    assert "program's vocabulary: infill, grammar" in ran.stdout


def test_the_doctor_looks_at_a_process(preload, llama_cpp):
    path = llama_cpp.llama_cpp._lib._name
    program = (
        f"import ctypes, sys; ctypes.CDLL({path!r}); print('ready', flush=True); sys.stdin.read()"
    )
    for start in ([], [sys.executable, "-m", "llama_sieve", "run", "--"]):
        process = subprocess.Popen(
            [*start, sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert process.stdout.readline() == b"ready\n"
        report, _ = reported(process.pid)
        process.communicate()
        assert [found["path"] for found in report["hosts"]] == [str(Path(path).resolve())]
        assert ("is in the process" in report["remarks"][0]) == bool(start)


def test_the_doctor_says_what_cannot_be_reached(preload):
    for path in (sys.executable, _library.PRELOAD):
        report, code = reported(path)
        assert code == 1 and "No llama.cpp here" in report["remarks"][-1]


def test_what_a_library_asks_for_is_read_as_readelf_reads_it():
    if shutil.which("readelf") is None:
        missing("readelf is not installed")
    for path in (Path(_library.library._name), Path(sys.executable).resolve()):
        elf = _elf.read(path)
        dynamic = subprocess.run(["readelf", "-Wd", path], capture_output=True, text=True).stdout
        assert elf.needed == re.findall(r"NEEDED.*\[(.+)\]", dynamic)
        versions = subprocess.run(["readelf", "-WV", path], capture_output=True, text=True).stdout
        needs = re.split("(?i)version needs section", versions)[1]
        told = {name for names in elf.versions.values() for name in names}
        assert told == set(re.findall(r"Name: (\S+)", needs))
        names = subprocess.run(
            ["readelf", "-W", "--dyn-syms", path], capture_output=True, text=True
        )
        defined = re.findall(r"(?:GLOBAL|WEAK)\s+\S+\s+\d+ ([^@\s]+)", names.stdout)
        assert set(defined) <= elf.exports


def test_what_is_no_library_is_refused(tmp_path):
    for content in (b"", b"\x7fELF", b"\x7fELF\x02\x01" + b"\xff" * 70):
        path = tmp_path / "file"
        path.write_bytes(content)
        with pytest.raises(_elf.NotElf):
            _elf.read(path)


def pretended(*sections, size=64, rest=b""):
    """Returns a file with these sections, each given by type, offset, size and link."""
    head = bytearray(b"\x7fELF\x02\x01\x01".ljust(64, b"\0"))
    struct.pack_into("<Q", head, 40, 64)
    struct.pack_into("<HHH", head, 54, 56, 0, size)
    struct.pack_into("<H", head, 60, len(sections))
    tables = (
        struct.pack("<IIQQQQIIQQ", 0, kind, 0, 0, offset, length, link, 0, 0, 0)
        for kind, offset, length, link in sections
    )
    return bytes(head) + b"".join(tables) + rest


MANY = 20_000
BEHIND = 64 + 64 * MANY
ZEROS = b"\0" * 4_800_000
VERSIONS = struct.pack("<HHIII", 1, 10_000, 0, 0, 16) * 30_000


@pytest.mark.parametrize(
    "content",
    [
        pretended(*[(11, 64, 4_000_000, 0)] * 65_535, size=0),
        pretended(*[(11, BEHIND, len(ZEROS), 0)] * MANY, rest=ZEROS),
        pretended(*[(7, BEHIND, len(ZEROS), 0)] * MANY, rest=ZEROS),
        pretended((0x6FFFFFFE, 192, 64, 1), (3, 10, 1, 0), rest=VERSIONS),
        pretended(
            (11, 192, len(ZEROS), 1),
            (3, 192 + len(ZEROS), 8_000_001, 0),
            rest=ZEROS + b"n" * 8_000_000 + b"\0",
        ),
    ],
    ids=["sections of no size", "many symbols", "many notes", "many versions", "long names"],
)
def test_what_pretends_to_be_a_library_is_answered_soon(tmp_path, content):
    path = tmp_path / "lib.so"
    path.write_bytes(content)
    # Processor time, because other processes may be running.
    begun = time.process_time()
    with contextlib.suppress(_elf.NotElf):
        _elf.read(path)
    assert time.process_time() - begun < 60


def test_the_wheels_tag_is_honest(preload):
    """The newest glibc version that the libraries require is the one in the tag, and they require
    nothing that a Linux of that age may lack."""
    (wheel,) = HERE.parent.glob("llama_sieve-*.dist-info/WHEEL")
    tag = re.search(r"Tag: py3-none-(\S+)", wheel.read_text()).group(1)
    newest = 0
    for name in ("libllama_sieve_preload.so", "llama-sieve"):
        listed = subprocess.run(["readelf", "-WV", HERE / name], capture_output=True, text=True)
        newest = max([newest, *map(int, re.findall(r"GLIBC_2\.(\d+)", listed.stdout))])
        listed = subprocess.run(["readelf", "-Wd", HERE / name], capture_output=True, text=True)
        assert set(re.findall(r"NEEDED.*\[(.+?)\.so", listed.stdout)) <= {
            "libc",
            "libm",
            "libgcc_s",
            f"ld-linux-{os.uname().machine.replace('_', '-')}",
        }
    assert tag == f"manylinux_2_{newest}_{os.uname().machine}"


def test_an_unwinder_that_is_missing_is_named(tmp_path):
    """As on Alpine, where libgcc_s may not be installed."""
    library = tmp_path / _library.PRELOAD.name
    content = _library.PRELOAD.read_bytes()
    library.write_bytes(content.replace(b"libgcc_s.so.1\0", b"libgcc_s.so.9\0"))
    variables = {**os.environ, "LLAMA_SIEVE_LIBRARY": str(library)}
    command = [sys.executable, "-c", "import llama_sieve; llama_sieve.version()"]
    ended = subprocess.run(command, env=variables, capture_output=True, text=True)
    assert ended.returncode == 1
    assert "libgcc_s.so.9" in ended.stderr and "apk add libgcc" in ended.stderr
