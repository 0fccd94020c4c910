// What GCC 13 has added to the C++ library, for machines with an older one, where
// hosts/llama_cpp_cffi.py loads it.
#include <exception>

extern "C" [[noreturn]] void __cxa_call_terminate(void *) {
    std::terminate();
}
