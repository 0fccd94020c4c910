// Another library that interposes a constructor, and passes calls on to the next definition, or to
// the first among all libraries.
#include <dlfcn.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static const char NAME[] = "llama_sampler_init_top_k";

struct llama_sampler;
struct llama_sampler * llama_sampler_init_top_k(int32_t k);

static int look(struct dl_phdr_info * info, size_t size, void * found) {
    (void) size;
    const int flags   = RTLD_LAZY | RTLD_NOLOAD;
    void *    library = info->dlpi_name[0] == '\0' ? NULL : dlopen(info->dlpi_name, flags);
    void * symbol  = library == NULL ? NULL : dlsym(library, NAME);
    struct llama_sampler * (*own)(int32_t) = llama_sampler_init_top_k;
    Dl_info here, there;
    void *  address;
    memcpy(&address, &own, sizeof(address));
    static int anchor;
    dladdr(&anchor, &here);
    if (symbol == NULL || dladdr(symbol, &there) == 0 || there.dli_fbase == here.dli_fbase) {
        return 0;
    }
    *(void **) found = symbol;
    return 1;
}

struct llama_sampler * llama_sampler_init_top_k(int32_t k) {
    void * found = dlsym(RTLD_NEXT, NAME);
    if (found == NULL) {
        dl_iterate_phdr(look, &found);
    }
    struct llama_sampler * (*next)(int32_t);
    memcpy(&next, &found, sizeof(next));
    return next(k);
}
