//! The beginning of each constructor's stand-in, in assembly: it saves all arguments of the call,
//! decides, and either returns a sampler or jumps to the host's function with all registers
//! restored. So a call is passed on unchanged, whatever its argument list is.
//!
//! It saves the argument registers of the C calling conventions (System V x86-64, AAPCS64, Windows
//! x86-64) directly below the return address and the stacked arguments: see [`Saved`]. Frames are
//! described for the unwinder, since exceptions that the host throws during the decision pass
//! through them.
//!
//! On Windows integers and floating-point numbers share one numbering. The first four arguments are
//! in registers, whose kind depends on their types. The return address is followed by room for
//! these four, and then by the other arguments.

use std::ffi::c_void;
#[cfg(not(windows))]
use std::mem::transmute;

use llama_sieve::ffi::certificate::layouts::{Registers, confirmed};
use llama_sieve::ffi::host::libraries::Address;
use llama_sieve::ffi::host::llama_h::llama_sampler;

/// The number of integer arguments in registers.
#[cfg(all(target_arch = "x86_64", not(windows)))]
pub const INTEGERS: usize = 6;
#[cfg(target_arch = "aarch64")]
pub const INTEGERS: usize = 8;
#[cfg(windows)]
pub const INTEGERS: usize = 4;

/// The number of floating-point arguments in registers.
#[cfg(not(windows))]
pub const VECTORS: usize = 8;
#[cfg(windows)]
pub const VECTORS: usize = 4;

/// The number of other words that are saved. On x86-64 Linux: rax and two unused words. On AArch64:
/// x8, an unused word, and x29. On Windows: one unused word.
const OTHERS: usize = if cfg!(windows) { 1 } else { 3 };

/// The number of words between the return address and the stacked arguments.
const ROOM: usize = if cfg!(windows) { 4 } else { 0 };

/// The number of stack words that are copied if the host is called instead of jumped to.
const STACKED: usize = 16;

/// A call with its arguments, saved in the frame of its stand-in.
#[repr(C)]
#[derive(Debug)]
pub struct Saved {
    vectors: [[u64; 2]; VECTORS],
    integers: [usize; INTEGERS],
    _others: [usize; OTHERS],
    return_address: usize,
    _room: [usize; ROOM],
    /// The first of the arguments that are not in registers.
    stacked: [usize; 0],
}

/// The decision. If it has the host's function, the stand-in jumps there; otherwise it returns the
/// sampler, which may be NULL.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    sampler: *mut llama_sampler,
    host: Option<Address>,
}

impl Answer {
    pub const fn made(sampler: *mut llama_sampler) -> Self {
        Self {
            sampler,
            host: None,
        }
    }

    pub const fn theirs(host: Address) -> Self {
        Self {
            sampler: std::ptr::null_mut(),
            host: Some(host),
        }
    }
}

impl Saved {
    /// Returns an address in the calling function: the return address may be past its end, but not
    /// the address before it.
    pub fn caller(&self) -> Option<Address> {
        Address::new(self.return_address.wrapping_sub(1) as *mut c_void)
    }

    /// Returns the argument registers from which a constructor's known lists are read, and the
    /// stack.
    #[cfg(windows)]
    pub fn registers(&self) -> Registers {
        let stack = self.stack();
        let stack = stack.iter().copied();
        let mut integers = self.integers.into_iter().chain(stack.clone());
        let vectors = self.vectors.map(|[low, _]| low as usize);
        let mut vectors = vectors.into_iter().chain(stack);
        Registers {
            integers: std::array::from_fn(|_| integers.next().unwrap_or(0)),
            vectors: std::array::from_fn(|_| vectors.next().unwrap_or(0) as u32),
        }
    }

    /// Returns the argument registers from which a constructor's known lists are read.
    #[cfg(not(windows))]
    pub fn registers(&self) -> Registers {
        let mut integers = [0; 6];
        for (to, from) in integers.iter_mut().zip(self.integers) {
            *to = from;
        }
        Registers {
            integers,
            vectors: self.vectors.map(|[low, _]| low as u32),
        }
    }

    /// Calls the host's function with the saved arguments and the first words of the stack.
    ///
    /// # Safety
    /// `host` is the function that the call was meant for.
    #[cfg(windows)]
    pub unsafe fn call(&self, host: Address) -> *mut llama_sampler {
        // SAFETY: the caller guarantees the function, which gets the arguments with which the
        // program has called it.
        unsafe { llama_sieve_preload_pass_on(host.as_ptr(), self, &self.stack()) }
    }

    /// Calls the host's function with the saved arguments and the first words of the stack.
    ///
    /// # Safety
    /// `host` is the function that the call was meant for.
    #[cfg(not(windows))]
    pub unsafe fn call(&self, host: Address) -> *mut llama_sampler {
        let stack = self.stack();
        /// Calls the function with as many integers as there are registers, the vectors, and the
        /// stack words. In both calling conventions each kind of argument uses its own registers in
        /// turn, and the stack when they are used up.
        macro_rules! whole {
            ($($integer:literal)*) => {{
                type Word = usize;
                type Whole = unsafe extern "C-unwind" fn(
                    $(whole!(@ $integer Word),)*
                    f64, f64, f64, f64, f64, f64, f64, f64,
                    Word, Word, Word, Word, Word, Word, Word, Word,
                    Word, Word, Word, Word, Word, Word, Word, Word,
                ) -> *mut llama_sampler;
                let [a, b, c, d, e, f, g, h] =
                    self.vectors.map(|[low, _]| f64::from_bits(low));
                let [s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11, s12, s13, s14, s15] = stack;
                // SAFETY: the caller guarantees the function, which gets the arguments with which
                // the program has called it.
                unsafe {
                    transmute::<*mut c_void, Whole>(host.as_ptr())(
                        $(self.integers[$integer],)*
                        a, b, c, d, e, f, g, h,
                        s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11, s12, s13, s14, s15,
                    )
                }
            }};
            (@ $integer:literal $kind:ty) => { $kind };
        }
        #[cfg(target_arch = "x86_64")]
        return whole!(0 1 2 3 4 5);
        #[cfg(target_arch = "aarch64")]
        return whole!(0 1 2 3 4 5 6 7);
    }

    /// Returns the first words of the stack, with zeros beyond its end.
    fn stack(&self) -> [usize; STACKED] {
        let mut words = [0; STACKED];
        let start = self.stacked.as_ptr() as usize;
        for (i, word) in words.iter_mut().enumerate() {
            let mut bytes = [0; size_of::<usize>()];
            if !confirmed::read(start + i * size_of::<usize>(), &mut bytes) {
                break;
            }
            *word = usize::from_ne_bytes(bytes);
        }
        words
    }
}

/// The arguments of a call, which are read one after the other by a known list.
#[derive(Debug)]
pub struct Arguments<'a> {
    saved: &'a Saved,
    integers: usize,
    vectors: usize,
    stacked: usize,
}

/// The kind of register in which an argument is passed.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Integer,
    Vector,
}

/// A type that may occur in an argument list.
pub trait Argument {
    /// Returns the next argument.
    ///
    /// # Safety
    /// The next argument is of this type.
    unsafe fn next(arguments: &mut Arguments<'_>) -> Self;
}

impl<'a> Arguments<'a> {
    pub const fn of(saved: &'a Saved) -> Self {
        Self {
            saved,
            integers: 0,
            vectors: 0,
            stacked: 0,
        }
    }

    /// Returns the next argument.
    ///
    /// # Safety
    /// The call has one more argument, of this type.
    pub unsafe fn next<T: Argument>(&mut self) -> T {
        // SAFETY: the caller guarantees it.
        unsafe { T::next(self) }
    }

    /// Returns the word of the next argument, which has this kind.
    ///
    /// # Safety
    /// The call has one more argument, of this kind.
    unsafe fn word(&mut self, kind: Kind) -> usize {
        let register = match kind {
            Kind::Integer => self.saved.integers.get(self.integers).copied(),
            Kind::Vector => {
                let register = self.saved.vectors.get(self.vectors);
                register.map(|&[low, _]| low as usize)
            }
        };
        if cfg!(windows) || matches!(kind, Kind::Integer) {
            self.integers += 1;
        }
        if cfg!(windows) || matches!(kind, Kind::Vector) {
            self.vectors += 1;
        }
        register.unwrap_or_else(|| {
            let place = self.stacked;
            self.stacked += 1;
            // SAFETY: the caller guarantees that there is one more argument.
            unsafe { self.saved.stacked.as_ptr().add(place).read() }
        })
    }
}

macro_rules! integers {
    ($($kind:ty)*) => {$(
        impl Argument for $kind {
            unsafe fn next(arguments: &mut Arguments<'_>) -> Self {
                // SAFETY: the caller guarantees the argument. The upper bits of a small one are
                // undefined.
                unsafe { arguments.word(Kind::Integer) as Self }
            }
        }
    )*};
}
integers!(i32 u32 usize);

impl<T> Argument for *const T {
    unsafe fn next(arguments: &mut Arguments<'_>) -> Self {
        // SAFETY: the caller guarantees the argument.
        unsafe { arguments.word(Kind::Integer) as Self }
    }
}

impl<T> Argument for *mut T {
    unsafe fn next(arguments: &mut Arguments<'_>) -> Self {
        // SAFETY: the caller guarantees the argument.
        unsafe { arguments.word(Kind::Integer) as Self }
    }
}

impl Argument for f32 {
    unsafe fn next(arguments: &mut Arguments<'_>) -> Self {
        // SAFETY: the caller guarantees the argument.
        Self::from_bits(unsafe { arguments.word(Kind::Vector) } as u32)
    }
}

/// Exports a constructor's stand-in, whose decision is made by `decide`, an `unsafe extern
/// "C-unwind" fn(&Saved) -> Answer`.
macro_rules! stand_in {
    ($symbol:ident, $decide:path) => {
        /// Stand-in for the built-in constructor.
        ///
        /// # Safety
        /// The arguments meet the requirements of the llama.h of the host.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $symbol() -> *mut llama_sampler {
            $crate::stubs::beginning!($symbol, $decide)
        }
    };
}
pub(crate) use stand_in;

#[cfg(all(target_arch = "x86_64", not(windows)))]
macro_rules! beginning {
    ($symbol:ident, $decide:path) => {
        std::arch::naked_asm!(
            ".cfi_startproc",
            // With the return address, a multiple of 16 bytes.
            "sub rsp, 200",
            ".cfi_adjust_cfa_offset 200",
            "movaps [rsp], xmm0",
            "movaps [rsp + 16], xmm1",
            "movaps [rsp + 32], xmm2",
            "movaps [rsp + 48], xmm3",
            "movaps [rsp + 64], xmm4",
            "movaps [rsp + 80], xmm5",
            "movaps [rsp + 96], xmm6",
            "movaps [rsp + 112], xmm7",
            "mov [rsp + 128], rdi",
            "mov [rsp + 136], rsi",
            "mov [rsp + 144], rdx",
            "mov [rsp + 152], rcx",
            "mov [rsp + 160], r8",
            "mov [rsp + 168], r9",
            "mov [rsp + 176], rax",
            "mov rdi, rsp",
            "call {decide}",
            "test rdx, rdx",
            "jne 2f",
            "add rsp, 200",
            ".cfi_adjust_cfa_offset -200",
            "ret",
            "2:",
            ".cfi_adjust_cfa_offset 200",
            "mov r11, rdx",
            "movaps xmm0, [rsp]",
            "movaps xmm1, [rsp + 16]",
            "movaps xmm2, [rsp + 32]",
            "movaps xmm3, [rsp + 48]",
            "movaps xmm4, [rsp + 64]",
            "movaps xmm5, [rsp + 80]",
            "movaps xmm6, [rsp + 96]",
            "movaps xmm7, [rsp + 112]",
            "mov rdi, [rsp + 128]",
            "mov rsi, [rsp + 136]",
            "mov rdx, [rsp + 144]",
            "mov rcx, [rsp + 152]",
            "mov r8, [rsp + 160]",
            "mov r9, [rsp + 168]",
            "mov rax, [rsp + 176]",
            "add rsp, 200",
            ".cfi_adjust_cfa_offset -200",
            "jmp r11",
            ".cfi_endproc",
            decide = sym $decide,
        )
    };
}

#[cfg(windows)]
macro_rules! beginning {
    ($symbol:ident, $decide:path) => {
        std::arch::naked_asm!(
            concat!(".seh_proc ", stringify!($symbol)),
            // With the return address, a multiple of 16 bytes: room for a call's arguments, the
            // answer, and the saved registers.
            "sub rsp, 152",
            ".seh_stackalloc 152",
            ".seh_endprologue",
            "movaps [rsp + 48], xmm0",
            "movaps [rsp + 64], xmm1",
            "movaps [rsp + 80], xmm2",
            "movaps [rsp + 96], xmm3",
            "mov [rsp + 112], rcx",
            "mov [rsp + 120], rdx",
            "mov [rsp + 128], r8",
            "mov [rsp + 136], r9",
            "lea rcx, [rsp + 32]",
            "lea rdx, [rsp + 48]",
            "call {decide}",
            "mov rax, [rsp + 32]",
            "mov r11, [rsp + 40]",
            "test r11, r11",
            "jne 2f",
            "add rsp, 152",
            "ret",
            "2:",
            "movaps xmm0, [rsp + 48]",
            "movaps xmm1, [rsp + 64]",
            "movaps xmm2, [rsp + 80]",
            "movaps xmm3, [rsp + 96]",
            "mov rcx, [rsp + 112]",
            "mov rdx, [rsp + 120]",
            "mov r8, [rsp + 128]",
            "mov r9, [rsp + 136]",
            "add rsp, 152",
            "jmp r11",
            ".seh_endproc",
            decide = sym $decide,
        )
    };
}

/// Calls `host` with the registers of `saved`, and the words of `stack` as stacked arguments.
///
/// # Safety
/// `host` is the function that `saved` is a call of.
#[cfg(windows)]
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn llama_sieve_preload_pass_on(
    host: *mut c_void,
    saved: &Saved,
    stack: &[usize; STACKED],
) -> *mut llama_sampler {
    std::arch::naked_asm!(
        ".seh_proc llama_sieve_preload_pass_on",
        // With the return address, a multiple of 16 bytes: room for four arguments in registers and
        // for the others.
        "sub rsp, 168",
        ".seh_stackalloc 168",
        ".seh_endprologue",
        "mov r10, rdx",
        "mov r11, rcx",
        ".irp at, 0, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120",
        "mov rax, [r8 + \\at]",
        "mov [rsp + 32 + \\at], rax",
        ".endr",
        "movaps xmm0, [r10]",
        "movaps xmm1, [r10 + 16]",
        "movaps xmm2, [r10 + 32]",
        "movaps xmm3, [r10 + 48]",
        "mov rcx, [r10 + 64]",
        "mov rdx, [r10 + 72]",
        "mov r8, [r10 + 80]",
        "mov r9, [r10 + 88]",
        "call r11",
        "add rsp, 168",
        "ret",
        ".seh_endproc",
    )
}

#[cfg(target_arch = "aarch64")]
macro_rules! beginning {
    ($symbol:ident, $decide:path) => {
        std::arch::naked_asm!(
            ".cfi_startproc",
            "sub sp, sp, #224",
            ".cfi_adjust_cfa_offset 224",
            "stp q0, q1, [sp]",
            "stp q2, q3, [sp, #32]",
            "stp q4, q5, [sp, #64]",
            "stp q6, q7, [sp, #96]",
            "stp x0, x1, [sp, #128]",
            "stp x2, x3, [sp, #144]",
            "stp x4, x5, [sp, #160]",
            "stp x6, x7, [sp, #176]",
            "str x8, [sp, #192]",
            "stp x29, x30, [sp, #208]",
            ".cfi_rel_offset x29, 208",
            ".cfi_rel_offset x30, 216",
            "add x29, sp, #208",
            "mov x0, sp",
            "bl {decide}",
            ".cfi_remember_state",
            "cbnz x1, 2f",
            "ldp x29, x30, [sp, #208]",
            "add sp, sp, #224",
            ".cfi_restore x29",
            ".cfi_restore x30",
            ".cfi_adjust_cfa_offset -224",
            "ret",
            "2:",
            ".cfi_restore_state",
            "mov x16, x1",
            "ldp q0, q1, [sp]",
            "ldp q2, q3, [sp, #32]",
            "ldp q4, q5, [sp, #64]",
            "ldp q6, q7, [sp, #96]",
            "ldp x0, x1, [sp, #128]",
            "ldp x2, x3, [sp, #144]",
            "ldp x4, x5, [sp, #160]",
            "ldp x6, x7, [sp, #176]",
            "ldr x8, [sp, #192]",
            "ldp x29, x30, [sp, #208]",
            "add sp, sp, #224",
            ".cfi_restore x29",
            ".cfi_restore x30",
            ".cfi_adjust_cfa_offset -224",
            "br x16",
            ".cfi_endproc",
            decide = sym $decide,
        )
    };
}
pub(crate) use beginning;

/// Checks that the fields are at the offsets that the assembly uses.
const _: () = {
    #[cfg(not(windows))]
    assert!(std::mem::offset_of!(Saved, integers) == 128);
    #[cfg(windows)]
    assert!(std::mem::offset_of!(Saved, integers) == 64);
    #[cfg(windows)]
    assert!(std::mem::offset_of!(Saved, return_address) == 104);
    #[cfg(all(target_arch = "x86_64", not(windows)))]
    assert!(std::mem::offset_of!(Saved, return_address) == 200);
    #[cfg(target_arch = "aarch64")]
    assert!(std::mem::offset_of!(Saved, return_address) == 216);
    assert!(std::mem::offset_of!(Saved, stacked) == size_of::<Saved>());
};
