//! Reads exports, imports and build id of a Linux library or program, without running it.
//!
//! The file may be malicious. Apart from its headers, the amount that is read is bounded: one table
//! of symbols with its names, the path of the dynamic linker, and a few notes. Sections that
//! overlap, or that have invalid sizes, do not increase this amount.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};

use object::Endianness;
use object::elf::{self, FileHeader64, SectionHeader64, Sym64};
use object::read::ReadCache;
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader, SectionTable, Sym};

type Header = FileHeader64<Endianness>;
type Data<'a> = &'a ReadCache<File>;
type Sections<'a> = SectionTable<'a, Header, Data<'a>>;
type Parsed<T> = Result<T, Box<dyn std::error::Error>>;

/// The prefix of the names of llama.cpp's functions and of this library's. Other names are not
/// kept.
const OF_INTEREST: &[u8] = b"llama_";

const LONGEST_NAME: usize = 256;

/// The size in bytes of the largest table of symbols that is read, and of the largest table of
/// names.
const LARGEST_TABLE: u64 = 256 << 20;

/// The most sections of notes that are searched for the build id.
const MOST_NOTES: usize = 64;
const LARGEST_NOTE: u64 = 64 << 10;

/// A library or program.
pub struct Elf {
    pub path: PathBuf,
    /// The dynamic linker; `None` for a library or a statically linked program.
    pub interpreter: Option<PathBuf>,
    /// The exported names that begin with [`OF_INTEREST`].
    pub exports: BTreeSet<String>,
    /// The imported names that begin with [`OF_INTEREST`].
    pub imports: BTreeSet<String>,
    pub build_id: Option<String>,
}

/// Reads a file. The error says why it cannot be read.
pub fn read(path: &Path) -> Result<Elf, String> {
    let told = |why: String| format!("{}: {why}", path.display());
    let file = open(path).map_err(told)?;
    let data = ReadCache::new(file);
    let header = Header::parse(&data);
    let header = header.map_err(|_| told("it is no 64-bit library or program of Linux".into()))?;
    parse(path, header, &data).map_err(|error| told(format!("it is damaged: {error}")))
}

/// Opens a file, which must be regular: a pipe, for example, might never end.
fn open(path: &Path) -> Result<File, String> {
    let metadata = std::fs::metadata(path).map_err(|error| error.to_string())?;
    if !metadata.is_file() {
        return Err("it is no regular file".to_owned());
    }
    File::open(path).map_err(|error| error.to_string())
}

fn parse(path: &Path, header: &Header, data: Data) -> Parsed<Elf> {
    let endian = header.endian()?;
    let sections = header.sections(endian, data)?;
    let mut elf = Elf {
        path: path.to_owned(),
        interpreter: interpreter(header, endian, data)?,
        exports: BTreeSet::new(),
        imports: BTreeSet::new(),
        build_id: build_id(&sections, endian, data),
    };
    let mut all = sections.iter();
    if let Some(symbols) = all.find(|section| section.sh_type(endian) == elf::SHT_DYNSYM) {
        read_names(&mut elf, symbols, &sections, endian, data)?;
    }
    Ok(elf)
}

fn interpreter(header: &Header, endian: Endianness, data: Data) -> Parsed<Option<PathBuf>> {
    for segment in header.program_headers(endian, data)? {
        // Without this limit, a path could be as long as the file.
        if segment.p_filesz(endian) > 4096 {
            continue;
        }
        if let Some(path) = segment.interpreter(endian, data)? {
            return Ok(Some(String::from_utf8_lossy(path).into_owned().into()));
        }
    }
    Ok(None)
}

fn read_names(
    elf: &mut Elf,
    symbols: &SectionHeader64<Endianness>,
    sections: &Sections,
    endian: Endianness,
    data: Data,
) -> Parsed<()> {
    let strings = sections.section(symbols.link(endian))?;
    let size = symbols.sh_size(endian).max(strings.sh_size(endian));
    if size > LARGEST_TABLE {
        return Err("its table of symbols is too large".into());
    }
    let strings = strings.data(endian, data)?;
    let symbols: &[Sym64<Endianness>] = symbols.data_as_array(endian, data)?;
    for symbol in symbols {
        let Some(name) = name_at(strings, symbol.st_name(endian)) else {
            continue;
        };
        let is_import = symbol.st_shndx(endian) == elf::SHN_UNDEF;
        let names = if is_import {
            &mut elf.imports
        } else {
            &mut elf.exports
        };
        names.insert(name);
    }
    Ok(())
}

/// Returns the name at an offset if it begins with [`OF_INTEREST`].
fn name_at(strings: &[u8], offset: u32) -> Option<String> {
    let rest = strings.get(usize::try_from(offset).ok()?..)?;
    let rest = rest.get(..LONGEST_NAME).unwrap_or(rest);
    if !rest.starts_with(OF_INTEREST) {
        return None;
    }
    let end = rest.iter().position(|&byte| byte == 0)?;
    std::str::from_utf8(&rest[..end]).ok().map(str::to_owned)
}

fn build_id(sections: &Sections, endian: Endianness, data: Data) -> Option<String> {
    let is_note = |section: &&SectionHeader64<Endianness>| {
        section.sh_type(endian) == elf::SHT_NOTE && section.sh_size(endian) <= LARGEST_NOTE
    };
    for section in sections.iter().filter(is_note).take(MOST_NOTES) {
        let Ok(Some(notes)) = section.notes(endian, data) else {
            continue;
        };
        for note in notes.flatten() {
            if note.name() == elf::ELF_NOTE_GNU && note.n_type(endian) == elf::NT_GNU_BUILD_ID {
                let digits = note.desc().iter().map(|byte| format!("{byte:02x}"));
                return Some(digits.collect());
            }
        }
    }
    None
}

/// Returns the reason why a preload library has no effect on a program; `None` if there is no such
/// reason.
pub fn out_of_reach(program: &Path) -> Option<&'static str> {
    if runs_with_more_rights(program) {
        return Some(
            "it runs with more rights than its user has, so that LD_PRELOAD does not count",
        );
    }
    // The file may be a script. Its interpreter gets the environment.
    let elf = read(program).ok()?;
    let statically = "it is linked statically, without a dynamic linker that would load anything";
    elf.interpreter.is_none().then_some(statically)
}

#[cfg(unix)]
fn runs_with_more_rights(program: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(program).is_ok_and(|found| found.permissions().mode() & 0o6000 != 0)
}

#[cfg(not(unix))]
fn runs_with_more_rights(_program: &Path) -> bool {
    false
}
