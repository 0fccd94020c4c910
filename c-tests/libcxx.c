/* Stands for libc++: defines the one function that llama-sieve looks for to tell it from libstdc++.
 * The name is that of std::__1::locale::locale(). */
void of_libcxx(void) __asm__("_ZNSt3__16localeC1Ev");
void of_libcxx(void) {
}
