// Attaches llama-sieve to its own process. The libraries that use llama.cpp are loaded with
// RTLD_LOCAL. Without -DLINKED the program itself is not linked with llama.cpp, and uses only the
// layout of a sampler.
//
//   attach MODE LIBLLAMA_SIEVE MODEL MODULE MODULE
#include <dlfcn.h>
#ifndef _WIN32
#include <sys/mman.h>
#include <sys/wait.h>
#endif
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "llama.h"
#include "llama_sieve.h"

#define CHECK(condition) check_that((condition), #condition, __LINE__)

namespace {

void check_that(bool holds, const char * condition, int line) {
    if (!holds) {
        std::fprintf(stderr, "line %d: failed: %s\n", line, condition);
        std::exit(1);
    }
}

void * loaded(const char * path) {
    void * library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    if (library == nullptr) {
        std::fprintf(stderr, "%s\n", dlerror());
        std::exit(1);
    }
    return library;
}

template <typename Function> Function * function(void * library, const char * name) {
    void * found = dlsym(library, name);
    check_that(found != nullptr, name, __LINE__);
    return reinterpret_cast<Function *>(found);
}

struct sieve {
    explicit sieve(const char * path) : library(loaded(path)) {}

    void * library;
    int (*attach)(uint32_t) = function<int(uint32_t)>(library, "llama_sieve_attach");
    int (*detach)()         = function<int()>(library, "llama_sieve_detach");
    const char * (*error)() = function<const char *()>(library, "llama_sieve_last_error");

    bool says(const char * text) const { return std::strstr(error(), text) != nullptr; }
};

struct module {
    explicit module(const char * path) : library(loaded(path)) {}

    void * library;
    void (*open)(const char *) = function<void(const char *)>(library, "module_open");
    llama_context * (*context)() = function<llama_context *()>(library, "module_context");
    void (*free_context)(llama_context *) =
        function<void(llama_context *)>(library, "module_free_context");
    llama_sampler * (*chain)(uint32_t) =
        function<llama_sampler *(uint32_t)>(library, "module_chain");
    int (*members)(llama_sampler *) = function<int(llama_sampler *)>(library, "module_members");
    llama_sampler * (*member)(llama_sampler *, int) =
        function<llama_sampler *(llama_sampler *, int)>(library, "module_member");
    llama_token (*sample)(llama_sampler *, llama_context *) =
        function<llama_token(llama_sampler *, llama_context *)>(library, "module_sample");
    uint32_t (*seed)(llama_sampler *) =
        function<uint32_t(llama_sampler *)>(library, "module_seed");
    void (*copy)(llama_sampler *, llama_sampler *) =
        function<void(llama_sampler *, llama_sampler *)>(library, "module_copy");
    void (*free)(llama_sampler *) = function<void(llama_sampler *)>(library, "module_free");
    void ** (*slot)()             = function<void **()>(library, "module_slot");
};

#ifdef _WIN32

std::string origin(const llama_sampler_i * vtable) {
    const DWORD  flags = GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | 2;  // adds no reference
    const auto   apply = reinterpret_cast<const char *>(vtable->apply);
    HMODULE      module;
    char         path[MAX_PATH] = "";
    if (GetModuleHandleExA(flags, apply, &module)) {
        GetModuleFileNameA(module, path, sizeof(path));
    }
    return path;
}

bool is_ours(const llama_sampler_i * vtable) {
    return origin(vtable).find("\\llama_sieve_preload.dll") != std::string::npos;
}

#else

// The folder and file that the code of a sampler is in.
std::string origin(const llama_sampler_i * vtable) {
    Dl_info info;
    void *  apply = reinterpret_cast<void *>(vtable->apply);
    return dladdr(apply, &info) == 0 ? "" : info.dli_fname;
}

bool is_ours(const llama_sampler_i * vtable) {
    return origin(vtable).find("/libllama_sieve_preload.so") != std::string::npos;
}

#endif

bool is_ours(const llama_sampler * sampler) { return is_ours(sampler->iface); }

// Returns the number of the chain's members that are ours.
int ours_of(const module & of, llama_sampler * chain) {
    int ours = 0;
    for (int i = 0; i < of.members(chain); i++) {
        ours += is_ours(of.member(chain, i));
    }
    return ours;
}

constexpr int n_members = 6;
constexpr int n_tokens  = 24;

using tokens = std::vector<llama_token>;

tokens sampled(const module & of, llama_sampler * chain, llama_context * context) {
    tokens out;
    for (int i = 0; i < n_tokens; i++) {
        out.push_back(of.sample(chain, context));
    }
    return out;
}

// Makes chains with four seeds. Checks that `ours` members of each are ours, and that each samples
// the same tokens as the first chain with its seed.
void check(const module & of, llama_context * context, int ours, const char * when) {
    static std::map<uint32_t, tokens> expected;
    for (uint32_t seed = 1; seed <= 4; seed++) {
        llama_sampler * chain = of.chain(seed);
        const int       found = ours_of(of, chain);
        if (found != ours) {
            std::fprintf(stderr, "%s: %d of a chain are ours, not %d\n", when, found, ours);
            std::exit(1);
        }
        CHECK(of.seed(chain) == seed);
        const tokens out   = sampled(of, chain, context);
        const auto   known = expected.emplace(seed, out).first;
        CHECK(known->second == out);
        of.free(chain);
    }
    CHECK(expected[1] != expected[2]);
}

#ifdef _WIN32

std::string access_of(const void * address) {
    MEMORY_BASIC_INFORMATION region;
    CHECK(VirtualQuery(address, &region, sizeof(region)) != 0);
    // PAGE_READWRITE, or PAGE_WRITECOPY, which becomes PAGE_READWRITE at the first write.
    return region.Protect == PAGE_READONLY     ? "r--p"
        : (region.Protect & (4 | 8)) != 0 ? "rw-p"
                                          : std::to_string(region.Protect);
}

#else

// Returns the access rights of the memory at an address in the kernel's notation, "r--p".
std::string access_of(const void * address) {
    std::FILE * maps = std::fopen("/proc/self/maps", "r");
    CHECK(maps != nullptr);
    char        line[4096];
    std::string found;
    while (std::fgets(line, sizeof(line), maps) != nullptr) {
        unsigned long start, end;
        char          access[5];
        CHECK(std::sscanf(line, "%lx-%lx %4s", &start, &end, access) == 3);
        const auto place = reinterpret_cast<unsigned long>(address);
        if (start <= place && place < end) {
            found = access;
        }
    }
    std::fclose(maps);
    return found;
}

#endif

// Attaches and detaches: with chains that are made before, between and after, with a library that
// is loaded later, and in a child process.
void turns(const sieve & ours, const char * model, const char * first, const char * second) {
    CHECK(ours.detach() == 0 && ours.error()[0] == '\0');
    CHECK(ours.attach(0) == LLAMA_SIEVE_ERROR_NO_HOST);
    CHECK(ours.says("load it first") && ours.says("llama_sieve_dropin.h"));
    CHECK(ours.attach(2) == LLAMA_SIEVE_ERROR_PARAMS && ours.says("0x2"));

    const module a(first);
    a.open(model);
    CHECK(ours.attach(0x80000001) == LLAMA_SIEVE_ERROR_PARAMS);
    llama_context *   context = a.context();
    const std::string access  = access_of(a.slot());
    check(a, context, 0, "at first");
    llama_sampler * before = a.chain(77);
    const tokens    half   = sampled(a, before, context);

    const int n = ours.attach(0);
    if (n <= 0) {
        std::fprintf(stderr, "attach: %d: %s\n", n, ours.error());
        std::exit(1);
    }
    CHECK(ours.error()[0] == '\0');
    CHECK(access_of(a.slot()) == access);
    CHECK(ours.attach(0) == 0);
    check(a, context, n_members, "attached");
    CHECK(ours_of(a, before) == 0);
    const tokens rest = sampled(a, before, context);

    const module b(second);
    b.open(model);
    llama_context * other = b.context();
    check(b, other, 0, "of a library that came later");
    check(a, context, n_members, "beside it");
    const int m = ours.attach(0);
    CHECK(m > 0);
    check(b, other, n_members, "attached to, too");

    llama_sampler * during = a.chain(77);
    CHECK(ours_of(a, during) == n_members);
    CHECK(sampled(a, during, context) == half);
#ifndef _WIN32
    const pid_t child = fork();
    if (child == 0) {
        check(a, context, n_members, "in a child");
        CHECK(sampled(a, during, context) == rest);
        CHECK(ours.detach() > 0);
        check(a, context, 0, "in a child, detached");
        _exit(0);
    }
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
#endif

    // All imports are restored except those through which samplers of ours must still be
    // recognized, in llama.cpp itself and in both libraries.
    const int gone = ours.detach();
    CHECK(gone < n + m && gone >= n + m - 2 * 3);
    CHECK(access_of(a.slot()) == access);
    check(a, context, 0, "detached");
    check(b, other, 0, "detached, too");
    // The samplers stay valid, and are freed as usual.
    CHECK(a.seed(before) == 77 && a.seed(during) == 77);
    CHECK(ours_of(a, during) == n_members);
    CHECK(sampled(a, during, context) == rest);
    // A chain's state can be copied to a chain of llama.cpp's own samplers, and back.
    a.copy(before, during);
    CHECK(sampled(a, before, context) == sampled(a, during, context));
    a.copy(during, before);
    CHECK(sampled(a, before, context) == sampled(a, during, context));
    CHECK(ours.detach() == 0);
    CHECK(ours.attach(0) == gone);
    check(b, other, n_members, "attached anew");
    CHECK(ours.detach() == gone);
    for (llama_sampler * chain : { before, during }) {
        a.free(chain);
    }
    std::printf("%s %d\n", access.c_str(), n);
}

std::atomic<int> n_other{ 0 };
void *           before_other = nullptr;

llama_sampler * other_top_k(int32_t k) {
    n_other++;
    return reinterpret_cast<llama_sampler * (*) (int32_t)>(before_other)(k);
}

// Changes an import to another address, as another library would.
void point(void ** slot, void * to) {
#ifdef _WIN32
    DWORD before;
    CHECK(VirtualProtect(slot, sizeof(*slot), PAGE_READWRITE, &before));
    *slot = to;
    CHECK(VirtualProtect(slot, sizeof(*slot), before, &before));
#else
    const auto page  = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    void *     start = reinterpret_cast<void *>(reinterpret_cast<uintptr_t>(slot) & ~(page - 1));
    const bool opens = access_of(slot)[1] != 'w';
    CHECK(!opens || mprotect(start, page, PROT_READ | PROT_WRITE) == 0);
    *slot = to;
    CHECK(!opens || mprotect(start, page, PROT_READ) == 0);
#endif
}

// Tests an import that another library changes: after llama-sieve is attached, and before it is
// attached.
void others(const sieve & ours, const char * model, const char * path) {
    const module a(path);
    a.open(model);
    llama_context * context = a.context();
    void ** const   slot    = a.slot();
    check(a, context, 0, "at first");
    void * const built_in = *slot;
    void * const other    = reinterpret_cast<void *>(other_top_k);

    const int n = ours.attach(0);
    CHECK(n > 0 && *slot != built_in);
    before_other = *slot;
    point(slot, other);
    check(a, context, n_members, "called by somebody else");
    CHECK(ours.attach(0) == 0 && *slot == other);
    const int gone = ours.detach();
    CHECK(gone > 0 && gone < n && *slot == other);
    // The other library's function still calls ours, which must pass the call on.
    const int calls = n_other;
    check(a, context, 0, "called by somebody else, detached");
    CHECK(n_other > calls);

    before_other = built_in;
    CHECK(ours.attach(0) == gone && *slot == other);
    check(a, context, n_members - 1, "but of somebody else");
    CHECK(ours.detach() == gone && *slot == other);
}

// Attaches and detaches while threads make chains and sample with them.
void threads(const sieve & ours, const char * model, const char * path) {
    const module a(path);
    a.open(model);
    llama_context * context = a.context();
    const tokens    expected = sampled(a, a.chain(5), context);
    std::atomic<bool> is_over{ false };
    std::atomic<long> n_ours{ 0 }, n_built_in{ 0 };
    const auto        work = [&] {
        llama_context * own = a.context();
        while (!is_over) {
            llama_sampler * chain = a.chain(5);
            const int       found = ours_of(a, chain);
            n_ours += found;
            n_built_in += n_members - found;
            CHECK(sampled(a, chain, own) == expected);
            a.free(chain);
        }
        a.free_context(own);
    };
    std::vector<std::thread> all;
    for (int i = 0; i < 3; i++) {
        all.emplace_back(work);
    }
    CHECK(ours.attach(0) > 0);
    const int n = ours.detach();
    CHECK(n > 0);
    for (int i = 0; i < 200 || n_ours < 1000 || n_built_in < 1000; i++) {
        CHECK(ours.attach(0) == n);
        usleep(1000);
        CHECK(ours.detach() == n);
        usleep(1000);
    }
    CHECK(ours.attach(0) == n);
    is_over = true;
    for (std::thread & thread : all) {
        thread.join();
    }
    check(a, context, n_members, "at last");
}

#ifndef _WIN32
// Attaches while another thread loads a library whose imports the dynamic linker is filling in.
void loading(const sieve & ours, const char * path, const char * slow) {
    const module a(path);
    CHECK(ours.attach(0) > 0);
    int says[2], hears[2];
    CHECK(pipe(says) == 0 && pipe(hears) == 0);
    CHECK(dup2(says[1], 200) == 200 && dup2(hears[0], 201) == 201);
    void *      library = nullptr;
    std::thread loader([&] { library = loaded(slow); });
    char        byte;
    CHECK(read(says[0], &byte, 1) == 1);
    CHECK(ours.attach(0) == 0 && ours.error()[0] == '\0');
    CHECK(write(hears[1], &byte, 1) == 1);
    loader.join();
    const auto vtable = function<const llama_sampler_i *()>(library, "slow_vtable");
    CHECK(!is_ours(vtable()));
    CHECK(ours.attach(0) > 0);
    CHECK(is_ours(vtable()));
}
#endif

// Under LD_PRELOAD all samplers are ours, and attaching changes nothing.
void preloaded(const sieve & ours, const char * model, const char * path) {
    CHECK(ours.attach(0) == 0);
    const module a(path);
    a.open(model);
    llama_context * context = a.context();
    check(a, context, n_members, "preloaded");
    CHECK(ours.attach(0) == 0 && ours.error()[0] == '\0');
    check(a, context, n_members, "attached");
    CHECK(ours.detach() == 0);
    check(a, context, n_members, "detached");
}

// Attaches without the preload library at its expected path.
void alone(const sieve & ours, const char * path) {
    const module a(path);
    CHECK(ours.attach(0) == LLAMA_SIEVE_ERROR_NOT_FOUND);
    std::printf("%s\n", ours.error());
    CHECK(ours.detach() == 0);
}

// Attaches where llama.cpp is linked into the program statically. The program may export it.
void linked(const sieve & ours) {
#ifdef LINKED
    llama_sampler * sampler = llama_sampler_init_top_k(1);
    CHECK(sampler != nullptr && !is_ours(sampler));
    llama_sampler_free(sampler);
#endif
    CHECK(ours.attach(0) == LLAMA_SIEVE_ERROR_NO_HOST);
    CHECK(ours.says("linked into the program") && ours.says("llama_sieve_dropin.h"));
    CHECK(ours.detach() == 0);
}

}  // namespace

int main(int argc, char ** argv) {
    CHECK(argc == 6);
    const std::string mode  = argv[1];
    std::string       path  = argv[2];
    const char *      model = argv[3];
    if (mode == "left") {
        // Loads the library by a relative path, which is wrong after the chdir("/") below.
        const size_t slash = path.rfind('/');
        CHECK(chdir(path.substr(0, slash).c_str()) == 0);
        path = "." + path.substr(slash);
    }
    const sieve ours(path.c_str());
    if (mode == "left") {
        CHECK(chdir("/") == 0);
    }
    const std::map<std::string, std::function<void()>> modes = {
        { "turns", [&] { turns(ours, model, argv[4], argv[5]); } },
        { "left", [&] { turns(ours, model, argv[4], argv[5]); } },
        { "others", [&] { others(ours, model, argv[4]); } },
#ifndef _WIN32
        { "loading", [&] { loading(ours, argv[4], argv[5]); } },
#endif
        { "threads", [&] { threads(ours, model, argv[4]); } },
        { "preloaded", [&] { preloaded(ours, model, argv[4]); } },
        { "alone", [&] { alone(ours, argv[4]); } },
        { "linked", [&] { linked(ours); } },
    };
    modes.at(mode)();
    std::printf("done\n");
    return 0;
}
