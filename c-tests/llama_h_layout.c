/* The library's assumptions about the structs of llama.h, checked against llama.h itself.
 *
 * llama_h_layout.inc is written by tests/c_api/programs.rs: one line SAME(name, value) per fact
 * that the library was compiled with. */
#include <stddef.h>

#include "llama.h"

#define SAME(name, value) \
    _Static_assert((name) == (value), "llama.h has another " #name " than the library");
#include "llama_h_layout.inc"

/* The byte that the library reads as a bool. */
_Static_assert(sizeof(bool) == 1, "bool is more than a byte");

int main(void) {
    return 0;
}
