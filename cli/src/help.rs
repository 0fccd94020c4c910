//! The texts of `--help`.

pub const ALL: &str = "\
llama.cpp's samplers, faster, with the same tokens. Usage: llama-sieve COMMAND [arguments]

  run [--verbose] [--only KINDS] -- PROGRAM [arguments]
                  run a program that nobody recompiled, with ours in place of llama.cpp's samplers
  doctor [--json] PID|PROGRAM|LIBRARY
                  tell which llama.cpp something has, what would be ours in it, and why not
  certify [--json] [LIBLLAMA]
                  compare every sampler with that llama.cpp's own, bit for bit
  schema [--compact] [--closed] [--any-order] [--lenient] [--llama-cpp] FILE
                  print the grammar (GBNF) of a JSON Schema; - reads it from the standard input

  -h, --help      this text; behind a command, that command's
  -V, --version   the versions of this program and of the library

Exit codes: those of each command's --help; 2 for wrong arguments.
";

pub const RUN: &str = "\
Runs a program with the preload library. Usage: llama-sieve run [options] -- PROGRAM [arguments]

What would give other tokens stays llama.cpp's own. The program replaces this one, so that its
process number, its signals and its exit code are its own.

      --verbose      a line for each sampler, on stderr (LLAMA_SIEVE_VERBOSE=1)
      --only KINDS   only these samplers, such as top-k,dist; off: none (LLAMA_SIEVE_PRELOAD)
  -h, --help         this text

Exit codes: the program's; 2: wrong arguments; 125: there is no preload library, or LD_PRELOAD
cannot name it; 126: the program cannot be run; 127: there is no such program.
";

pub const DOCTOR: &str = "\
Tells which llama.cpp something has, what would be ours in it, and why not.
Usage: llama-sieve doctor [--json] PID|PROGRAM|LIBRARY

Each llama.cpp that is found is loaded and tried in a process of its own, for which the dynamic
linker also lists what a program would load: name only what you would run.

      --json         for programs to read
  -h, --help         this text

Exit codes: 0: at least one sampler would be ours; 1: none; 2: wrong arguments, or what is named
cannot be looked at.
";

pub const CERTIFY: &str = "\
Compares every sampler with a llama.cpp's own, bit for bit, on small arrays.
Usage: llama-sieve certify [--json] [LIBLLAMA]

LIBLLAMA is the path of a shared libllama; without it, the one that the dynamic linker finds. It is
loaded in a process of its own. Infill and grammars need a vocabulary, and are not among these.

      --json         for programs to read
  -h, --help         this text

Exit codes: 0: all are equal; 1: some are not, or could not be tried; 2: wrong arguments, or no
llama.cpp that takes samplers of others.
";

pub const SCHEMA: &str = "\
Prints the grammar of a JSON Schema's texts in GBNF, for a server that takes one.
Usage: llama-sieve schema [options] FILE

FILE is a JSON Schema, drafts 4 to 2020-12; - reads the standard input.

      --compact      no white space
      --closed       no other properties where the schema is silent about them
      --any-order    properties in any order
      --lenient      what cannot be enforced is left out, with a warning on stderr
      --llama-cpp    and none of the others: the language of llama.cpp's own converter
  -h, --help         this text

Exit codes: 0: printed; 1: the schema is refused; 2: wrong arguments, or FILE cannot be read.
";
