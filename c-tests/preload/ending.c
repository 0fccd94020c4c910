// A library that says when it begins and ends, and frees a model at its end, as static objects of
// C++ do. With -DAS_PROGRAM, the program that is linked with it.
#include <stddef.h>
#include <stdio.h>

int ending_run(void);

#ifdef AS_PROGRAM

int main(void) { return ending_run(); }

#else

struct llama_model;
void llama_model_free(struct llama_model * model);

int ending_run(void) { return 0; }

__attribute__((constructor)) static void begin(void) { puts("begun"); }

__attribute__((destructor)) static void end(void) {
    llama_model_free(NULL);
    puts("ended");
    fflush(stdout);
}

#endif
