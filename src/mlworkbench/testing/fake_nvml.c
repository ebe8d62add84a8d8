/* A stand-in for libnvidia-ml.so.1 that plays the GPUs of a text file (MLW_FAKE_GPUS), read anew when it changes.

   Lines: "word value…". Before the first "gpu": driver, cuda (13000), init (an NVML code), count (an NVML code),
   claims FOLDER, delay MS. Then for each card "gpu UUID", and below it what differs from the defaults:
   name, capability 9.0, memory TOTAL USED, utilisation N, temperature N, power MW, limit MW, energy MJ, clock N,
   reasons MASK, pcie RX TX (KB/s), bus ID, process compute|graphics PID BYTES, mig UUID NAME, error CODE (of every
   question), handle CODE (of the first), lacks WORD (one question is "not supported").

   A process that wants to look as if it used a GPU writes lines "UUID BYTES UTILISATION" into CLAIMS/<its pid>; they
   count for as long as it lives. */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define MOST 64
#define OK 0
#define NO_ARG 2
#define NOT_SUPPORTED 3
#define NOT_FOUND 6
#define TOO_SMALL 7
typedef unsigned long long u64;

struct process { unsigned pid; u64 memory; int graphics, util; };
struct gpu {
    char uuid[96], name[96], bus[32], lacks[256], mig[8][2][96];
    int major, minor, util, temperature, clock, error, handle, migs, processes;
    unsigned power, limit, rx, tx;
    u64 total, used, energy, reasons;
    struct process process[MOST];
};
static struct { char driver[80], claims[4096]; int cuda, init, count_code, count, delay; struct gpu gpu[MOST]; } S;
static struct timespec seen;
static long seen_inode = -1;
static int handles[MOST * 16];

static void claim(const char *folder) {
    DIR *all = opendir(folder);
    struct dirent *one;
    while (all && (one = readdir(all))) {
        int pid = atoi(one->d_name);
        char path[4400], uuid[96];
        u64 memory;
        int util;
        if (pid <= 0 || (kill(pid, 0) && errno == ESRCH)) continue;
        snprintf(path, sizeof path, "%s/%s", folder, one->d_name);
        FILE *file = fopen(path, "r");
        while (file && fscanf(file, "%95s %llu %d", uuid, &memory, &util) == 3)
            for (int i = 0; i < S.count; i++) {
                struct gpu *g = &S.gpu[i];
                if (strcmp(g->uuid, uuid) || g->processes >= MOST) continue;
                g->process[g->processes++] = (struct process){pid, memory, 0, util};
                g->used += memory;
                g->util = g->util + util > 100 ? 100 : g->util + util;
            }
        if (file) fclose(file);
    }
    if (all) closedir(all);
}

static void line(char *text) {
    char word[32] = "", a[4096] = "", b[256] = "", c[256] = "";
    struct gpu *g = S.count ? &S.gpu[S.count - 1] : NULL;
    if (sscanf(text, "%31s %4095s %255s %255s", word, a, b, c) < 2) return;
#define IS(text) (!strcmp(word, text))
    if (IS("driver")) snprintf(S.driver, sizeof S.driver, "%s", a);
    if (IS("cuda")) S.cuda = atoi(a);
    if (IS("init")) S.init = atoi(a);
    if (IS("count")) S.count_code = atoi(a);
    if (IS("delay")) S.delay = atoi(a);
    if (IS("claims")) snprintf(S.claims, sizeof S.claims, "%s", a);
    if (IS("gpu") && S.count < MOST) {
        g = &S.gpu[S.count++];
        memset(g, 0, sizeof *g);
        snprintf(g->uuid, sizeof g->uuid, "%s", a);
        strcpy(g->name, "NVIDIA Fake");
        snprintf(g->bus, sizeof g->bus, "00000000:%02X:00.0", S.count);
        g->major = 9; g->total = 16ull << 30; g->temperature = 40; g->power = 70000; g->limit = 700000;
        g->clock = 3201; g->energy = 1000000; g->reasons = 1;
    }
    if (!g) return;
    if (IS("name")) { snprintf(g->name, sizeof g->name, "%s", strstr(text, a)); g->name[strcspn(g->name, "\n")] = 0; }
    if (IS("capability")) sscanf(a, "%d.%d", &g->major, &g->minor);
    if (IS("memory")) { g->total = strtoull(a, 0, 0); g->used = strtoull(b, 0, 0); }
    if (IS("utilisation")) g->util = atoi(a);
    if (IS("temperature")) g->temperature = atoi(a);
    if (IS("power")) g->power = atoi(a);
    if (IS("limit")) g->limit = atoi(a);
    if (IS("energy")) g->energy = strtoull(a, 0, 0);
    if (IS("clock")) g->clock = atoi(a);
    if (IS("reasons")) g->reasons = strtoull(a, 0, 0);
    if (IS("pcie")) { g->rx = atoi(a); g->tx = atoi(b); }
    if (IS("bus")) snprintf(g->bus, sizeof g->bus, "%.31s", a);
    if (IS("error")) g->error = atoi(a);
    if (IS("handle")) g->handle = atoi(a);
    if (IS("lacks")) { strncat(g->lacks, a, 100); strcat(g->lacks, " "); }
    if (IS("mig") && g->migs < 8) {
        snprintf(g->mig[g->migs][0], 96, "%s", a);
        snprintf(g->mig[g->migs++][1], 96, "%s", b);
    }
    if (IS("process") && g->processes < MOST)
        g->process[g->processes++] = (struct process){atoi(b), strtoull(c, 0, 0), !strcmp(a, "graphics"), g->util};
}

static void look(void) {
    const char *path = getenv("MLW_FAKE_GPUS");
    struct stat now;
    if (!path || stat(path, &now)) { memset(&S, 0, sizeof S); S.init = 9; return; }
    if (S.delay) {
        struct timespec pause = {S.delay / 1000, S.delay % 1000 * 1000000L};
        nanosleep(&pause, NULL);
    }
    int changed = now.st_ino != (unsigned long)seen_inode || now.st_mtim.tv_sec != seen.tv_sec ||
                  now.st_mtim.tv_nsec != seen.tv_nsec;
    if (!changed && !S.claims[0]) return;
    seen = now.st_mtim;
    seen_inode = (long)now.st_ino;
    memset(&S, 0, sizeof S);
    strcpy(S.driver, "580.159.04");
    S.cuda = 13000;
    FILE *file = fopen(path, "r");
    char text[4400];
    while (file && fgets(text, sizeof text, file)) line(text);
    if (file) fclose(file);
    if (S.claims[0]) claim(S.claims);
}

/* A handle is an address in a table of numbers: card * 16, and + 1 … for its slices. */
static int of(void *handle) { return (int)((int *)handle - handles); }
static int ask(void *handle, const char *word, struct gpu **g) {
    look();
    if (!handle || of(handle) / 16 >= S.count) return NO_ARG;
    *g = &S.gpu[of(handle) / 16];
    if ((*g)->error) return (*g)->error;
    return strstr((*g)->lacks, word) ? NOT_SUPPORTED : OK;
}
#define ASK(word) struct gpu *g; int bad = ask(handle, word, &g); if (bad) return bad

int nvmlInitWithFlags(unsigned flags) { (void)flags; look(); return S.init; }
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) {
    switch (code) {
    case 9: return "Driver Not Loaded";
    case 15: return "GPU is lost";
    case 16: return "GPU requires reset";
    case 18: return "Driver/library version mismatch";
    default: return "Unknown Error";
    }
}
int nvmlSystemGetDriverVersion(char *to, unsigned size) { look(); snprintf(to, size, "%s", S.driver); return OK; }
int nvmlSystemGetNVMLVersion(char *to, unsigned size) { look(); snprintf(to, size, "13.%s", S.driver); return OK; }
int nvmlSystemGetCudaDriverVersion_v2(int *to) { look(); *to = S.cuda; return OK; }
int nvmlSystemGetCudaDriverVersion(int *to) { return nvmlSystemGetCudaDriverVersion_v2(to); }
int nvmlDeviceGetCount_v2(unsigned *to) { look(); *to = S.count; return S.count_code; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **to) {
    look();
    if (index >= (unsigned)S.count) return NO_ARG;
    *to = &handles[index * 16];
    return S.gpu[index].handle;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, void **to) {
    look();
    for (int i = 0; i < S.count; i++)
        if (!strcmp(S.gpu[i].uuid, uuid)) { *to = &handles[i * 16]; return S.gpu[i].handle; }
    return NOT_FOUND;
}
int nvmlDeviceGetUUID(void *handle, char *to, unsigned size) {
    ASK("uuid");
    snprintf(to, size, "%s", of(handle) % 16 ? g->mig[of(handle) % 16 - 1][0] : g->uuid);
    return OK;
}
int nvmlDeviceGetName(void *handle, char *to, unsigned size) {
    ASK("name");
    snprintf(to, size, "%s", of(handle) % 16 ? g->mig[of(handle) % 16 - 1][1] : g->name);
    return OK;
}
int nvmlDeviceGetCudaComputeCapability(void *handle, int *major, int *minor) {
    ASK("capability");
    *major = g->major; *minor = g->minor;
    return OK;
}
struct memory2 { unsigned version; u64 total, reserved, free, used; };
int nvmlDeviceGetMemoryInfo_v2(void *handle, struct memory2 *to) {
    ASK("memory");
    to->total = g->total; to->reserved = 0; to->used = g->used; to->free = g->total - g->used;
    return OK;
}
int nvmlDeviceGetMemoryInfo(void *handle, u64 *to) {
    ASK("memory");
    to[0] = g->total; to[1] = g->total - g->used; to[2] = g->used;
    return OK;
}
int nvmlDeviceGetUtilizationRates(void *handle, unsigned *to) { ASK("utilisation"); to[0] = g->util; to[1] = g->util / 2; return OK; }
int nvmlDeviceGetTemperature(void *handle, unsigned kind, unsigned *to) { (void)kind; ASK("temperature"); *to = g->temperature; return OK; }
int nvmlDeviceGetPowerUsage(void *handle, unsigned *to) { ASK("power"); *to = g->power; return OK; }
int nvmlDeviceGetEnforcedPowerLimit(void *handle, unsigned *to) { ASK("limit"); *to = g->limit; return OK; }
int nvmlDeviceGetMaxClockInfo(void *handle, unsigned kind, unsigned *to) { (void)kind; ASK("clock"); *to = g->clock; return OK; }
int nvmlDeviceGetClockInfo(void *handle, unsigned kind, unsigned *to) { (void)kind; ASK("clock"); *to = g->clock; return OK; }
int nvmlDeviceGetTotalEnergyConsumption(void *handle, u64 *to) { ASK("energy"); *to = g->energy; return OK; }
int nvmlDeviceGetCurrentClocksThrottleReasons(void *handle, u64 *to) { ASK("reasons"); *to = g->reasons; return OK; }
int nvmlDeviceGetCurrentClocksEventReasons(void *handle, u64 *to) { return nvmlDeviceGetCurrentClocksThrottleReasons(handle, to); }
int nvmlDeviceGetPcieThroughput(void *handle, unsigned kind, unsigned *to) { ASK("pcie"); *to = kind ? g->rx : g->tx; return OK; }
int nvmlDeviceGetFieldValues(void *handle, int count, void *values) { (void)count; (void)values; ASK("fields"); return NOT_SUPPORTED; }
struct pci { char old[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; };
int nvmlDeviceGetPciInfo_v3(void *handle, struct pci *to) {
    ASK("bus");
    memset(to, 0, sizeof *to);
    snprintf(to->bus_id, sizeof to->bus_id, "%s", g->bus);
    return OK;
}
int nvmlDeviceGetMigMode(void *handle, unsigned *now, unsigned *soon) {
    ASK("migmode");
    if (!g->migs) return NOT_SUPPORTED;
    *now = *soon = 1;
    return OK;
}
int nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned *to) { ASK("migmode"); *to = g->migs ? 7 : 0; return OK; }
int nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned index, void **to) {
    ASK("migmode");
    if (index >= (unsigned)g->migs) return NOT_FOUND;
    *to = &handles[of(handle) + 1 + index];
    return OK;
}
struct info { unsigned pid; u64 memory; unsigned gi, ci; };
static int list(void *handle, unsigned *count, struct info *to, int graphics) {
    ASK(graphics ? "graphics" : "compute");
    unsigned found = 0;
    for (int i = 0; i < g->processes; i++) {
        if (g->process[i].graphics != graphics) continue;
        if (to && found < *count)
            to[found] = (struct info){g->process[i].pid, g->process[i].memory ? g->process[i].memory : ~0ull, ~0u, ~0u};
        found++;
    }
    int small = found > *count || (!to && found);
    *count = found;
    return small ? TOO_SMALL : OK;
}
struct load { unsigned pid; u64 time; unsigned sm, memory, encoder, decoder; };
int nvmlDeviceGetProcessUtilization(void *handle, struct load *to, unsigned *count, u64 since) {
    (void)since;
    ASK("loads");
    unsigned size = *count;
    *count = g->processes;
    if (!g->processes) return NOT_FOUND;
    if (!to || size < *count) return TOO_SMALL;
    for (int i = 0; i < g->processes; i++) to[i] = (struct load){g->process[i].pid, time(NULL) * 1000000ull, g->process[i].util};
    return OK;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, struct info *to) { return list(handle, count, to, 0); }
int nvmlDeviceGetGraphicsRunningProcesses_v3(void *handle, unsigned *count, struct info *to) { return list(handle, count, to, 1); }
