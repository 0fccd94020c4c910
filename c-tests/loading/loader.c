// Loads a library, as host programs load their plugins. The whole test runs in its constructor.
//
//   loader LIBRARY ARGUMENTS...
//
// If the constructor does not return, alarm(2) ends the program.
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char ** argv) {
    // Many times longer than any of these libraries takes.
    alarm(600);
    if (argc < 2 || dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) == NULL) {
        const char * error = dlerror();
        fprintf(stderr, "loader: %s\n", error == NULL ? "which library?" : error);
        return 1;
    }
    return 0;
}
