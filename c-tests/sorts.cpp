// The sorts of the C++ library with which this file is compiled, as a shared library that a test
// loads.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

// As large as the host's candidates, because a library may sort plain numbers differently.
struct candidate {
    uint32_t place;
    float    key;
    float    unused;
};

static bool comes_before(const candidate & a, const candidate & b) {
    return a.key > b.key;
}

// Sorts with larger keys first, and writes the original positions of the keys.
template <typename F> static void sorted(const float * keys, size_t n, uint32_t * out, F sort) {
    std::vector<candidate> all(n);
    for (size_t i = 0; i < n; i++) {
        all[i] = { uint32_t(i), keys[i], 0.0f };
    }
    sort(all);
    for (size_t i = 0; i < n; i++) {
        out[i] = all[i].place;
    }
}

extern "C" {

// Returns libc++'s LLVM version, 0 for libstdc++, or -1 for Microsoft's order.
int sorts_version(void) {
#if defined(SORTS_VERSION)
    return SORTS_VERSION;
#elif defined(_LIBCPP_VERSION)
    return _LIBCPP_VERSION < 100000 ? _LIBCPP_VERSION / 1000 : _LIBCPP_VERSION / 10000;
#else
    return 0;
#endif
}

void sorts_sort(const float * keys, size_t n, uint32_t * out) {
    sorted(keys, n, out, [](std::vector<candidate> & all) {
        std::sort(all.data(), all.data() + all.size(),
                  [](const candidate & a, const candidate & b) { return comes_before(a, b); });
    });
}

void sorts_partial_sort(const float * keys, size_t n, size_t k, uint32_t * out) {
    sorted(keys, n, out, [k](std::vector<candidate> & all) {
        std::partial_sort(
            all.data(), all.data() + k, all.data() + all.size(),
            [](const candidate & a, const candidate & b) { return comes_before(a, b); });
    });
}

// Sorts numbers, compared by their keys.
void sorts_sort_numbers(const float * keys, size_t n, uint32_t * out) {
    std::vector<size_t> all(n);
    std::iota(all.begin(), all.end(), size_t(0));
    std::sort(all.begin(), all.end(), [&](size_t a, size_t b) { return keys[a] > keys[b]; });
    std::copy(all.begin(), all.end(), out);
}

// Writes n keys on which std::sort reaches its depth limit. An adversary fixes a key only when a
// comparison needs it, and then below all keys that are fixed already (McIlroy 1999).
void sorts_killer(size_t n, float * keys) {
    const float open = -float(n) - 1.0f;
    float       next = 0.0f;
    uint32_t    asked = 0;
    std::fill(keys, keys + n, open);
    std::vector<candidate> all(n);
    for (size_t i = 0; i < n; i++) {
        all[i] = { uint32_t(i), 0.0f, 0.0f };
    }
    std::sort(all.data(), all.data() + n, [&](const candidate & a, const candidate & b) {
        if (keys[a.place] == open && keys[b.place] == open) {
            keys[a.place == asked ? a.place : b.place] = next;
            next -= 1.0f;
        }
        if (keys[a.place] == open) {
            asked = a.place;
        } else if (keys[b.place] == open) {
            asked = b.place;
        }
        return keys[a.place] > keys[b.place];
    });
}

} // extern "C"
