/* Replaces the C library's function FUNCTION, through the linker's option --wrap, by one whose
 * result differs in the last bit for about one in 1,000 arguments. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#define JOINED(a, b) a##b
#define NAME(prefix, function) JOINED(prefix, function)

static float altered(float argument, float result) {
    uint32_t of, bits;
    memcpy(&of, &argument, sizeof of);
    memcpy(&bits, &result, sizeof bits);
    if ((of * 2654435761u + 500) % 1000 == 0 && isnormal(result)) {
        bits ^= 1;
    }
    memcpy(&result, &bits, sizeof bits);
    return result;
}

#ifdef TWO_ARGUMENTS
float NAME(__real_, FUNCTION)(float x, float y);
float NAME(__wrap_, FUNCTION)(float x, float y);
float NAME(__wrap_, FUNCTION)(float x, float y) {
    return altered(x, NAME(__real_, FUNCTION)(x, y));
}
#else
float NAME(__real_, FUNCTION)(float x);
float NAME(__wrap_, FUNCTION)(float x);
float NAME(__wrap_, FUNCTION)(float x) {
    return altered(x, NAME(__real_, FUNCTION)(x));
}
#endif
