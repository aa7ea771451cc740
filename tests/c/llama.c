// Around the host of loading.c: what a program of llama.cpp's form consists of, one part a compilation. None of it
// computes; what matters is who asks the loader for GGML_BACKEND_PATH (ggml-abi 4).
#include <stddef.h>
#include <stdlib.h>

void *ggml_backend_load(const char *path);
size_t ggml_backend_reg_count(void);
void ggml_backend_load_all(void);
void llama_backend_init(void);

#if defined(GGML)
void ggml_backend_load_all(void) {
    const char *path = getenv("GGML_BACKEND_PATH");
    if (path && *path) ggml_backend_load(path);
}
#elif defined(CPU)
void *ggml_backend_cpu_reg(void) { return NULL; }
#elif defined(LLAMA)
void llama_backend_init(void) {
    if (ggml_backend_reg_count() == 0) ggml_backend_load_all();
}
#elif defined(CLI)
// Imports the loader for an option that lists devices.
int main(int argc, char **argv) {
    (void)argv;
    if (argc > 1) ggml_backend_load_all();
    llama_backend_init();
    return 0;
}
#elif defined(BENCH)
int main(void) {
    ggml_backend_load_all();
    llama_backend_init();
    return 0;
}
#endif
