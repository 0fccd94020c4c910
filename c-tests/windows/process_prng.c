/* The one function of bcryptprimitives.dll that the library needs, for a Wine that has no such
 * library. */
#include <windows.h>

/* The old function of the system's generator, which Wine has. */
BOOLEAN NTAPI SystemFunction036(void * buffer, ULONG n);

BOOL WINAPI ProcessPrng(unsigned char * buffer, size_t n);
BOOL WINAPI ProcessPrng(unsigned char * buffer, size_t n) {
    return SystemFunction036(buffer, (ULONG) n);
}
