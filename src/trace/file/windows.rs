use std::ffi::c_void;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::windows::fs::{MetadataExt, OpenOptionsExt};
use std::os::windows::io::AsRawHandle;

use super::Refusal;

#[link(name = "kernel32")]
unsafe extern "system" {
    fn GetFileInformationByHandle(file: *mut c_void, told: *mut [u32; 13]) -> i32;
    fn GetFileType(file: *mut c_void) -> u32;
}

/// The flag that lets other processes read the file meanwhile, but not write it.
const SHARED_FOR_READING: u32 = 1;
/// The flag that opens a link itself, not its target.
const LINK_ITSELF: u32 = 0x0020_0000;
/// The level of impersonation that gives the server of a pipe of this name no rights of this user.
const ANONYMOUS: u32 = 0;
/// The attribute of a link.
const IS_LINK: u32 = 0x400;
/// The type of a file on a disk.
const ON_DISK: u32 = 1;
/// The error code if another process has the file open for writing.
const SHARING_VIOLATION: i32 = 32;
/// The index of the volume's serial number in the information about a file.
const VOLUME: usize = 7;
/// The index of the number of links (names).
const NAMES: usize = 10;
/// The index of the first half of the file index; the other half is next.
const NUMBER: usize = 11;

/// The volume's serial number and both halves of the file index.
pub(super) type Identity = [u32; 3];

/// Returns the identity of the file that the handle refers to now; an error if it is closed.
pub(super) fn identity(file: &File) -> io::Result<Identity> {
    let told = information(file)?;
    Ok([told[VOLUME], told[NUMBER], told[NUMBER + 1]])
}

fn information(file: &File) -> io::Result<[u32; 13]> {
    let mut told = [0; 13];
    // SAFETY: there is room for the information; a closed handle is an error.
    if unsafe { GetFileInformationByHandle(file.as_raw_handle(), &raw mut told) } == 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(told)
}

/// Opens a file without truncating it. Fails if another process is writing it. The permissions of
/// its folder apply.
pub(super) fn open(path: &str) -> Result<File, Refusal> {
    let opened = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .share_mode(SHARED_FOR_READING)
        .custom_flags(LINK_ITSELF)
        .security_qos_flags(ANONYMOUS)
        .open(path);
    let file = opened.map_err(|error| match error.raw_os_error() {
        Some(SHARING_VIOLATION) => Refusal::InUse,
        _ => Refusal::Other(error),
    })?;
    let handle = file.as_raw_handle();
    // SAFETY: the file is open.
    if unsafe { GetFileType(handle) } != ON_DISK {
        return Err(Refusal::Device);
    }
    let metadata = file.metadata()?;
    if metadata.file_attributes() & IS_LINK != 0 {
        return Err(Refusal::Link);
    }
    if !metadata.is_file() {
        return Err(Refusal::NoFile);
    }
    if information(&file)?[NAMES] != 1 {
        return Err(Refusal::Foreign);
    }
    Ok(file)
}
