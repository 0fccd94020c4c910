// Linked into a program, loads llama.cpp's backends before the main function, from the folder that
// BACKENDS names. A published llama.cpp has its backends in separate libraries, and cannot load a
// model without them.
#include <stdlib.h>

#include "ggml-backend.h"

__attribute__((constructor)) static void load(void) {
    ggml_backend_load_all_from_path(getenv("BACKENDS"));
}
