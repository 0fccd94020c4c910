// Prints the result of certifying each sampler as "name number", and checks the other functions of
// certification.
//
//   certify LIBLLAMA [NAME...]
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "llama_sieve.h"

int main(int argc, char ** argv) {
    CHECK(argc >= 2);
    if (strcmp(argv[1], "none") == 0) {
        CHECK(llama_sieve_certify("top-k") == LLAMA_SIEVE_ERROR_NO_HOST);
        puts("no host");
        return 0;
    }
    void * llama = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    CHECK(llama != NULL);
    CHECK(llama_sieve_bind_host(llama) == LLAMA_SIEVE_OK);
    CHECK(llama_sieve_certify(NULL) == LLAMA_SIEVE_ERROR_NULL);
    CHECK(llama_sieve_certify("") == LLAMA_SIEVE_ERROR_NOT_FOUND);
    CHECK(llama_sieve_certify("\xff?top-k") == LLAMA_SIEVE_ERROR_NOT_FOUND);
    CHECK(llama_sieve_certify_build(NULL, 11434) == LLAMA_SIEVE_ERROR_NULL);
    CHECK(llama_sieve_certify_build("", 11434) == LLAMA_SIEVE_ERROR_NOT_FOUND);
    if (getenv("LLAMA_SIEVE_HOST") == NULL) {
        CHECK(llama_sieve_certify_build("dry", 4000) == LLAMA_SIEVE_CERTIFY_ARGUMENTS);
        CHECK(strstr(llama_sieve_last_error(), "b4000") != NULL);
        CHECK(getenv("LLAMA_SIEVE_HOST") == NULL);
    }
    for (int i = 2; i < argc; i++) {
        const int number = llama_sieve_certify(argv[i]);
        // A second call must give the same result: a trial leaves no state behind.
        CHECK(llama_sieve_certify(argv[i]) == number);
        CHECK((strlen(llama_sieve_last_error()) > 0) == (number != LLAMA_SIEVE_OK));
        CHECK(llama_sieve_last_error_code() == number);
        CHECK(llama_sieve_certify_build(argv[i], 0) == number);
        // For a sampler with the same arguments in all builds, the build makes no difference.
        CHECK(strcmp(argv[i], "top-k") != 0 || llama_sieve_certify_build(argv[i], 1) == number);
        printf("%s %d\n", argv[i], number);
    }
    return 0;
}
