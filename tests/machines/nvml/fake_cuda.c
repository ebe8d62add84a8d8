/* A stand-in for libcuda.so.1: one GPU whose memory is this process's own, and a kernel that it knows by heart.

   MLW_FAKE_CUDA="word …" makes it misbehave: init=N, retain=N, launch=N (a code of CUDA), none (no device), wrong (it
   calculates something else), oldest=sm_80 (programs for older cards are refused). While a context is there, the
   process claims the GPUs of CUDA_VISIBLE_DEVICES in MLW_FAKE_GPUS (see fake_nvml.c). */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *fault(const char *word) {
    const char *all = getenv("MLW_FAKE_CUDA"), *at = all ? strstr(all, word) : NULL;
    return at ? at + strlen(word) : NULL;
}
static int code(const char *word) { const char *at = fault(word); return at ? atoi(at) : 0; }
static const char *visible(void) { const char *all = getenv("CUDA_VISIBLE_DEVICES"); return all && *all ? all : NULL; }

static void claim(int begin) {
    const char *state = getenv("MLW_FAKE_GPUS");
    char path[4400], *slash;
    if (!state || !visible()) return;
    snprintf(path, sizeof path, "%s", state);
    if (!(slash = strrchr(path, '/'))) return;
    snprintf(slash, sizeof path - (slash - path), "/claims/%d", (int)getpid());
    if (!begin) { unlink(path); return; }
    FILE *file = fopen(path, "w");
    if (file) { fprintf(file, "%s %llu 95\n", visible(), 600ull << 20); fclose(file); }
}

int cuInit(unsigned flags) { return code("init="); }
int cuDriverGetVersion(int *to) { *to = 12080; return 0; }
int cuDeviceGetCount(int *to) { *to = !fault("none"); return 0; }
int cuDeviceGet(int *to, int number) { *to = number; return number ? 101 : 0; }
int cuDeviceGetName(char *to, int size, int device) { snprintf(to, size, "NVIDIA H200"); return 0; }
int cuDeviceTotalMem_v2(size_t *to, int device) { *to = (size_t)139 << 30; return 0; }
int cuDeviceGetAttribute(int *to, int what, int device) { *to = what == 75 ? 9 : what == 76 ? 0 : 4; return 0; }
int cuDeviceGetUuid_v2(unsigned char *to, int device) { for (int i = 0; i < 16; i++) to[i] = i; return 0; }
int cuDevicePrimaryCtxRetain(void **to, int device) { *to = to; claim(1); return code("retain="); }
int cuDevicePrimaryCtxRelease_v2(int device) { claim(0); return 0; }
int cuCtxSetCurrent(void *context) { return 0; }
int cuCtxSynchronize(void) { return 0; }
int cuMemAlloc_v2(uint64_t *to, size_t size) { *to = (uintptr_t)malloc(size); return 0; }
int cuMemFree_v2(uint64_t at) { free((void *)(uintptr_t)at); return 0; }
int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t size) { memcpy(to, (void *)(uintptr_t)from, size); return 0; }
int cuMemsetD32_v2(uint64_t at, unsigned value, size_t count) {
    for (size_t i = 0; i < count; i++) ((unsigned *)(uintptr_t)at)[i] = value;
    return 0;
}
int cuModuleLoadData(void **to, const char *text) {
    const char *oldest = fault("oldest="), *target = strstr(text, ".target ");
    if (!target || !strstr(text, ".visible .entry halves(")) return 218;
    if (oldest && strncmp(target + 8, oldest, strlen("sm_80"))) return 218;
    *to = to;
    return 0;
}
int cuModuleGetFunction(void **to, void *module, const char *name) { *to = to; return strcmp(name, "halves") ? 500 : 0; }
int cuLaunchKernel(void *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **values, void **more) {
    float *data = (float *)(uintptr_t) * (uint64_t *)values[0];
    unsigned rounds = *(unsigned *)values[1], steps = rounds < 8 ? 8 * rounds : 64;
    if (code("launch=")) return code("launch=");
    for (size_t i = 0; i < (size_t)gx * bx; i++)
        for (unsigned step = 0; step < steps; step++) data[i] = data[i] * 0.5f + (fault("wrong") ? 0.9f : 1.0f);
    usleep(rounds * 10 > 200000 ? 200000 : rounds * 10);
    return 0;
}
int cuGetErrorName(int number, const char **to) { *to = number == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR"; return 0; }
int cuGetErrorString(int number, const char **to) { *to = "in words"; return 0; }
