/* Does what the packages for Python and Node do: `by_name DLL` loads the one library that they
 * have, and calls a function whose address it returns by name. */
#include <stdio.h>
#include <windows.h>

typedef const void * (*give_function)(const char * name);
typedef const char * (*text_function)(void);

int main(int argc, char ** argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: by_name DLL\n");
        return 2;
    }
    HMODULE library = LoadLibraryA(argv[1]);
    if (library == NULL) {
        fprintf(stderr, "%s cannot be loaded: error %lu\n", argv[1], GetLastError());
        return 1;
    }
    void * address = (void *) GetProcAddress(library, "llama_sieve_preload_function");
    give_function give = (give_function) address;
    if (give == NULL || give("llama_sieve_no_such") != NULL || give(NULL) != NULL) {
        fprintf(stderr, "it gives no functions by name, or any\n");
        return 1;
    }
    text_function version = (text_function) give("llama_sieve_version");
    if (version == NULL) {
        fprintf(stderr, "it has no llama_sieve_version\n");
        return 1;
    }
    printf("%s by name\n", version());
    return 0;
}
