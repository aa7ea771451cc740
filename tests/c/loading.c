// The host of standin.c with a loader of its own, as ggml's registry has it (ggml-abi 4): one library that is
// libggml-base and libggml at once.
//
//   gcc -shared -fPIC -DSLOTS=16 -DPROPS=56 -DAPI=2 -DBUFT=6 [-DOPS=N] loading.c -o libggml.so
//
// OPS: the numbers of operations are N less than those of standin.c; 99 for a host that has no MUL_MAT.
// EMPTY: nothing is registered at first, as where the CPU backend is a module.
#ifdef OPS
#define ggml_op_name standin_op_name
#endif
#include "standin.c"
#ifdef OPS
#undef ggml_op_name
EXPORT const char *ggml_op_name(int op) {
    if (op < 0 || op >= 81) abort();
    if (OPS == 99) return op == 80 ? "GLU" : op == 0 ? "NONE" : "OTHER";
    return op > 0 && op + OPS < 81 ? standin_op_name(op + OPS) : op == 0 ? "NONE" : "OTHER";
}
#endif

#ifdef EMPTY
__attribute__((constructor)) static void empty(void) { count = 0; }
#endif

EXPORT const char *ggml_version(void) { return "0.0.0-loading"; }

static void (*logger)(int, const char *, void *);
EXPORT void ggml_log_set(void (*f)(int, const char *, void *), void *user) {
    (void)user;
    logger = f;
}

EXPORT void ggml_backend_load_all_from_path(const char *path) {
    (void)path;
    puts("host: loads its own");
}

EXPORT struct reg *ggml_backend_load(const char *path) {
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) return NULL;
    int (*score)(void) = (int (*)(void))dlsym(handle, "ggml_backend_score");
    struct reg *(*init)(void) = (struct reg * (*)(void)) dlsym(handle, "ggml_backend_init");
    struct reg *r = (score && score() == 0) || !init ? NULL : init();
    if (r && r->api_version != API) {
        if (logger) logger(4, "the backend has another API version\n", NULL);
        r = NULL;
    }
    if (r) registered[count++] = r;
    return r;
}
