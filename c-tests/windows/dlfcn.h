/* A dlfcn.h for the test programs that use it, implemented with Windows functions. */
#ifndef WINDOWS_DLFCN_H
#define WINDOWS_DLFCN_H

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <windows.h>

#define RTLD_LAZY 1
#define RTLD_NOW 2
#define RTLD_LOCAL 0

/* Loads a library. Its dependencies are searched for in its own folder. */
static inline void * dlopen(const char * path, int mode) {
    (void) mode;
    char full[MAX_PATH];
    if (GetFullPathNameA(path, sizeof(full), full, NULL) == 0) {
        return NULL;
    }
    return (void *) LoadLibraryExA(full, NULL, LOAD_WITH_ALTERED_SEARCH_PATH);
}

static inline void * dlsym(void * library, const char * name) {
    const FARPROC found = GetProcAddress((HMODULE) library, name);
    void * address;
    memcpy(&address, &found, sizeof(address));
    return address;
}

static inline int dlclose(void * library) {
    return FreeLibrary((HMODULE) library) ? 0 : -1;
}

static inline const char * dlerror(void) {
    static char text[64];
    snprintf(text, sizeof(text), "error %lu of Windows", GetLastError());
    return text;
}

#endif
