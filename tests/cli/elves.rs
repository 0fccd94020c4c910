//! Tests that files which only pretend to be libraries are refused at once.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;

use vendor_llama_cpp::paths;

use crate::toolchain::empty_folder;
use crate::{answer, call, installed};

/// The processor time, in seconds, within which each file must be refused. It suffices on any
/// machine, while a program that does not bound its work needs minutes for one of these files.
const AT_ONCE: libc::rlim_t = 20;

const SHT_DYNSYM: u32 = 11;
const SHT_NOTE: u32 = 7;
const SHT_STRTAB: u32 = 3;
const SHT_SYMTAB_SHNDX: u32 = 18;

/// Returns a 64-bit ELF header that is followed by `sections` section headers of `size` bytes. The
/// names of the sections are in the section with the index `names`.
fn header(sections: u16, size: u16, names: u16) -> Vec<u8> {
    let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
    bytes.resize(64, 0);
    bytes[16] = 3;
    bytes[18] = 62;
    bytes[40..48].copy_from_slice(&64u64.to_le_bytes());
    bytes[54..56].copy_from_slice(&56u16.to_le_bytes());
    bytes[58..60].copy_from_slice(&size.to_le_bytes());
    bytes[60..62].copy_from_slice(&sections.to_le_bytes());
    bytes[62..64].copy_from_slice(&names.to_le_bytes());
    bytes
}

fn section(kind: u32, offset: u64, size: u64, link: u32) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    bytes[4..8].copy_from_slice(&kind.to_le_bytes());
    bytes[24..32].copy_from_slice(&offset.to_le_bytes());
    bytes[32..40].copy_from_slice(&size.to_le_bytes());
    bytes[40..44].copy_from_slice(&link.to_le_bytes());
    bytes
}

/// Returns a file with as many sections as the header can count, each of which covers the whole
/// file.
fn many(kind: u32) -> Vec<u8> {
    let n = u16::MAX - 1;
    let length = 64 + 64 * u64::from(n);
    let mut bytes = header(n, 64, 1);
    bytes.extend(section(0, 0, 0, 0));
    bytes.extend(section(SHT_STRTAB, 0, length, 0));
    for i in 2..n {
        // No two sections are equal, so that no cache helps. Each contains a whole number of
        // symbols.
        let size = length - 24 * u64::from(i % 8192);
        bytes.extend(section(kind, 0, size / 24 * 24, 1));
    }
    bytes
}

/// Returns a symbol table in which every name is a suffix of one long text.
fn long_names() -> Vec<u8> {
    let (symbols, names) = (200_000u64, 8_000_000u64);
    let mut bytes = header(3, 64, 2);
    bytes.extend(section(0, 0, 0, 0));
    bytes.extend(section(SHT_DYNSYM, 256, 24 * symbols, 2));
    bytes.extend(section(SHT_STRTAB, 256 + 24 * symbols, names, 0));
    for i in 0..symbols {
        let mut symbol = [0; 24];
        symbol[..4].copy_from_slice(&(6 * i as u32).to_le_bytes());
        bytes.extend(symbol);
    }
    bytes.extend(b"llama_".iter().cycle().take(names as usize));
    bytes
}

/// Makes the kernel end the command if it uses more than [`AT_ONCE`]. Time in which other processes
/// have the processor does not count.
fn at_once(mut command: Command) -> Command {
    let limit = libc::rlimit {
        rlim_cur: AT_ONCE,
        rlim_max: AT_ONCE,
    };
    // SAFETY: the child only makes a system call, with a limit that it has.
    unsafe {
        command.pre_exec(
            move || match libc::setrlimit(libc::RLIMIT_CPU, &raw const limit) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            },
        )
    };
    command
}

#[test]
fn what_pretends_to_be_a_library_is_answered_at_once() {
    let file = empty_folder("cli_elves").join("lib.so");
    // Cargo's build time does not count.
    installed();
    let cases = [
        ("nothing", Vec::new()),
        ("a header alone", header(0, 64, 0)),
        ("sections of no size", header(65_535, 0, 1)),
        ("sections behind the end", header(65_535, 64, 1)),
        ("many tables of symbols", many(SHT_DYNSYM)),
        ("many notes", many(SHT_NOTE)),
        ("many tables of indices", many(SHT_SYMTAB_SHNDX)),
        ("names without an end", long_names()),
        (
            "numbers of ones",
            [&header(0, 64, 0)[..16], &[0xFF; 80][..]].concat(),
        ),
    ];
    for (name, bytes) in cases {
        fs::write(&file, bytes).expect("the folder was just made");
        let doctor = at_once(call(&["doctor", &file.display().to_string()]));
        let (code, _, err) = answer(doctor);
        assert!(matches!(code, 1 | 2), "{name}: {code}, {err}");
    }
}

/// Checks a real library that is cut off anywhere, or has a wrong byte near its beginning.
#[test]
fn a_damaged_library_is_answered() {
    let library = fs::read(paths::shared_library()).expect("it was built");
    let file = empty_folder("cli_damaged").join("lib.so");
    let name = file.display().to_string();
    for length in [
        1,
        16,
        63,
        64,
        100,
        4096,
        library.len() / 2,
        library.len() - 1,
    ] {
        fs::write(&file, &library[..length]).expect("the folder was just made");
        let (code, _, err) = answer(call(&["doctor", &name]));
        assert!(matches!(code, 1 | 2), "{length}: {code}, {err}");
        assert!(!err.contains("panicked"), "{length}: {err}");
    }
    for at in (0..64).step_by(3) {
        let mut bytes = library.clone();
        bytes[at] ^= 0xFF;
        // The file is not loaded, since it has lost the names by which it would be recognized as
        // llama.cpp.
        let end = bytes.len();
        bytes[64 + 56 * 20..end]
            .iter_mut()
            .for_each(|byte| *byte |= 0x80);
        fs::write(&file, &bytes).expect("the folder was just made");
        let (code, _, err) = answer(call(&["doctor", &name]));
        assert!(
            matches!(code, 1 | 2) && !err.contains("panicked"),
            "{at}: {code}, {err}"
        );
    }
}
