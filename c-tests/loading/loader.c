// Loads a library, in whose constructor everything happens, as host programs load their plugins.
//
//   loader LIBRARY ARGUMENTS...
//
// A constructor that does not end ends the program: alarm(2).
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char ** argv) {
    // Many times what any of these libraries takes.
    alarm(600);
    if (argc < 2 || dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) == NULL) {
        const char * error = dlerror();
        fprintf(stderr, "loader: %s\n", error == NULL ? "which library?" : error);
        return 1;
    }
    return 0;
}
