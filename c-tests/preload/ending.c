// A library that prints a line when it is initialised and when it is finalised. It frees a model
// while it is finalised, as destructors of static C++ objects do. With -DAS_PROGRAM, the program
// that is linked with that library.
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
