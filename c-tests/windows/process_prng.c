/* The one function of bcryptprimitives.dll that our library needs, for versions of Wine without
 * that DLL. */
#include <windows.h>

/* The older function for random bytes, which Wine has. */
BOOLEAN NTAPI SystemFunction036(void * buffer, ULONG n);

BOOL WINAPI ProcessPrng(unsigned char * buffer, size_t n);
BOOL WINAPI ProcessPrng(unsigned char * buffer, size_t n) {
    return SystemFunction036(buffer, (ULONG) n);
}
