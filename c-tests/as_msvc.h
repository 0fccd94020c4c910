// Code that is compiled with `-include as_msvc.h` leaves equal elements in the order of Microsoft's
// std::sort and draws as its std::discrete_distribution does. A llama.cpp compiled like this runs
// anywhere, and computes as llama.cpp does on Windows. std::partial_sort needs no change.
//
// sorts_of_windows.c calls Microsoft's own library; a test checks that this header agrees with it.
#pragma once

#include <bits/stdc++.h>

namespace as_msvc {

constexpr std::ptrdiff_t inserted = 32; // up to this many are sorted by insertion
constexpr std::ptrdiff_t ninth = 41;    // above this, the pivot is chosen from nine elements

template <typename It, typename Less> struct sorting {
    It     all;
    Less & less;

    bool is_less(std::ptrdiff_t a, std::ptrdiff_t b) { return less(all[a], all[b]); }

    void exchange(std::ptrdiff_t a, std::ptrdiff_t b) { std::iter_swap(all + a, all + b); }

    void insert(std::ptrdiff_t begin, std::ptrdiff_t end) {
        for (std::ptrdiff_t i = begin; i < end; i++) {
            for (std::ptrdiff_t j = i; j > begin && is_less(j, j - 1); j--) {
                exchange(j, j - 1);
            }
        }
    }

    void order(std::ptrdiff_t a, std::ptrdiff_t b, std::ptrdiff_t c) {
        for (const auto pair : { std::pair(a, b), std::pair(b, c), std::pair(a, b) }) {
            if (is_less(pair.second, pair.first)) {
                exchange(pair.second, pair.first);
            }
        }
    }

    std::ptrdiff_t pivot(std::ptrdiff_t begin, std::ptrdiff_t end) {
        const std::ptrdiff_t n = end - begin, middle = begin + n / 2, last = end - 1, step = n / 8;
        if (n > ninth) {
            order(begin, begin + step, begin + 2 * step);
            order(middle - step, middle, middle + step);
            order(last - 2 * step, last - step, last);
            order(begin + step, middle, last - step);
        } else {
            order(begin, middle, last);
        }
        return middle;
    }

    // Splits the range into lesser, equal and greater elements, working from the pivot towards both
    // ends. Returns the range of the equal ones.
    std::pair<std::ptrdiff_t, std::ptrdiff_t> parts(std::ptrdiff_t begin, std::ptrdiff_t end) {
        std::ptrdiff_t from = pivot(begin, end), to = from + 1;
        for (std::ptrdiff_t low = from, high = to;;) {
            for (; high < end && !is_less(high, from); high++) {
                if (!is_less(from, high)) {
                    exchange(to++, high);
                }
            }
            for (; low > begin && !is_less(from, low - 1); low--) {
                if (!is_less(low - 1, from)) {
                    exchange(--from, low - 1);
                }
            }
            if (low > begin && high < end) {
                exchange(--low, high++);
            } else if (low > begin) {
                exchange(--low, --from);
                exchange(from, --to);
            } else if (high < end) {
                exchange(high++, to);
                exchange(to++, from++);
            } else {
                return { from, to };
            }
        }
    }

    void sort(std::ptrdiff_t begin, std::ptrdiff_t end, std::ptrdiff_t budget) {
        if (end - begin <= inserted) {
            insert(begin, end);
        } else if (budget <= 0) {
            std::make_heap(all + begin, all + end, less);
            std::sort_heap(all + begin, all + end, less);
        } else {
            const auto equal = parts(begin, end);
            budget = budget / 2 + budget / 4;
            sort(begin, equal.first, budget);
            sort(equal.second, end, budget);
        }
    }
};

template <typename Int> struct discrete_distribution : std::discrete_distribution<Int> {
    using std::discrete_distribution<Int>::discrete_distribution;

    template <typename Random> Int operator()(Random & random) {
        if (this->probabilities().size() < 2) {
            std::generate_canonical<double, 53>(random);
            return 0;
        }
        return std::discrete_distribution<Int>::operator()(random);
    }
};

} // namespace as_msvc

namespace std {

template <typename It, typename Less> void sort_as_msvc(It begin, It end, Less less) {
    as_msvc::sorting<It, Less>{ begin, less }.sort(0, end - begin, end - begin);
}

template <typename Int> using discrete_distribution_as_msvc = as_msvc::discrete_distribution<Int>;

} // namespace std

#define sort sort_as_msvc
#define discrete_distribution discrete_distribution_as_msvc
