/*
 * The state of the rig, and what every call does before it answers: read the state, log, fail if told to.
 *
 * ZENIT_RIG_NVML_STATE names the state, read again at every call, one "key value" a line. A target is
 * a card ("0", in NVML order) or a slice of one ("0.1"). A field that is absent is NOT_SUPPORTED.
 *
 *     cards 1                                    driver_version 580.95.05
 *     0.uuid GPU-...                             cuda_driver_version 13000
 *     0.name NVIDIA GeForce RTX 5090             0.compute_capability 12.0
 *     0.pci_bus_id 00000000:01:00.0              0.total_bytes 34190917632
 *     0.free_bytes 33000000000                   0.used_bytes 1      (absent: what is not free)
 *     0.reserved_bytes 0  (absent: memory v2 is FUNCTION_NOT_FOUND, as in an old driver)
 *     0.processes 1                              0.process.0 <pid> <used bytes>
 *     0.graphics_processes 1                     0.graphics_process.0 <pid> <used bytes>
 *     0.mig_mode 1   0.mig_max 7   0.slices 1    0.0.uuid MIG-...    (a slice has the fields of a card)
 *     0.pid_offset 1000  (the pids of living processes as another namespace counts them)
 *     0.process_bytes_hidden 1                   (a process's memory is "not available")
 *     release_ms 50      (what a process held is free that much after its end; ledger.h)
 *     fault.<function or *>.<target or *> <NVML error number> <delay in ms>
 *
 * Of several faults the one that names the function, then the one that names the target, is taken. It
 * sleeps, then answers the error; error 0 answers as if it were not there. A call that aims at no card
 * (nvmlInit_v2) has the target "-". ZENIT_RIG_NVML_LOG, if set, gets "<function> <target> <pid>" a call,
 * written on entry, so that a hang is in it too.
 *
 * A state that cannot be read ends the process: an NVML error would look like a test that passes.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    NVML_SUCCESS = 0, NVML_UNINITIALIZED = 1, NVML_INVALID_ARGUMENT = 2, NVML_NOT_SUPPORTED = 3,
    NVML_NOT_FOUND = 6, NVML_INSUFFICIENT_SIZE = 7, NVML_FUNCTION_NOT_FOUND = 13, NVML_GPU_IS_LOST = 15,
    NVML_ARGUMENT_VERSION_MISMATCH = 25,
};
enum { NO_CARD = -1, WHOLE_CARD = -1, CARDS_MAX = 64, SLICES_MAX = 16, KEY_SIZE = 128, RIG_BROKEN = 70 };
enum { STATE_PROCESSES = 256 };

/* Opaque to pynvml: the numbers of the card and of its slice, so that it outlives a change of the state. */
typedef struct nvmlDevice *nvmlDevice_t;
enum { HANDLE_BASE = 0x10000, HANDLE_STEP = 16, PLACES_A_CARD = SLICES_MAX + 1 };

/* One call holds one snapshot of the state on its own stack: threads may call, and one may hang. */
struct call { int card, slice; char target[32], state[1 << 16]; };

static atomic_int init_count;

static _Noreturn void give_up(const char *what, const char *path)
{
    fprintf(stderr, "nvml rig: cannot %s=%s\n", what, path ? path : "(unset)");
    _exit(RIG_BROKEN);
}

static void load_state(struct call *call)
{
    const char *path = getenv("ZENIT_RIG_NVML_STATE");
    FILE *file = path ? fopen(path, "r") : NULL;
    size_t size = file ? fread(call->state, 1, sizeof call->state, file) : 0;

    if (!file || ferror(file) || size == sizeof call->state)
        give_up("read ZENIT_RIG_NVML_STATE", path);
    call->state[size] = '\0';
    fclose(file);
}

/* The value that follows "key ", up to the end of its line; NULL where the key is absent. */
static const char *find(const struct call *call, const char *key)
{
    size_t length = strlen(key);

    for (const char *line = call->state; *line; line += strcspn(line, "\n"), line += *line == '\n')
        if (!strncmp(line, key, length) && line[length] == ' ')
            return line + length + 1;
    return NULL;
}

static const char *field(const struct call *call, const char *name)
{
    char key[KEY_SIZE];

    snprintf(key, sizeof key, "%s.%s", call->target, name);
    return find(call, key);
}

static int read_number(const char *value, unsigned long long *result)
{
    if (!value)
        return NVML_NOT_SUPPORTED;
    *result = strtoull(value, NULL, 10);
    return NVML_SUCCESS;
}

static unsigned int count_or_zero(const char *value)
{
    return value ? (unsigned int)strtoul(value, NULL, 10) : 0;
}

static int read_text(const char *value, char *buffer, unsigned int size)
{
    size_t length = value ? strcspn(value, "\n") : 0;

    if (!value)
        return NVML_NOT_SUPPORTED;
    if (length >= size)
        return NVML_INSUFFICIENT_SIZE;
    memcpy(buffer, value, length);
    buffer[length] = '\0';
    return NVML_SUCCESS;
}

static void aim(struct call *call, int card, int slice)
{
    call->card = card;
    call->slice = slice;
    if (card == NO_CARD)
        snprintf(call->target, sizeof call->target, "-");
    else if (slice == WHOLE_CARD)
        snprintf(call->target, sizeof call->target, "%d", card);
    else
        snprintf(call->target, sizeof call->target, "%d.%d", card, slice);
}

/* Whether what the call aims at is there; it need not be any longer, where the state has changed. */
static int exists(const struct call *call)
{
    char key[KEY_SIZE];

    snprintf(key, sizeof key, "%d.slices", call->card);
    return call->card != NO_CARD && call->card < (int)count_or_zero(find(call, "cards")) &&
           (call->slice == WHOLE_CARD || call->slice < (int)count_or_zero(find(call, key)));
}

/* One write with O_APPEND, so that the lines of several processes do not mix. */
static void log_call(const struct call *call, const char *function)
{
    const char *path = getenv("ZENIT_RIG_NVML_LOG");
    char line[KEY_SIZE];
    int length = snprintf(line, sizeof line, "%s %s %ld\n", function, call->target, (long)getpid());
    int log = path ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666) : -1;

    if (path && (log < 0 || write(log, line, (size_t)length) != length))
        give_up("write ZENIT_RIG_NVML_LOG", path);
    if (log >= 0)
        close(log);
}

/* A signal does not shorten it: a driver that hangs does not hear one either. */
static void sleep_ms(long delay_ms)
{
    struct timespec left = { delay_ms / 1000, delay_ms % 1000 * 1000000 };

    while (nanosleep(&left, &left) && errno == EINTR)
        continue;
}

static int fault(const struct call *call, const char *function)
{
    const char *functions[] = { function, "*" }, *targets[] = { call->target, "*" };

    for (int i = 0; i < 4; i++) {
        char key[KEY_SIZE];
        long delay_ms = 0;
        int error = NVML_SUCCESS;

        snprintf(key, sizeof key, "fault.%s.%s", functions[i / 2], targets[i % 2]);
        const char *value = find(call, key);
        if (value && sscanf(value, "%d %ld", &error, &delay_ms) == 2) {
            sleep_ms(delay_ms);
            return error;
        }
    }
    return NVML_SUCCESS;
}

static int admit(const struct call *call, const char *function)
{
    log_call(call, function);
    return atomic_load(&init_count) ? fault(call, function) : NVML_UNINITIALIZED;
}

static int enter(struct call *call, const char *function, int card, int slice)
{
    load_state(call);
    aim(call, card, slice);
    return admit(call, function);
}

static nvmlDevice_t handle_of(int card, int slice)
{
    return (nvmlDevice_t)((uintptr_t)HANDLE_BASE + HANDLE_STEP * (uintptr_t)(card * PLACES_A_CARD + slice + 1));
}

static void place_of(nvmlDevice_t device, int *card, int *slice)
{
    uintptr_t place = ((uintptr_t)device - HANDLE_BASE) / HANDLE_STEP;
    int known = (uintptr_t)device >= HANDLE_BASE && place < CARDS_MAX * PLACES_A_CARD;

    *card = known ? (int)place / PLACES_A_CARD : NO_CARD;
    *slice = known ? (int)place % PLACES_A_CARD - 1 : WHOLE_CARD;
}

static int enter_device(struct call *call, const char *function, nvmlDevice_t device)
{
    int card, slice;

    place_of(device, &card, &slice);
    int error = enter(call, function, card, slice);
    if (!error && card == NO_CARD)
        error = NVML_INVALID_ARGUMENT;
    return error || exists(call) ? error : NVML_GPU_IS_LOST;
}

/* What a slice does not answer. */
static int enter_whole_card(struct call *call, const char *function, nvmlDevice_t device)
{
    int error = enter_device(call, function, device);

    return error || call->slice == WHOLE_CARD ? error : NVML_INVALID_ARGUMENT;
}
