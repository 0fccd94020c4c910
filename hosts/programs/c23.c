// Functions that libraries linked with glibc 2.38 import from it, for machines with an older glibc,
// where hosts/libllama.py links this file into its program. llama.cpp does not use what C23 changed
// in these functions.
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

long __isoc23_strtol(const char * text, char ** end, int base) {
    return strtol(text, end, base);
}

unsigned long __isoc23_strtoul(const char * text, char ** end, int base) {
    return strtoul(text, end, base);
}

long long __isoc23_strtoll(const char * text, char ** end, int base) {
    return strtoll(text, end, base);
}

unsigned long long __isoc23_strtoull(const char * text, char ** end, int base) {
    return strtoull(text, end, base);
}

int __isoc23_sscanf(const char * text, const char * format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const int read = vsscanf(text, format, arguments);
    va_end(arguments);
    return read;
}
