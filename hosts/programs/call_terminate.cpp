// A function that GCC 13 added to the C++ library. hosts/llama_cpp_cffi.py loads it on machines
// with an older one.
#include <exception>

extern "C" [[noreturn]] void __cxa_call_terminate(void *) {
    std::terminate();
}
