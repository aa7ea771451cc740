// A host of one generation of ggml's backend interface, small enough to be built for each:
// the accessors that the plugin probes, the functions it calls, and a loader that does with a
// plugin what a program does. The structs are written from the specification (ggml-abi 2), on
// purpose not from the plugin's tables.
//
//   library: gcc -shared -fPIC -DSLOTS=13 -DPROPS=40 -DAPI=1 -DBUFT=6 standin.c -o libggml-base.so
//   program: gcc -DPROGRAM standin.c -o standin; standin LIBRARY PLUGIN
//
// SLOTS: 13, 14, 16, or 18 for one that does not exist. Prints one line per finding; status 0 if
// the plugin was accepted, computed a product and was closed, 3 if it refused.
#include <dlfcn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef PROGRAM
// Like a program in Python: the library is loaded for itself alone.
int main(int argc, char **argv) {
    void *host = argc == 3 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    int (*run)(const char *) = host ? (int (*)(const char *))dlsym(host, "standin_run") : NULL;
    if (!run) {
        fprintf(stderr, "standin LIBRARY PLUGIN: %s\n", argc == 3 ? dlerror() : "two arguments");
        return 2;
    }
    return run(argv[2]);
}
#else

#define EXPORT __attribute__((visibility("default")))
typedef void (*slot)(void);

// Values of the two families of generations (ggml-abi 2.5 and 2.10).
#if PROPS == 40
enum { ACCEL = 2, MUL_MAT = 26 };
#else
enum { ACCEL = 3, MUL_MAT = 29 };
#endif

struct tensor {
    int32_t type;
    void *buffer;
    int64_t ne[4];
    size_t nb[4];
    int32_t op;
    int32_t op_params[16];
    int32_t flags;
    struct tensor *src[10];
    struct tensor *view_src;
    size_t view_offs;
    void *data;
    char name[64];
    void *extra;
    char padding[8];
};
_Static_assert(sizeof(struct tensor) == 336, "ggml-abi 2.6");

struct graph {
    int size, n_nodes, n_leafs;
    struct tensor **nodes;
};

struct reg;
struct device;
struct backend;

struct props {
    const char *name, *description;
    size_t memory_free, memory_total;
    int32_t type;
#if PROPS == 40
    bool async, host_buffer, buffer_from_host_ptr, events;
#else
    const char *device_id;
    bool async, host_buffer, buffer_from_host_ptr, events;
#endif
};
_Static_assert(sizeof(struct props) == PROPS, "ggml-abi 2.5");

struct backend {
    void *guid;
    const char *(*get_name)(struct backend *);
    void (*free)(struct backend *);
    slot set_tensor_async, get_tensor_async;
#if SLOTS == 16
    slot set_tensor_2d_async, get_tensor_2d_async;
#elif SLOTS == 18
    slot staging[4];
#endif
    slot cpy_tensor_async;
    void (*synchronize)(struct backend *);
    slot plan[4];
    int (*graph_compute)(struct backend *, struct graph *);
    slot event_record, event_wait;
#if SLOTS >= 14
    slot graph_optimize;
#endif
    struct device *device;
    void *context;
};
_Static_assert(offsetof(struct backend, device) == 8 * (SLOTS + 1), "ggml-abi 2.3");

struct device {
    const char *(*get_name)(struct device *);
    const char *(*get_description)(struct device *);
    void (*get_memory)(struct device *, size_t *, size_t *);
    int (*get_type)(struct device *);
    void (*get_props)(struct device *, struct props *);
    struct backend *(*init_backend)(struct device *, const char *);
    void *(*get_buffer_type)(struct device *);
    void *(*get_host_buffer_type)(struct device *);
    void *(*buffer_from_host_ptr)(struct device *, void *, size_t, size_t);
    bool (*supports_op)(struct device *, const struct tensor *);
    bool (*supports_buft)(struct device *, void *);
    bool (*offload_op)(struct device *, const struct tensor *);
    slot events[3];
    struct reg *reg;
    void *context;
};
_Static_assert(offsetof(struct device, reg) == 120, "ggml-abi 2.2");

struct reg {
    int32_t api_version;
    const char *(*get_name)(struct reg *);
    size_t (*get_device_count)(struct reg *);
    struct device *(*get_device)(struct reg *, size_t);
    void *(*get_proc_address)(struct reg *, const char *);
    void *context;
};

struct buffer_type {
    slot table[BUFT];
    struct device *device;
};

// Accessors, which the plugin probes.
EXPORT struct device *ggml_backend_get_device(struct backend *b) { return b->device; }
EXPORT const char *ggml_backend_name(struct backend *b) { return b->get_name(b); }
EXPORT void ggml_backend_free(struct backend *b) { b->free(b); }
EXPORT void ggml_backend_synchronize(struct backend *b) {
    if (b->synchronize) b->synchronize(b);
}
EXPORT int ggml_backend_graph_compute_async(struct backend *b, struct graph *g) {
    return b->graph_compute(b, g);
}
EXPORT int ggml_backend_graph_compute(struct backend *b, struct graph *g) {
    int status = b->graph_compute(b, g);
    ggml_backend_synchronize(b);
    return status;
}
EXPORT const char *ggml_backend_dev_name(struct device *d) { return d->get_name(d); }
EXPORT const char *ggml_backend_dev_description(struct device *d) { return d->get_description(d); }
EXPORT void ggml_backend_dev_memory(struct device *d, size_t *f, size_t *t) { d->get_memory(d, f, t); }
EXPORT int ggml_backend_dev_type(struct device *d) { return d->get_type(d); }
EXPORT void ggml_backend_dev_get_props(struct device *d, struct props *p) {
    memset(p, 0, sizeof *p);
    d->get_props(d, p);
}
EXPORT struct reg *ggml_backend_dev_backend_reg(struct device *d) { return d->reg; }
EXPORT struct backend *ggml_backend_dev_init(struct device *d, const char *p) {
    return d->init_backend(d, p);
}
EXPORT void *ggml_backend_dev_buffer_type(struct device *d) { return d->get_buffer_type(d); }
EXPORT void *ggml_backend_dev_buffer_from_host_ptr(struct device *d, void *p, size_t n, size_t m) {
    return d->buffer_from_host_ptr(d, p, n, m);
}
EXPORT bool ggml_backend_dev_supports_op(struct device *d, const struct tensor *t) {
    return d->supports_op(d, t);
}
EXPORT bool ggml_backend_dev_supports_buft(struct device *d, void *b) { return d->supports_buft(d, b); }
EXPORT bool ggml_backend_dev_offload_op(struct device *d, const struct tensor *t) {
    return d->offload_op && d->offload_op(d, t);
}
EXPORT const char *ggml_backend_reg_name(struct reg *r) { return r->get_name(r); }
EXPORT size_t ggml_backend_reg_dev_count(struct reg *r) { return r->get_device_count(r); }
EXPORT struct device *ggml_backend_reg_dev_get(struct reg *r, size_t i) { return r->get_device(r, i); }
EXPORT void *ggml_backend_reg_get_proc_address(struct reg *r, const char *n) {
    return r->get_proc_address ? r->get_proc_address(r, n) : NULL;
}
EXPORT struct device *ggml_backend_buft_get_device(struct buffer_type *b) { return b->device; }
#if SLOTS >= 16
EXPORT void ggml_backend_tensor_set_2d_async(void) { abort(); }
#endif
#if BUFT >= 8
EXPORT void ggml_backend_buft_alloc_buffer_n(void) { abort(); }
#endif

// The registry: a CPU backend, and whatever is loaded.
static const char *cpu_name(struct reg *r) {
    (void)r;
    return "CPU";
}
static struct reg cpu = {.api_version = API, .get_name = cpu_name};
static struct reg *registered[8] = {&cpu};
static size_t count = 1;
EXPORT size_t ggml_backend_reg_count(void) { return count; }
EXPORT struct reg *ggml_backend_reg_get(size_t i) { return registered[i]; }

// What the plugin calls.
static struct buffer_type host_memory;
EXPORT bool ggml_backend_buft_is_host(void *b) { return b == &host_memory; }
EXPORT void *ggml_backend_buffer_get_type(void *b) {
    (void)b;
    return &host_memory;
}
EXPORT int ggml_backend_buffer_get_usage(void *b) {
    (void)b;
    return 1;
}
EXPORT void *ggml_backend_buffer_get_base(void *b) { return b; }
EXPORT void *ggml_backend_cpu_buffer_type(void) { return &host_memory; }
EXPORT void *ggml_backend_cpu_buffer_from_ptr(void *p, size_t n) {
    (void)n;
    return p;
}
EXPORT int ggml_graph_n_nodes(struct graph *g) { return g->n_nodes; }
EXPORT struct tensor *ggml_graph_node(struct graph *g, int i) { return g->nodes[i]; }
EXPORT size_t ggml_tensor_overhead(void) { return 32 + sizeof(struct tensor); }
EXPORT size_t ggml_type_size(int t) { return t == 0 ? 4 : 2; }
EXPORT int64_t ggml_blck_size(int t) {
    (void)t;
    return 1;
}
EXPORT struct device *ggml_backend_dev_by_type(int t) {
    (void)t;
    return NULL;
}
// A product that has to be redone on the CPU would come here, and fails the test.
#define NEVER(name) \
    EXPORT void name(void) { fprintf(stderr, #name " was called\n"), abort(); }
NEVER(ggml_graph_add_node)
NEVER(ggml_graph_overhead_custom)
NEVER(ggml_new_graph_custom)
NEVER(ggml_init)
NEVER(ggml_free)

// 81 ops, the fewest that any host had (ggml-abi 2.10): the walk must not go further.
EXPORT const char *ggml_op_name(int op) {
    const int views = MUL_MAT + 7;
    if (op < 0 || op >= 81) fprintf(stderr, "op %d was asked\n", op), abort();
    if (op == 0) return "NONE";
    if (op == MUL_MAT) return "MUL_MAT";
    if (op == MUL_MAT + 1) return "MUL_MAT_ID";
    if (op == views) return "RESHAPE";
    if (op == views + 1) return "VIEW";
    if (op == views + 2) return "PERMUTE";
    if (op == views + 3) return "TRANSPOSE";
    return "OTHER";
}
EXPORT void ggml_log_internal(int level, const char *format, ...) {
    va_list args;
    va_start(args, format);
    printf("log %d ", level);
    vprintf(format, args);
    va_end(args);
}

#define CHECK(x) \
    do { \
        if (!(x)) { \
            fprintf(stderr, "standin: line %d: %s\n", __LINE__, #x); \
            return 1; \
        } \
    } while (0)

enum { M = 128, K = 64, N = 96 };
static float weight[N][K], activation[M][K], result[M][N];

static struct tensor matrix(void *data, int64_t columns, int64_t rows) {
    struct tensor t = {.ne = {columns, rows, 1, 1}, .buffer = data, .data = data};
    t.nb[0] = 4;
    for (int i = 1; i < 4; i++) t.nb[i] = t.nb[i - 1] * (size_t)t.ne[i - 1];
    return t;
}

static int product(struct device *d, struct backend *b) {
    // Small whole numbers: every sum is exact in half precision.
    for (int i = 0; i < N * K; i++) weight[i / K][i % K] = (float)(i * 7 % 5 - 2);
    for (int i = 0; i < M * K; i++) activation[i / K][i % K] = (float)(i * 5 % 7 - 3);
    struct tensor w = matrix(weight, K, N), a = matrix(activation, K, M), r = matrix(result, N, M);
    r.op = MUL_MAT;
    r.src[0] = &w, r.src[1] = &a;
    strcpy(r.name, "product");
    CHECK(ggml_backend_dev_supports_op(d, &r));
    r.op = MUL_MAT + 2;
    CHECK(!ggml_backend_dev_supports_op(d, &r));
    r.op = MUL_MAT;
    struct tensor *nodes[] = {&r};
    struct graph g = {.n_nodes = 1, .nodes = nodes};
    CHECK(ggml_backend_graph_compute(b, &g) == 0);
    int wrong = 0, zero = 0;
    for (int m = 0; m < M; m++)
        for (int n = 0; n < N; n++) {
            float sum = 0;
            for (int k = 0; k < K; k++) sum += weight[n][k] * activation[m][k];
            wrong += result[m][n] != sum;
            zero += sum == 0;
        }
    CHECK(zero < M * N / 2);
    CHECK(wrong == 0);
    return 0;
}

EXPORT int standin_run(const char *path) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    struct reg *first = NULL;
    // Hosts search more than once, and each search loads the file again (ggml-abi 4).
    for (int i = 0; i < 3; i++) {
        void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!handle) fprintf(stderr, "%s\n", dlerror());
        CHECK(handle);
        int (*score)(void) = (int (*)(void))dlsym(handle, "ggml_backend_score");
        struct reg *(*init)(void) = (struct reg * (*)(void)) dlsym(handle, "ggml_backend_init");
        CHECK(score && init && score() == 1);
        struct reg *r = init();
        if (i > 0) CHECK(r == first);
        first = r;
        if (!r) return 3;
        CHECK(r->api_version == API);
        registered[count++] = r;
    }
    CHECK(!strcmp(ggml_backend_reg_name(first), "ROCKET"));
    CHECK(ggml_backend_reg_dev_count(first) == 1);
    struct device *d = ggml_backend_reg_dev_get(first, 0);
    CHECK(d && d->reg == first && !ggml_backend_reg_dev_get(first, 1));
    CHECK(ggml_backend_dev_type(d) == ACCEL);
    CHECK(ggml_backend_dev_buffer_type(d) == &host_memory);
    CHECK(ggml_backend_dev_supports_buft(d, &host_memory));

    struct {
        unsigned char before[16];
        struct props p;
        unsigned char after[16];
    } area;
    memset(&area, 0xA5, sizeof area);
    ggml_backend_dev_get_props(d, &area.p);
    for (int i = 0; i < 16; i++) CHECK(area.before[i] == 0xA5 && area.after[i] == 0xA5);
    CHECK(!strcmp(area.p.name, "ROCKET") && area.p.type == ACCEL);
    CHECK(area.p.buffer_from_host_ptr && !area.p.async && !area.p.host_buffer && !area.p.events);

    // Two at once, closed in the order they were opened.
    struct backend *b[2] = {ggml_backend_dev_init(d, NULL), ggml_backend_dev_init(d, NULL)};
    for (int i = 0; i < 2; i++) {
        CHECK(b[i] && b[i] != b[!i] && ggml_backend_get_device(b[i]) == d);
        CHECK(!strcmp(ggml_backend_name(b[i]), "ROCKET"));
        if (product(d, b[i])) return 1;
        memset(result, 0, sizeof result);
    }
    ggml_backend_free(b[0]);
    if (product(d, b[1])) return 1;
    ggml_backend_free(b[1]);
    printf("three products of %d x %d x %d\n", M, K, N);
    return 0;
}
#endif
