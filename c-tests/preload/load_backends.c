// Linked into a program, loads llama.cpp's backends before it begins, from the folder that BACKENDS
// names. A published llama.cpp has them in libraries of their own, and cannot load a model without.
#include <stdlib.h>

#include "ggml-backend.h"

__attribute__((constructor)) static void load(void) {
    ggml_backend_load_all_from_path(getenv("BACKENDS"));
}
