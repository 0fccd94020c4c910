// The header needs nothing before it in C++ either, and gives its functions C names.
#include "llama_sieve.h"
#include "llama_sieve.h"

#include <cstdio>
#include <cstring>

int main() {
    llama_sampler * (*make)(uint32_t) = llama_sieve_init_dist;
    llama_sieve_log_callback silent   = [](int, const char *, void *) {};
    llama_sieve_log_set(silent, nullptr);
    if (make == nullptr || std::strlen(llama_sieve_version()) == 0) {
        return 1;
    }
    std::puts(llama_sieve_version());
    return 0;
}
